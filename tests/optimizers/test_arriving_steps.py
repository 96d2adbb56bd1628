"""Steps whose gradients arrive: the bits of a step with all of them, in whatever order."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.interrupted import MAKERS, interrupting, raising_at
from common.step_cases import every_optimizer, everything, gradients, params
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt import IndexedSlices, InvalidArgumentError, InvalidTypeError, Variable
from tfopt.optimizers import (
    SGD,
    Adam,
    AdamW,
    ArrivedStep,
    GradientAccumulation,
    LossScaleOptimizer,
    Mirror,
    ParameterGroups,
    PreparedStep,
    StepRequest,
    WeightAverage,
    Wrapper,
)

LIMITS: dict[str, dict[str, Any]] = {
    "no limit": {},
    "global norm": {"global_clipnorm": 0.25},
    "own norms": {"clipnorm": 0.25},
    "values and norm": {"clipvalue": 0.5, "global_clipnorm": 0.25},
    "true rows": {"merge": "before", "global_clipnorm": 0.25},
    "aggregated": {"gradient_aggregator": lambda pairs: pairs[::-1], "global_clipnorm": 0.25},
    "transformed": {"gradient_transformers": [lambda pairs: pairs]},
    "locked": {"use_locking": True, "global_clipnorm": 0.25},
}


def narrowed(grads: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return some of the gradients in 16 bits, as of a model that computes in them."""
    if seed % 2:
        return grads
    narrow = {"table": ml_dtypes.bfloat16, "bound": np.float16}
    return {
        name: IndexedSlices(grad.values.astype(narrow[name]), grad.indices)
        if name in narrow and isinstance(grad, IndexedSlices)
        else grad
        for name, grad in grads.items()
    }


def exact(grads: dict[str, Any]) -> float:
    return float(tfopt.global_norm(list(grads.values()), dtype=np.float64))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("which", every_optimizer())
@given(data=st.data())
def test_any_order_has_the_bits_of_a_step_with_all(
    which: str, limit: str, data: st.DataObject
) -> None:
    """In one bucket or many, of one step after another, with plain steps between them."""
    make = every_optimizer(**LIMITS[limit])[which]
    optimizer, variables = make(), params(constrained=which != "Mirror")
    other, same = make(), params(constrained=which != "Mirror")
    arriving = optimizer.arriving(variables)
    for seed in range(4):
        grads = narrowed({**gradients(variables, seed)}, seed)
        if "bound" in grads:
            grads["bound"] = np.array([0.25, -0.5]) * (seed + 1)
        asked = {"grad_scale": 0.75} if data.draw(st.booleans()) else {}
        before = int(other.iterations)
        other.step(same, grads, **asked)
        if data.draw(st.integers(0, 3)) == 0:
            optimizer.step(variables, grads, **asked)
        else:
            for name in data.draw(st.permutations([*grads])):
                arriving.add(name, grads[name], copy=data.draw(st.booleans()))
            assert arriving.missing == arriving.nonfinite == ()
            report = arriving.take(**asked)
            assert report.norm == exact(grads) and report.nonfinite == ()
            assert report.counted == (int(other.iterations) > before)
            assert arriving.missing == tuple(variables)
        assert everything(optimizer, variables) == everything(other, same)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("wraps", [lambda o: o, Mirror, WeightAverage, LossScaleOptimizer])
@pytest.mark.parametrize("n", [1, 300, 200_000])
def test_a_clip_reads_no_gradient_again(dtype: Any, wraps: Any, n: int) -> None:
    """If one is changed after it has arrived, the factor is still that of what arrived."""
    if dtype == np.float64 and wraps is Mirror:
        dtype = np.float32
    kind = np.float64 if dtype == np.float64 else np.float32
    random = np.random.default_rng(n)
    variables = {name: np.zeros(n, kind) for name in "ab"}
    grads = {name: random.standard_normal(n).astype(dtype) for name in "ab"}
    optimizer = wraps(SGD(1.0, global_clipnorm=0.5))
    scale = 2.0**-15 if wraps is LossScaleOptimizer else 1.0
    for _ in range(2):
        for each in variables.values():
            each[:] = 0
        arriving = optimizer.arriving(variables)
        for name in "ba":
            arriving.add(name, grads[name])
        sent = {name: grad.copy() for name, grad in grads.items()}
        for grad in grads.values():
            grad[:] = 1
        report = arriving.take()
        factor = min(1.0, 0.5 / (exact(sent) * scale)) * scale
        assert report.clipped == (factor < scale)
        for each in variables.values():
            np.testing.assert_allclose(each, -factor, rtol=1e-5)
        grads = sent


