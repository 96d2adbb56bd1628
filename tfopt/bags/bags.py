"""The bags of a batch."""

from __future__ import annotations

import math
import operator
from typing import Any, Self

import numpy as np

from tfopt.bags.arguments import array_of, check_offsets, integers, real_numbers
from tfopt.bags.on_host import COMPUTED, LOOKUP, ROWS, OnHost, computed_in, pooled
from tfopt.bags.summed_later import Beside, SummedLater
from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.engine import NO_OUT, Operand, apply
from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arrays.csr import check_indices
from tfopt.kernels.update import dedup

__all__ = ["Bags"]

_POOLINGS = "sum", "mean"


class Bags:
    """The bags of a batch: lists of rows of a table, of which sums or means are looked up.

    `lookup` pools the rows of each bag without copying them. `gradient` adds up the gradients of
    the bags row by row. Neither allocates memory of the size of ids times columns.

    Parameters
    ----------
    ids : array_like of int32 or int64, shape (n,)
        The rows of the table, bag after bag; copied, from a GPU to the host. A row may occur
        several times, also in one bag.
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

    Bags of a table on a GPU copy their ids there when it is first looked up, and nothing waits for
    the GPU to check them. Complex tables must be on the host.

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

    #: What a pickle has; copies on GPUs are not kept.
    _KEPT = "_bag", "_counts", "_ids", "_numbered", "_weights", "n_rows", "pooling"
    __slots__ = (*_KEPT, "_there")

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
        self._ids = integers(ids, "ids")
        check_indices(self._ids, self.n_rows, "ids")
        n = self._ids.size
        begins = integers(offsets, "offsets")
        check_offsets(begins, n, include_last_offset)
        ends = begins[1:] if include_last_offset else np.append(begins, n)[1:]
        self._counts: np.ndarray = ends - begins[: ends.size]
        self._bag = np.repeat(np.arange(ends.size, dtype=np.intp), self._counts)
        self._weights = None if weights is None else real_numbers(weights, n)
        self._numbered: tuple[np.ndarray, np.ndarray] | None = None
        self._there: dict[Any, Any] = {}

    def __len__(self) -> int:
        return self._counts.size

    def __repr__(self) -> str:
        weighted = "" if self._weights is None else ", weighted"
        return (
            f"Bags({len(self)} bags of {self._ids.size} ids, n_rows {self.n_rows}, "
            f"pooling {self.pooling!r}{weighted})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._KEPT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._there = {}

    @property
    def rows(self) -> np.ndarray:
        """The distinct ids, in the order of their first occurrence."""
        return self._distinct()[0]

    def lookup(self, table: Any, out: np.ndarray | None = None) -> Any:
        """Return the pooled rows of each bag.

        Parameters
        ----------
        table : array, Variable or Tensor of floats or complex, shape (n_rows, ...)
            Of 16 bits to double precision, with any strides; a tensor of torch, too. An array on a
            GPU must be contiguous and real.
        out : array, optional
            Receives the result, in the dtype of the table; for arrays alone. Of a table on a GPU
            it is there, too, contiguous, and apart from the table.

        Returns
        -------
        array, or Tensor of a variable or a tensor, shape (n_bags, ...)
            Of a table on a GPU an array of its library, there. In the dtype of the table. Each row,
            times its weight, is added to a sum that begins with zero, in the order of the ids.
            16-bit rows are added up in float32, and the result is rounded once. Denormal numbers
            are kept. A tape records it: the gradient is that of `gradient`.

        Raises
        ------
        InvalidTypeError
            If the table has another dtype, or is a variable on a GPU, or `out` has another dtype.
        InvalidArgumentError
            If it does not have `n_rows` rows, or `out` has another shape or cannot be written.
        TypeError
            If there is an `out` for a variable or a tensor.
        """
        if isinstance(table, Operand):
            if out is not None:
                raise TypeError(NO_OUT)
            self._check(table, "table", self.n_rows)
            return apply(LOOKUP, (table,), {"bags": self})
        array = array_of(table, "table")
        self._check(array, "table", self.n_rows)
        if is_device_array(array):
            return backend_of(array).BagsBeside(self, array, "table").lookup(out)
        return pooled(array, self, out)

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
            float64, or of any on a GPU, without weights, are added up by the step that takes them,
            or when the values are first asked for. Of a variable or a tensor, the values are a
            tensor, which tapes record.

        Raises
        ------
        InvalidTypeError
            If `g` has another dtype, or is complex and on a GPU.
        InvalidArgumentError
            If it does not have a row for each bag.
        """
        given = g if isinstance(g, Operand) else array_of(g, "g")
        self._check(given, "g", len(self))
        if isinstance(given, Operand):
            values = apply(ROWS, (given,), {"bags": self})
            return IndexedSlices(values, self.rows, (self.n_rows, *given.shape[1:]))
        beside: type[Beside] = OnHost
        if is_device_array(given):
            beside = backend_of(given).BagsBeside
        bags = beside(self, given, "g")
        if bags.can_wait:
            return SummedLater(bags.divided())
        return IndexedSlices(bags.of_rows(), bags.rows, (self.n_rows, *given.shape[1:]))

    def _check(self, given: Any, name: str, n: int) -> None:
        if is_device_array(given):
            if isinstance(given, Operand):
                raise InvalidTypeError(
                    f"{name} is a variable on a GPU, which cannot be differentiated: pass its "
                    "value()"
                )
            given = backend_of(given).describe(given, name)
            known = given.dtype in COMPUTED
        elif not given.dtype.isnative:
            raise InvalidTypeError(f"{name} has the byte-swapped dtype {given.dtype.str}")
        else:
            known = computed_in(given.dtype) is not None
        if not known:
            raise InvalidTypeError(
                f"{name} must be floats or complex of at most double precision, not {given.dtype}"
            )
        if given.shape[:1] != (n,):
            what = "bag" if name == "g" else "row of the table"
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

    def _divide(self, rows: np.ndarray, into: np.ndarray) -> None:
        """Write a row for each bag to another array or in place, divided if means are looked up.

        Complex rows are contiguous.
        """
        if self.pooling == "sum":
            if into is not rows:
                into[...] = rows
            return
        if rows.dtype.kind == "c":  # each is two numbers, and so divided
            rows, into = (array.view(array.real.dtype) for array in (rows, into))
        divisors = self._divisors(rows.dtype)
        none = divisors == 0
        divisors[none] = 1
        with np.errstate(all="ignore"):
            np.divide(rows, divisors.reshape(-1, *[1] * (rows.ndim - 1)), out=into)
        into[none] = 0

    def _divisors(self, dtype: np.dtype[Any]) -> np.ndarray:
        """Return what the sum of each bag is divided by; if that is 0, its mean is 0."""
        if self._weights is None:
            return np.asarray(np.maximum(self._counts, 1), dtype)
        totals = np.empty((len(self), 1), dtype)
        ones, first = np.ones((1, 1), dtype), np.zeros(self._ids.size, np.intp)
        dedup.add_rows(ones, self._bag, totals, math.inf, 1.0, first, self._weights)
        of_bags: np.ndarray = totals[:, 0]
        return of_bags
