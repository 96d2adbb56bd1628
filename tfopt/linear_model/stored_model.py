"""The content of model files and documents, and the conversion from and to estimators."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from tfopt.core.documents import LABELS, are_labels
from tfopt.core.versions import __version__
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.io.hashed_model import HashedModel
from tfopt.io.text_options import HashedText
from tfopt.linear_model.classifier import SDCAClassifier
from tfopt.linear_model.encoding import Encoding
from tfopt.linear_model.estimator import SDCAEstimator
from tfopt.linear_model.ftrl import FTRLClassifier, FTRLRegressor
from tfopt.linear_model.loss_record import PointwiseLoss
from tfopt.linear_model.losses import LOSSES, loss_of
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.regressor import SDCARegressor

__all__ = [
    "LINKS",
    "Columns",
    "StoredModel",
    "estimator_of",
    "hashed_form",
    "stored_model_of",
]

#: The link of each loss, from a mean response or probabilities to margins; None if there is none.
LINKS = {name: loss.link for name, loss in LOSSES.items()}
#: The estimators that have the same parameters as the loaded estimators.
_SAME_PARAMETERS = {
    f"{family}{kind}{ending}"
    for family in ("Linear", "SDCA")  # the latter is the name in earlier versions
    for kind in ("Classifier", "Regressor")
    for ending in ("", "CV")
}


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of a table's columns, which are stored with a model.

    Attributes
    ----------
    features : tuple of str, or None
        None if features have no names.
    label : str or None
    classes : tuple of str, or None
        The labels, if they are text; their numbers are then 0, 1, ...
    encoding : Encoding or None
        The encoding of the columns as features; None: features are columns.
    """

    features: tuple[str, ...] | None = None
    label: str | None = None
    classes: tuple[str, ...] | None = None
    encoding: Encoding | None = None

    def with_encoding(self, encoding: Encoding) -> Columns:
        """Return the columns with the features of an encoding."""
        known = None if encoding.is_plain else encoding
        return dataclasses.replace(self, features=encoding.features, encoding=known)


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """The stored parts of a model.

    Attributes
    ----------
    weights : ndarray of float64, shape (n_features,)
        For more than two classes, (n_classes, n_features); for several targets, a row for each.
    bias : ndarray of float64, shape (1,) or (n_classes,)
    loss : str
        One of `LINKS`.
    classes : tuple of float, int or bool, or None
        The labels in ascending order, all of one type; None for the losses of regression.
    zero_based : bool
        Whether features are counted from 0.
    optimizer : dict
        The optimizer's ``get_config()``, or only its name.
    settings : dict
        The settings of the training run.
    columns : Columns
    tfopt_version : str
    reading : HashedText or None
        The options with which text was read as hashed features.
    """

    weights: np.ndarray
    bias: np.ndarray
    loss: str
    classes: tuple[float, ...] | None
    zero_based: bool
    optimizer: dict[str, Any]
    settings: dict[str, Any]
    columns: Columns = Columns()
    tfopt_version: str = __version__
    reading: HashedText | None = None

    @property
    def link(self) -> str | None:
        return LINKS[self.loss]

    @property
    def n_features(self) -> int:
        return int(self.weights.shape[-1])

    @property
    def labels(self) -> tuple[Any, ...] | None:
        """The classes as the user named them: text or numbers."""
        return self.columns.classes or self.classes

    @property
    def phi(self) -> PointwiseLoss:
        """The record of the loss with its parameter."""
        return loss_of(self.loss, self.settings)

    @property
    def loss_parameters(self) -> dict[str, float | list[float]]:
        """The parameter of the loss by its name, a value or several, from the settings or default.

        Raises
        ------
        ValueError
            If a value in the settings is out of range.
        """
        option = LOSSES[self.loss].option
        if option is None:
            return {}
        given = self.settings.get(option.name)
        several = option.several(given)
        return {option.name: option.checked(given) if several is None else list(several)}

    @property
    def has_several(self) -> bool:
        """Whether there are coefficients for several values of the loss's parameter."""
        return any(isinstance(value, list) for value in self.loss_parameters.values())


