"""Files of linear models, ``.npz`` or JSON, for estimators and for the command line."""

from __future__ import annotations

import os
from typing import Any

from tfopt.core.atomic_write import replacing
from tfopt.errors import FileFormatError, InvalidArgumentError
from tfopt.imports import imported
from tfopt.io.hashed_model import HashedModel
from tfopt.linear_model.classifier import SDCAClassifier
from tfopt.linear_model.ftrl import FTRLClassifier, FTRLRegressor
from tfopt.linear_model.model_json import parse_json, write_json
from tfopt.linear_model.model_npz import encode_npz, parse_npz
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.regressor import SDCARegressor
from tfopt.linear_model.stored_model import (
    StoredModel,
    estimator_of,
    hashed_form,
    stored_model_of,
)

__all__ = ["encode_model", "load_model", "read_model", "save_model"]


def load_model(
    path: str | os.PathLike[str],
) -> SDCAClassifier | SDCARegressor | FTRLClassifier | FTRLRegressor:
    """Load a model file as a fitted estimator.

    Parameters
    ----------
    path : path-like
        A file of ``tfopt train``, `save_model` or ``tfopt convert``, or a document of `to_json`.

    Returns
    -------
    SDCAClassifier or SDCARegressor
        For hashed features, FTRLClassifier or FTRLRegressor with a sparse `coef_`. The estimator
        has `coef_`, `intercept_`, `classes_`, `n_features_in_` and, if the file has names,
        `feature_names_in_`. Its `loss` and that loss's parameter are those of the model. If an SDCA
        estimator was saved, its other parameters in the file are set, too. The penalties of ``tfopt
        train`` apply to the mean loss, so they are not set.

    Raises
    ------
    FileFormatError
        If it is not a model file or is damaged.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> from tfopt.linear_model import SDCAClassifier, load_model, save_model
    >>> path = os.path.join(tempfile.mkdtemp(), "model.json")
    >>> save_model(path, SDCAClassifier().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]))
    >>> load_model(path).predict([[0.5], [2.5]])
    array([0, 1])
    """
    estimator: SDCAClassifier | SDCARegressor | FTRLClassifier | FTRLRegressor
    estimator = estimator_of(read_model(path))
    return estimator


def save_model(path: str | os.PathLike[str], estimator: LinearModel, *, dtype: Any = None) -> None:
    """Write a fitted estimator to a model file, atomically.

    Parameters
    ----------
    path : path-like
        The suffix ``.json`` means the document of `to_json`; ``.onnx`` means an ONNX graph, which
        takes float32, needs skl2onnx and cannot be loaded by `load_model`; ``.npz`` or no suffix
        means an ``.npz`` archive.
    estimator : SDCAClassifier, SDCARegressor, FTRLClassifier or FTRLRegressor
        Its coefficients, classes, names and parameters are stored, but not its dual variables,
        history or state: a loaded model predicts, but cannot continue to learn. For hashed features
        the file has the nonzero weights, and the reading options of `tfopt.io.iter_hashed` if that
        read the text.
    dtype : {float64, float32}, optional
        The dtype of the weights of hashed features. float32 takes a third less space, and rounds
        each weight by at most 2^-24 of its size; with 32 features and weights up to 1, a margin
        changes by at most 2e-6.

    Raises
    ------
    InvalidTypeError
        If `estimator` is another object.
    NotFittedError
        If it is not fitted.
    InvalidArgumentError
        For another suffix, or a `dtype` that does not apply; if the labels or coefficients cannot
        be stored; and for a graph of a model with hashed features.
    ImportError
        For ``.onnx`` without skl2onnx.
    OSError
        If the file cannot be written.
    """
    content = encode_model(stored_model_of(estimator, dtype), os.fspath(path))
    with replacing(path) as file:
        file.write(content)


def encode_model(model: StoredModel | HashedModel, path: str) -> bytes:
    """Return the content of a model file in the format of its suffix."""
    suffix = os.path.splitext(path.lower())[1]
    if suffix not in _FORMS:
        *known, last = (form for form in _FORMS if form)
        raise InvalidArgumentError(
            f"the name of a model file must end in {', '.join(known)} or {last}, not {suffix!r}"
        )
    if isinstance(model, StoredModel) and model.reading is not None:
        model = hashed_form(model)
    return _FORMS[suffix](model)


def _encode_json(model: StoredModel | HashedModel) -> bytes:
    return write_json(model).encode() + b"\n"


def _encode_onnx(model: StoredModel | HashedModel) -> bytes:
    encoding = None if isinstance(model, HashedModel) else model.columns.encoding
    estimator = estimator_of(model)
    content: bytes = imported("tfopt.interop.onnx").encoded(estimator, encoding)
    return content


_FORMS = {"": encode_npz, ".npz": encode_npz, ".json": _encode_json, ".onnx": _encode_onnx}


def read_model(path: str | os.PathLike[str]) -> StoredModel | HashedModel:
    """Read a model file and check everything in it.

    Parameters
    ----------
    path : path-like
        An ``.npz`` or JSON file, with any name.

    Returns
    -------
    StoredModel or HashedModel

    Raises
    ------
    FileFormatError
        If the file is not valid; the message names the file and the fault.
    OSError
        If it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            if file.read(1) == b"{":
                return parse_json(b"{" + file.read())
            return parse_npz(file)
    except InvalidArgumentError as error:
        reason = f"is not a model that this tfopt reads: {error}"
        raise FileFormatError(os.fspath(path), reason) from error
    except OSError as error:
        if error.filename is not None:
            raise
        raise FileFormatError(os.fspath(path), error.strerror or "is damaged") from error
