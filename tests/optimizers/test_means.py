"""The weighted mean of structures: bits, order of the members, skipped ones, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import LAYOUTS, assert_same_bits, lay_out
from common.clip_cases import FLOATS, numbers
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt.errors import InvalidArgumentError, InvalidTypeError, NotFiniteError
from tfopt_ref import means as twin

POLICIES = ("raise", "skip", "propagate")


def models(n: int, dtype: Any = np.float64) -> list[dict[str, Any]]:
    random = np.random.default_rng(n)
    return [
        {"w": random.normal(size=(3, 4)).astype(dtype), "b": [random.normal(size=2).astype(dtype)]}
        for _ in range(n)
    ]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
def test_bits(dtype: str, layout: str, data: st.DataObject) -> None:
    """Of the specification, for any members, layout, number of threads and place of the result."""
    n, size = data.draw(st.integers(1, 8)), data.draw(st.sampled_from([0, 1, 7, 33, 1025, 40000]))
    few = data.draw(st.lists(numbers(dtype), min_size=1, max_size=9))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))

    def member() -> np.ndarray:
        kind = np.dtype(tfopt_dtype(dtype))
        values = random.choice(np.array(few, np.float64), size)
        with np.errstate(all="ignore"):
            return lay_out(values.astype(kind), layout)

    members = [member() for _ in range(n)]
    base = data.draw(st.sampled_from([None, "other", "a member"]))
    base = members[-1] if base == "a member" else base and member()
    weights = data.draw(
        st.none() | st.lists(st.sampled_from([0.0, 1.0, 1e-3, 7.0]), min_size=n, max_size=n)
    )
    weights = None if weights is not None and not any(weights) else weights
    policy = data.draw(st.sampled_from(POLICIES))
    flush = data.draw(st.booleans())
    tfopt.threads.set_num_threads(data.draw(st.integers(1, 3)))
    tfopt.set_flush_denormals(flush)
    twin.operand.__globals__["set_flush_denormals"](flush)
    with np.errstate(all="ignore"):
        expected, bad = twin.weighted_mean(members, weights, base=base, nonfinite=policy)
    remaining = ~bad if weights is None else ~bad & (np.array(weights) > 0)
    out = data.draw(st.sampled_from([None, "other", "base", "a member"]))
    out = {
        None: None,
        "other": lay_out(np.full(size, 3, expected.dtype), layout),
        "base": base,
        "a member": members[n // 2] if base is None or base.dtype == members[0].dtype else None,
    }[out]
    before = None if out is None else out.copy()
    if bad.any() and (policy == "raise" or (policy == "skip" and not remaining.any())):
        with pytest.raises(NotFiniteError):
            tfopt.weighted_mean(members, weights, base=base, out=out, nonfinite=policy)
        if out is not None:
            assert_same_bits(out, before, "refused")
        return
    made = tfopt.weighted_mean(members, weights, base=base, out=out, nonfinite=policy)
    assert out is None or made.mean is out
    assert_same_bits(np.asarray(made.mean), expected, "mean")
    assert (made.nonfinite == bad).all()


def tfopt_dtype(name: str) -> Any:
    if name == "bfloat16":
        ml_dtypes = pytest.importorskip("ml_dtypes")
        return ml_dtypes.bfloat16
    return name


def test_a_structure_is_averaged_leaf_by_leaf_and_steps_a_model() -> None:
    clients, base = models(5), models(1)[0]
    mean, bad = tfopt.weighted_mean(clients, [1, 2, 3, 4, 5], base=base)
    assert not bad.any() and mean.keys() == base.keys()
    for leaf, expected in ((mean["w"], "w"), (mean["b"][0], "b")):
        every = [c["w"] if expected == "w" else c["b"][0] for c in clients]
        below = (base["w"] if expected == "w" else base["b"][0]) - every
        np.testing.assert_allclose(leaf, np.average(below, axis=0, weights=[1, 2, 3, 4, 5]))
    tfopt.optimizers.SGD(1.0).step(base, mean)
    np.testing.assert_allclose(
        base["w"], np.average([c["w"] for c in clients], axis=0, weights=[1, 2, 3, 4, 5])
    )


def test_dtypes_of_one_model_may_differ() -> None:
    members = [{"a": np.float64([k]), "b": np.float32([k])} for k in range(3)]
    mean = tfopt.weighted_mean(members).mean
    assert mean["a"].dtype == np.float64 and mean["b"].dtype == np.float32
    mean = tfopt.weighted_mean([np.float16([1]), np.float32([2])], base=np.float32([0])).mean
    assert mean.dtype == np.float32 and mean[0] == -1.5


def test_a_member_that_is_skipped_might_as_well_be_absent() -> None:
    members = models(4)
    members[2]["w"][0, 0] = np.inf
    mean, bad = tfopt.weighted_mean(members, [1, 2, 9, 3], nonfinite="skip")
    rest = tfopt.weighted_mean([members[k] for k in (0, 1, 3)], [1, 2, 3]).mean
    np.testing.assert_allclose(mean["w"], rest["w"], rtol=1e-15)
    assert bad.tolist() == [False, False, True, False]


class OnAGpu:
    """An array in a device's memory."""

    __cuda_array_interface__: dict[str, Any] = {"shape": (3, 4), "typestr": "<f8", "version": 3}
    shape, dtype = (3, 4), np.dtype(float)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no members": (lambda m: (m[:0],), InvalidArgumentError, "at least one structure"),
    "an iterator": (lambda m: (iter(m),), InvalidArgumentError, "list or tuple"),
    "weights of two": (lambda m: (m, [1, 2]), InvalidArgumentError, "one number for each member"),
    "negative": (lambda m: (m, [1, -1, 1]), InvalidArgumentError, "not negative"),
    "NaN": (lambda m: (m, [1, np.nan, 1]), InvalidArgumentError, "finite"),
    "zeros": (lambda m: (m, [0, 0, 0]), InvalidArgumentError, "not all zero"),
    "words": (lambda m: (m, ["a", "b", "c"]), InvalidTypeError, "real numbers"),
    "structures": (lambda m: ([*m[:2], {"w": m[2]["w"]}],), InvalidArgumentError, "structure"),
    "names": (lambda m: ([*m[:2], {"w": 0, "c": [0]}],), InvalidArgumentError, "structure"),
    "shapes": (lambda m: ([*m[:2], {**m[2], "w": np.zeros(3)}],), InvalidArgumentError, "shapes"),
    "types": (
        lambda m: ([*m[:2], {**m[2], "w": np.zeros((3, 4), np.float32)}],),
        InvalidTypeError,
        "float64 cannot be mixed",
    ),
    "integers": (
        lambda m: ([{**each, "w": np.zeros((3, 4), int)} for each in m],),
        InvalidTypeError,
        "int64",
    ),
    "rows": (
        lambda m: ([{**e, "w": tfopt.IndexedSlices(e["w"], [0, 1, 2])} for e in m],),
        InvalidTypeError,
        "dense arrays",
    ),
    "a GPU": (
        lambda m: ([{**each, "w": OnAGpu()} for each in m],),
        InvalidTypeError,
        "dense arrays on the host",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_writes_nothing(case: str) -> None:
    make, error, message = REFUSED[case]
    members, out = models(3), models(1)[0]
    before = out["w"].copy(), out["b"][0].copy()
    arguments = make(members)
    with pytest.raises(error, match=message):
        tfopt.weighted_mean(*arguments, out=out)
    assert (out["w"] == before[0]).all() and (out["b"][0] == before[1]).all()


def test_results_that_cannot_be_written_are_refused() -> None:
    members = models(3)
    for wrong, error in (
        ({"w": members[0]["w"]}, InvalidArgumentError),
        ({"w": np.zeros((4, 3)), "b": [np.zeros(2)]}, InvalidArgumentError),
        ({"w": np.zeros((3, 4), np.float32), "b": [np.zeros(2)]}, InvalidTypeError),
    ):
        with pytest.raises(error):
            tfopt.weighted_mean(members, out=wrong)
    both = np.zeros(13)
    overlapping = {"w": both[:12].reshape(3, 4), "b": [both[11:]]}
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        tfopt.weighted_mean(members, out=overlapping)
    assert not both.any()
    with pytest.raises(InvalidArgumentError, match="nonfinite"):
        tfopt.weighted_mean(members, nonfinite="drop")


def test_variables_and_traces() -> None:
    """Variables are read and written; a trace computes anew in each call, and has no out."""
    members = [tfopt.Variable(np.float32([k, 2 * k])) for k in (1, 3)]
    out = tfopt.Variable(np.zeros(2, np.float32))
    assert tfopt.weighted_mean(members, out=out).mean is out
    assert out.numpy().tolist() == [2, 4]

    @tfopt.function
    def mean(x: Any) -> Any:
        made = tfopt.weighted_mean(members)
        return made.mean * x

    assert np.asarray(mean(np.float32(1))).tolist() == [2, 4]
    members[0].assign(np.float32([5, 6]))
    assert np.asarray(mean(np.float32(2))).tolist() == [8, 12]

    @tfopt.function
    def into(x: Any) -> Any:
        tfopt.weighted_mean(members, out=out)
        return x

    with pytest.raises(InvalidArgumentError, match="traced"):
        into(np.float32(1))
    with tfopt.GradientTape() as tape, pytest.raises(InvalidTypeError, match="tape"):
        tape.watch(members[0])
        tfopt.weighted_mean(members)
