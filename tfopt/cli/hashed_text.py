"""Rows of text that `tfopt train --hash` learns: how they are read, what they have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from tfopt.cli.data import Data
from tfopt.cli.files import CommandError, File, errors_of
from tfopt.cli.read_options import ReadOptions
from tfopt.errors import InvalidArgumentError
from tfopt.io.hashed_rows import HashedRows
from tfopt.io.hashed_text import read_blocks
from tfopt.io.libsvm import add_labels
from tfopt.io.text_options import HashedText

__all__ = ["iter_text", "read_text", "reading_of", "totals_of"]


def reading_of(file: File, options: ReadOptions) -> HashedText:
    """Return how a file becomes rows of hashed features."""
    assert options.hashes is not None
    try:
        if options.format_of(file.path) == "vw":
            return HashedText(options.hashes, "vw", crosses=options.crosses)
        return HashedText(
            options.hashes,
            sep=options.separator_of(file.path),
            label=options.label,
            names="header" if options.has_header else None,
            numeric=options.numeric,
            skip=options.drop,
            weight=options.weight,
            crosses=options.crosses,
        )
    except InvalidArgumentError as error:
        raise CommandError(f"{file.name}: {error}") from error


def iter_text(file: File, options: ReadOptions) -> Iterator[Data]:
    """Read a file block by block."""
    reading, skips = reading_of(file, options), options.on_bad_line == "skip"
    with errors_of(file), file.opened() as source:
        for block in read_blocks(source, reading, skips=skips):
            assert block.y is not None
            if np.isnan(block.y).any():
                raise CommandError(f"{file.name}: a row has no label")
            lines, more = np.full(block.y.size, -1), (block.n_bad, block.sample_weight)
            yield Data(block.X, block.y, True, lines, file, *more)


def read_text(file: File, options: ReadOptions) -> Data:
    """Read a file into memory."""
    blocks = [*iter_text(file, options)]
    if not blocks:
        raise CommandError(f"{file.name}: no data rows")
    labels = np.concatenate([block.labels for block in blocks])
    weights: Any = None
    if blocks[0].weights is not None:
        weights = np.concatenate([block.weights for block in blocks])
    X = HashedRows(sparse.vstack([block.features for block in blocks], format="csr"))
    n_skipped = sum(block.n_skipped for block in blocks)
    return Data(X, labels, True, np.full(labels.size, -1), file, n_skipped, weights)


def totals_of(files: list[File], options: ReadOptions) -> tuple[int, float, dict[float, float]]:
    """Return the number of the rows of files, the sum of their weights, and that of each label."""
    n_rows, total, labels = 0, 0.0, dict[float, float]()
    for file in files:
        before = n_rows
        for data in iter_text(file, options):
            n_rows += data.labels.size
            total += data.labels.size if data.weights is None else float(data.weights.sum())
            if options.has_classes:
                add_labels(labels, data.labels, data.weights)
        if n_rows == before:
            raise CommandError(f"{file.name}: no data rows")
    if not 0 < total < np.inf:
        raise CommandError(f"{files[0].name}: the weights have the sum {total:g}")
    return n_rows, total, labels