def test_the_report_says_what_was_clipped() -> None:
    w = {"a": np.zeros(2)}
    for limit, norm, expected in ((10.0, 5.0, False), (5.0, 5.0, False), (2.0, 5.0, True)):
        for optimizer in (
            SGD(1.0, global_clipnorm=limit), SGD(1.0, clipnorm=limit),
            Mirror(Adam(1.0, global_clipnorm=limit)), tfopt.optimizers.Adafactor(clipnorm=limit),
            ParameterGroups(SGD(1.0), [(".", SGD(1.0, global_clipnorm=limit))]),
        ):  # fmt: skip
            arriving = optimizer.arriving(w)
            arriving.add("a", np.array([3.0, 4.0]))
            assert arriving.norm == norm
            assert arriving.take() == ArrivedStep(norm, expected, (), True)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_what_is_not_finite_is_named(bad: float, dtype: Any) -> None:
    variables = {name: np.ones(3, dtype) for name in "abc"}
    good, spoiled = np.full(3, 1e-3, dtype), np.array([1, bad, 1], dtype)
    inside = Adam(0.5, global_clipnorm=1.0)
    optimizer = LossScaleOptimizer(inside, 4.0)
    arriving = optimizer.arriving(variables)
    optimizer.step(variables, dict.fromkeys(variables, good))
    before = everything(inside, variables)
    arriving.add("b", spoiled)
    assert arriving.nonfinite == ("b",)
    for name in "ca":
        arriving.add(name, good)
    norm = arriving.norm
    report = arriving.take()
    assert np.array_equal(report.norm, norm, equal_nan=True) and not math.isfinite(norm)
    assert report.nonfinite == ("b",) and not report.counted
    assert everything(inside, variables) == before and float(optimizer.dynamic_scale) == 2
    for name in "cab":
        arriving.add(name, good)
    assert arriving.take().counted


def test_large_float64_is_finite() -> None:
    """Its squares are not, so that the norm takes another pass."""
    w, huge = {"a": np.zeros(2), "b": np.zeros(1)}, np.array([3e200, 4e200])
    arriving = SGD(1.0, global_clipnorm=1.0).arriving(w)
    arriving.add("b", np.zeros(1))
    arriving.add("a", huge)
    assert arriving.nonfinite == () and arriving.norm == pytest.approx(5e200, rel=1e-15)
    assert arriving.take().clipped
    np.testing.assert_allclose(w["a"], [-0.6, -0.8])


def test_complex_gradients_arrive() -> None:
    w = {"z": np.zeros((2, 2), np.complex64).T, "x": np.zeros(1)}
    arriving = SGD(1.0).arriving(w)
    arriving.add("x", np.array([12.0]))
    arriving.add("z", np.complex64([[3 + 4j, 0], [0, 0]]))
    assert arriving.take() == ArrivedStep(13.0, False, (), True)
    assert w["z"][0, 0] == -3 - 4j


# ---- what is refused

