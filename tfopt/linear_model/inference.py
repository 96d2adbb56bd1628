"""Covariances and standard errors of the coefficients of generalized linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.linear import second_order
from tfopt.linear_model._fit.problem import as_rows
from tfopt.linear_model.loss_record import PointwiseLoss, weighted_sum
from tfopt.linear_model.losses import loss_of
from tfopt.linear_model.validation import check_offset, check_weights

__all__ = ["InferenceMixin"]


class InferenceMixin:
    """`covariance` and `standard_errors`."""

    def covariance(
        self: Any, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None
    ) -> np.ndarray:
        """Return the covariance matrix of the coefficients by maximum likelihood.

        It is the dispersion times the inverse of the expected Fisher information, for the losses of
        generalized linear models. The dispersion is 1 for "logistic" and "poisson"; for "squared",
        "gamma" and "tweedie" it is Pearson's statistic divided by the degrees of freedom. A sample
        of weight n counts as n samples.

        With l2 it is the covariance of the penalized estimator, ``A^-1 F A^-1`` with the
        information F and ``A = F + l2``. It describes how much the coefficients vary, but not the
        bias of their expectation by the penalty.

        Parameters
        ----------
        X, y, sample_weight, offset
            The data to which the model was fitted.

        Returns
        -------
        ndarray of float64, shape (n_features + 1, n_features + 1)
            The intercept is last; without one, the shape is (n_features, n_features).

        Raises
        ------
        InvalidArgumentError
            For other losses; with l1, `positive` or `class_weight`; for more than two classes or
            more than one target; if there are not more samples than coefficients; and if features
            are linearly dependent.

        Notes
        -----
        As in the ``GLM`` of `statsmodels`; see McCullagh, Nelder: Generalized linear models, 1989.
        """
        check_is_fitted(self)
        phi = loss_of(self.loss, vars(self))
        coef = self._dense_coef()
        self._check_inference(phi, len(coef))
        X = self._validate_features(X, reset=False)
        weights = check_weights(sample_weight, X)
        z = X @ coef[0] + np.ravel(self.intercept_)[0]
        known = check_offset(offset, X)
        z = z if known is None else z + known
        information = weights * phi.information(z)
        nothing = np.zeros_like(information)
        rows = as_rows(np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X)
        _, F = second_order.newton_system(*rows, nothing, information, coef.shape[1])
        if not self.fit_intercept:
            F = F[:-1, :-1]
        A = F.copy()
        factor = self._factor(coef.shape[1])
        np.einsum("ii->i", A)[: coef.shape[1]] += self._l2() * (1.0 if factor is None else factor)
        inverse = _inverse(A)
        scale = 1.0
        if not phi.has_unit_dispersion:
            labels = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
            scale = _dispersion(phi, labels, z, weights, len(A))
        found = scale * (inverse @ F @ inverse)
        return np.asarray(found + found.T) / 2

    def standard_errors(
        self: Any, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None
    ) -> np.ndarray:
        """Return the standard errors of the coefficients: the roots of the `covariance`'s diagonal.

        Parameters
        ----------
        X, y, sample_weight, offset
            The data to which the model was fitted.

        Returns
        -------
        ndarray of float64, shape (n_features + 1,)
            The intercept is last; without one, the shape is (n_features,).

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.linear_model import LinearRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> y = [3.1, 4.9, 7.2, 8.8, 11.1, 12.9, 15.2, 16.8]
        >>> model = LinearRegressor(l2=0).fit(X, y)
        >>> model.standard_errors(X, y).round(3)
        array([0.028, 0.115])
        """
        covariance = self.covariance(X, y, sample_weight, offset=offset)
        errors: np.ndarray = np.sqrt(np.diagonal(covariance))
        return errors

    def _check_inference(self: Any, phi: PointwiseLoss, n_problems: int) -> None:
        """Refuse models whose coefficients do not maximize a likelihood."""
        class_weight = getattr(self, "class_weight", None)
        reasons = {
            f"loss={self.loss!r} is no likelihood of a generalized linear model": not (
                phi.is_likelihood
            ),
            f"l1={self.l1!r} makes coefficients 0, which then are not normally distributed": (
                self.l1 > 0
            ),
            "positive=True leaves coefficients at 0, which then are not normally distributed": (
                bool(self.positive)
            ),
            f"class_weight={class_weight!r} changes the samples' weights: give these": (
                class_weight is not None
            ),
            f"there are {n_problems} classes or targets: fit one model for each": n_problems > 1,
        }
        for reason, holds in reasons.items():
            if holds:
                raise InvalidArgumentError(f"no standard errors are known: {reason}")


def _inverse(A: np.ndarray) -> np.ndarray:
    """Return the inverse of a positive definite matrix; the matrix is overwritten."""
    columns = np.eye(len(A))
    for k, column in enumerate(columns):
        if not second_order.solve(A, column, k > 0):
            raise InvalidArgumentError(
                "no standard errors are known: features, or some of them and the intercept, depend "
                "on each other; set l2 above 0, or leave some out"
            )
    return columns


def _dispersion(
    phi: PointwiseLoss, y: np.ndarray, z: np.ndarray, weights: np.ndarray, n_coefficients: int
) -> float:
    """Return Pearson's statistic divided by the degrees of freedom."""
    mean = phi.inverse_link(z)
    if y.shape != z.shape:
        raise ValueError(f"y has the shape {y.shape}, and the predictions {z.shape}")
    slope = mean if phi.link == "log" else np.ones_like(mean)
    squares = weighted_sum(weights, np.square((y - mean) / slope) * phi.information(z))
    freedom = float(weights.sum()) - n_coefficients
    if not freedom > 0:
        raise InvalidArgumentError(
            f"no standard errors are known: {n_coefficients} coefficients need more samples than "
            f"{weights.sum():g}"
        )
    return squares / freedom
