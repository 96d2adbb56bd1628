"""The schema of stored linear models: JSON documents, and the check of all that is read.

An ``.npz`` archive holds the same document, with its numbers as arrays.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tfopt.core.documents import LABELS, are_labels, parse_document
from tfopt.errors import InvalidArgumentError
from tfopt.io.hashed_model import SCHEMA as HASHED_SCHEMA
from tfopt.io.hashed_model import HashedModel, arrays_in, hashed_model
from tfopt.linear_model.classifier import SDCAClassifier
from tfopt.linear_model.encoding import Encoding
from tfopt.linear_model.ftrl import FTRLClassifier, FTRLRegressor
from tfopt.linear_model.losses import LOSSES
from tfopt.linear_model.regressor import SDCARegressor
from tfopt.linear_model.stored_model import (
    LINKS,
    Columns,
    StoredModel,
    estimator_of,
    stored_model_of,
)

__all__ = [
    "ARRAYS",
    "SCHEMA",
    "arrays_of",
    "check_document",
    "document_of",
    "from_json",
    "parse_json",
    "stored_model",
    "to_json",
    "write_json",
]

#: The schema and version of a document. Version 2 added "loss_parameters" and "encoding". Version
#: 3, only for models of several quantiles, has several values of the former.
SCHEMA, VERSION, OF_SEVERAL = "tfopt.linear_model", 2, 3
#: The entries that are arrays of numbers, stored as such in an archive.
ARRAYS = ("coefficients", "intercepts")


def to_json(model: Any, **options: Any) -> str:
    """Return a fitted linear model as a JSON document.

    `save_model` and ``tfopt convert`` write the same documents to files.

    Parameters
    ----------
    model : estimator
        Any fitted estimator of `tfopt.linear_model`.
    **options
        Options of `json.dumps`, such as ``indent=2``.

    Returns
    -------
    str
        An object with these entries:

        - ``"schema"``: ``"tfopt.linear_model"``, and ``"version"``: 2, or 3 for several quantiles;
          it is incremented when an entry is added, removed or changes its meaning; documents of
          version 1 are read, too;
        - ``"tfopt"``: the version that wrote it;
        - ``"loss"``, and ``"link"``: ``"logit"``, ``"softmax"`` (for two classes the logit),
          ``"identity"`` or ``"log"``, or null for a loss without probabilities;
        - ``"loss_parameters"``: an object with the loss's parameter, if it has one, by the name
          of the estimators' option, such as ``"gamma"``; for several quantiles an array of them;
        - ``"classes"``: the labels in order, or null for regression; and ``"label_type"``:
          ``"bool"``, ``"int"``, ``"float"``, ``"str"`` or null;
        - ``"feature_names"``: an array of strings, or null; ``"label_name"``: a string, or null;
        - ``"encoding"``: an object that describes how the columns of a table become features, with
          the ``"version"`` 1; only for a table that has more than numbers;
        - ``"zero_based"``: whether features without names are counted from 0;
        - ``"coefficients"``: an array for each class, target or quantile; two classes have one;
        - ``"intercepts"``: a number for each of these arrays;
        - ``"optimizer"`` and ``"settings"``: objects that describe the training.

        Numbers are read back with the same bits. For hashed features, the ``"schema"`` is
        ``"tfopt.hashed_model"``, with ``"version"`` 1. The document has the entries above that do
        not describe columns, and ``"n_hashes"``; ``"reading"``: the options of
        `tfopt.io.iter_hashed`, or null; ``"indices"``: the hashes with a nonzero coefficient, in
        ascending order, to which ``"coefficients"`` belong; and the ``"dtype"`` of these.

    Raises
    ------
    InvalidTypeError
        If `model` is another object.
    InvalidArgumentError
        For labels that JSON cannot represent, and for non-finite coefficients.
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