Wrong = Callable[[Any], Any]
WRONG: dict[str, tuple[Wrong, str]] = {
    "an unknown name": (lambda s: s.add("other", np.ones(5)), "there is no entry 'other'"),
    "a path": (lambda s: s.add(("dense", 0), np.ones(5)), "there is no entry 'dense/0'"),
    "twice": (lambda s: s.add("dense", np.ones(5)), "of dense has arrived before"),
    "a shape": (lambda s: s.add("half", np.ones(4, np.float16)), "half: "),
    "a dtype": (lambda s: s.add("table", np.ones((6, 2), np.float64)), "table: "),
    "rows": (
        lambda s: s.add("table", IndexedSlices(np.ones((1, 2), np.float32), np.array([9]))),
        "table: ",
    ),
    "a width": (
        lambda s: s.add("table", IndexedSlices(np.ones((1, 3), np.float32), np.array([0]))),
        "table: ",
    ),
    "None": (lambda s: s.add("half", None), "is None: leave it out"),
    "text": (lambda s: s.add("half", "abc"), "half"),
    "too early": (lambda s: s.take(), "gradients of 'table', 'half', 'column' have not arrived"),
    "another way": (lambda s: s.take(missing="ignore"), 'missing must be "raise" or "skip"'),
    "a scale": (lambda s: s.take(grad_scale=0), "grad_scale must be"),
    "a norm": (lambda s: s.take(use_norm=1.0), "use_norm would change nothing"),
}


@pytest.mark.parametrize("which", every_optimizer())
def test_what_is_refused_changes_nothing(which: str) -> None:
    """Neither the optimizer nor what has arrived: the step is then that of the gradients."""
    optimizer, variables = every_optimizer()[which](), params()
    other, same = every_optimizer()[which](), params()
    arriving = optimizer.arriving(variables)
    for seed in range(2):
        grads, before = gradients(variables, seed), everything(optimizer, variables)
        arriving.add("dense", grads["dense"])
        for call, message in WRONG.values():
            with pytest.raises((InvalidArgumentError, InvalidTypeError), match=message):
                call(arriving)
            assert everything(optimizer, variables) == before
            assert arriving.missing == ("table", "half", "column")
        for name in ("half", "column", "table"):
            arriving.add(name, grads[name])
        arriving.take()
        other.step(same, grads)
        assert everything(optimizer, variables) == everything(other, same)
    with pytest.raises(InvalidArgumentError, match="no gradient has arrived"):
        arriving.take(missing="skip")


def test_entries_that_cannot_arrive_are_refused() -> None:
    w = np.zeros(2)
    with pytest.raises(InvalidArgumentError, match="two entries of the structure have the name"):
        SGD().arriving({"a": [w], "a/0": w.copy()})
    with pytest.raises(InvalidTypeError, match="a must be a numpy"):
        SGD().arriving({"a": 3})
    arriving = SGD().arriving({f"layer{k}": np.zeros(1) for k in range(20)})
    arriving.add("layer3", np.ones(1))
    with pytest.raises(InvalidArgumentError, match="'layer5' and 14 more have not arrived"):
        arriving.take()
    with pytest.raises(InvalidArgumentError, match="'layer4' and 15 more"):
        arriving.add("layer", np.ones(1))
    variable = Variable(w, "w")

    @tfopt.function
    def traced() -> None:
        SGD().arriving([variable]).add(0, np.ones(2))

    with pytest.raises(InvalidArgumentError, match="traced function do not arrive"):
        traced()


def test_a_refused_step_keeps_its_gradients() -> None:
    rates: list[float] = []
    w = {"a": np.ones(2), "b": np.ones(1)}
    optimizer = Adam(lambda step: rates[0], global_clipnorm=1.0)
    arriving = optimizer.arriving(w)
    for name, each in w.items():
        arriving.add(name, np.ones_like(each))
    before = everything(optimizer, w)
    with pytest.raises(IndexError):
        arriving.take()
    assert everything(optimizer, w) == before and arriving.missing == ()
    rates.append(0.5)
    assert arriving.take().counted and int(optimizer.iterations) == 1
    arriving.add("a", np.ones(2))
    arriving.drop()
    assert arriving.missing == ("a", "b")


@interrupting
@pytest.mark.parametrize("which", MAKERS)
def test_an_interrupted_step_is_taken_once(which: str) -> None:
    """Ctrl-C comes anywhere: the gradients are there exactly if the step has not been taken."""

    def begun() -> tuple[Any, dict[str, Any], Any]:
        optimizer, variables = MAKERS[which](), params()
        if which.startswith("catching up"):
            del variables["half"]
        arriving = optimizer.arriving(variables)
        optimizer.step(variables, gradients(variables, 1))
        for name, grad in gradients(variables, 2).items():
            arriving.add(name, grad)
        return optimizer, variables, arriving

    optimizer, variables, arriving = begun()
    before = everything(optimizer, variables, True)
    arriving.take()
    after = everything(optimizer, variables, True)
    optimizer, variables, arriving = begun()
    event = 1
    while True:
        raising_at(event, arriving.take)
        found = everything(optimizer, variables, True)
        assert found == (before if arriving.missing == () else after), f"at event {event}"
        if found == after:
            assert arriving.missing == tuple(variables)
            break
        event += 5


