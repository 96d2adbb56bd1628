"""Functions without gradients: piecewise constant ones, and those that only ask about arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.autodiff.dispatch import without_rule
from tfopt.autodiff.operands import as_tensor, operand
from tfopt.autodiff.ops import FUNCTIONS
from tfopt.autodiff.vjps.arguments import known, shell
from tfopt.core import engine
from tfopt.core.engine import CUT, Operand
from tfopt.core.nest import flatten, pack

__all__ = ["CUT_FUNCTIONS", "FOUND_FUNCTIONS", "PLAIN_FUNCTIONS", "TYPE_FUNCTIONS", "WRITERS"]

#: Without gradients, and rightly so.
CUT_FUNCTIONS = (
    np.all, np.any, np.argmax, np.argmin, np.argsort, np.argpartition,
    np.count_nonzero, np.searchsorted, np.digitize,
    np.isclose, np.isin, np.isneginf, np.isposinf, np.round, np.around, np.fix,
    np.zeros_like, np.ones_like, np.empty_like, np.lexsort, np.iscomplex, np.isreal,
    np.nanargmax, np.nanargmin, np.linalg.matrix_rank,
)  # fmt: skip
#: The same, of what values decide the number of.
FOUND_FUNCTIONS = (np.argwhere, np.nonzero, np.flatnonzero)
#: What writes into its first argument.
WRITERS = (np.copyto, np.put, np.put_along_axis, np.place, np.putmask, np.fill_diagonal)
#: What is asked about values: the answers are Python's or NumPy's, and nothing is recorded.
PLAIN_FUNCTIONS = (
    np.allclose, np.array_equal, np.array_equiv, np.array2string, np.array_repr, np.array_str,
    np.save, np.savez, np.savez_compressed, np.savetxt,
)  # fmt: skip
#: What is asked about dtypes and memory.
TYPE_FUNCTIONS = (
    np.may_share_memory, np.shares_memory, np.result_type, np.can_cast, np.iscomplexobj,
    np.isrealobj, np.min_scalar_type, np.common_type,
)  # fmt: skip


def _cut(function: Callable[..., Any], sized: bool) -> Callable[..., Any]:
    def handler(*args: Any, **kwargs: Any) -> Any:
        return without_rule(function.__name__, function, args, kwargs, CUT, sized)

    return handler


def _refused(*args: Any, **kwargs: Any) -> Any:
    raise TypeError(engine.NO_OUT)


def _plain(function: Callable[..., Any], value: Callable[[Any], Any]) -> Callable[..., Any]:
    def handler(*args: Any, **kwargs: Any) -> Any:
        leaves = flatten((args, kwargs))
        known = [value(x) if isinstance(x, Operand) else x for x in leaves]
        filled_args, filled_kwargs = pack((args, kwargs), known)
        return function(*filled_args, **filled_kwargs)

    return handler


FUNCTIONS.update({function: _cut(function, True) for function in CUT_FUNCTIONS})
FUNCTIONS.update({function: _cut(function, False) for function in FOUND_FUNCTIONS})
FUNCTIONS.update(dict.fromkeys(WRITERS, _refused))
FUNCTIONS.update({f: _plain(f, lambda x: as_tensor(x)._value()) for f in PLAIN_FUNCTIONS})
FUNCTIONS.update({f: _plain(f, engine.peek) for f in TYPE_FUNCTIONS})


def _size(a: Any, axis: Any = None) -> Any:
    return operand(a).size if axis is None else np.size(shell(operand(a)), known(axis))


FUNCTIONS.update(
    {np.shape: lambda a: operand(a).shape, np.ndim: lambda a: operand(a).ndim,
     np.size: _size}
)  # fmt: skip
