"""Commands on models: `tfopt predict`, `inspect` and `convert`; model files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfopt.cli.data import MAX_LABEL, Data, Layout, targets
from tfopt.cli.files import (
    SCHEMA,
    CommandError,
    check_writable,
    echo,
    finite,
    note,
    print_json,
    show_label,
    write_atomically,
)
from tfopt.cli.metrics import margins, predicted, refuse_infinite, score_line
from tfopt.cli.readers import read_blocks
from tfopt.cli.report import note_bad_lines
from tfopt.linear_model._fit.reductions import TreeSum
from tfopt.linear_model.evaluation import Evaluation
from tfopt.linear_model.model_file import encode_model, read_model
from tfopt.linear_model.stored_model import LINKS, StoredModel
from tfopt.printable import printable

# Rows per write: large enough to be quick, small enough that `| head` ends the command early.
_CHUNK = 8192


def write_model(path: str, model: StoredModel) -> None:
    """Write a model file atomically; a device or a pipe is written directly."""
    write_atomically(path, [encode_model(model, path)])


def _read(path: str) -> StoredModel:
    """Read a model file; refuse what estimators have and the commands do not."""
    model = read_model(path)
    if model.has_several or (model.classes is None and model.weights.ndim > 1):
        raise CommandError(
            f"{path}: it predicts {len(model.bias)} columns: use tfopt.linear_model.load_model"
        )
    return model


# ---- predict


def predict(arguments: argparse.Namespace) -> int:
    """Run `tfopt predict`."""
    if arguments.output:
        check_writable(arguments.output, arguments.model, arguments.data)
    elif sys.stdout is None:
        raise CommandError("<stdout>: is closed")
    model = _read(arguments.model)
    if arguments.labels and model.classes is None:
        raise CommandError(f"{arguments.model}: a {model.loss} loss has no labels")
    if arguments.offset is not None and model.weights.ndim > 1:
        raise CommandError(f"{arguments.model}: --offset is for two classes, or for numbers")
    if arguments.proba and not _has_probabilities(model):
        raise CommandError(f"{arguments.model}: --proba needs a logistic loss, not {model.loss}")
    keeps = not arguments.quiet and (sys.stderr is not None or arguments.json)
    blocks = _Blocks(arguments, model, keeps)
    text = _text_of(arguments, model, blocks)
    if arguments.output:
        write_atomically(arguments.output, (piece.encode() for piece in text))
    else:
        for piece in text:
            sys.stdout.write(piece)
    if arguments.quiet or sys.stderr is None:
        return 0
    note_bad_lines(arguments.data, blocks.n_skipped, False)
    scores = blocks.scores()
    if scores is None:
        note(f"no scores: {blocks.reason}")
    elif not arguments.json:
        note(score_line(scores))
    return 0


class _Blocks:
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
            for start in range(0, len(predictions), _CHUNK):
                yield predictions[start : start + _CHUNK]

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


def _text_of(arguments: argparse.Namespace, model: StoredModel, blocks: _Blocks) -> Iterator[str]:
    """Yield the output, piece by piece, with round-trip precision."""
    labels = [] if model.labels is None else [show_label(label) for label in model.labels]
    if arguments.json:
        yield from _json_of(arguments, model, blocks)
        return
    if arguments.proba:
        yield f"labels {' '.join(labels)}\n"
    for piece in blocks:
        if arguments.labels:
            lines = [labels[best] for best in _best(model, piece)]
        elif arguments.proba:
            lines = [" ".join(map(repr, row)) for row in _per_class(piece).tolist()]
        elif piece.ndim == 1:
            lines = [repr(value) for value in piece.tolist()]
        else:
            rows = zip(_best(model, piece), piece.tolist(), strict=True)
            lines = [f"{labels[best]} {' '.join(map(repr, row))}" for best, row in rows]
        yield "".join(f"{line}\n" for line in lines)


def _json_of(arguments: argparse.Namespace, model: StoredModel, blocks: _Blocks) -> Iterator[str]:
    """Yield one JSON object, with a row on each line."""
    head = {"schema": SCHEMA, "command": "predict", "model": arguments.model}
    head |= {"data": arguments.data, "loss": model.loss, "classes": model.labels}
    yield json.dumps(head)[:-1] + ', "predictions": ['
    comma = ""
    for piece in blocks:
        yield comma + "\n" + ",\n".join(map(json.dumps, _records(model, piece)))
        comma = ","
    tail = {"rows": blocks.n_rows, "bad_lines": blocks.n_skipped, "scores": blocks.scores()}
    yield f"\n], {json.dumps(finite(tail), allow_nan=False)[1:]}\n"


def _records(model: StoredModel, piece: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield a record of each prediction."""
    if model.labels is None:
        yield from ({"value": value} for value in piece.tolist())
        return
    values, name = piece, "margins" if piece.ndim > 1 else "margin"
    if _has_probabilities(model):
        values, name = _per_class(piece), "probabilities"
    for best, value in zip(_best(model, piece), values.tolist(), strict=True):
        yield {"label": model.labels[best], name: value}


def _has_probabilities(model: StoredModel) -> bool:
    return model.classes is not None and LINKS[model.loss] is not None


def _best(model: StoredModel, predictions: np.ndarray) -> Any:
    """Return the index of the most likely class of each row."""
    if predictions.ndim > 1:
        return predictions.argmax(axis=1)
    return (predictions > (0.5 if _has_probabilities(model) else 0)).astype(int)


def _per_class(predictions: np.ndarray) -> np.ndarray:
    """Return the probability of each class."""
    return predictions if predictions.ndim > 1 else np.column_stack([1 - predictions, predictions])


# ---- inspect and convert


def inspect(arguments: argparse.Namespace) -> int:
    """Run `tfopt inspect`."""
    model = _read(arguments.model)
    names = model.columns.features
    weights = np.atleast_2d(model.weights)
    labels: tuple[Any, ...] = (None,)
    if model.labels is not None:
        labels = model.labels if len(weights) > 1 else model.labels[1:]
    classes = []
    for label, row, bias in zip(labels, weights, model.bias, strict=True):
        order = np.argsort(-np.abs(row), kind="stable")[: arguments.top]
        order = order[row[order] != 0]
        numbers = (order + (not model.zero_based)).tolist()
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
        "link": LINKS[model.loss],
        "classes": model.labels,
        "features": model.n_features,
        "zero_based": model.zero_based,
        "has_names": names is not None,
        "optimizer": model.optimizer,
        "settings": model.settings,
        "tfopt": model.tfopt_version,
        "models": classes,
    }
    if arguments.json:
        print_json(facts)
    else:
        _print_model(model, classes)
    return 0


def _print_model(model: StoredModel, classes: list[dict[str, Any]]) -> None:
    settings = {"optimizer": model.optimizer.get("name"), **model.settings}
    shown = [f"{name} {value}" for name, value in settings.items() if value not in (None, {})]
    base = "named" if model.columns.features else f"counted from {0 if model.zero_based else 1}"
    echo(f"loss      {model.loss}")
    if model.labels:
        echo(f"classes   {', '.join(map(show_label, model.labels))}")
    echo(f"features  {model.n_features}, {base}")
    echo(f"settings  {', '.join(shown)}")
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
    write_model(arguments.out, _read(arguments.model))
    return 0
