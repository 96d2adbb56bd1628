"""Refusals of clipping on a GPU: their messages; nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from devices import DEVICE, HostArray

import tfopt
from tfopt.errors import InvalidArgumentError, InvalidTypeError

A = np.arange(6, dtype=np.float32).reshape(2, 3)
ALLOWED = "half, bfloat16, float, double"


def to(array: Any, dtype: str = "float32") -> Any:
    return DEVICE.to(np.asarray(array, dtype))


def value(low: Any, high: Any) -> Callable[[Any], Any]:
    return lambda t: tfopt.clip_by_value(t, low, high, out=t)


def norm(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda t: tfopt.clip_by_norm(t, *args, out=t, **kwargs)


def many(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda t: tfopt.clip_by_global_norm([t], *args, out=[t], **kwargs)


def into(out: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Clip another tensor into what is made of the first, which must not change."""
    return lambda t: tfopt.clip_by_norm(to(A), 0.1, out=out(t))


def halves(t: Any) -> tuple[Any, Any]:
    return DEVICE.part(t, slice(0, 1)), DEVICE.part(t, slice(1, 2))


def pairs(t: Any) -> tuple[Any, Any]:
    """Return the first two elements and the second two, which overlap."""
    row = DEVICE.part(t, 0)
    return DEVICE.part(row, slice(0, 2)), DEVICE.part(row, slice(1, 3))


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    # what is clipped
    "integers' norm": (
        lambda t: tfopt.clip_by_norm(to([1, 2], "int32"), 1), InvalidTypeError,
        f"Value for attr 'T' of int32 is not in the list of allowed values: {ALLOWED}",
    ),
    "integers' loss": (
        lambda t: tfopt.raw_ops.L2Loss(t=to([1], "int64")), InvalidTypeError, "attr 'T' of int64",
    ),
    "columns": (
        lambda t: tfopt.clip_by_norm(DEVICE.part(t, np.s_[:, ::2]), 1), InvalidArgumentError,
        "t is not contiguous: arrays on a GPU must be",
    ),
    "a list that is an array": (
        lambda t: tfopt.global_norm(t), InvalidTypeError, "`t_list` should be a sequence",
    ),
    "an array of the host beside others": (
        lambda t: tfopt.clip_by_global_norm([t, A], 0.1, out=[t, t]), InvalidTypeError,
        "t_list must be an array on the GPU, like the first tensor, not ndarray on the host",
    ),
    "an array on a GPU beside those of the host": (
        lambda t: tfopt.clip_by_global_norm([A, t], 0.1), InvalidTypeError, "t_list is on a GPU",
    ),
    "several dtypes": (
        lambda t: tfopt.clip_by_global_norm([t, to([1], "float64")], 0.1), InvalidTypeError,
        "cannot compute Pack as input #1(zero-based) was expected to be a float tensor but is a "
        "double tensor",
    ),
    "average of slices": (
        lambda t: tfopt.clip_by_average_norm(tfopt.IndexedSlices(t, np.array([0, 0]), (4, 3)), 1),
        InvalidTypeError, "on a GPU",
    ),
    "sums of rows": (
        lambda t: tfopt.IndexedSlices(t, np.array([0, 0])).sum_duplicates(), InvalidTypeError,
        "cannot sum rows on a GPU",
    ),
    # bounds
    "float64 bound": (
        value(0, np.float64(1)), InvalidTypeError, "cannot compute Minimum as input #1(zero-based)",
    ),
    "float64 bounds on the GPU": (
        value(0, to(np.ones((2, 3)), "float64")), InvalidTypeError, "but is a double tensor",
    ),
    "bounds that broadcast": (
        value(to(np.ones(3)), 0), InvalidArgumentError,
        "on a GPU clip_value_min must be a number or have t's shape (2, 3), not (3,)",
    ),
    "bounds of the host": (
        value(np.ones((2, 3), np.float32), 0), InvalidArgumentError,
        "clip_value_min must be a number or an array on the GPU, like t, not a host array of",
    ),
    "bounds that are not contiguous": (
        value(DEVICE.part(to(np.ones((2, 6))), np.s_[:, ::2]), 0), InvalidArgumentError,
        "clip_value_min is not contiguous",
    ),
    "None": (value(None, 1), InvalidTypeError, "Attempt to convert a value (None)"),
    "a bound on the GPU for an array of the host": (
        lambda t: tfopt.clip_by_value(A, DEVICE.to(A), 1), InvalidTypeError,
        "clip_value_min is on a GPU",
    ),
    "the fused op's": (
        lambda t: tfopt.raw_ops.ClipByValue(t=t, clip_value_min=to([1]), clip_value_max=1),
        InvalidArgumentError, "clip_value_min must be a number or have t's shape",
    ),
    # limits
    "limits of the host": (
        norm(np.ones(3)), InvalidArgumentError, "clip_norm must be a number or an array on the GPU",
    ),
    "limits of another shape": (
        norm(to(np.ones(3)), [0]), InvalidArgumentError,
        "on a GPU clip_norm must be a number or have the norms' shape (1, 3), not (3,)",
    ),
    "limits of another dtype": (
        norm(to(np.ones((1, 3)), "float64"), [0]), InvalidTypeError, "must have t's dtype float32",
    ),
    "a limit for many on the GPU": (
        many(to(1)), InvalidTypeError, "clip_norm is on a GPU",
    ),
    "a limit on the GPU for an array of the host": (
        lambda t: tfopt.clip_by_norm(A, to(1)), InvalidTypeError, "clip_norm is on a GPU",
    ),
    "axis twice": (norm(0.1, [1, 1]), InvalidArgumentError, "contains duplicate dimension: 1"),
    "policy": (norm(0.1, nonfinite="nan"), InvalidArgumentError, 'must be "propagate", "raise"'),
    "policy for many": (many(0.1, nonfinite="nan"), InvalidArgumentError, 'must be "propagate"'),
    "negative norm": (many(0.1, -1.0), InvalidArgumentError, "use_norm must not be negative: -1"),
    "norms": (many(0.1, to([1.0])), InvalidArgumentError, "use_norm is not a scalar: [1]"),
    "integer norm": (many(0.1, to(1, "int32")), InvalidTypeError, "use_norm must be of floats"),
    # results
    "out of the host": (
        into(lambda t: A), InvalidTypeError, "out must be an array on the GPU, like the tensor",
    ),
    "out of another dtype": (
        into(lambda t: to(A, "float64")), InvalidTypeError,
        "out must have the tensor's dtype float32",
    ),
    "out of another shape": (
        into(lambda t: DEVICE.part(t, slice(0, 1))), InvalidArgumentError,
        "out must have the tensor's shape (2, 3), not (1, 3)",
    ),
    "out that is not contiguous": (
        lambda t: tfopt.clip_by_norm(to(np.ones((2, 2))), 0.1, out=DEVICE.part(t, np.s_[:, ::2])),
        InvalidArgumentError, "out is not contiguous",
    ),
    "out that is no list": (
        lambda t: tfopt.clip_by_global_norm([t], 0.1, out=t), InvalidArgumentError,
        "out must be a list of 1 results",
    ),
    "out for None": (
        lambda t: tfopt.clip_by_global_norm([t, None], 0.1, out=[t, t]), InvalidArgumentError,
        "out must be None where the tensor is None",
    ),
    "a norm's out": (
        lambda t: tfopt.global_norm([t], out=t), InvalidArgumentError, "tensor's shape (), not",
    ),
    "one out for two": (
        lambda t: tfopt.clip_by_global_norm([to(A), to(A)], 0.1, out=[t, t]), InvalidArgumentError,
        "out overlaps in memory",
    ),
    "outs that are each other's tensors": (
        lambda t: tfopt.clip_by_global_norm([*halves(t)], 0.1, out=[*halves(t)[::-1]]),
        InvalidArgumentError, "out overlaps in memory",
    ),
    "a tensor that begins in another's out": (
        lambda t: tfopt.clip_by_global_norm([*pairs(t)], 0.1, out=[pairs(t)[0], to([0, 0])]),
        InvalidArgumentError, "out overlaps in memory",
    ),
    "an out that begins in bounds": (
        lambda t: tfopt.clip_by_value(to([1, 2]), pairs(t)[0], 9, out=pairs(t)[1]),
        InvalidArgumentError, "out overlaps in memory",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:clip_by_average_norm is deprecated")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, error, message = REFUSED[name]
    t = DEVICE.to(A + 1)
    with pytest.raises(error, match=re.escape(message)):
        call(t)
    np.testing.assert_array_equal(DEVICE.back(t), A + 1)


def test_bounds_may_be_the_result() -> None:
    low = to([3, 3])
    clipped = tfopt.clip_by_value(to([1, 5]), low, 9, out=low)
    np.testing.assert_array_equal(DEVICE.back(clipped), [3, 5])


@pytest.mark.skipif(DEVICE.name != "host", reason="GPU libraries have no read-only arrays")
def test_read_only_arrays() -> None:
    values = np.full(2, 3, np.float32)
    values.flags.writeable = False
    t = HostArray(values)
    with pytest.raises(InvalidArgumentError, match="out is read-only"):
        tfopt.clip_by_norm(t, 1.0, out=t)
    np.testing.assert_array_equal(tfopt.clip_by_norm(t, 0.0).array, 0)


@pytest.mark.skipif(DEVICE.name != "host", reason="of a library that makes arrays")
def test_arrays_of_which_no_other_can_be_made() -> None:
    class Plain:
        def __init__(self, array: HostArray) -> None:
            self.__cuda_array_interface__ = array.__cuda_array_interface__
            self.array = array

    t = Plain(to([3, 4]))
    with pytest.raises(InvalidTypeError, match="allocate a result for Plain: pass out"):
        tfopt.clip_by_norm(t, 1.0)
    tfopt.clip_by_norm(t, 1.0, out=t)
    np.testing.assert_allclose(DEVICE.back(t.array), [0.6, 0.8])
