"""What files and documents of linear models hold, and how estimators become that and come back."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tfopt.core.versions import __version__
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.linear_model.ftrl import FTRLClassifier
from tfopt.linear_model.losses import LOSSES
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.sdca_classifier import SDCAClassifier
from tfopt.linear_model.sdca_regressor import SDCARegressor

__all__ = ["LABELS", "LINKS", "Columns", "StoredModel", "estimator_of", "stored_model_of"]

#: By loss: what turns a mean response or probabilities into margins; None: nothing does.
LINKS = {
    name: LOSSES[key].link
    for kind in (SDCAClassifier, SDCARegressor)
    for name, key in kind._LOSSES.items()
} | {"multinomial": "softmax"}
#: The NumPy types of labels, by the names of their Python types.
LABELS: dict[str, type] = {"bool": bool, "int": np.int64, "float": np.float64, "str": str}


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of a table's columns, which stay with a model.

    Attributes
    ----------
    features : tuple of str, or None
        None if features have no names.
    label : str or None
    classes : tuple of str, or None
        If labels are text; as numbers they are then 0, 1, ...
    """

    features: tuple[str, ...] | None = None
    label: str | None = None
    classes: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """What is stored of a model.

    Attributes
    ----------
    weights : ndarray of float64, shape (n_features,)
        Or, of more than two classes, (n_classes, n_features).
    bias : ndarray of float64, shape (1,) or (n_classes,)
    loss : str
        One of `LINKS`.
    classes : tuple of float, int or bool, or None
        The labels in ascending order, all of one type; None for the losses of regression.
    zero_based : bool
        Whether features are counted from 0.
    optimizer : dict
        The optimizer's ``get_config()``, or its name alone.
    settings : dict
        The settings of the training run.
    columns : Columns
    tfopt_version : str
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

    @property
    def n_features(self) -> int:
        return int(self.weights.shape[-1])

    @property
    def labels(self) -> tuple[Any, ...] | None:
        """The classes as a user knows them: text, or numbers."""
        return self.columns.classes or self.classes


def stored_model_of(estimator: Any) -> StoredModel:
    """Return what is stored of a fitted estimator of `tfopt.linear_model`.

    Raises
    ------
    InvalidTypeError
        If it is another object.
    NotFittedError
        If it has not been fitted.
    InvalidArgumentError
        For hashed features, labels without a type in `LABELS`, and coefficients that are not
        finite.
    """
    if not isinstance(estimator, LinearModel):
        raise InvalidTypeError(
            f"an estimator of tfopt.linear_model was expected, not {type(estimator).__name__}"
        )
    check_is_fitted(estimator)
    if getattr(estimator, "n_hashes", None) is not None:
        raise InvalidArgumentError("a model of hashed features takes dicts: it has no coefficients")
    weights = np.atleast_2d(np.array(estimator._dense_coef(), dtype=np.float64))
    bias = np.array(estimator.intercept_, dtype=np.float64).reshape(-1)
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise InvalidArgumentError("the coefficients must be finite")
    classes, class_names = None, None
    if hasattr(estimator, "classes_"):
        classes = tuple(estimator.classes_.tolist())
        kinds = {type(label).__name__ for label in classes}
        if len(kinds) > 1 or not kinds <= LABELS.keys():
            raise InvalidArgumentError(
                "the labels must be strings, integers, floats or booleans, and all of one type, "
                f"not {list(classes[:5])}"
            )
        if kinds == {"str"}:
            classes, class_names = tuple(map(float, range(len(classes)))), classes
    names = getattr(estimator, "feature_names_in_", None)
    parameters = estimator.get_params().items()
    return StoredModel(
        weights=weights[0] if len(weights) == 1 else weights,
        bias=bias,
        loss="logistic" if isinstance(estimator, FTRLClassifier) else estimator.loss,
        classes=classes,
        zero_based=True,
        optimizer={"name": type(estimator).__name__},
        settings={name: value for name, value in parameters if _is_plain(value)},
        columns=Columns(None if names is None else tuple(map(str, names)), None, class_names),
    )


def _is_plain(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def estimator_of(model: StoredModel) -> SDCAClassifier | SDCARegressor:
    """Return an estimator that predicts as a stored model does."""
    estimator: Any
    if model.labels is None:
        estimator = SDCARegressor(loss=model.loss)
        estimator.coef_, estimator.intercept_ = model.weights, float(model.bias[0])
    else:
        estimator = SDCAClassifier(loss=model.loss)
        estimator.coef_, estimator.intercept_ = np.atleast_2d(model.weights), model.bias
        estimator.classes_ = np.array(model.labels, LABELS[type(model.labels[0]).__name__])
    estimator.n_features_in_ = model.n_features
    if model.columns.features is not None:
        estimator.feature_names_in_ = np.array(model.columns.features, dtype=object)
    return estimator  # type: ignore[no-any-return]
