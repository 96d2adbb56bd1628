"""Conversion of the hyperparameters of FTRL-Proximal in other programs."""

from __future__ import annotations

from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.validation import check_number

__all__ = ["ftrl_parameters"]

#: The hyperparameters of each dialect with their defaults; None if required. The order is: learning
#: rate, beta, l1, l2, initial accumulator, others.
_DIALECTS: dict[str, dict[str, float | None]] = {
    "tensorflow": {
        "learning_rate": None,
        "beta": 0.0,
        "l1_regularization_strength": 0.0,
        "l2_regularization_strength": 0.0,
        "initial_accumulator_value": 0.1,
        "learning_rate_power": -0.5,
        "l2_shrinkage_regularization_strength": 0.0,
    },
    "paper": {"alpha": None, "beta": 1.0, "lambda1": 0.0, "lambda2": 0.0},
    "dynamicemb": {
        "learning_rate": None,
        "ftrl_beta": 0.0,
        "l1_reg": 0.0,
        "l2_reg": 0.0,
        "initial_accumulator_value": 0.0,
        "learning_rate_power": -0.5,
    },
    "vw": {"ftrl_alpha": 0.005, "ftrl_beta": 0.1, "l1": 0.0, "l2": 0.0},
}
#: The only values that the estimators support.
_FIXED = {"learning_rate_power": -0.5, "l2_shrinkage_regularization_strength": 0.0}


def ftrl_parameters(dialect: str, **hyperparameters: float) -> dict[str, Any]:
    """Return the parameters with which an FTRL estimator behaves like another program.

    Parameters
    ----------
    dialect : {"tensorflow", "paper", "dynamicemb", "vw"}
        TensorFlow and Keras; McMahan et al. [1]_; NVIDIA's DynamicEmb; Vowpal Wabbit.
    **hyperparameters : float
        The hyperparameters with the dialect's names:

        - "tensorflow": learning_rate, beta=0, l1_regularization_strength=0,
          l2_regularization_strength=0, initial_accumulator_value=0.1, learning_rate_power=-0.5,
          l2_shrinkage_regularization_strength=0;
        - "paper": alpha, beta=1, lambda1=0, lambda2=0;
        - "dynamicemb": learning_rate, ftrl_beta=0, l1_reg=0, l2_reg=0,
          initial_accumulator_value=0, learning_rate_power=-0.5;
        - "vw": ftrl_alpha=0.005, ftrl_beta=0.1, l1=0, l2=0.

    Returns
    -------
    dict
        `learning_rate`, `beta`, `l1`, `l2`, `initial_accumulator` of `FTRLClassifier` and
        `FTRLRegressor`, and `batch_size` if the dialect takes one sample at a time.

    Raises
    ------
    InvalidArgumentError
        If the dialect or a hyperparameter is unknown, if one is missing, or if the estimators only
        support another value of it.
    ValueError
        If a value is out of range.

    Notes
    -----
    All four compute sigma = (sqrt(n + g^2) - sqrt(n)) / alpha and z + g - sigma w, and then
    w = -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + ridge) where abs(z) > l1, else 0. The ridge
    is lambda2, l2_reg or l2; in TensorFlow and here it is twice the l2 penalty. In the other
    programs the intercept is a feature like the others, with penalties; for the same result, use
    `fit_intercept=False` and a column of ones. The estimators sum the gradients of a batch; a
    program that takes the mean of m losses has gradients that are m times smaller.

    References
    ----------
    .. [1] McMahan et al.: Ad click prediction: a view from the trenches, 2013.

    Examples
    --------
    >>> from tfopt.linear_model import FTRLClassifier, ftrl_parameters
    >>> parameters = ftrl_parameters("paper", alpha=0.1, lambda1=1.0, lambda2=2.0)
    >>> parameters["beta"], parameters["l1"], parameters["l2"], parameters["batch_size"]
    (1.0, 1.0, 1.0, 1)
    >>> model = FTRLClassifier(**parameters)
    """
    names = _DIALECTS.get(dialect)
    if names is None:
        raise InvalidArgumentError(f"dialect must be one of {', '.join(_DIALECTS)}: {dialect!r}")
    for name in hyperparameters:
        if name not in names:
            raise InvalidArgumentError(f"{dialect} has {', '.join(names)}, but no {name}")
    values = {**names, **hyperparameters}
    for name, value in values.items():
        if value is None:
            raise InvalidArgumentError(f"{dialect} needs {name}")
        if name in _FIXED and value != _FIXED[name]:
            raise InvalidArgumentError(
                f"{name} must be {_FIXED[name]:g} for an estimator, not {value!r}: "
                "tfopt.optimizers.Ftrl takes others"
            )
    rate, beta, l1, l2, *rest = values.items()
    parameters: dict[str, Any] = {
        "learning_rate": check_number(*rate, 0, open_end=True),
        "beta": check_number(*beta, 0),
        "l1": check_number(*l1, 0),
        "l2": check_number(*l2, 0) / (1 if dialect == "tensorflow" else 2),
        "initial_accumulator": check_number(*rest[0], 0) if rest else 0.0,
    }
    return parameters if rest else {**parameters, "batch_size": 1}
