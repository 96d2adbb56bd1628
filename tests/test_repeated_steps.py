"""Steps of the same variables again are those of an optimizer that checks everything anew."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.optimizers.base.contract import OPTIMIZERS
from tfopt.optimizers.execution.rule_optimizer import RuleOptimizer
from tfopt.optimizers.execution.step_plan import StepPlan

RULES = sorted(name for name, kind in OPTIMIZERS.items() if issubclass(kind, RuleOptimizer))


def pair(name: str, **options: Any) -> tuple[Any, Any]:
    """Return an optimizer, and one of a subclass whose steps are prepared each time."""
    kind = OPTIMIZERS[name]

    class Prepared(kind):  # type: ignore[misc, valid-type]
        def _take(self, request: Any) -> None:
            super()._take(request)

    return kind(**options), Prepared(**options)


def variables(kind: str, dtype: str) -> list[Any]:
    arrays = [np.linspace(-1, 1, n).astype(dtype) for n in (5, 1, 0, 12)]
    arrays[3] = arrays[3].reshape(3, 4)
    return [Variable(a) for a in arrays] if kind == "variables" else arrays


def gradients(random: np.random.Generator, of: list[Any]) -> list[np.ndarray]:
    return [random.standard_normal(each.shape).astype(each.dtype) for each in of]


def outcome(step: Any) -> str:
    """Take a step and return its error, without the subclass's name."""
    try:
        step()
    except (tfopt.InvalidArgumentError, tfopt.InvalidTypeError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def odd(what: str, of: list[Any], grads: list[Any], opt: Any) -> list[Any]:
    """Return gradients, or change variables or settings, in a way that needs other checks."""
    array = of[0].numpy() if isinstance(of[0], Variable) else of[0]
    if what == "gradient of another shape":
        grads[3] = grads[3].ravel()
    elif what == "gradient of another dtype":
        grads[0] = grads[0].astype(np.int32)
    elif what == "gradient that is the variable":
        grads[0] = array
    elif what == "gradient that is a part of another variable":
        grads[1] = array[2:3]
    elif what == "strided gradient":
        grads[3] = np.asfortranarray(grads[3])
    elif what == "gradient as a list":
        grads[0] = grads[0].tolist()
    elif what == "rows":
        grads[3] = IndexedSlices(grads[3][:2], np.array([2, 0]))
    elif what == "read-only variable":
        array.flags.writeable = False
    elif what == "another rate":
        opt.learning_rate = 0.125
    elif what == "clipping":
        opt.clipnorm = 0.5
    elif what == "no clipping":
        opt.clipnorm = None
    elif what == "locks":
        opt.use_locking = not opt.use_locking
    elif what == "a report":
        opt.observe = not opt.observe
    elif what == "a restored state":
        opt.set_weights(opt.get_weights())
    return grads


ODD = [
    "gradient of another shape", "gradient of another dtype", "gradient that is the variable",
    "gradient that is a part of another variable", "strided gradient", "gradient as a list", "rows",
    "read-only variable", "another rate", "clipping", "no clipping", "locks",
    "a report", "a restored state", "ordinary",
]  # fmt: skip


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@given(
    st.sampled_from(["variables", "arrays"]),
    st.sampled_from(["pairs", "list", "nested"]),
    st.lists(st.sampled_from(["ordinary", *ODD]), min_size=4, max_size=10),
)
def test_repeated_steps_are_those_that_are_prepared(
    name: str, dtype: str, kind: str, by: str, course: list[str]
) -> None:
    sides = []
    for opt in pair(name):
        of, random, log = variables(kind, dtype), np.random.default_rng(0), []
        for what in ["ordinary", "ordinary", *course]:
            grads = odd(what, of, gradients(random, of), opt)
            if by == "pairs":
                log.append(outcome(lambda: opt.apply_gradients(list(zip(grads, of, strict=True)))))  # noqa: B023
            elif by == "list":
                log.append(outcome(lambda: opt.step(of, grads)))  # noqa: B023
            else:
                params = {"a": of[0], "b": {"c": (of[1],), "d": [of[2], of[3]]}}
                tree = {"b": {"d": [grads[2], grads[3]], "c": (grads[1],)}, "a": grads[0]}
                log.append(outcome(lambda: opt.step(params, tree)))  # noqa: B023
            host = of[0].numpy() if isinstance(of[0], Variable) else of[0]
            host.flags.writeable = True
        sides.append((log, [np.asarray(each) for each in of], opt.get_weights()))
    (log, of, weights), (log_again, of_again, weights_again) = sides
    assert log == log_again
    for a, b in zip([*of, *weights], [*of_again, *weights_again], strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("by", ["pairs", "list"])
def test_the_third_step_is_not_prepared(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opt, of, random = (
        tfopt.optimizers.Adam(),
        variables("arrays", "float32"),
        np.random.default_rng(0),
    )
    taken: list[Any] = []
    repeated = StepPlan.repeated

    def noted(*args: Any) -> Any:
        taken.append(repeated(*args))
        return taken[-1]

    monkeypatch.setattr(StepPlan, "repeated", noted)
    for _ in range(5):
        grads = gradients(random, of)
        if by == "pairs":
            opt.apply_gradients(list(zip(grads, of, strict=True)))
        else:
            opt.step(of, grads)
    assert sum(each is not None for each in taken) >= 2
    assert opt.iterations == 5


def test_gradients_are_not_kept() -> None:
    opt, w = tfopt.optimizers.SGD(), np.ones(3)
    for _ in range(4):
        grad = np.ones(3)
        alive = weakref.ref(grad)
        opt.apply_gradients([(grad, w)])
        del grad
    assert alive() is None


def test_tensors_of_a_repeated_variable_keep_their_values() -> None:
    opt, w = tfopt.optimizers.SGD(0.5), Variable(np.ones(3))
    seen = []
    for _ in range(4):
        seen.append(w + 0 if len(seen) % 2 else w[:])
        opt.apply_gradients([(np.ones(3), w)])
    assert [float(np.asarray(each)[0]) for each in seen] == [1, 0.5, 0, -0.5]


def test_another_structure_with_the_same_variables_is_noticed() -> None:
    opt, a, b = tfopt.optimizers.SGD(0.5), np.zeros(2), np.zeros(2)
    for _ in range(3):
        opt.step({"a": a, "b": b}, {"a": np.ones(2), "b": np.zeros(2)})
    opt.step({"a": b, "b": a}, {"a": np.ones(2), "b": np.zeros(2)})
    assert a.tolist() == [-1.5, -1.5] and b.tolist() == [-0.5, -0.5]
    with pytest.raises(tfopt.InvalidArgumentError, match="differ in structure"):
        opt.step({"a": b, "b": a}, {"a": np.ones(2), "c": np.zeros(2)})


def test_a_traced_step_is_repeated_like_others() -> None:
    opt, w = tfopt.optimizers.Adam(0.5), Variable(np.ones(3))
    other, v = tfopt.optimizers.Adam(0.5), Variable(np.ones(3))

    @tfopt.function
    def train(x: Any) -> Any:
        with tfopt.GradientTape() as tape:
            loss = np.sum(w * w * x)
        opt.apply_gradients([(tape.gradient(loss, w), w)])
        return loss

    for k in range(6):
        train(np.full(3, float(k)))
        other.apply_gradients([(2 * v.numpy() * k, v)])
    assert w.numpy().tobytes() == v.numpy().tobytes() and opt.iterations == 6
