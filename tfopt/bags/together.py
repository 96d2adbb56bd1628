"""Lookups of several tables in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.bags.arguments import array_of
from tfopt.bags.bags import Bags
from tfopt.bags.on_host import pooled_together
from tfopt.core.engine import Operand
from tfopt.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["lookup_bags"]


def lookup_bags(bags: Sequence[Bags], tables: Sequence[Any]) -> list[Any]:
    """Return the pooled rows of each bag of several tables.

    Parameters
    ----------
    bags : sequence of Bags
        Of each table.
    tables : sequence of array, Variable or Tensor
        Of floats or complex, of any dtypes and widths.

    Returns
    -------
    list
        What ``bags[k].lookup(tables[k])`` returns, with the same bits. Threads share the host
        arrays among them, each of which one thread looks up: so many small tables take all
        threads, where a lookup of one of them takes one.

    Raises
    ------
    InvalidTypeError
        As `Bags.lookup`; or if something else than `Bags` is among the bags.
    InvalidArgumentError
        As `Bags.lookup`; or if there are not as many tables as bags.

    See Also
    --------
    tfopt.Bags.gradient : the gradient of a table, of which a step takes those of several.

    Examples
    --------
    Two tables, each with two bags:

    >>> import numpy as np
    >>> from tfopt import Bags, lookup_bags
    >>> films, genres = np.ones((5, 2)), np.full((3, 4), 2.0)
    >>> bags = [Bags([4, 0, 1], [0, 2], 5), Bags([2, 1], [0, 1], 3)]
    >>> seen, liked = lookup_bags(bags, [films, genres])
    >>> seen
    array([[2., 2.],
           [1., 1.]])
    >>> liked.shape
    (2, 4)
    """
    if len(bags) != len(tables):
        raise InvalidArgumentError(f"there are {len(bags)} bags, but {len(tables)} tables")
    for k, each in enumerate(bags):
        if not isinstance(each, Bags):
            raise InvalidTypeError(f"bags[{k}] must be Bags, not {type(each).__name__}")
    given: list[Any] = [
        table if isinstance(table, Operand) else array_of(table, f"tables[{k}]")
        for k, table in enumerate(tables)
    ]
    for k, (each, table) in enumerate(zip(bags, given, strict=True)):
        each._check(table, f"tables[{k}]", each.n_rows)
    on_host = [k for k, table in enumerate(given) if isinstance(table, np.ndarray)]
    pooled = pooled_together([given[k] for k in on_host], [bags[k] for k in on_host])
    found = dict(zip(on_host, pooled, strict=True))
    return [found[k] if k in found else each.lookup(given[k]) for k, each in enumerate(bags)]
