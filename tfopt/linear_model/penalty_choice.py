"""The choice of a penalty by cross-validation: fits to folds, scores, and the final fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import metadata_routing
from sklearn.utils.parallel import Parallel, delayed

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.estimator import SDCAEstimator
from tfopt.linear_model.evaluation import mean_losses
from tfopt.linear_model.paths import FoldFits
from tfopt.linear_model.penalties import largest_l1, path_penalties
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.validation import check_offset, checked_sparse

__all__ = ["PenaltyChoice"]

#: The attributes that are copied from a refitted model.
_FITTED = ("coef_", "intercept_", "objective_", "dual_gap_", "n_iter_", "history_", "solver_")


class PenaltyChoice(LinearModel):
    """A linear model whose penalty is chosen by cross-validation."""

    #: The estimator for one penalty, and the options that both estimators have.
    _kind: Callable[..., SDCAEstimator]
    _options: tuple[str, ...]

    def _after_fit(self, model: SDCAEstimator, test: np.ndarray, k: int) -> None:
        """Record a fit to a fold, given the held-out rows and the index of its penalty."""

    def _estimator(self, **more: Any) -> SDCAEstimator:
        """Return an estimator with these options."""
        shared = {name: getattr(self, name) for name in self._options}
        return self._kind(self.loss, **shared, **more)

    # groups are for the splitter, whatever a surrounding estimator passes on
    __metadata_request__fit = {"groups": metadata_routing.UNUSED}

    def get_metadata_routing(self) -> Any:
        """Return the routing of metadata: to the estimator itself, the splitter and the scorer.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
        """
        router = metadata_routing.MetadataRouter(owner=type(self).__name__)
        router.add_self_request(self)
        if hasattr(self.cv, "split"):
            router.add(
                splitter=self.cv,
                method_mapping=metadata_routing.MethodMapping().add(caller="fit", callee="split"),
            )
        if self.scoring is not None:
            router.add(
                scorer=check_scoring(self._estimator(), scoring=self.scoring),
                method_mapping=metadata_routing.MethodMapping().add(caller="fit", callee="score"),
            )
        return router

    def _routed(
        self, sample_weight: Any, groups: Any, params: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments of the splitter and of the scorer, without the samples."""
        if sklearn.get_config()["enable_metadata_routing"]:
            given = {"sample_weight": sample_weight, "groups": groups, **params}
            given = {name: value for name, value in given.items() if value is not None}
            routed = metadata_routing.process_routing(self, "fit", **given)
            of_split, of_score = (routed.get(name, {}) for name in ("splitter", "scorer"))
            return of_split.get("split", {}), of_score.get("score", {})
        if params:
            raise InvalidArgumentError(
                f"fit takes {', '.join(params)} for the splitter or the scorer with scikit-learn's "
                "metadata routing only: call sklearn.set_config(enable_metadata_routing=True)"
            )
        is_weighed = sample_weight is not None and not callable(self.scoring)
        return {"groups": groups}, {"sample_weight": sample_weight} if is_weighed else {}

    def _fit_cv(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        params: dict[str, Any],
        offset: Any = None,
    ) -> None:
        """Find the scores of all penalties, and fit with the best one."""
        whole = self._estimator()
        X, y, weights = whole._checked(X, y, sample_weight)
        if y.ndim > 1:
            raise InvalidArgumentError(f"a penalty is chosen for one target, not {y.shape[1]}")
        X = checked_sparse(X, own=True)  # SciPy will take rows of it
        if (offset := check_offset(offset, X)) is not None and self.scoring is not None:
            raise InvalidArgumentError(
                f"scoring={self.scoring!r} would predict without the offset: leave scoring out, so "
                "that the penalty is chosen by the loss"
            )
        given = None if sample_weight is None else weights
        of_split, of_score = self._routed(given, groups, params)
        targets, masses, _ = whole._without_offset(X, y, weights, offset)

        def largest() -> float:
            model = self._estimator()
            return largest_l1(model, model._encoded(*model._checked(X, targets, masses)))

        l2s = 10 if self.l1s is None and self.l2s is None else self.l2s
        l1s, l2s = path_penalties(self.l1s, l2s, self.l1, self.l2, self.eps, largest)
        splitter = check_cv(self.cv, y, classifier=is_classifier(self))
        folds = list(splitter.split(X, y, **of_split))
        scorer = None if self.scoring is None else check_scoring(whole, scoring=self.scoring)
        phi = whole._phi if whole._phi.is_joint else whole._problem(0, 1).phi
        fold_fits = FoldFits(lambda: self._estimator(n_jobs=1), X, targets, masses, l1s, l2s)

        def scores_of(train: np.ndarray, test: np.ndarray) -> Any:
            fits = fold_fits.of(train, test)
            model = fits.model
            held_out, more = (X[test], y[test]), _taken(of_score, len(y), test)
            scores, coefs, intercepts = np.empty(l1s.size), [], []
            for k in fits.order:
                fits.fit(k)
                self._after_fit(model, test, int(k))
                if scorer is not None:
                    scores[k] = scorer(model, *held_out, **more)
                coefs.append(model.coef_)
                intercepts.append(model.intercept_)
            classes = getattr(model, "classes_", None)
            if scorer is None:
                shape = len(coefs), -1
                points = np.array(coefs).reshape(*shape, X.shape[1]), np.reshape(intercepts, shape)
                known = None if offset is None else offset[test]
                losses = mean_losses(*held_out, weights[test], *points, phi, classes, known)
                scores[fits.order] = -losses
            return scores, fits.order, coefs, intercepts, classes

        parallel = Parallel(n_jobs=self.n_jobs, require="sharedmem")
        results = parallel(delayed(scores_of)(train, test) for train, test in folds)
        self.scores_ = np.array([scores for scores, *_ in results])
        order = results[0][1]
        means = self.scores_.mean(axis=0)[order]
        if np.isnan(means).all():
            raise InvalidArgumentError(
                f"scoring={self.scoring!r} is not a number for any penalty: it is not defined for "
                "some fold, of a single sample for instance; use fewer folds, or leave scoring out"
            )
        place = int(np.nanargmax(means))  # the strongest of equally good ones
        best = order[place]
        self.l1s_, self.l2s_ = l1s, l2s
        self.l1_, self.l2_ = float(l1s[best]), float(l2s[best])
        self.n_features_in_ = whole.n_features_in_
        if hasattr(whole, "feature_names_in_"):
            self.feature_names_in_ = whole.feature_names_in_
        if self.refit:
            whole.set_params(l1=self.l1_, l2=self.l2_, tol=self.tol, n_jobs=self.n_jobs)
            whole.fit(X, targets, masses)
            for name in (*_FITTED, "classes_"):
                if hasattr(whole, name):
                    setattr(self, name, getattr(whole, name))
            return
        classes = results[0][4]
        if any(not np.array_equal(classes, each) for *_, each in results):
            raise InvalidArgumentError(
                "refit=False takes the mean of the folds' coefficients, but not all folds have "
                "samples of all classes: set refit=True, or use fewer folds"
            )
        if classes is not None:
            self.classes_ = classes
        self.coef_ = np.mean([coefs[place] for _, _, coefs, *_ in results], axis=0)
        self.intercept_ = np.mean([biases[place] for *_, biases, _ in results], axis=0)


def _taken(params: dict[str, Any], n: int, rows: np.ndarray) -> dict[str, Any]:
    """Return some rows of arguments that have rows, and other arguments unchanged."""
    return {
        name: np.asarray(value)[rows] if np.ndim(value) and len(value) == n else value
        for name, value in params.items()
    }
