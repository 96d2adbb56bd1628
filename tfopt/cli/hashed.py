"""Rows of text for a model of hashed features, and its predictions, without scikit-learn."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfopt.cli.files import CommandError, errors_of, file_of
from tfopt.core.links import probabilities, response
from tfopt.io.hashed_model import HashedModel
from tfopt.io.hashed_text import read_blocks

__all__ = ["HashedBlocks"]


class HashedBlocks:
    """The predictions of a file, block by block, and what scores need of them."""

    def __init__(self, arguments: argparse.Namespace, model: HashedModel, keeps: bool) -> None:
        self._model, self._keeps, self._file = model, keeps, file_of(arguments.data)
        self._skips = arguments.on_bad_line == "skip"
        self._found: Any = None
        #: Why there are no scores.
        self.reason = "the data have no labels"
        self.n_skipped = self.n_rows = 0
        if model.reading is None:
            raise CommandError(
                f"{arguments.model}: it learned no text, and does not say how text is read: use "
                "tfopt.linear_model.load_model"
            )
        for name in ("format", "label", "weight", "offset", "sep"):
            if getattr(arguments, name) not in (None, "auto"):
                raise CommandError(f"{arguments.model}: says how text is read: leave out --{name}")

    def __iter__(self) -> Iterator[np.ndarray]:
        model = self._model
        assert model.reading is not None
        with errors_of(self._file), self._file.opened() as source:
            for block in read_blocks(source, model.reading, skips=self._skips, needs_labels=False):
                with np.errstate(over="ignore", invalid="ignore"):
                    margins = model.margins(block.X)
                    predictions = response(margins, model.link)
                if margins.ndim > 1 and model.link is not None:
                    predictions = probabilities(margins)
                if not np.isfinite(predictions).all():
                    raise CommandError(f"{self._file.name}: a prediction is not finite")
                self.n_skipped += block.n_bad
                self.n_rows += block.X.shape[0]
                self._keep(margins, block)
                yield predictions
        if not self.n_rows:
            raise CommandError(f"{self._file.name}: no data rows")

    def _keep(self, margins: np.ndarray, block: Any) -> None:
        """Add what scores need, unless a label is missing or not the model's."""
        y, model = block.y, self._model
        if y is None or np.isnan(y).all():
            self._keeps = False
        elif np.isnan(y).any() or (model.labels and not np.isin(y, self._numbers()).all()):
            self.reason, self._keeps = "the labels are not those of the training data", False
        if not self._keeps:
            self._found = None
            return
        # loaded if needed only
        from tfopt.linear_model._fit.reductions import TreeSum
        from tfopt.linear_model.evaluation import Evaluation
        from tfopt.linear_model.losses import loss_of

        targets = np.searchsorted(self._numbers(), y).astype(float) if model.labels else y
        phi = loss_of(model.loss, {**model.settings, **model.loss_parameters})
        self._found = self._found or TreeSum()
        self._found.add(Evaluation.of(phi, margins, targets, block.sample_weight))

    def _numbers(self) -> np.ndarray:
        """Return the labels that rows of text can have: numbers."""
        labels = self._model.labels or ()
        return np.array([np.nan if isinstance(label, str) else label for label in labels], float)

    def scores(self) -> dict[str, float | None] | None:
        """Return the scores of all blocks, or None if some labels are not the model's."""
        found = None if self._found is None else self._found.total()
        if found is not None and not 0 < found.weight < np.inf:
            self.reason = "the sum of the weights is not a positive number"
            return None
        return None if found is None else found.scores()
