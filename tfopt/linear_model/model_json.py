"""Linear models as JSON documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfopt.checkpoints.framing import MOST_THINGS
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.losses import LOSSES
from tfopt.linear_model.sdca_classifier import SDCAClassifier
from tfopt.linear_model.sdca_regressor import SDCARegressor
from tfopt.linear_model.stored_model import (
    LABELS,
    LINKS,
    Columns,
    StoredModel,
    are_labels,
    estimator_of,
    stored_model_of,
)

__all__ = ["from_json", "parse_json", "to_json", "write_json"]

#: What the document says of itself.
SCHEMA, VERSION = "tfopt.linear_model", 1


def to_json(model: Any, **options: Any) -> str:
    """Return a fitted linear model as a JSON document.

    `save_model` and ``tfopt convert`` write the same documents to files.

    Parameters
    ----------
    model : estimator
        Any of `tfopt.linear_model`, but those of hashed features.
    **options
        Of `json.dumps`, such as ``indent=2``.

    Returns
    -------
    str
        An object with these entries:

        - ``"schema"``: ``"tfopt.linear_model"``, and ``"version"``: 1, which grows when an entry
          changes its meaning or goes;
        - ``"tfopt"``: the version that has written it;
        - ``"loss"``, and ``"link"``: ``"logit"``, ``"softmax"`` (for two classes the logit),
          ``"identity"`` or ``"log"``, or null for a loss without probabilities;
        - ``"classes"``: the labels in order, or null for regression; and ``"label_type"``:
          ``"bool"``, ``"int"``, ``"float"``, ``"str"`` or null;
        - ``"feature_names"``: an array of strings, or null; ``"label_name"``: a string, or null;
        - ``"zero_based"``: whether features without names are counted from 0;
        - ``"coefficients"``: an array for each class or target, one for two classes;
        - ``"intercepts"``: a number for each of these;
        - ``"optimizer"`` and ``"settings"``: objects that say how the model was trained.

        Numbers are written such that they are read back with the same bits.

    Raises
    ------
    InvalidTypeError
        If `model` is another object.
    InvalidArgumentError
        For hashed features, labels that JSON has not, and coefficients that are not finite.
    NotFittedError
        For a model that is not fitted.

    Examples
    --------
    >>> from tfopt.linear_model import SDCARegressor, from_json, to_json
    >>> model = SDCARegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> text = to_json(model)
    >>> from_json(text).predict([[4.0]]) == model.predict([[4.0]])
    array([ True])
    """
    return write_json(stored_model_of(model), **options)


def from_json(text: str) -> SDCAClassifier | SDCARegressor:
    """Return the model of a document of `to_json`: an estimator that predicts the same.

    Parameters
    ----------
    text : str

    Returns
    -------
    SDCAClassifier or SDCARegressor
        Without the attributes of a fit, such as `dual_gap_`. With ``warm_start=True`` a fit may go
        on from its weights. Its parameters are as of `load_model`.

    Raises
    ------
    InvalidArgumentError
        Unless the text is such a document, of a version that is known. The message says which entry
        is wrong.
    """
    return estimator_of(parse_json(text))


def write_json(model: StoredModel, **options: Any) -> str:
    """Return the document of a model; see `to_json`."""
    labels = model.labels
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "tfopt": model.tfopt_version,
        "loss": model.loss,
        "link": LINKS[model.loss],
        "classes": labels,
        "label_type": None if labels is None else type(labels[0]).__name__,
        "feature_names": model.columns.features,
        "label_name": model.columns.label,
        "zero_based": model.zero_based,
        "coefficients": np.atleast_2d(model.weights).tolist(),
        "intercepts": model.bias.tolist(),
        "optimizer": model.optimizer,
        "settings": model.settings,
    }
    return json.dumps(document, **{"allow_nan": False, **options})


def parse_json(text: str | bytes) -> StoredModel:
    """Return the model of a document; raise InvalidArgumentError if it is not valid."""
    if _has_too_many(text):
        raise InvalidArgumentError("the text has too many objects and arrays")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the text is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InvalidArgumentError(f'the document must be an object with "schema": "{SCHEMA}"')
    if document.get("version") != VERSION:
        raise InvalidArgumentError(
            f"the document's version is {document.get('version')!r}, and {VERSION} is known"
        )
    for name, is_valid in _ENTRIES.items():
        if name not in document or not is_valid(document[name]):
            raise InvalidArgumentError(f'the document has no valid "{name}"')
    loss, link, labels = (document[name] for name in ("loss", "link", "classes"))
    if link != LINKS[loss]:
        raise InvalidArgumentError(f'"link" does not fit "loss": "{loss}"')
    classes, class_names = _classes(loss, labels, document["label_type"])
    coef, intercepts = document["coefficients"], document["intercepts"]
    names = document["feature_names"]
    n_problems = 1 if labels is None or len(labels) == 2 else len(labels)
    if LOSSES[loss].is_quadratic:
        n_problems = max(len(coef), 1)
    widths = {len(row) for row in coef} | ({len(names)} if names is not None else set())
    if len(coef) != n_problems or len(intercepts) != n_problems or len(widths) != 1:
        raise InvalidArgumentError(
            '"coefficients", "intercepts", "classes" and "feature_names" have other lengths'
        )
    weights = np.array(coef, np.float64)
    return StoredModel(
        weights=weights[0] if n_problems == 1 else weights,
        bias=np.array(intercepts, np.float64),
        loss=loss,
        classes=classes,
        zero_based=document["zero_based"],
        optimizer=document["optimizer"],
        settings=document["settings"],
        columns=Columns(
            None if names is None else tuple(names), document["label_name"], class_names
        ),
        tfopt_version=document["tfopt"],
    )


def _has_too_many(text: str | bytes) -> bool:
    """Return whether a text, not yet parsed, has more objects and arrays than a model needs.

    They take up to thirty times as much memory as text, and numbers and strings less than half.
    """
    marks: Any = "[{:" if isinstance(text, str) else (b"[", b"{", b":")
    return sum(text.count(mark) for mark in marks) > MOST_THINGS + len(text) // 32


def _classes(
    loss: str, labels: list[Any] | None, label_type: str | None
) -> tuple[tuple[float, ...] | None, tuple[str, ...] | None]:
    """Return the classes as numbers, and their names if they are text."""
    is_classifier = LOSSES[loss].is_classification
    if is_classifier != (labels is not None) or is_classifier != (label_type is not None):
        raise InvalidArgumentError(f'"classes" and "label_type" do not fit "loss": "{loss}"')
    if labels is None:
        return None, None
    if any(type(label).__name__ != label_type for label in labels):
        raise InvalidArgumentError(f'"classes" must be of the "label_type" "{label_type}"')
    if label_type == "str":
        return tuple(map(float, range(len(labels)))), tuple(labels)
    if labels != sorted(labels):
        raise InvalidArgumentError('"classes" must be in ascending order')
    return tuple(labels), None


def _is_array_of(*kinds: type) -> Callable[[Any], bool]:
    """Return whether a value is an array of these types, without numbers that are too large."""
    return lambda value: (
        isinstance(value, list)
        and all(
            type(each) in kinds and (type(each) is str or abs(each) <= sys.float_info.max)
            for each in value
        )
    )


def _is_one_of(names: Sequence[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in names


def _or_null(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_valid(value)


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


_are_numbers = _is_array_of(int, float)
_ENTRIES: dict[str, Callable[[Any], bool]] = {
    "tfopt": _is(str),
    "loss": _is_one_of([*LINKS]),
    "link": _or_null(_is(str)),
    "classes": _or_null(are_labels),
    "label_type": _or_null(_is_one_of([*LABELS])),
    "feature_names": _or_null(_is_array_of(str)),
    "label_name": _or_null(_is(str)),
    "zero_based": _is(bool),
    "coefficients": lambda value: isinstance(value, list) and all(map(_are_numbers, value)),
    "intercepts": _are_numbers,
    "optimizer": _is(dict),
    "settings": _is(dict),
}
