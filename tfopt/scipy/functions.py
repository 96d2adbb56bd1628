"""Functions whose values are SciPy's, with rules for gradients, or those of a composition.

SciPy is imported when one of them is first called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tfopt.autodiff.operands import array_operand
from tfopt.autodiff.ops import Rule
from tfopt.autodiff.vjps.arguments import known
from tfopt.autodiff.vjps.composed import with_gradients_of
from tfopt.core.engine import Op, Operand, apply
from tfopt.core.nest import flatten
from tfopt.imports import imported
from tfopt.indexed_slices import IndexedSlices

__all__ = ["Function", "composed"]


@functools.cache
def _scipys(path: str) -> Callable[..., Any]:
    """Return a function of SciPy's: ``stats.norm.logpdf``, say."""
    module, *names = path.split(".")
    try:
        found = imported(f"scipy.{module}")
    except ImportError as error:
        raise ImportError("tfopt.scipy needs SciPy: pip install scipy") from error
    function: Callable[..., Any] = functools.reduce(getattr, names, found)
    return function


def _has_tensors(value: Any) -> bool:
    return any(isinstance(leaf, (Operand, IndexedSlices)) for leaf in flatten(value))


def _harmless(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords without those that allow operands to be overwritten, as tensors never are."""
    return {name: value for name, value in keywords.items() if not name.startswith("overwrite")}


class Function:
    """A function of SciPy's as an operation.

    Of arrays it is SciPy's own.

    Parameters
    ----------
    path : str
        Its name in SciPy.
    rules
        As `Op.define` takes them: one for each operand. Keywords are no operands.
    """

    def __init__(self, path: str, *rules: Rule) -> None:
        self._path = path
        self._op = Op(path.rpartition(".")[2], self._of_arrays, label=f"tfopt.scipy.{path}")
        self._op.define(*rules)

    def _of_arrays(self, *arrays: Any, **keywords: Any) -> Any:
        return _scipys(self._path)(*arrays, **keywords)

    def __call__(self, *operands: Any, **keywords: Any) -> Any:
        if not _has_tensors((operands, keywords)):
            return self._of_arrays(*operands, **keywords)
        named = {name: known(value) for name, value in _harmless(keywords).items()}
        return apply(self._op, tuple(map(array_operand, operands)), named)


def composed(path: str, composition: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Carry a function of SciPy's out, with the gradients of a composition of tensors."""
    function = _scipys(path)
    if not _has_tensors((args, keywords)):
        return function(*args, **keywords)
    name = path.rpartition(".")[2]
    return with_gradients_of(composition, function, args, _harmless(keywords), name)
