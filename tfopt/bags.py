"""Bags of rows of an embedding table: pooled lookups, and the gradient of the table."""

from __future__ import annotations

import math
import operator
from typing import Any, Self

import numpy as np

from tfopt.core.backends import is_device_array
from tfopt.core.engine import NO_OUT, Op, Operand, apply
from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arrays.coerce import as_array, of_torch
from tfopt.kernels.arrays.csr import check_indices
from tfopt.kernels.update import dedup

__all__ = ["Bags"]

_POOLINGS = "sum", "mean"
#: The dtypes of gradients that a step sums itself.
_SHARED = np.dtype(np.float32), np.dtype(np.float64)
#: The memory of gradients of at most so many bytes, once they are no longer used: new memory is
#: that of the system, which takes longer to give it than the sums take.
_MEMORY, _KEPT = Workspace(), 1 << 26
#: The dtypes of tables, and those in which their rows are added up.
_COMPUTED: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
}


class Bags:
    """The bags of a batch: lists of rows of a table, of which sums or means are looked up.

    `lookup` pools the rows of each bag without copying them. `gradient` adds up the gradients of
    the bags row by row. Neither allocates memory of the size of ids times columns.

    Parameters
    ----------
    ids : array_like of int32 or int64, shape (n,)
        The rows of the table, bag after bag; copied. A row may occur several times, also in one
        bag.
    offsets : array_like of int32 or int64, shape (n_bags,)
        The position in `ids` at which each bag begins: 0 for the first; the last bag ends with the
        ids. A bag that begins where the next one begins is empty.
    n_rows : int
        The number of rows of the table.
    pooling : {"sum", "mean"}
        How the rows of a bag are pooled. An empty bag gives zeros.
    weights : array_like of real numbers, shape (n,), optional
        The weight of each id, which multiplies its row; copied, and used in the dtype in which rows
        are added up. A mean is then the weighted sum divided by the sum of the weights, or zeros if
        that is 0.
    include_last_offset : bool, default False
        Whether `offsets` has one more element, the end of the last bag: the number of ids.

    Attributes
    ----------
    rows : ndarray of int64
        The distinct ids, in the order of their first occurrence.
    n_rows : int
    pooling : str

    Raises
    ------
    InvalidTypeError
        If `ids` or `offsets` are not integers of these dtypes, or `weights` are not real numbers.
    InvalidArgumentError
        If `pooling` is none of these, the numbers of ids and weights differ, or `offsets` do not
        begin with 0, decrease, or go beyond the ids.
    IndexOutOfRangeError
        If an id is not in [0, n_rows).

    See Also
    --------
    tfopt.SparseRows : products of a sparse matrix, of any layout of rows, with weights.

    Notes
    -----
    TensorFlow's ``embedding_lookup_sparse`` and torch's ``EmbeddingBag``, whose offsets these are.

    In a traced function (:func:`tfopt.function`) bags are constants. Look up the bags of each batch
    outside: pass the result of `lookup` to the function, and its gradient to `gradient`.

    Examples
    --------
    Two bags, of three rows and of one:

    >>> import numpy as np
    >>> from tfopt import Bags
    >>> from tfopt.optimizers import SGD
    >>> table = np.arange(10.0).reshape(5, 2)
    >>> bags = Bags([4, 0, 4, 1], [0, 3], len(table))
    >>> bags.lookup(table)
    array([[16., 19.],
           [ 2.,  3.]])

    The gradient of the table has one row for each distinct id:

    >>> gradient = bags.gradient(np.array([[1.0, 1.0], [10.0, 10.0]]))
    >>> gradient.indices, gradient.values
    (array([4, 0, 1]), array([[ 2.,  2.],
           [ 1.,  1.],
           [10., 10.]]))
    >>> _ = SGD(0.1).step(table, gradient)
    >>> table[4]
    array([7.8, 8.8])
    """

    __slots__ = ("_bag", "_counts", "_ids", "_numbered", "_weights", "n_rows", "pooling")

    def __init__(
        self,
        ids: Any,
        offsets: Any,
        n_rows: int,
        pooling: str = "sum",
        weights: Any = None,
        include_last_offset: bool = False,
    ) -> None:
        if pooling not in _POOLINGS:
            raise InvalidArgumentError(f'pooling must be "sum" or "mean", not {pooling!r}')
        self.n_rows = operator.index(n_rows)
        self.pooling = pooling
        self._ids = _integers(ids, "ids")
        check_indices(self._ids, self.n_rows, "ids")
        n = self._ids.size
        begins = _integers(offsets, "offsets")
        _check_offsets(begins, n, include_last_offset)
        ends = begins[1:] if include_last_offset else np.append(begins, n)[1:]
        self._counts: np.ndarray = ends - begins[: ends.size]
        self._bag = np.repeat(np.arange(ends.size, dtype=np.intp), self._counts)
        self._weights = None if weights is None else _real_numbers(weights, n)
        self._numbered: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return self._counts.size

    def __repr__(self) -> str:
        weighted = "" if self._weights is None else ", weighted"
        return (
            f"Bags({len(self)} bags of {self._ids.size} ids, n_rows {self.n_rows}, "
            f"pooling {self.pooling!r}{weighted})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    @property
    def rows(self) -> np.ndarray:
        """The distinct ids, in the order of their first occurrence."""
        return self._distinct()[0]

    def lookup(self, table: Any, out: np.ndarray | None = None) -> Any:
        """Return the pooled rows of each bag.

        Parameters
        ----------
        table : array, Variable or Tensor of floats or complex, shape (n_rows, ...)
            Of 16 bits to double precision, with any strides; a tensor of torch on the CPU, too.
        out : ndarray, optional
            Receives the result, in the dtype of the table; for arrays alone.

        Returns
        -------
        ndarray, or Tensor of a variable or a tensor, shape (n_bags, ...)
            In the dtype of the table. Each row, times its weight, is added to a sum that begins
            with zero, in the order of the ids. 16-bit rows are added up in float32, and the result
            is rounded once. Denormal numbers are kept. A tape records it: the gradient is that of
            `gradient`.

        Raises
        ------
        InvalidTypeError
            If the table has another dtype or is on a GPU, or `out` has another dtype.
        InvalidArgumentError
            If it does not have `n_rows` rows, or `out` has another shape or cannot be written.
        TypeError
            If there is an `out` for a variable or a tensor.
        """
        if isinstance(table, Operand):
            if out is not None:
                raise TypeError(NO_OUT)
            self._check(table, "table", self.n_rows)
            return apply(_LOOKUP, (table,), {"bags": self})
        array = _array(table, "table")
        self._check(array, "table", self.n_rows)
        return _pooled(array, self, out)

    def gradient(self, g: Any) -> IndexedSlices:
        """Return the gradient of the table, given that of what `lookup` returned.

        Parameters
        ----------
        g : array, Variable or Tensor of floats or complex, shape (n_bags, ...)

        Returns
        -------
        IndexedSlices
            One row for each of `rows`, in the dtype of `g`: the sum over its occurrences, in the
            order of the ids, of the gradient of the bag, divided by the bag's number of rows or sum
            of weights if means were looked up, times the weight of the occurrence. 16-bit numbers
            are added up in float32, and the sums are rounded once. Those of an array of float32 or
            float64, without weights, are added up by the step that takes them, or when the values
            are first asked for. Of a variable or a tensor, the values are a tensor, which tapes
            record.

        Raises
        ------
        InvalidTypeError
            If `g` has another dtype, or is on a GPU.
        InvalidArgumentError
            If it does not have a row for each bag.
        """
        given = g if isinstance(g, Operand) else _array(g, "g")
        self._check(given, "g", len(self))
        if isinstance(given, Operand):
            values = apply(_ROWS, (given,), {"bags": self})
        elif self._weights is None and given.dtype in _SHARED and math.prod(given.shape[1:]) > 1:
            return _SummedLater(given, self)
        else:
            values = _of_rows(given, self)
        return IndexedSlices(values, self.rows, (self.n_rows, *given.shape[1:]))

    def _check(self, given: Any, name: str, n: int) -> None:
        if is_device_array(given):
            raise InvalidTypeError(
                f"{name} is on a GPU, where bags are not supported: copy it to the host, or look "
                "rows up with take"
            )
        if np.dtype(given.dtype).name not in _COMPUTED:
            raise InvalidTypeError(
                f"{name} must be floats or complex of at most double precision, not {given.dtype}"
            )
        if not given.dtype.isnative:
            raise InvalidTypeError(f"{name} has the byte-swapped dtype {given.dtype.str}")
        if given.shape[:1] != (n,):
            what = "row of the table" if name == "table" else "bag"
            raise InvalidArgumentError(
                f"{name} must have {n} rows, one for each {what}, not the shape {given.shape}"
            )

    def _distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct ids, and the place of each id among them."""
        if self._numbered is None:
            distinct, place = dedup.distinct_indices(self._ids, Workspace())
            distinct.flags.writeable = False  # gradients share it
            self._numbered = distinct, place
        return self._numbered

    def _among_distinct(self) -> Self:
        """Return the same bags of a table that has the distinct rows alone."""
        made = object.__new__(type(self))
        made.__setstate__(self.__getstate__())
        distinct, made._ids = self._distinct()
        made.n_rows = distinct.size
        made._numbered = None
        return made

    def _divide(self, sums: np.ndarray) -> np.ndarray:
        """Divide a row for each bag, of a contiguous matrix, in place if means are looked up."""
        if self.pooling == "sum":
            return sums
        numbers = sums.view(sums.real.dtype)  # a complex one is two
        if self._weights is None:
            numbers /= np.maximum(self._counts, 1).astype(numbers.dtype)[:, None]
            return sums
        totals = np.empty((len(self), 1), numbers.dtype)
        ones, first = np.ones((1, 1), numbers.dtype), np.zeros(self._ids.size, np.intp)
        dedup.add_rows(ones, self._bag, totals, math.inf, 1.0, first, self._weights)
        none = totals[:, 0] == 0
        totals[none] = 1
        with np.errstate(all="ignore"):
            numbers /= totals
        numbers[none] = 0
        return sums


class _SummedLater(IndexedSlices):
    """The gradient of a table, whose rows are summed by the step that takes it, or when asked for.

    Parameters
    ----------
    g : ndarray of float32 or float64, shape (n_bags, ...)
        Copied, in case that it changes before it is summed.
    bags : Bags
        Without weights.
    """

    __slots__ = ("_bags", "_of_bags", "_summed")

    def __init__(self, g: np.ndarray, bags: Bags) -> None:
        of_bags = np.array(g, order="C")
        bags._divide(of_bags.reshape(len(bags), math.prod(g.shape[1:])))
        self._bags, self._of_bags = bags, of_bags
        self._summed: np.ndarray | None = None
        self.dense_shape = bags.n_rows, *g.shape[1:]

    @property
    def values(self) -> np.ndarray:
        if self._summed is None:
            self._summed = _sums(self._of_bags, self._bags)
        return self._summed

    @values.setter
    def values(self, values: Any) -> None:
        self._summed = values

    @property
    def indices(self) -> np.ndarray:
        return self._bags.rows

    @property
    def dtype(self) -> Any:
        return self._of_bags.dtype

    @property
    def _memory(self) -> np.ndarray:
        return self._of_bags

    def _concrete(self) -> IndexedSlices:
        return self

    def _shared_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        summed = self._summed is not None or not self._of_bags.size
        return None if summed else (self._of_bags, self._bags._bag, self._bags._ids)


def _pooled(table: np.ndarray, bags: Bags, out: np.ndarray | None = None) -> np.ndarray:
    shape, computed = (len(bags), *table.shape[1:]), _COMPUTED[table.dtype.name]
    if out is not None:
        _check_out(out, shape, table.dtype)
    ids, first = bags._ids, table[:1]
    if not (first.flags.c_contiguous and first.flags.aligned):  # rows are not runs of numbers
        distinct, ids = bags._distinct()
        table = table[distinct]
    width = math.prod(shape[1:])
    result = np.empty(shape, computed)
    if out is not None and out.dtype == computed and out.flags.carray:
        result = result if np.may_share_memory(out, table) else out
    rows, sums = table.reshape(len(table), width), result.reshape(len(bags), width)
    dedup.add_rows(rows, bags._bag, sums, math.inf, 1.0, ids, bags._weights)
    bags._divide(sums)
    with np.errstate(over="ignore"):  # rounding to infinity gives no warning
        if out is None:
            return result.astype(table.dtype, copy=False)
        if result is not out:
            out[...] = result
    return out


def _of_rows(g: np.ndarray, bags: Bags) -> np.ndarray:
    computed = _COMPUTED[g.dtype.name]
    divides = bags.pooling == "mean"
    of_bags = np.array(g, computed, order="C", copy=True if divides else None)
    bags._divide(of_bags.reshape(len(bags), math.prod(g.shape[1:])))
    with np.errstate(over="ignore"):
        return _sums(of_bags, bags).astype(g.dtype, copy=False)


def _sums(of_bags: np.ndarray, bags: Bags) -> np.ndarray:
    """Return the sum for each distinct id of the rows of its bags."""
    distinct, place = bags._distinct()
    shape, dtype = (distinct.size, math.prod(of_bags.shape[1:])), of_bags.dtype
    small = math.prod(shape) * dtype.itemsize <= _KEPT
    sums = _MEMORY.array("rows", shape, dtype) if small else np.empty(shape, dtype)
    terms = of_bags.reshape(len(bags), shape[1])
    dedup.add_rows(terms, place, sums, math.inf, 1.0, bags._bag, bags._weights)
    return sums.reshape(distinct.size, *of_bags.shape[1:])


# ---- both are linear: the gradient of each is the other one, of the rows that there are

_LOOKUP = Op("BagsLookup", _pooled, label="Bags.lookup")
_LOOKUP.define(lambda g, y, table, bags: bags.gradient(g))
_ROWS = Op("BagsGradient", _of_rows, label="Bags.gradient")
_ROWS.define(lambda g, y, of_bags, bags: bags._among_distinct().lookup(g))


# ---- arguments


def _array(value: Any, name: str) -> Any:
    return value if is_device_array(value) else as_array(value, name)


def _listed(value: Any, name: str) -> np.ndarray:
    array = of_torch(value, name)
    found = np.asarray(value) if array is None else np.asarray(array)
    if found.ndim != 1:
        raise InvalidArgumentError(
            f"{name} must be one-dimensional, not of the shape {found.shape}"
        )
    return found


def _integers(value: Any, name: str) -> np.ndarray:
    """Return a copy, in which no other thread changes anything."""
    found = _listed(value, name)
    if found.size and found.dtype not in (np.int32, np.int64):
        raise InvalidTypeError(f"{name} must be int32 or int64, not {found.dtype}")
    return np.array(found, np.intp)


def _real_numbers(value: Any, n: int) -> np.ndarray:
    if isinstance(value, Operand):
        raise InvalidTypeError(
            "weights have no gradient, so they must be an array, not a variable or a tensor: pass "
            "their numpy()"
        )
    found = _listed(value, "weights")
    if found.size and found.dtype.kind not in "fiub" and found.dtype.name != "bfloat16":
        raise InvalidTypeError(f"weights must be real numbers, not {found.dtype}")
    if found.size != n:
        raise InvalidArgumentError(f"there are {found.size} weights for {n} ids")
    return np.array(found, np.float64)


def _check_offsets(begins: np.ndarray, n: int, with_last: bool) -> None:
    if begins.size and begins[0] != 0:
        raise InvalidArgumentError(f"offsets must begin with 0, not {begins[0]}")
    falls = np.flatnonzero(begins[1:] < begins[:-1])
    if falls.size:
        k = falls[0] + 1
        raise InvalidArgumentError(
            f"offsets must not decrease, but offsets[{k}] is {begins[k]}, less than {begins[k - 1]}"
        )
    last = begins[-1] if begins.size else 0
    if with_last and (not begins.size or last != n):
        raise InvalidArgumentError(
            f"the last offset must be the number of ids, {n}, not {last if begins.size else 'none'}"
        )
    if last > n:
        raise InvalidArgumentError(f"offsets go to {last}, but there are {n} ids")
    if n and not begins.size:
        raise InvalidArgumentError(f"there are {n} ids, but no offsets, where bags begin")


def _check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not isinstance(out, np.ndarray) or out.dtype != dtype:
        found = getattr(out, "dtype", type(out).__name__)
        raise InvalidTypeError(f"out must be an array of {dtype}, as the table, not {found}")
    if out.shape != shape:
        raise InvalidArgumentError(f"out must have the shape {shape}, not {out.shape}")
    if not out.flags.writeable:
        raise InvalidArgumentError("out is read-only")