def stored_model_of(estimator: Any, dtype: Any = None) -> StoredModel | HashedModel:
    """Return the stored parts of a fitted estimator of `tfopt.linear_model`.

    `dtype` is the dtype of the weights of hashed features, float64 by default.

    Raises
    ------
    InvalidTypeError
        If `estimator` is another object.
    NotFittedError
        If it is not fitted.
    InvalidArgumentError
        For labels without a type in `LABELS`, and coefficients that are not finite in `dtype`.
    """
    if not isinstance(estimator, LinearModel):
        raise InvalidTypeError(
            f"an estimator of tfopt.linear_model was expected, not {type(estimator).__name__}"
        )
    check_is_fitted(estimator)
    # in C order, so that equal models give equal files
    weights = np.atleast_2d(np.array(estimator._dense_coef(), dtype=np.float64, order="C"))
    bias = np.array(estimator.intercept_, dtype=np.float64).reshape(-1)
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise InvalidArgumentError("the coefficients must be finite")
    classes, class_names = None, None
    is_hashed = getattr(estimator, "n_hashes", None) is not None
    if dtype is not None and not is_hashed:
        raise InvalidArgumentError("dtype is for models of hashed features: others have float64")
    if hasattr(estimator, "classes_"):
        classes = tuple(estimator.classes_.tolist())
        if not are_labels(classes) or len({*map(type, classes)}) > 1:
            raise InvalidArgumentError(
                "the labels must be strings, floats, booleans or integers of 64 bits with a sign, "
                f"and all of one type, not {list(classes[:5])}"
            )
        if type(classes[0]) is str and not is_hashed:
            classes, class_names = tuple(map(float, range(len(classes)))), classes
    names = getattr(estimator, "feature_names_in_", None)
    features = None if names is None else tuple(map(str, names))
    encoding = getattr(estimator, "encoding_", None)
    if encoding is not None and encoding.features != features:  # the model was fitted again
        encoding = None
    parameters = estimator.get_params()
    # a choice between penalties has the parameters of its model
    parameters |= {name: getattr(estimator, f"{name}_", parameters[name]) for name in ("l1", "l2")}
    settings, option = _plain(parameters), LOSSES[estimator.loss].option
    if option is not None and (several := option.several(parameters.get(option.name))):
        settings[option.name] = list(several)
    if is_hashed:
        optimizer, reading = (
            {"name": type(estimator).__name__},
            getattr(estimator, "reading_", None),
        )
        known = estimator.loss, classes, reading, optimizer, settings
        return _hashed_model(weights, bias, *known, dtype=dtype)
    return StoredModel(
        weights=weights[0] if len(weights) == 1 else weights,
        bias=bias,
        loss=estimator.loss,
        classes=classes,
        zero_based=True,
        optimizer={"name": type(estimator).__name__},
        settings=settings,
        columns=Columns(features, None, class_names, encoding),
    )


def hashed_form(model: StoredModel) -> HashedModel:
    """Return a model of hashed text in the form of its file, without weights that are 0."""
    known = model.loss, model.labels, model.reading, model.optimizer, model.settings
    return _hashed_model(np.atleast_2d(model.weights), model.bias, *known)


