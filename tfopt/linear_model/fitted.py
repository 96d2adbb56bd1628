"""The results of a fit: attributes, warnings, and a plot of the history."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from tfopt.imports import imported
from tfopt.linear_model._fit.fit import FitResult
from tfopt.linear_model._fit.monitor import SolverResult
from tfopt.linear_model._fit.plan import applies_in_blocks
from tfopt.linear_model.parameters import SDCAOptions

__all__ = ["SDCAResults"]


class SDCAResults(SDCAOptions):
    """Fitted attributes and warnings of the SDCA estimators."""

    keep_duals: Any
    n_features_in_: int

    def _set_attributes(self, fit: FitResult) -> None:
        """Set the fitted attributes."""
        points = [result.certificate for result in fit.results]
        self.coef_ = np.array([point.w for point in points])
        self.intercept_ = np.array([point.bias for point in points])
        if fit.shift is not None:
            self.intercept_ -= (self.coef_ * fit.shift).sum(axis=1)
        if fit.scale is not None:
            self.coef_ *= fit.scale
        self.__dict__.pop("dual_coef_", None)
        if self.keep_duals:
            self.dual_coef_ = fit.duals
        self.objective_ = np.array([point.objective for point in points])
        self.dual_gap_ = np.array([point.stated_gap for point in points])
        self.n_iter_ = np.array([result.n_iter for result in fit.results])
        self.history_ = [result.history for result in fit.results]
        self.solver_ = [history[-1]["solver"] for history in self.history_]

    def _warn_unconverged(self, results: list[SolverResult]) -> None:
        """Warn if a solver did not converge, unless the callback stopped the fit."""
        stalled = [result.certificate.relative_gap for result in results if result.stalled]
        if not all(gap <= self._tol for gap in stalled):
            warnings.warn(
                f"the relative duality gap is {max(stalled):.2g}, above tol={self._tol:g}, and no "
                "step lowers the objective further because of rounding: raise tol, or scale the "
                "features",
                ConvergenceWarning,
                stacklevel=4,
            )
        ended = [result for result in results if result.n_iter >= self.max_iter or result.timed_out]
        gaps = [result.certificate.relative_gap for result in ended]
        if not all(gap <= self._tol for gap in gaps):
            late = any(result.timed_out for result in ended)
            limit = f"max_time={self.max_time:g}" if late else f"max_iter={self.max_iter}"
            warnings.warn(
                f"the relative duality gap is {max(gaps):.2g} after {limit} "
                f"{'seconds' if late else 'iterations'}, above tol={self._tol:g}: raise "
                f"{limit.partition('=')[0]} or tol, {self._advice()}",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _advice(self) -> str:
        """Return further advice for a fit that does not converge."""
        if self._in_blocks and not applies_in_blocks(self._problem(self.n_features_in_, 1)):
            return (
                "or have fewer blocks, best of all one: Newton's method does not apply here, and "
                "each block is visited towards a minimum of its own"
            )
        if self.l1 > 0:
            return "or raise l2, to which the number of epochs is inversely proportional with l1"
        return "or scale the features"

    def plot_history(self, ax: Any = None) -> Any:
        """Draw the relative duality gap over time; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw in; by default, those of a new figure.

        Returns
        -------
        matplotlib Axes
        """
        check_is_fitted(self)
        plt = imported("matplotlib.pyplot")

        ax = ax or plt.subplots()[1]
        for k, history in enumerate(self.history_):
            seconds, gaps, certified = (
                np.array([record[name] for record in history])
                for name in ("seconds", "gap", "certified")
            )
            (line,) = ax.plot(seconds, gaps, lw=1)
            label = "certified" if k == 0 else None
            ax.plot(seconds[certified], gaps[certified], "o", color=line.get_color(), label=label)
        ax.axhline(self._tol, color="0.5", ls=":", label="tol")
        ax.set(xlabel="seconds", ylabel="relative duality gap", yscale="log")
        ax.legend()
        return ax
