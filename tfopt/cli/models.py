"""Commands on models: `tfopt inspect` and `convert`, and what `predict` needs; model files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfopt.cli.data import MAX_LABEL, Data, Layout, targets
from tfopt.cli.files import (
    CommandError,
    check_writable,
    echo,
    print_json,
    show_label,
    write_atomically,
)
from tfopt.cli.metrics import margins, predicted, refuse_infinite
from tfopt.cli.readers import read_blocks
from tfopt.io.hashed_model import HashedModel
from tfopt.linear_model._fit.reductions import TreeSum
from tfopt.linear_model.evaluation import Evaluation
from tfopt.linear_model.model_file import encode_model, read_model
from tfopt.linear_model.stored_model import StoredModel
from tfopt.printable import printable


def write_model(path: str, model: StoredModel | HashedModel) -> None:
    """Write a model file atomically; a device or a pipe is written directly."""
    write_atomically(path, [encode_model(model, path)])


def read_stored(path: str) -> StoredModel | HashedModel:
    """Read a model file; refuse what estimators have and the commands do not."""
    model = read_model(path)
    if isinstance(model, HashedModel):
        return model
    if model.has_several or (model.classes is None and model.weights.ndim > 1):
        raise CommandError(
            f"{path}: it predicts {len(model.bias)} columns: use tfopt.linear_model.load_model"
        )
    return model


# ---- predict


class Blocks:
    """The predictions of a file, piece by piece, and what scores need of them."""

    def __init__(self, arguments: argparse.Namespace, model: StoredModel, keeps: bool) -> None:
        self._arguments, self._model, self._keeps = arguments, model, keeps
        self._found = TreeSum()
        #: Why there are no scores.
        self.reason = "the data have no labels"
        self.n_skipped = self.n_rows = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        model, arguments = self._model, self._arguments
        columns = model.columns if model.columns.features is not None else None
        layout = Layout(model.zero_based, columns)
        for data in read_blocks(arguments.data, arguments.reading, layout):
            values = margins(model, data)
            refuse_infinite(values, data)
            with np.errstate(over="ignore"):
                predictions = predicted(model, values)
            refuse_infinite(predictions, data)  # the exponential of a margin, of a Poisson model
            self.n_skipped += data.n_skipped
            self.n_rows += data.labels.size
            if not np.isnan(data.labels).all():
                self.reason = "the labels are not those of the training data"
            if self._keeps and self._has_labels(data):
                y_true = targets(data, model.classes)
                self._found.add(Evaluation.of(model.phi, values, y_true, data.weights))
            else:
                self._keeps, self._found = False, TreeSum()
            yield predictions

    def _has_labels(self, data: Data) -> bool:
        if self._model.classes is None:
            return not np.isnan(data.labels).any()
        classes = np.array(self._model.classes, np.float64)
        return bool(np.abs(classes).max() <= MAX_LABEL and np.isin(data.labels, classes).all())

    def scores(self) -> dict[str, float | None] | None:
        """Return the scores of all blocks, or None if some labels are not the model's."""
        found: Evaluation | None = self._found.total()
        if found is not None and not 0 < found.weight < np.inf:
            self.reason = "the sum of the weights is not a positive number"
            return None
        return None if found is None else found.scores()


# ---- inspect and convert


def inspect(arguments: argparse.Namespace) -> int:
    """Run `tfopt inspect`."""
    model: Any = read_stored(arguments.model)
    is_hashed = isinstance(model, HashedModel)
    names = None if is_hashed else model.columns.features
    weights = np.atleast_2d(model.weights)
    numbered = model.indices if is_hashed else np.arange(model.n_features) + (not model.zero_based)
    labels: tuple[Any, ...] = (None,)
    if model.labels is not None:
        labels = model.labels if len(weights) > 1 else model.labels[1:]
    classes = []
    for label, row, bias in zip(labels, weights, model.bias, strict=True):
        order = np.argsort(-np.abs(row), kind="stable")[: arguments.top]
        order = order[row[order] != 0]
        numbers = numbered[order].tolist()
        features = numbers if names is None else [names[k] for k in order]
        top = [
            {"feature": feature, "weight": weight}
            for feature, weight in zip(features, row[order].tolist(), strict=True)
        ]
        nonzero = int(np.count_nonzero(row))
        classes.append({"label": label, "bias": float(bias), "nonzero": nonzero, "weights": top})
    facts = {
        "command": "inspect",
        "model": arguments.model,
        "loss": model.loss,
        "link": model.link,
        "classes": model.labels,
        "features": model.n_features,
        "zero_based": is_hashed or model.zero_based,
        "has_names": names is not None,
        "optimizer": model.optimizer,
        "settings": model.settings,
        "tfopt": model.tfopt_version,
        "models": classes,
    }
    if is_hashed:
        facts["reading"] = model.document()["reading"]
    if arguments.json:
        print_json(facts)
    else:
        _print_model(model, classes)
    return 0


def _print_model(model: StoredModel | HashedModel, classes: list[dict[str, Any]]) -> None:
    settings = {"optimizer": model.optimizer.get("name"), **model.settings}
    shown = [f"{name} {value}" for name, value in settings.items() if value not in (None, {})]
    if isinstance(model, HashedModel):
        base = "hashed"
    else:
        base = "named" if model.columns.features else f"counted from {0 if model.zero_based else 1}"
    echo(f"loss      {model.loss}")
    if model.labels:
        echo(f"classes   {', '.join(map(show_label, model.labels))}")
    echo(f"features  {model.n_features}, {base}")
    echo(f"settings  {', '.join(shown)}")
    if isinstance(model, HashedModel) and model.reading is not None:
        reading = model.reading.shown().items()
        echo(f"reading   {', '.join(f'{name} {value}' for name, value in reading)}")
    echo(f"tfopt     {model.tfopt_version}")
    for each in classes:
        title = "" if len(classes) == 1 else f"class {show_label(each['label'])}: "
        echo()
        echo(f"{title}bias {each['bias']:.8g}, {each['nonzero']} weights are not 0")
        lines = [(printable(str(w["feature"])), w["weight"]) for w in each["weights"]]
        width = max((len(name) for name, _ in lines), default=0)
        for name, weight in lines:
            echo(f"  {name:<{width}}  {weight:+.6g}")


def convert(arguments: argparse.Namespace) -> int:
    """Run `tfopt convert`."""
    check_writable(arguments.out, arguments.model)
    write_model(arguments.out, read_stored(arguments.model))
    return 0
