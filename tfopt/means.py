"""The weighted mean of several structures of arrays, such as models from several clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt.clip_ops.scaling import Nonfinite, by_type, check_policy
from tfopt.clip_ops.validation import (
    FLOATS,
    as_tensor,
    check_separate,
    computed,
    is_recorded,
    results_for,
)
from tfopt.core.backends import is_device_array
from tfopt.core.effects import computes, writes
from tfopt.core.nest import flatten, pack
from tfopt.errors import InvalidArgumentError, InvalidTypeError, NotFiniteError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arrays.aliasing import Occupied
from tfopt.kernels.reduce.norms import all_finite
from tfopt.kernels.update.clip import scale_call, weigh_call
from tfopt.kernels.update.pipeline import run_together

__all__ = ["WeightedMean", "weighted_mean"]

#: Members that are read at a time: more streams than these are slower to fetch.
_STREAMS = 3


class WeightedMean(NamedTuple):
    """The result of :func:`weighted_mean`.

    Parameters
    ----------
    mean : structure of arrays
        The mean; `out` if given.
    nonfinite : ndarray of bool, shape (n_members,)
        The members with an element that is infinite or NaN.
    """

    mean: Any
    nonfinite: np.ndarray[Any, np.dtype[np.bool_]]


def _refuse_in_a_trace(arguments: dict[str, Any]) -> None:
    raise InvalidArgumentError(
        "weighted_mean has no out in a traced function: assign its result to the variables"
    )


@writes("out", returns=_refuse_in_a_trace)
def weighted_mean(
    members: Sequence[Any],
    weights: Any = None,
    *,
    base: Any = None,
    out: Any = None,
    nonfinite: Nonfinite = "raise",
) -> WeightedMean:
    """Return the weighted mean of structures of arrays, element by element.

    With a `base`, return the weighted mean of what each member is below it: the gradient by which
    ``optimizer.step(base, gradient)`` moves a model towards the mean of its members.

    Parameters
    ----------
    members : sequence of structures
        At least one: nested dicts, lists and tuples of arrays, or arrays. All have the same
        structure and shapes; each array is of float16, bfloat16 or float32, or all are of float64.
    weights : array_like of shape (n_members,), optional
        Finite, not negative, not all zero: numbers of samples, say. They are divided by their sum.
        By default all are equal.
    base : structure, optional
        Of the same structure and shapes.
    out : structure, optional
        Receives the result: writable arrays or Variables. They may be `base`'s or a member's.
    nonfinite : {"raise", "skip", "propagate"}
        What to do with members that have infinite or NaN elements. "raise": raise an error and
        write nothing. "skip": leave these members out, and divide the other weights by their own
        sum. "propagate": compute with them.

    Returns
    -------
    mean : structure of arrays
        `out` if given; else new arrays, in the dtypes of `base` or of the first member.
    nonfinite : ndarray of bool, shape (n_members,)
        Which members are not finite.

    Raises
    ------
    InvalidArgumentError
        If structures or shapes differ, weights are invalid, or `out` overlaps with itself.
    InvalidTypeError
        If an array is not of real floats, is sparse, on a GPU or recorded by a tape, or if float64
        meets other types.
    NotFiniteError
        If members are not finite and `nonfinite` is "raise", or no weight remains without them.

    Notes
    -----
    Products and sums are rounded in float32, or float64, in the order of the members, and a 16-bit
    result once more at its end; so the bits do not depend on the number of threads. Members are
    read once. Nothing is written to `out` before all of them have been read, unless they propagate.

    McMahan et al.: Communication-efficient learning of deep networks from decentralized data,
    AISTATS 2017; with `base`, Reddi et al.: Adaptive federated optimization, ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> clients = [{"w": np.array([1.0, 2.0])}, {"w": np.array([5.0, np.nan])}]
    >>> mean, nonfinite = tfopt.weighted_mean(clients, [3, 1], nonfinite="skip")
    >>> mean, nonfinite
    ({'w': array([1., 2.])}, array([False,  True]))
    """
    if out is None:
        return _new_mean(members, weights, base, nonfinite)
    return _mean(members, weights, base, out, nonfinite)


@computes
def _new_mean(members: Any, weights: Any, base: Any, nonfinite: str) -> WeightedMean:
    return _mean(members, weights, base, None, nonfinite)


def _mean(members: Any, weights: Any, base: Any, out: Any, nonfinite: str) -> WeightedMean:
    check_policy(nonfinite)
    if not isinstance(members, (list, tuple)) or not members:
        raise InvalidArgumentError(
            "members must be a list or tuple of at least one structure, not "
            f"{members if isinstance(members, (list, tuple)) else type(members).__name__}"
        )
    shares = _checked_weights(weights, len(members))
    like = members[0] if base is None else base
    columns = [_leaves(member, f"members[{k}]", like) for k, member in enumerate(members)]
    bases = None if base is None else _leaves(base, "base", like)
    first = columns[0] if bases is None else bases
    for column in columns:
        _check_like(column, first)
    into = None if out is None else _out_leaves(out, like)
    results: list[Any] = results_for(first, into)
    if out is not None:
        check_separate(results, results)
    direct = out is None or (nonfinite == "propagate" and _are_apart(results, columns, bases))
    sums: list[Any] = [
        each if direct and each.dtype.itemsize > 2 else np.empty(each.shape, computed(each.dtype))
        for each in results
    ]
    bad = np.zeros(len(members), bool)
    _weigh(sums, columns, shares, bases)
    if not all_finite(sums):
        bad[:] = [not all_finite(column) for column in columns]
    if bad.any() and nonfinite != "propagate":
        _refuse(bad, shares, nonfinite)
        kept = np.flatnonzero(~bad)
        _weigh(sums, [columns[k] for k in kept], shares[kept] / shares[kept].sum(), bases)
    for single, (to, made) in by_type(results, sums, False):
        moved = [k for k in range(len(to)) if to[k] is not made[k]]
        if moved:
            call = scale_call([to[k] for k in moved], [made[k] for k in moved], 1.0, 1.0, single)
            run_together([call])
    return WeightedMean(pack(like, results) if out is None else out, bad)


def _are_apart(results: list[Any], columns: list[list[Any]], bases: list[Any] | None) -> bool:
    written = Occupied(results)
    read = (each for column in [*columns, bases or []] for each in column)
    return not any(written.touches(each) for each in read)


def _refuse(bad: np.ndarray, shares: np.ndarray, nonfinite: str) -> None:
    """Raise if members that are not finite are not to be skipped, or nothing remains."""
    places = ", ".join(map(str, np.flatnonzero(bad)))
    if nonfinite == "raise":
        raise NotFiniteError(
            f"members {places} have infinite or NaN elements: leave them out, or pass "
            'nonfinite="skip"'
        )
    if not shares[~bad].sum() > 0:
        raise NotFiniteError(f"no weight remains without members {places}, which are not finite")


def _weigh(
    sums: list[Any], columns: list[list[Any]], shares: np.ndarray, bases: list[Any] | None
) -> None:
    """Write weighted sums, a few members at a time while a piece of the sums is in the cache."""
    for dtype in {each.dtype for each in sums}:
        at = [k for k, each in enumerate(sums) if each.dtype == dtype]

        def some(column: list[Any], at: list[int] = at) -> list[Any]:
            return [column[k] for k in at]

        run_together(
            [
                weigh_call(
                    some(sums),
                    [some(column) for column in columns[start : start + _STREAMS]],
                    shares[start : start + _STREAMS].tolist(),
                    start > 0,
                    None if bases is None else some(bases),
                )
                for start in range(0, len(columns), _STREAMS)
            ]
        )


def _checked_weights(weights: Any, n: int) -> np.ndarray:
    """Return weights whose sum is 1."""
    try:
        given = np.asarray(np.ones(n) if weights is None else weights, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"weights must be real numbers: {error}") from None
    if given.shape != (n,):
        raise InvalidArgumentError(
            f"weights must have one number for each member: shape ({n},), not {given.shape}"
        )
    if not (np.isfinite(given).all() and (given >= 0).all() and given.any()):
        raise InvalidArgumentError("weights must be finite, not negative, and not all zero")
    scaled = given / given.max()  # whose sum does not overflow
    shares: np.ndarray = scaled / scaled.sum()
    return shares


def _leaves(structure: Any, name: str, like: Any) -> list[Any]:
    """Return the arrays of a structure that is like another one."""
    leaves, n = flatten(structure), len(flatten(like))
    order = list(range(n))
    if len(leaves) != n or pack(structure, order) != pack(like, order):
        raise InvalidArgumentError(
            f"{name} has another structure than the others: {n} arrays were expected, with the "
            f"same names and nesting, and there are {len(leaves)}"
        )
    for each in leaves:
        if isinstance(each, IndexedSlices) or is_recorded(each) or is_device_array(each):
            raise InvalidTypeError(
                f"{name} must have dense arrays on the host, not recorded by a tape, "
                f"and has a {type(each).__name__}"
            )
    return [as_tensor(each, name, FLOATS) for each in leaves]


def _out_leaves(out: Any, like: Any) -> list[Any]:
    leaves, order = flatten(out), list(range(len(flatten(like))))
    if len(leaves) != len(order) or pack(out, order) != pack(like, order):
        raise InvalidArgumentError("out has another structure than the members")
    return leaves


def _check_like(column: list[Any], first: list[Any]) -> None:
    """Raise if arrays differ in shape, or in the type in which they are computed."""
    for array, other in zip(column, first, strict=True):
        if array.shape != other.shape:
            raise InvalidArgumentError(
                f"members must have the same shapes: {array.shape} and {other.shape}"
            )
        if computed(array.dtype) is not computed(other.dtype):
            raise InvalidTypeError(
                f"float64 cannot be mixed with other types: {array.dtype} and {other.dtype}"
            )
