"""A survey of a table, read in pieces, before its rows are used."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.cli.columns import numbers_in
from tfopt.cli.files import CommandError, File
from tfopt.cli.gathered import Gathered
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.tables import as_table, errors_of, label_names, mixed_columns, opened, wanted_columns
from tfopt.io.libsvm import add_labels
from tfopt.linear_model.encoding import make_encoding
from tfopt.linear_model.stored_model import Columns
from tfopt.linear_model.table_facts import Facts, Kind, distinct_values, facts_of

__all__ = ["survey_table"]


@dataclasses.dataclass
class _Found:
    """What the rows so far say."""

    facts: tuple[Facts, ...] = ()
    rows: int = 0
    weight: float = 0.0
    labels: dict[float, float] = dataclasses.field(default_factory=dict)

    def add(self, gathered: Gathered, options: ReadOptions) -> None:
        facts = facts_of(gathered.table(), options.scale)
        pairs = zip(self.facts, facts, strict=True)
        self.facts = tuple(a + b for a, b in pairs) if self.facts else facts
        labels, weights = gathered.other("label")[0], gathered.other("weight")[0]
        assert labels is not None
        self.rows += labels.size
        self.weight += labels.size if weights is None else float(weights.sum())
        if options.has_classes:
            add_labels(self.labels, labels, weights)


def survey_table(
    files: list[File], options: ReadOptions
) -> tuple[Columns, dict[float, float], int, float]:
    """Return the columns of tables, the weights of classes, and the number and weight of rows.

    The tables are read once, and a second time if numbers are missing or the first rows do not tell
    the kind of a column.
    """
    first = files[0]
    if options.label is None:
        raise CommandError(f"{first.name}: is a table: name the column of the labels with --label")
    files = [as_table(file, options) for file in files]
    kinds: dict[int, Kind] = {}
    while True:
        found = _Found()
        gathered = _read(files, options, kinds, functools.partial(found.add, options=options))
        changed = mixed_columns(first, gathered) or gathered.changed(found.facts)
        if not changed:
            break
        kinds |= changed

    def values_of(columns: list[int]) -> list[Any]:
        values: list[Any] = []
        _read(files, options, kinds, lambda it: values.append(distinct_values(it.table(), columns)))
        return values

    scale, missing = options.scale, options.missing
    with errors_of(first):
        made = make_encoding([found.facts], values_of, scale=scale, missing=missing)
    if not 0 < found.weight < math.inf:
        raise CommandError(f"{first.name}: the weights have the sum {found.weight:g}")
    labels, classes, levels = found.labels, None, gathered.other("label")[1]
    if levels is not None:
        texts = [levels[int(code)] for code in labels]
        numbers = numbers_in(texts)
        if not gathered.labels_may_be_numbers or np.isnan(numbers).any():
            names = label_names(texts)
            classes = tuple(sorted({*names}))
            numbers = np.array([classes.index(name) for name in names], np.float64)
        weights, labels = np.array([*labels.values()]), {}
        add_labels(labels, numbers, weights)
    columns = Columns(None, options.label, classes).with_encoding(made)
    return columns, labels, found.rows, found.weight


def _read(
    files: list[File],
    options: ReadOptions,
    kinds: dict[int, Kind],
    use: Callable[[Gathered], object],
) -> Gathered:
    """Read the pieces of tables with the same columns, and use each."""
    gathered, columns = None, list[str]()
    for file in files:
        n_rows = 0
        with errors_of(file), opened(file, options, None) as (names, _, pieces):
            if gathered is None:
                columns = names
                gathered = Gathered(wanted_columns(file, names, options, None, True), kinds)
            elif names != columns:
                raise CommandError(f"{file.name}: has other columns than {files[0].name}")
            for piece in pieces(*gathered.places):
                gathered.add(file, piece, options.on_bad_line)
                n_rows += len(piece.numbers)
                use(gathered)
                gathered.clear()
        if not n_rows:
            raise CommandError(f"{file.name}: no data rows")
    assert gathered is not None
    return gathered
