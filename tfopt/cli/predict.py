"""`tfopt predict`: apply a model to data.

For a model of hashed text it loads no scikit-learn, unless there are labels to score.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfopt.cli.files import (
    SCHEMA,
    CommandError,
    check_writable,
    finite,
    note,
    note_bad_lines,
    show_label,
    write_atomically,
)
from tfopt.io.hashed_model import read_hashed_model

# Rows per write: large enough to be quick, small enough that `| head` ends the command early.
_CHUNK = 8192


def run(arguments: argparse.Namespace) -> int:
    """Run `tfopt predict`."""
    if arguments.output:
        check_writable(arguments.output, arguments.model, arguments.data)
    elif sys.stdout is None:
        raise CommandError("<stdout>: is closed")
    keeps = not arguments.quiet and (sys.stderr is not None or arguments.json)
    model, blocks = _opened(arguments, keeps)
    if arguments.labels and model.labels is None:
        raise CommandError(f"{arguments.model}: a {model.loss} loss has no labels")
    if arguments.offset is not None and len(model.bias) > 1:
        raise CommandError(f"{arguments.model}: --offset is for two classes, or for numbers")
    if arguments.proba and not _has_probabilities(model):
        raise CommandError(f"{arguments.model}: --proba needs a logistic loss, not {model.loss}")
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
        from tfopt.cli.metrics import score_line  # loaded if needed only

        note(score_line(scores))
    return 0


def _opened(arguments: argparse.Namespace, keeps: bool) -> tuple[Any, Any]:
    """Return the model, and the predictions of the data with what scores need of them."""
    hashed = read_hashed_model(arguments.model)
    if hashed is not None:
        from tfopt.cli.hashed import HashedBlocks  # loaded if needed only

        return hashed, HashedBlocks(arguments, hashed, keeps)
    from tfopt.cli.models import Blocks, read_stored  # loaded if needed only

    model: Any = read_stored(arguments.model)
    return model, Blocks(arguments, model, keeps)


def _pieces(blocks: Any) -> Iterator[np.ndarray]:
    for predictions in blocks:
        for start in range(0, len(predictions), _CHUNK):
            yield predictions[start : start + _CHUNK]


def _text_of(arguments: argparse.Namespace, model: Any, blocks: Any) -> Iterator[str]:
    """Yield the output, piece by piece, with round-trip precision."""
    labels = [] if model.labels is None else [show_label(label) for label in model.labels]
    if arguments.json:
        yield from _json_of(arguments, model, blocks)
        return
    if arguments.proba:
        yield f"labels {' '.join(labels)}\n"
    for piece in _pieces(blocks):
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


def _json_of(arguments: argparse.Namespace, model: Any, blocks: Any) -> Iterator[str]:
    """Yield one JSON object, with a row on each line."""
    head = {"schema": SCHEMA, "command": "predict", "model": arguments.model}
    head |= {"data": arguments.data, "loss": model.loss, "classes": model.labels}
    yield json.dumps(head)[:-1] + ', "predictions": ['
    comma = ""
    for piece in _pieces(blocks):
        yield comma + "\n" + ",\n".join(map(json.dumps, _records(model, piece)))
        comma = ","
    tail = {"rows": blocks.n_rows, "bad_lines": blocks.n_skipped, "scores": blocks.scores()}
    yield f"\n], {json.dumps(finite(tail), allow_nan=False)[1:]}\n"


def _records(model: Any, piece: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield a record of each prediction."""
    if model.labels is None:
        yield from ({"value": value} for value in piece.tolist())
        return
    values, name = piece, "margins" if piece.ndim > 1 else "margin"
    if _has_probabilities(model):
        values, name = _per_class(piece), "probabilities"
    for best, value in zip(_best(model, piece), values.tolist(), strict=True):
        yield {"label": model.labels[best], name: value}


def _has_probabilities(model: Any) -> bool:
    return model.labels is not None and model.link is not None


def _best(model: Any, predictions: np.ndarray) -> Any:
    """Return the index of the most likely class of each row."""
    if predictions.ndim > 1:
        return predictions.argmax(axis=1)
    return (predictions > (0.5 if _has_probabilities(model) else 0)).astype(int)


def _per_class(predictions: np.ndarray) -> np.ndarray:
    """Return the probability of each class."""
    return predictions if predictions.ndim > 1 else np.column_stack([1 - predictions, predictions])