# ---- users' ways


def test_threads_add_gradients() -> None:
    variables = {f"w{k}": np.zeros(1000, np.float32) for k in range(64)}
    grads = {name: np.full(1000, k, np.float32) for k, name in enumerate(variables)}
    optimizer = AdamW(0.125, global_clipnorm=1.0)
    arriving, faults = optimizer.arriving(variables), []
    for _ in range(3):
        barrier = threading.Barrier(8)

        def hook(part: list[str], barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            for name in part:
                try:
                    arriving.add(name, grads[name])
                except Exception as error:
                    faults.append(error)

        names = [*variables]
        threads = [threading.Thread(target=hook, args=(names[k::8],)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert arriving.take().norm == exact(grads)
    assert not faults and int(optimizer.iterations) == 3


def test_one_of_two_threads_takes_the_step() -> None:
    w = np.zeros(2)
    optimizer = SGD(1.0, gradient_aggregator=lambda pairs: waits() or pairs)
    inside, let_go = threading.Event(), threading.Event()

    def waits() -> None:
        inside.set()
        let_go.wait(10)

    arriving = optimizer.arriving({"w": w})
    arriving.add("w", np.ones(2))
    thread = threading.Thread(target=arriving.take)
    thread.start()
    inside.wait(10)
    for call in (arriving.take, arriving.drop, partial(arriving.add, "w", np.ones(2))):
        with pytest.raises(InvalidArgumentError, match="the step is being taken"):
            call()
    let_go.set()
    thread.join()
    assert w.tolist() == [-1, -1] and arriving.missing == ("w",)


def test_skipped_variables_are_those_without_a_gradient() -> None:
    made = [params(), params()]
    first, second = Adam(0.5, global_clipnorm=0.25), Adam(0.5, global_clipnorm=0.25)
    grads = gradients(made[0], 1)
    arriving = first.arriving(made[0])
    for name in ("half", "dense"):
        arriving.add(name, grads[name])
    arriving.take(missing="skip")
    second.step(made[1], {**grads, "table": None, "column": None})
    assert everything(first, made[0]) == everything(second, made[1])


def test_nested_entries_have_paths() -> None:
    variables = {"layers": [{"w": np.zeros(2)}, {"w": np.zeros(2)}], "head": np.zeros(1)}
    arriving = SGD(1.0).arriving(variables)
    arriving.add(("layers", 1, "w"), np.ones(2))
    arriving.add("layers/0/w", np.ones(2))
    arriving.add("head", np.ones(1))
    arriving.take()
    assert variables["layers"][1]["w"].tolist() == [-1, -1] and variables["head"].tolist() == [-1]
    listed = [np.zeros(1), np.zeros(1)]
    arriving = SGD(1.0).arriving(listed)
    for k in (1, 0):
        arriving.add(k, np.ones(1))
    arriving.take()
    assert listed == [-1, -1]


def test_a_buffer_that_is_used_again_is_copied() -> None:
    w = {"a": np.zeros(3), "b": np.zeros((4, 1))}
    arriving, buffer = SGD(1.0).arriving(w), np.ones(3)
    arriving.add("a", buffer, copy=True)
    buffer[:] = 7
    rows = np.array([1])
    arriving.add("b", IndexedSlices(buffer[:1].reshape(1, 1), rows), copy=True)
    buffer[:], rows[:] = 9, 0
    arriving.take()
    assert w["a"].tolist() == [-1, -1, -1] and w["b"].ravel().tolist() == [0, -7, 0, 0]


def test_shards_are_clipped_by_the_norm_of_all() -> None:
    whole, optimizer = params(), Adam(0.5, global_clipnorm=0.25)
    grads = gradients(whole, 3)
    optimizer.step(whole, grads)
    pieces = params()
    shards = [{"dense": pieces["dense"], "half": pieces["half"]}, pieces]
    shards[1] = {name: pieces[name] for name in ("table", "column")}
    steps = [Adam(0.5, global_clipnorm=0.25).arriving(shard) for shard in shards]
    for step, shard in zip(steps, shards, strict=True):
        for name in shard:
            step.add(name, grads[name])
    total = math.hypot(*(step.norm for step in steps))
    assert total == pytest.approx(exact(grads), rel=1e-15)
    for step in steps:
        assert step.take(use_norm=total).clipped
    for name in whole:
        wide = [np.asarray(each[name], np.float64) for each in (whole, pieces)]
        np.testing.assert_allclose(*wide, rtol=1e-3)


def test_a_run_is_resumed_between_arrivals(tmp_path: Any) -> None:
    """What has arrived is not in the state; the rest is."""
    variables, optimizer = params(), Mirror(AdamW(0.5, global_clipnorm=0.25))
    arriving = optimizer.arriving(variables)
    for seed in range(2):
        for name, grad in reversed(gradients(variables, seed).items()):
            arriving.add(name, grad)
        arriving.take()
    arriving.add("dense", gradients(variables, 2)["dense"])
    optimizer.save(tmp_path / "state.npz", variables)
    again = copy.deepcopy(variables)
    resumed = Mirror(AdamW(0.5, global_clipnorm=0.25))
    resumed.load(tmp_path / "state.npz", again)
    other = resumed.arriving(again)
    for name, grad in gradients(variables, 2).items():
        other.add(name, grad)
        if name != "dense":
            arriving.add(name, grad)
    assert arriving.take() == other.take()
    assert everything(optimizer, variables)[2] == everything(resumed, again)[2]


class Scaled(Wrapper):
    """Multiplies gradients, as a user's wrapper does."""

    def __init__(self, optimizer: Any, name: str = "Scaled") -> None:
        super().__init__(optimizer, name)

    def prepare(self, request: StepRequest) -> PreparedStep:
        return self.optimizer.prepare(request.replace(scale=request.scale / 8))


@pytest.mark.parametrize("steps", [1, 3])
def test_wrappers_compose(steps: int) -> None:
    def made() -> tuple[Any, dict[str, Any]]:
        inside = LossScaleOptimizer(AdamW(0.5, global_clipnorm=0.25), 4.0)
        return Mirror(Scaled(GradientAccumulation(WeightAverage(inside), steps))), params()

    (optimizer, variables), (other, same) = made(), made()
    arriving = optimizer.arriving(variables)
    for seed in range(2 * steps):
        grads = gradients(variables, seed)
        for name in sorted(grads):
            arriving.add(name, grads[name])
        counted = arriving.take().counted
        other.step(same, grads)
        assert counted == ((seed + 1) % steps == 0)
        assert everything(optimizer, variables) == everything(other, same)


def test_hooks_of_torch_send_gradients() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model = model.to(torch.bfloat16)
    masters = {k: p.detach().float().numpy().copy() for k, p in model.named_parameters()}
    plain = {k: w.copy() for k, w in masters.items()}
    optimizer, other = (Mirror(AdamW(0.01, global_clipnorm=0.125)) for _ in range(2))
    arriving = optimizer.arriving(masters)
    for k, p in model.named_parameters():
        half = optimizer.mirror(masters[k])
        p.data = torch.from_numpy(half.view(np.int16)).view(torch.bfloat16)
        p.register_post_accumulate_grad_hook(lambda p, k=k: arriving.add(k, p.grad))
    x = torch.randn(32, 8, dtype=torch.bfloat16)
    for _ in range(3):
        model(x).square().mean().backward()
        grads = {k: p.grad for k, p in model.named_parameters()}
        report = arriving.take()
        other.step(plain, grads)
        assert report.counted and report.norm == exact(
            {k: g.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for k, g in grads.items()}
        )
        for p in model.parameters():
            p.grad = None
    weights, _, state = everything(optimizer, masters)
    assert (weights, state) == everything(other, plain)[::2]