def from_json(text: str) -> SDCAClassifier | SDCARegressor | FTRLClassifier | FTRLRegressor:
    """Return the model of a document of `to_json`: an estimator that predicts the same.

    Parameters
    ----------
    text : str

    Returns
    -------
    SDCAClassifier or SDCARegressor
        For hashed features, FTRLClassifier or FTRLRegressor. The estimator lacks attributes of a
        fit, such as `dual_gap_`. With ``warm_start=True`` a fit may start from its weights. Its
        parameters are those that `load_model` sets.

    Raises
    ------
    InvalidArgumentError
        If the text is not such a document of a known version. The message names the wrong entry.
    """
    estimator: SDCAClassifier | SDCARegressor | FTRLClassifier | FTRLRegressor
    estimator = estimator_of(parse_json(text))
    return estimator


def document_of(model: StoredModel) -> dict[str, Any]:
    """Return the stored parts of a model except its numbers."""
    labels, encoding = model.labels, model.columns.encoding
    stored = {} if encoding is None else {"encoding": encoding.to_json()}
    return stored | {
        "schema": SCHEMA,
        "version": OF_SEVERAL if model.has_several else VERSION,
        "tfopt": model.tfopt_version,
        "loss": model.loss,
        "loss_parameters": model.loss_parameters,
        "link": LINKS[model.loss],
        "classes": labels,
        "label_type": None if labels is None else type(labels[0]).__name__,
        "feature_names": model.columns.features,
        "label_name": model.columns.label,
        "zero_based": model.zero_based,
        "optimizer": model.optimizer,
        "settings": model.settings,
    }


def arrays_of(model: StoredModel) -> dict[str, np.ndarray]:
    """Return the numbers of a model as arrays, with their names in `ARRAYS`."""
    return {"coefficients": np.atleast_2d(model.weights), "intercepts": model.bias}


def write_json(model: StoredModel | HashedModel, **options: Any) -> str:
    """Return the document of a model; see `to_json`."""
    options = {"allow_nan": False, **options}
    if isinstance(model, HashedModel):
        return json.dumps(model.whole_document(), **options)
    numbers = {name: array.tolist() for name, array in arrays_of(model).items()}
    return json.dumps(document_of(model) | numbers, **options)


def parse_json(text: str | bytes) -> StoredModel | HashedModel:
    """Return the model of a document; raise InvalidArgumentError if it is not valid."""
    document = parse_document(text, SCHEMA)
    if document.get("schema") == HASHED_SCHEMA:
        return hashed_model(document, arrays_in(document))
    check_document(document)
    arrays = {}
    for name, is_valid in (("coefficients", _are_rows), ("intercepts", _are_numbers)):
        if not is_valid(document.get(name)):
            raise InvalidArgumentError(f'the document has no valid "{name}"')
        arrays[name] = np.array(document[name], np.float64)
    return stored_model(document, arrays)


