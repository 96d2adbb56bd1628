"""Refusals of clipping: their errors and messages; nothing is written."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.clip_cases import array_of

import tfopt
from tfopt.kernels.update import clip

INVALID, TYPE = "InvalidArgumentError", "InvalidTypeError"
NONE = "Attempt to convert a value (None) with an unsupported type (<class 'NoneType'>)"
A = np.arange(6, dtype=np.float32).reshape(2, 3)

Call = Callable[[np.ndarray], Any]
Refused = tuple[str, Call, str, str]


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def misaligned(array: np.ndarray) -> np.ndarray:
    bytes_ = np.zeros(array.nbytes + 1, np.uint8)
    moved = bytes_[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def value(low: Any, high: Any, dtype: str = "float32") -> Call:
    if dtype == "float32":
        return lambda a: tfopt.clip_by_value(a, low, high, out=a)
    return lambda a: tfopt.clip_by_value(a.astype(dtype), low, high)


def norm(*args: Any, **kwargs: Any) -> Call:
    return lambda a: tfopt.clip_by_norm(a, *args, out=a, **kwargs)


def many(*args: Any, **kwargs: Any) -> Call:
    return lambda a: tfopt.clip_by_global_norm([a], *args, out=[a], **kwargs)


def of(t: Any, out: Any = None) -> Call:
    """Clip something else; the array is what must not change."""
    return lambda a: tfopt.clip_by_norm(t(a), 1, out=a if out is None else out(a))


ALLOWED = "half, bfloat16, float, double"
VALUE: list[Refused] = [
    ("bool", lambda a: tfopt.clip_by_value(a > 1, 0, 1), TYPE, "Value for attr 'T' of bool"),
    ("str", lambda a: tfopt.clip_by_value(["a"], 0, 1), TYPE, "is not in the list of allowed"),
    ("byte-swapped", lambda a: tfopt.clip_by_value(a.astype(">f4"), 0, 1), TYPE,
     "t has the byte-swapped dtype >f4"),
    ("byte-swapped columns", lambda a: tfopt.clip_by_norm(a.T.astype(">f8"), 1), TYPE,
     "t has the byte-swapped dtype >f8"),
    ("complex", lambda a: tfopt.clip_by_value(a + 1j, 0, 1), TYPE, "attr 'T' of complex64"),
    ("None", lambda a: tfopt.clip_by_value(None, 0, 1), TYPE, NONE),
    ("None bound", value(0, None), TYPE, NONE),
    ("None lower bound", value(None, 0), TYPE, NONE),
    ("str bound", value(0, "a"), TYPE, "Cannot convert 'a' to a tensor of dtype float32"),
    ("complex bound", value(0, 1j), TYPE, "Cannot convert 1j"),
    ("float bounds of int", value(-3.5, 3.1, "int32"), TYPE, "Cannot convert 3.1"),
    ("integral float bound of int", value(3.0, 4, "int32"), TYPE, "Cannot convert 3.0"),
    ("float32 bound of int", value(np.float32(1.7), 4, "int32"), TYPE, "Maximum as input #1"),
    ("negative bound of uint8", value(-1, 4, "uint8"), INVALID, "between 0 and 255"),
    ("large bound of int8", value(0, 300, "int8"), INVALID, "between -128 and 127"),
    ("bounds of int32, one of them huge", value(np.array([-(2**40), 0]), 9, "int32"), INVALID,
     "clip_value_min must be between"),
    ("huge bound of int32", value(0, 2**40, "int32"), INVALID, "clip_value_max must be between"),
    ("huge int64 array", value(np.int64([2**40]), 0, "int32"), INVALID, "clip_value_min must be"),
    (
        "float64 bound", value(0, np.zeros(3)), TYPE,
        "cannot compute Minimum as input #1(zero-based) was expected to be a float tensor but is a "
        "double tensor",
    ),
    (
        "float64 lower bound", value(np.float64(0), np.float32(1)), TYPE,
        "cannot compute Maximum as input #1(zero-based) was expected to be a float tensor but is a "
        "double tensor",
    ),
    ("float16 bound", value(0, np.float16(1)), TYPE, "but is a half tensor"),
    ("bool bound", value(0, np.bool_(True)), TYPE, "but is a bool tensor"),
    ("bound that enlarges", value(0, np.zeros((1, 2, 3), "f4")), INVALID,
     "Shapes (2, 3) and (1, 2, 3) are incompatible"),
    ("lower bound that enlarges", value(np.zeros((2, 2, 3), "f4"), 0), INVALID,
     "Shapes (2, 3) and (2, 2, 3) are incompatible"),
    ("bound that does not broadcast", value(np.zeros((1, 1, 2), "f4"), 0), INVALID,
     "Incompatible shapes: [2,3] vs. [1,1,2]"),
    ("scalar with a bound of shape (1,)", lambda a: tfopt.clip_by_value(1.0, [0.0], 1), INVALID,
     "Shapes () and (1,) are incompatible"),
    ("column with a row", lambda a: tfopt.clip_by_value(a[:, :1], [0, 0, 0], 1), INVALID,
     "Shapes (2, 1) and (2, 3) are incompatible"),
    ("empty with a full bound", lambda a: tfopt.clip_by_value(a[0, :0], [0, 0, 0], 1), INVALID,
     "Incompatible shapes: [0] vs. [3]"),
    ("full with an empty bound", lambda a: tfopt.clip_by_value(a[0, :1], [], 1), INVALID,
     "Shapes (1,) and (0,) are incompatible"),
    ("ragged list", lambda a: tfopt.clip_by_value([[1.0], [1.0, 2.0]], 0, 1), INVALID, "t: "),
    ("ragged bound", value([[1.0], [1.0, 2.0]], 0), INVALID, "clip_value_min: "),
    ("fused op's bounds", lambda a: tfopt.raw_ops.ClipByValue(
        t=a, clip_value_min=np.zeros(3, "f4"), clip_value_max=np.float32(3)), INVALID,
     "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. "
     "input shape: [2,3]clip_value_min shape: [3]clip_value_max shape: []"),
    ("fused op's dtype", lambda a: tfopt.raw_ops.ClipByValue(
        t=a, clip_value_min=np.zeros(()), clip_value_max=np.float32(3)), TYPE,
     "cannot compute ClipByValue"),
    ("integers' loss", lambda a: tfopt.raw_ops.L2Loss(t=[1, 2]), TYPE, f"values: {ALLOWED}"),
]  # fmt: skip
NORM: list[Refused] = [
    ("int", of(lambda a: a.astype(int)), TYPE, "attr 'T' of int64"),
    ("complex", of(lambda a: a + 1j), TYPE, "attr 'T' of complex64"),
    ("None", of(lambda a: None), TYPE, NONE),
    ("object", of(lambda a: object()), TYPE, "t must be a numpy.ndarray"),
    ("masked", of(np.ma.masked_array), TYPE, "without a mask"),
    ("byte-swapped", of(lambda a: a.astype(">f4")), TYPE, "byte-swapped"),
    ("misaligned", of(misaligned), INVALID, "not aligned"),
    ("None limit", norm(None), TYPE, NONE),
    ("str limit", norm("1"), TYPE, "clip_norm must be a real number"),
    ("complex limit", norm(1j), TYPE, "clip_norm must be a real number"),
    ("ragged limit", norm([[1.0], [1.0, 2.0]]), INVALID, "clip_norm: "),
    ("limit that does not broadcast", norm(np.zeros(4)), INVALID,
     "Incompatible shapes: [2,3] vs. [4]"),
    ("limit that enlarges", norm(np.zeros((1, 2, 3))), INVALID,
     "Shapes (2, 3) and (1, 2, 3) are incompatible"),
    ("axis twice", norm(1, [1, 1]), INVALID,
     "Invalid reduction arguments: Axes contains duplicate dimension: 1"),
    ("axis by both names", norm(1, [0, -2]), INVALID, "duplicate dimension: 0"),
    ("no such axis", norm(1, 2), INVALID,
     "Invalid reduction dimension (2 for input with 2 dimension(s)"),
    ("no such negative axis", norm(1, [-3]), INVALID, "Invalid reduction dimension (-3"),
    ("str axis", norm(1, "a"), TYPE, "is not in the list of allowed values: int32, int64"),
    ("float axis", norm(1, 1.0), TYPE, "Value for attr 'Tidx' of float64"),
    ("policy", norm(1, nonfinite="nan"), INVALID, 'must be "propagate", "raise" or "skip"'),
]  # fmt: skip
OUT: list[Refused] = [
    ("list out", of(np.copy, lambda a: a.tolist()), TYPE, "out must be a numpy.ndarray"),
    ("out of another dtype", of(np.copy, lambda a: a.astype(float)), TYPE,
     "out must have the tensor's dtype float32, not float64"),
    ("out of another shape", of(np.copy, np.transpose), INVALID,
     "out must have the tensor's shape (2, 3), not (3, 2)"),
    ("read-only out", of(np.copy, read_only), INVALID, "out is read-only"),
    ("misaligned out", of(np.copy, misaligned), INVALID, "out is not aligned"),
    ("byte-swapped out", of(np.copy, lambda a: a.astype(">f4")), TYPE, "not >f4"),
    ("overlapping out", of(lambda a: a.ravel()[:4], lambda a: a.ravel()[1:5]), INVALID,
     "out overlaps in memory"),
    ("reversed out", of(lambda a: a[::-1]), INVALID, "out overlaps in memory"),
    ("out that overlaps itself", of(np.copy, lambda a: np.lib.stride_tricks.as_strided(
        np.zeros(9, "f4"), (2, 3), (4, 4))), INVALID, "overlaps itself"),
]  # fmt: skip
MANY: list[Refused] = [
    *((name, lambda a, t=t: tfopt.global_norm(t(a)), TYPE,
       "`t_list` should be a sequence of tensors. Received <class")
      for name, t in {
          "generator": lambda a: (x for x in [a]), "array": lambda a: a, "str": lambda a: "abc",
          "dict": lambda a: {}, "set": lambda a: set(), "bytes": lambda a: b"abc",
      }.items()),
    ("generator to clip", lambda a: tfopt.clip_by_global_norm((x for x in [a]), 1), TYPE,
     "`t_list` should be a sequence of tensors. Received <class 'generator'>."),
    ("two dtypes", lambda a: tfopt.global_norm([a, None, a.astype(float)]), TYPE,
     "cannot compute Pack as input #1(zero-based) was expected to be a float tensor but is a "
     "double tensor"),
    ("two dtypes to clip", lambda a: tfopt.clip_by_global_norm([a, a.astype("f2")], 1), TYPE,
     "but is a half tensor"),
    *((f"a norm as {dtype}", lambda a, d=dtype: tfopt.global_norm([a], dtype=d), TYPE, message)
      for dtype, message in {
          "int64": "dtype must be one of float16, bfloat16, float32, float64, not int64",
          "complex64": "dtype must be one of", "no such": "must be a float dtype, not 'no such'",
      }.items()),
    ("a float64 norm into float32",
     lambda a: tfopt.global_norm([a], out=np.zeros((), "f4"), dtype="float64"), TYPE, "out"),
    ("ints", lambda a: tfopt.global_norm([[1, 2]]), TYPE,
     f"Value for attr 'T' of int32 is not in the list of allowed values: {ALLOWED}"),
    *((f"{dtype} arrays", lambda a, d=dtype: tfopt.global_norm([a.astype(d)] * 2), TYPE, message)
      for dtype, message in {
          "int64": f"Value for attr 'T' of int64 is not in the list of allowed values: {ALLOWED}",
          "complex64": "Value for attr 'T' of complex64", "bool": "Value for attr 'T' of bool",
          "float128": "Value for attr 'T' of float128",
          ">f4": "t_list has the byte-swapped dtype >f4",
          ">f8": "t_list has the byte-swapped dtype >f8",
      }.items()),
    ("misaligned arrays", lambda a: tfopt.global_norm([misaligned(a)]), INVALID,
     "t_list is not aligned"),
    ("str", lambda a: tfopt.global_norm(["a"]), TYPE, "is not in the list of allowed values"),
    ("None limit", many(None), TYPE, NONE),
    ("str limit", many("a"), TYPE, "clip_norm must be a real number, not 'a'"),
    ("vector limit", many([1.0, 2.0]), INVALID, "clip_norm must be a scalar, not of shape (2,)"),
    ("str norm", many(1, "a"), TYPE, "use_norm must be a real number"),
    ("vector norm", many(1, [1.0]), INVALID, "use_norm must be a scalar"),
    ("negative norm", many(1, -10.0), INVALID, "use_norm must not be negative: -10.0"),
    ("negative infinite norm", many(1, -np.inf), INVALID, "must not be negative: -inf"),
    ("policy", many(1, nonfinite=None), INVALID, 'must be "propagate", "raise" or "skip"'),
    ("out that is no list", lambda a: tfopt.clip_by_global_norm([a], 1, out=a), INVALID,
     "out must be a list of 1 results"),
    ("out of another length", lambda a: tfopt.clip_by_global_norm([a], 1, out=[]), INVALID,
     "out must be a list of 1 results"),
    ("out where None is", lambda a: tfopt.clip_by_global_norm([a, None], 1, out=[a, a]), INVALID,
     "out must be None where the tensor is None"),
    ("an out twice", lambda a: tfopt.clip_by_global_norm([a, a], 1, out=[a, a]), INVALID,
     "out overlaps in memory"),
    ("an out that is another tensor",
     lambda a: tfopt.clip_by_global_norm([a[:1], a[1:]], 1, out=[a[1:], np.zeros((1, 3), "f4")]),
     INVALID, "out overlaps in memory"),
    ("norm into another dtype", lambda a: tfopt.global_norm([a.astype("f2")], out=a[0, 0:1][0:1]),
     TYPE, "tensor's dtype float16"),
    ("norm into an array", lambda a: tfopt.global_norm([a], out=a[0]), INVALID,
     "out must have the tensor's shape ()"),
]  # fmt: skip
AVERAGE: list[Refused] = [
    ("slices without a shape",
     lambda a: tfopt.clip_by_average_norm(tfopt.IndexedSlices(a, [0, 1]), 1), INVALID,
     "dense_shape"),
    ("slices of another shape",
     lambda a: tfopt.clip_by_average_norm(tfopt.IndexedSlices(a, [0, 1], (2, 2)), 1), INVALID,
     "are not rows of an array of shape (2, 2)"),
    ("slices out of range",
     lambda a: tfopt.clip_by_average_norm(tfopt.IndexedSlices(a, [0, 2], (2, 3)), 1), INVALID,
     "out of range [0, 2)"),
    ("ints", lambda a: tfopt.clip_by_average_norm([1, 2], 1), TYPE, "attr 'T' of int32"),
    ("vector limit", lambda a: tfopt.clip_by_average_norm(a, [1, 2, 3]), INVALID, "scalar"),
]  # fmt: skip
GRADIENTS: list[Refused] = [
    ("shape", lambda a: tfopt.clip_grads.clip_by_value_grad(a[0], a, 0, 1), INVALID,
     "grad must have t's dtype float32 and shape (2, 3), not float32 and (3,)"),
    ("dtype", lambda a: tfopt.clip_grads.clip_by_norm_grad(a.astype(float), a, 1), INVALID,
     "grad must have t's dtype float32"),
    ("bound", lambda a: tfopt.clip_grads.clip_by_value_grad(a, a, [[0.0]] * 3, 1), INVALID,
     "Incompatible shapes"),
    ("limit", lambda a: tfopt.clip_grads.clip_by_norm_grad(a, a, [1, 2]), INVALID,
     "Incompatible shapes"),
    ("axis", lambda a: tfopt.clip_grads.clip_by_norm_grad(a, a, 1, 5), INVALID,
     "Invalid reduction dimension"),
]  # fmt: skip
GROUPS = {
    "value": VALUE, "norm": NORM, "out": OUT, "many": MANY, "average": AVERAGE, "grad": GRADIENTS,
}  # fmt: skip
CASES = [
    pytest.param(call, error, message, id=f"{group}-{name}")
    for group, cases in GROUPS.items()
    for name, call, error, message in cases
]


@pytest.mark.parametrize(("call", "error", "message"), CASES)
def test_refused(call: Call, error: str, message: str) -> None:
    array = A.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(getattr(tfopt, error), match=re.escape(message)) as caught:
            call(array)
    assert type(caught.value).__name__ == error
    assert array.tobytes() == A.tobytes()


def test_arrays_that_lie_close_are_told_from_those_that_overlap() -> None:
    """Views of one buffer, as frameworks keep gradients; one read twice is no fault."""
    buffer = array_of(np.arange(1, 22), "float32")
    views = [buffer[0:3], buffer[3:4], buffer[4:11], buffer[11:11], buffer[11:21]]
    expected, _ = tfopt.clip_by_global_norm([v.copy() for v in views], 1)
    tfopt.clip_by_global_norm(views, 1, out=views)
    assert np.concatenate(expected).tobytes() == buffer.tobytes()
    even, odd = buffer[:20:2], buffer[1:20:2]
    tfopt.clip_by_global_norm([even, even], 1, out=[odd, np.zeros(10, np.float32)])


@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 1), (1, 3)])
def test_kernels_refuse_arrays_of_other_shapes(shape: tuple[int, ...]) -> None:
    """Which the functions never pass them."""
    out, other = np.ones(3), np.ones(shape)
    calls: list[Callable[[], Any]] = [
        lambda: clip.scale_call([out], [other], 0.5, 1.0, False),
        lambda: clip.scale_call([other], [out], 0.5, 1.0, False),
        lambda: clip.scale_call([out, out], [out, other], 0.5, 1.0, False),
        *(
            lambda function=function, k=k: function(*(other if j == k else out for j in range(4)))
            for function in (clip.scale_each_call, clip.clamp_call)
            for k in range(4 if function is clip.scale_each_call else 2)
        ),
    ]
    for call in calls:
        with pytest.raises(tfopt.InvalidArgumentError, match="the shape of its input"):
            call()
