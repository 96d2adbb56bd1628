"""What must be known of a table before its rows are used, read piece by piece."""

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
    labels: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))

    def add(self, gathered: Gathered, options: ReadOptions) -> None:
        facts = facts_of(gathered.table(), options.scale)
        pairs = zip(self.facts, facts, strict=True)
        self.facts = tuple(a + b for a, b in pairs) if self.facts else facts
        labels, weights = gathered.other("label")[0], gathered.other("weight")[0]
        assert labels is not None
        self.rows += labels.size
        self.weight += labels.size if weights is None else float(weights.sum())
        if options.has_classes:
            self.labels = np.union1d(self.labels, labels)


def survey_table(file: File, options: ReadOptions) -> tuple[Columns, np.ndarray, int, float]:
    """Return the columns of a table, its classes, how many rows it has, and what they weigh.

    The table is read once, and again if it has missing numbers, or columns whose first rows tell
    too little of them.
    """
    if options.label is None:
        raise CommandError(f"{file.name}: is a table: name the column of the labels with --label")
    file = as_table(file, options)
    kinds: dict[int, Kind] = {}
    with errors_of(file):
        while True:
            found = _Found()
            gathered = _read(file, options, kinds, functools.partial(found.add, options=options))
            changed = mixed_columns(file, gathered) or gathered.changed(found.facts)
            if not changed:
                break
            kinds |= changed

        def values_of(columns: list[int]) -> list[Any]:
            values: list[Any] = []
            _read(
                file,
                options,
                kinds,
                lambda each: values.append(distinct_values(each.table(), columns)),
            )
            return values

        scale, missing = options.scale, options.missing
        made = make_encoding([found.facts], values_of, scale=scale, missing=missing)
    if not found.rows:
        raise CommandError(f"{file.name}: no data rows")
    if not 0 < found.weight < math.inf:
        raise CommandError(f"{file.name}: the weights have the sum {found.weight:g}")
    labels, classes, levels = found.labels, None, gathered.other("label")[1]
    if levels is not None:
        texts = [levels[int(code)] for code in labels.tolist()]
        labels = np.unique(numbers_in(texts))
        if not gathered.labels_may_be_numbers or np.isnan(labels).any():
            classes = tuple(sorted({*label_names(texts)}))
            labels = np.arange(len(classes), dtype=np.float64)
    columns = Columns(None, options.label, classes).with_encoding(made)
    return columns, labels, found.rows, found.weight


def _read(
    file: File, options: ReadOptions, kinds: dict[int, Kind], use: Callable[[Gathered], object]
) -> Gathered:
    """Read the pieces of a table, and use each."""
    with opened(file, options, None) as (names, _, pieces):
        gathered = Gathered(wanted_columns(file, names, options, None, True), kinds)
        for piece in pieces(*gathered.places):
            gathered.add(file, piece, options.on_bad_line)
            use(gathered)
            gathered.clear()
    return gathered
