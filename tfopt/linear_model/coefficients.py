"""The coefficients of linear models: as a table by name, and as sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from tfopt.errors import InvalidArgumentError
from tfopt.imports import imported

__all__ = ["CoefficientsMixin"]


class CoefficientsMixin:
    """`coef_frame`, `sparsify` and `densify`."""

    coef_: Any
    intercept_: Any

    def _dense_coef(self) -> np.ndarray:
        """Return `coef_` as an array with a row for each problem."""
        coef = self.coef_
        dense: np.ndarray = np.atleast_2d(coef.toarray() if sparse.issparse(coef) else coef)
        return dense

    def coef_frame(self, feature_names: Any = None) -> Any:
        """Return the coefficients as a table; needs pandas.

        Parameters
        ----------
        feature_names : sequence of str, shape (n_features,), optional
            By default `feature_names_in_`, or ``"x0"``, ``"x1"``, … if the fit saw no names.

        Returns
        -------
        pandas.DataFrame
            A row for each feature, and a last row ``"intercept"``. Two classes have one column,
            named after the second class; more classes have a column each. Regression has a column
            ``"coef"``, or ``"y0"``, ``"y1"``, … for several targets.

        Raises
        ------
        InvalidArgumentError
            If the number of names is not the number of features.

        Examples
        --------
        >>> from tfopt.linear_model import SDCARegressor
        >>> X, y = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1.0, 3.0, 0.0]
        >>> model = SDCARegressor(l2=1e-9).fit(X, y)
        >>> model.coef_frame(["width", "depth"]).round(3)
                   coef
        width       2.0
        depth      -1.0
        intercept   1.0
        """
        check_is_fitted(self)
        pd = imported("pandas")

        coef = self._dense_coef()
        names = getattr(self, "feature_names_in_", None) if feature_names is None else feature_names
        names = [f"x{k}" for k in range(coef.shape[1])] if names is None else list(names)
        if len(names) != coef.shape[1]:
            raise InvalidArgumentError(
                f"feature_names must have a name for each of {coef.shape[1]} features, not "
                f"{len(names)} names"
            )
        classes = getattr(self, "classes_", None)
        columns = ["coef"] if len(coef) == 1 else [f"y{k}" for k in range(len(coef))]
        columns = columns if classes is None else classes[-coef.shape[0] :].tolist()
        table = np.vstack([coef.T, np.ravel(self.intercept_)])
        return pd.DataFrame(table, index=[*names, "intercept"], columns=columns)

    def sparsify(self) -> Any:
        """Convert `coef_` to a CSR matrix, which takes less memory if most coefficients are 0.

        Predictions stay the same, up to rounding. A new `fit` makes `coef_` dense again.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self.coef_ = sparse.csr_matrix(self._dense_coef())
        return self

    def densify(self) -> Any:
        """Convert `coef_` back to an array, after `sparsify`.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if sparse.issparse(self.coef_):
            coef = self._dense_coef()
            self.coef_ = coef if hasattr(self, "classes_") or len(coef) > 1 else coef[0]
        return self