def _hashed_model(
    weights: np.ndarray,
    bias: np.ndarray,
    name: str,
    labels: tuple[Any, ...] | None,
    reading: HashedText | None,
    optimizer: dict[str, Any],
    settings: dict[str, Any],
    dtype: Any = None,
) -> HashedModel:
    kept = np.float64 if dtype is None else np.dtype(dtype)
    if kept not in (np.float32, np.float64):
        raise InvalidArgumentError(f"dtype must be float32 or float64, not {kept}")
    with np.errstate(over="ignore"):
        rounded = weights.astype(kept)
    if not np.isfinite(rounded).all():
        raise InvalidArgumentError("there are coefficients that float32 does not have")
    indices, loss = np.flatnonzero(rounded.any(axis=0)).astype(np.int32), LOSSES[name]
    parameters = {}
    if loss.option is not None:
        parameters[loss.option.name] = loss.option.checked(settings.get(loss.option.name))
    return HashedModel(
        n_hashes=weights.shape[1],
        indices=indices,
        weights=rounded[:, indices],
        bias=bias,
        loss=name,
        link=loss.link,
        loss_parameters=parameters,
        labels=labels,
        reading=reading,
        optimizer=optimizer,
        settings=settings,
    )


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are numbers, text or None, as Python types."""
    plain = {name: _as_plain(value) for name, value in settings.items()}
    return {name: value for name, value in plain.items() if _is_plain(value)}


def _as_plain(value: Any) -> Any:
    """Return a number as a Python type, and other values unchanged."""
    if isinstance(value, np.generic):
        value = value.item()
    is_other = isinstance(value, numbers.Real) and not isinstance(value, (int, float))
    return float(value) if is_other else value


def _is_plain(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def _parameters_of(model: StoredModel, kind: type[SDCAEstimator]) -> dict[str, Any]:
    """Return the parameters of an estimator that a model has stored."""
    names: Iterable[str] = kind._PARAMETERS
    if model.optimizer.get("name") in _SAME_PARAMETERS:
        names = kind._get_param_names()
    settings = _plain(model.settings) | {"loss": model.loss}
    if model.has_several:
        settings |= model.loss_parameters
    # the command line stores None for parameters that are not given
    return {
        name: value
        for name, value in settings.items()
        if name in (*names, "loss") and value is not None
    }


def estimator_of(model: StoredModel | HashedModel) -> Any:
    """Return an estimator with the predictions of a stored model."""
    estimator: Any
    if isinstance(model, HashedModel):
        return _hashed_estimator(model)
    if model.labels is None:
        estimator = SDCARegressor(**_parameters_of(model, SDCARegressor))
        estimator.coef_, estimator.intercept_ = model.weights, model.bias
        if model.has_several:
            estimator.coef_ = np.atleast_2d(model.weights)
        elif model.weights.ndim == 1:
            estimator.intercept_ = float(model.bias[0])
    else:
        estimator = SDCAClassifier(**_parameters_of(model, SDCAClassifier))
        estimator.coef_, estimator.intercept_ = np.atleast_2d(model.weights), model.bias
        estimator.classes_ = np.array(model.labels, LABELS[type(model.labels[0]).__name__])
    estimator.n_features_in_ = model.n_features
    if model.columns.features is not None:
        estimator.feature_names_in_ = np.array(model.columns.features, dtype=object)
    if model.columns.encoding is not None:  # for `stored_model_of`
        estimator.encoding_ = model.columns.encoding
    return estimator


def _hashed_estimator(model: HashedModel) -> FTRLClassifier | FTRLRegressor:
    kind: Any = FTRLRegressor if model.labels is None else FTRLClassifier
    settings = model.settings if model.optimizer.get("name") == kind.__name__ else {}
    known = {name: value for name, value in settings.items() if name in kind._get_param_names()}
    if model.loss not in kind._LOSSES:
        raise InvalidArgumentError(f'the document has no valid "loss": {model.loss!r}')
    known = {**model.loss_parameters, **known, "loss": model.loss, "n_hashes": model.n_hashes}
    estimator = kind(**known)
    n_problems = len(model.bias)
    ends = np.arange(n_problems + 1) * model.indices.size
    parts = model.weights.ravel(), np.tile(model.indices, n_problems), ends
    estimator.coef_ = sparse.csr_matrix(parts, (n_problems, model.n_hashes), dtype=np.float64)
    estimator.intercept_ = model.bias
    if model.labels is not None:
        estimator.classes_ = np.array(model.labels, LABELS[type(model.labels[0]).__name__])
    estimator.n_features_in_, estimator.reading_ = model.n_hashes, model.reading
    return estimator  # type: ignore[no-any-return]