def stored_model(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> StoredModel:
    """Return the model of a checked document and its numbers.

    Raises
    ------
    InvalidArgumentError
        If the document does not match the numbers.
    """
    loss, labels, names = (document[name] for name in ("loss", "classes", "feature_names"))
    coef, intercepts = (arrays[name] for name in ARRAYS)
    classes, class_names = _classes(loss, labels, document["label_type"])
    n_problems = 1 if labels is None or len(labels) == 2 else len(labels)
    if LOSSES[loss].is_quadratic and coef.ndim == 2:
        n_problems = max(len(coef), 1)
    for values in document.get("loss_parameters", {}).values():
        n_problems = len(values) if isinstance(values, list) else n_problems
    n_features = len(names) if names is not None else coef.shape[-1] if coef.ndim else 0
    for name, shape in zip(ARRAYS, ((n_problems, n_features), (n_problems,)), strict=True):
        _check_array(name, arrays[name], shape)
    model = StoredModel(
        weights=coef[0] if n_problems == 1 else coef,
        bias=intercepts,
        loss=loss,
        classes=classes,
        zero_based=document["zero_based"],
        optimizer=document["optimizer"],
        settings=document["settings"],
        columns=Columns(
            None if names is None else tuple(names),
            document["label_name"],
            class_names,
            _encoding(document),
        ),
        tfopt_version=document["tfopt"],
    )
    return _with_parameters(model, document.get("loss_parameters"))


def check_document(document: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError if an entry of a document is missing or not valid."""
    if document.get("schema") != SCHEMA:
        raise InvalidArgumentError(f'the document must be an object with "schema": "{SCHEMA}"')
    version = document.get("version")
    if type(version) is not int or not 1 <= version <= OF_SEVERAL:
        raise InvalidArgumentError(
            f"the document's version is {version!r}, and 1 to {OF_SEVERAL} are known"
        )
    for name, entry in _ENTRIES.items():
        is_valid = name in document and entry.is_valid(document[name])
        if not is_valid and (name in document or entry.since <= version):
            raise InvalidArgumentError(f'the document has no valid "{name}"')
    if document["link"] != LINKS[document["loss"]]:
        raise InvalidArgumentError(f'"link" does not fit "loss": "{document["loss"]}"')


def _check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidArgumentError(
            f'"{name}" must have the shape {shape} for these "classes" and "feature_names", not '
            f"{array.shape}"
        )
    if array.dtype != np.float64:
        raise InvalidArgumentError(f'"{name}" has dtype {array.dtype} instead of float64')
    if not np.isfinite(array).all():
        raise InvalidArgumentError(f'"{name}" has values that are not finite')


def _with_parameters(model: StoredModel, parameters: dict[str, Any] | None) -> StoredModel:
    """Return a model with these parameters of its loss; for None, those in its settings."""
    try:
        known = model.loss_parameters
        if parameters is not None and parameters != known:
            model = dataclasses.replace(model, settings=model.settings | parameters)
            known = model.loss_parameters
    except ValueError as error:
        reason = f'the document has no valid "loss_parameters": {error}'
        raise InvalidArgumentError(reason) from error
    if parameters is None and model.has_several:
        raise InvalidArgumentError('the document has no valid "loss_parameters"')
    if parameters is not None and parameters != known:
        raise InvalidArgumentError(f'"loss_parameters" does not fit "loss": "{model.loss}"')
    return model


def _encoding(document: Mapping[str, Any]) -> Encoding | None:
    if "encoding" not in document:
        return None
    encoding, names = Encoding.from_json(document["encoding"]), document["feature_names"]
    if names is None or encoding.features != tuple(names):
        raise InvalidArgumentError('"encoding" does not fit "feature_names"')
    return encoding


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


def _are(*kinds: type) -> Callable[[Any], bool]:
    """Return a check that a value is a list of these types, without numbers that are too large."""
    return lambda value: (
        isinstance(value, list)
        and all(
            type(each) in kinds and (type(each) is str or abs(each) <= sys.float_info.max)
            for each in value
        )
    )


_are_numbers = _are(int, float)


def _are_rows(value: Any) -> bool:
    """Return whether a value is a list of rows of numbers of equal length."""
    return (
        isinstance(value, list) and all(map(_are_numbers, value)) and len({*map(len, value)}) == 1
    )


class _Entry(NamedTuple):
    """An entry: the types of its value, a further check, and the first version that requires it."""

    kinds: tuple[type, ...]
    fits: Callable[[Any], bool] = lambda _: True
    since: float = 1

    def is_valid(self, value: Any) -> bool:
        return isinstance(value, self.kinds) and (value is None or self.fits(value))


_NULL = type(None)
_ENTRIES: dict[str, _Entry] = {
    "tfopt": _Entry((str,)),
    "loss": _Entry((str,), LINKS.__contains__),
    "loss_parameters": _Entry((dict,), since=2),
    "link": _Entry((str, _NULL)),
    "classes": _Entry((list, _NULL), are_labels),
    "label_type": _Entry((str, _NULL), LABELS.__contains__),
    "feature_names": _Entry((list, _NULL), _are(str)),
    "label_name": _Entry((str, _NULL)),
    "encoding": _Entry((dict,), since=math.inf),
    "zero_based": _Entry((bool,)),
    "optimizer": _Entry((dict,)),
    "settings": _Entry((dict,)),
}
