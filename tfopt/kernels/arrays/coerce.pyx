"""Conversion and validation of single arguments: arrays and numbers."""

import sys

import numpy as np

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport Py_INCREF

from tfopt.imports import bfloat16
from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.layout cimport BFLOAT16, FLOAT16, NATIVE, SIGNED8
from tfopt.kernels.platform.dlpack cimport COMPLEX, FLOAT, HOST, described
from tfopt.kernels.platform.halves cimport CODES
from tfopt.kernels.platform.shared_numbers cimport share_int, shared_int
from tfopt.kernels.platform.step_types cimport MAX_DIMS

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

#: The formats of blocks of codes, in the order of storage types: what files, the storage of an
#: optimizer and its slots call them, and the dtype. A new one takes a row here, a storage type in
#: layout.pxd, and its functions in conversions.pxi, or in dynamic_codes.pxi for all sets at once.
BLOCK_FORMATS = (
    ("signed8", "8bit", "signed",
     np.dtype([("unit", np.float32), ("codes", np.int8, (CODES,))])),
    ("positive8", "8bit", "positive",
     np.dtype([("unit", np.float32), ("codes", np.uint8, (CODES,))])),
    ("signed4", "4bit", "signed",
     np.dtype([("absmax", np.float32, (2,)), ("codes", np.uint8, (CODES // 2,))])),
    ("positive4", "4bit", "positive",
     np.dtype([("max", np.float32, (2,)), ("codes", np.uint8, (CODES // 2,))])),
    # those of bitsandbytes
    ("dynamic8", "dynamic8bit", "signed",
     np.dtype([("absmax", np.float32), ("codes", np.uint8, (CODES,))])),
    ("positive_dynamic8", "dynamic8bit", "positive",
     np.dtype([("max", np.float32), ("codes", np.uint8, (CODES,))])),
)
#: The storage type of the first.
FIRST_BLOCK_FORMAT = SIGNED8

cdef tuple _blocks = tuple(zip(*BLOCK_FORMATS))[3]     # the dtypes
cdef int _bfloat16 = -1     # ml_dtypes' type number, set when one is first seen


def _listed(shape):
    return "[" + ",".join(map(str, shape)) + "]"


cdef str shape_of(object array):
    """The shape of an array, in TensorFlow's format."""
    return _listed(array.shape)


cdef object _wrong_type(str name, value, str expected):
    return InvalidTypeError(f"{name} must be {expected}, not {type(value).__name__}")


cdef int read_scalar(object value, str name, double *into) except -1:
    """Read a hyperparameter: a real number, a NumPy scalar or a 0-d array."""
    if PyFloat_Check(value):
        into[0] = PyFloat_AS_DOUBLE(value)
        return 0
    shape = getattr(value, "shape", None)
    if shape is None and isinstance(value, (list, tuple)):
        shape = (len(value),)
    if shape:
        raise InvalidArgumentError(f"{name} is not a scalar: {_listed(shape)}")
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        into[0] = float(value)
    except (TypeError, ValueError):
        raise _wrong_type(name, value, "a real number") from None
    except OverflowError:
        raise InvalidArgumentError(f"{name} is too large for a float") from None
    return 0


cpdef cnp.ndarray as_array(object value, str name):
    """The array itself, or an array that shares the memory of another object."""
    if cnp.PyArray_CheckExact(value):
        return value
    if isinstance(value, np.ndarray):
        masked = sys.modules.get("numpy.ma")
        if masked is not None and isinstance(value, masked.MaskedArray):
            raise _wrong_type(name, value, "an array without a mask")
        return value
    cdef object array = of_torch(value, name)
    if array is not None:
        return array
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
            return np.from_dlpack(value)
        return np.asarray(value, copy=False)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        if hasattr(value, "__cuda_array_interface__"):
            raise InvalidTypeError(f"{name} is on a GPU, var is not") from None
        raise _wrong_type(name, value, "a numpy.ndarray, or share memory with one") from None


cpdef object of_torch(object value, str name):
    """An array that shares the memory of a tensor of torch; None for anything else.

    What an array cannot say of a tensor is refused, with what to do about it.
    """
    cdef object torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, getattr(torch, "Tensor", ())):
        return None
    cdef str device = value.device.type
    cdef object fault = None
    if device == "cuda":
        fault = "is on a GPU, var is not"
    elif device == "meta":
        fault = "has no values: it is on the device meta of torch"
    elif device != "cpu":
        fault = f"is on the device {device} of torch: cpu() copies it to the host"
    elif value.layout is not torch.strided:
        fault = f"is a tensor of the layout {value.layout}: pass its to_dense()"
    elif value.requires_grad:
        fault = "requires a gradient in torch: pass its detach(), which shares the memory"
    elif value.is_conj():
        fault = "is conjugated only where torch reads it: pass its resolve_conj()"
    elif value.is_neg():
        fault = "is negated only where torch reads it: pass its resolve_neg()"
    if fault is not None:
        raise InvalidTypeError(f"{name} {fault}")
    try:
        if value.dtype is torch.bfloat16:
            return value.view(torch.int16).numpy().view(bfloat16())
        return value.numpy()
    except ImportError:
        raise InvalidTypeError(
            f"{name} is bfloat16, for which NumPy needs the package ml_dtypes: install it"
        ) from None
    except TypeError:
        raise InvalidTypeError(
            f"{name} is {value.dtype}, which NumPy does not have: convert it, as float() does"
        ) from None
    except RuntimeError as error:
        raise InvalidTypeError(f"{name} cannot be shared with NumPy: {error}") from None


cdef int refuse_layout(cnp.ndarray a, str name, bint written) except -1:
    """Raise the error for an array that cannot be read, or written, in place."""
    if not cnp.PyArray_ISNOTSWAPPED(a):
        raise InvalidTypeError(f"{name} has the byte-swapped dtype {a.dtype.str}")
    if not cnp.PyArray_ISALIGNED(a):
        raise InvalidArgumentError(f"{name} is not aligned to its items")
    if written:
        raise InvalidArgumentError(f"{name} is read-only")
    return 0


cdef int storage_of(cnp.ndarray a) except -2:
    """The storage type of an operand, or -1 if its dtype is not supported."""
    cdef int typenum = cnp.PyArray_TYPE(a)
    if typenum in (cnp.NPY_FLOAT32, cnp.NPY_FLOAT64, cnp.NPY_COMPLEX64, cnp.NPY_COMPLEX128):
        return NATIVE
    if typenum == cnp.NPY_FLOAT16:
        return FLOAT16
    if typenum == shared_int(&_bfloat16):
        return BFLOAT16
    if cnp.PyTypeNum_ISUSERDEF(typenum) and a.dtype.name == "bfloat16":
        share_int(&_bfloat16, typenum)
        return BFLOAT16
    return -1


cdef int block_storage_of(cnp.ndarray a) except -1:
    """The storage type of a slot of codes in blocks, or NATIVE."""
    if cnp.PyArray_TYPE(a) != cnp.NPY_VOID:
        return NATIVE
    cdef object dtype = a.descr
    cdef int k
    for k in range(len(_blocks)):
        if dtype is _blocks[k]:     # to compare fields takes a hundred times as long
            return SIGNED8 + k
    return SIGNED8 + _blocks.index(dtype) if dtype in _blocks else NATIVE


def memory_address(cnp.ndarray array not None):
    """The address of the memory of which an array is a view."""
    cdef object base = (<object>array).base
    while isinstance(base, np.ndarray):
        array = base
        base = (<object>array).base
    return <size_t>cnp.PyArray_DATA(array)


def placement(cnp.ndarray array not None):
    """The address of the first element, the shape, the strides and the dtype.

    (``ctypes.data`` makes an object for the address, which takes ten times as long.)
    """
    cdef object a = array
    return <size_t>cnp.PyArray_DATA(array), a.shape, a.strides, a.dtype


def all_plain(list arrays not None):
    """Whether there are only arrays of one NumPy float dtype that can be read in place.

    This checks a thousand tensors in the time in which Python checks twenty.
    """
    cdef Py_ssize_t t
    cdef cnp.dtype dtype = None
    cdef object a
    for t in range(len(arrays)):
        a = arrays[t]
        if not cnp.PyArray_CheckExact(a):
            return False
        if dtype is None:
            dtype = (<cnp.ndarray>a).descr
            if dtype.type_num not in (cnp.NPY_FLOAT16, cnp.NPY_FLOAT32, cnp.NPY_FLOAT64):
                return False
        if (<cnp.ndarray>a).descr is not dtype \
                or not cnp.PyArray_CHKFLAGS(<cnp.ndarray>a, cnp.NPY_ARRAY_ALIGNED):
            return False
    return dtype is None or bool(cnp.PyArray_ISNOTSWAPPED(<cnp.ndarray>arrays[0]))


# ---- arrays of other libraries

include "dlpack.pxi"
