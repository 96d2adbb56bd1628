"""scikit-learn's own tests of linear classifiers, run on tfopt's.

scikit-learn's wheel carries its tests. Their text is read from where it is installed and executed
with an `__import__` that gives, for the classes that are tested, what stands here: tfopt's
estimators behind scikit-learn's arguments. What tfopt has no counterpart for is a TypeError:
nothing passes unasked. Everything else of scikit-learn is its own.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
from sklearn.base import BaseEstimator

from tfopt.linear_model import FTRLClassifier, SDCAClassifier
from tfopt.linear_model.predictions import LinearClassifierMixin

#: Epochs of a stream, at most: for the sake of time.
MAX_ITER = 200

FOLDER = Path(sklearn.linear_model.__file__).parent / "tests"


def _shares(model: Any, total: float) -> dict[str, float]:
    """Return l1 and l2, given their sum and scikit-learn's arguments of a penalty."""
    share = {"l1": 1.0, "l2": 0.0}.get(model.penalty, model.l1_ratio)
    return {"l1": total * share, "l2": total * (1 - share)}


#: Attributes of fitted models whose names do not tell.
_STATE = ("_n_features_out", "_losses", "_averages", "_averaged", "_means")


class _Stand(LinearClassifierMixin):  # type: ignore[misc]
    """A classifier with scikit-learn's arguments, fitted by one with tfopt's."""

    #: The arguments that tfopt has nothing like, and the value that does not ask for it.
    _absent: dict[str, Any]

    def _made(self) -> Any:
        """Return tfopt's estimator."""
        raise NotImplementedError

    def _learn(self, method: str, X: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        for name, value in self._absent.items():
            if getattr(self, name) != value:
                raise TypeError(f"tfopt has no {name}={getattr(self, name)!r}")
        model = self._made()
        vars(model).update({name: vars(self)[name] for name in vars(self) if self._is_found(name)})
        getattr(model, method)(X, y, *args, **kwargs)
        self.coef_, self.intercept_ = model.coef_, model.intercept_  # averages are computed now
        vars(self).update({name: vars(model)[name] for name in vars(model) if self._is_found(name)})
        return self

    @staticmethod
    def _is_found(name: str) -> bool:
        return name.endswith("_") or name.startswith("_state") or name in _STATE

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return self._learn("fit", X, y, sample_weight)


class LogisticRegression(_Stand):
    """SDCAClassifier: the same objective, but for classes with l1, and liblinear's intercept.

    Any solver is this one. scikit-learn's `tol` is that of a gradient; its square is the gap's.
    """

    _absent = {"penalty": "deprecated"}
    loss = "logistic"  # whose probabilities are those of predictions

    def __init__(
        self,
        penalty: Any = "deprecated",
        *,
        C: float = 1.0,
        l1_ratio: float = 0.0,
        dual: bool = False,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        random_state: Any = None,
        solver: str = "lbfgs",
        max_iter: int = 100,
        verbose: int = 0,
        warm_start: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.penalty, self.C, self.l1_ratio, self.dual, self.tol = penalty, C, l1_ratio, dual, tol
        self.fit_intercept, self.intercept_scaling = fit_intercept, intercept_scaling
        self.class_weight, self.random_state, self.solver = class_weight, random_state, solver
        self.max_iter, self.verbose, self.warm_start, self.n_jobs = (
            *(max_iter, verbose),
            *(warm_start, n_jobs),
        )

    def _made(self) -> SDCAClassifier:
        same = ("fit_intercept", "class_weight", "random_state", "warm_start", "n_jobs")
        together = self.l1_ratio == 0 and self.solver != "liblinear"
        return SDCAClassifier(
            "multinomial" if together else "logistic",
            **_shares(self, 1 / self.C if self.C else np.inf),
            **{name: getattr(self, name) for name in same},
            tol=None if self.tol == 1e-4 else max(self.tol**2, 1e-13),
            max_iter=min(1000 if self.max_iter == 100 else self.max_iter, 1000),
        )


class SGDClassifier(_Stand):
    """FTRLClassifier: the mean of losses and a penalty, which a stream learns.

    FTRL has learning rates and an end of its own, and its penalties are on the scale of the sum.
    """

    _absent: dict[str, Any] = {}

    def __init__(
        self,
        loss: str = "hinge",
        *,
        penalty: str | None = "l2",
        alpha: float = 0.0001,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        shuffle: bool = True,
        verbose: int = 0,
        epsilon: float = 0.1,
        n_jobs: int | None = None,
        random_state: Any = None,
        learning_rate: str = "optimal",
        eta0: float = 0.01,
        power_t: float = 0.5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        class_weight: Any = None,
        warm_start: bool = False,
        average: bool | int = False,
    ) -> None:
        self.loss, self.penalty, self.alpha, self.l1_ratio = loss, penalty, alpha, l1_ratio
        self.fit_intercept, self.max_iter, self.tol = fit_intercept, max_iter, tol
        self.shuffle, self.verbose, self.epsilon, self.n_jobs = shuffle, verbose, epsilon, n_jobs
        self.random_state, self.learning_rate, self.eta0 = random_state, learning_rate, eta0
        self.power_t, self.early_stopping = power_t, early_stopping
        self.validation_fraction, self.n_iter_no_change = validation_fraction, n_iter_no_change
        self.class_weight, self.warm_start, self.average = class_weight, warm_start, average

    def _made(self) -> FTRLClassifier:
        none = {"l1": 0.0, "l2": 0.0}
        same = (
            *("fit_intercept", "shuffle", "random_state", "class_weight", "average", "warm_start"),
            *("early_stopping", "validation_fraction", "n_iter_no_change", "tol"),
        )
        return FTRLClassifier(
            {"log_loss": "logistic"}.get(self.loss, self.loss),
            **(none if self.penalty is None else _shares(self, self.alpha * self._n_visits)),
            **{name: getattr(self, name) for name in same},
            max_iter=min(self.max_iter, MAX_ITER),
        )

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self._n_visits = len(y) * min(self.max_iter, MAX_ITER)
        return super().fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        self._n_visits = len(y) + getattr(self, "t_", 0)
        return self._learn("partial_fit", X, y, classes, sample_weight)


#: The files, and what stands in the place of a class of `sklearn.linear_model`.
STANDS = {
    "test_logistic.py": {"LogisticRegression": LogisticRegression},
    "test_sgd.py": {"SGDClassifier": SGDClassifier},
}


#: What tests of other things read: the search for C, other arrays, processes.
OTHER = {"LogisticRegressionCV", "GridSearchCV", "_array_api_for_tests", "parallel_backend"}


class _Marks:
    """pytest's own marks; those of scikit-learn's plugins mark nothing."""

    def __getattr__(self, name: str) -> Any:
        own = name in ("filterwarnings", "parametrize", "skipif", "usefixtures", "xfail")
        return getattr(pytest.mark, name) if own else lambda test: test


_PYTEST = SimpleNamespace(**{**vars(pytest), "mark": _Marks()})


def _mentions(code: CodeType, names: set[str]) -> bool:
    """Return whether a function or one within it reads one of these names."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return not names.isdisjoint(code.co_names) or any(_mentions(each, names) for each in inner)


def _values(row: Any) -> list[Any]:
    """Return what one row of a parametrization gives."""
    return list(row) if isinstance(row, (tuple, list)) else [row]


def tests_of(file: str) -> dict[str, Callable[..., None]]:
    """Return the tests of one of the files that ask for a class which tfopt stands for.

    They have their marks, but no parameters that are other estimators.
    """
    stands = STANDS[file]
    module = SimpleNamespace(**{**vars(sklearn.linear_model), **stands})

    def importing(name: str, *context: Any) -> Any:
        if name == "pytest":
            return _PYTEST
        found = builtins.__import__(name, *context)
        fromlist = context[2] if len(context) > 2 else ()
        if name == "sklearn.linear_model":
            return module
        if name == "sklearn" and "linear_model" in (fromlist or ()):
            return SimpleNamespace(**{**vars(found), "linear_model": module})
        return found

    path = FOLDER / file
    names: dict[str, Any] = {
        "__name__": f"sklearn_{path.stem}",
        "__builtins__": {**vars(builtins), "__import__": importing},
    }
    exec(compile(path.read_text(), str(path), "exec"), names)
    called = {name for name in names if any(name.endswith(stand) for stand in stands)}
    wanted = [*stands.values(), *(names[name] for name in called)]

    def is_other(value: Any) -> bool:
        is_estimator = isinstance(value, type) and issubclass(value, BaseEstimator)
        makes_one = isinstance(value, FunctionType) and value.__module__ == names["__name__"]
        return (is_estimator or makes_one) and value not in wanted

    def asked(test: Any) -> bool:
        """Drop the parameters that are other estimators; return whether there is a test left."""
        marks = getattr(test, "pytestmark", [])
        rows = []
        for k, mark in enumerate(marks):
            if mark.name == "parametrize":
                kept = [row for row in mark.args[1] if not any(map(is_other, _values(row)))]
                marks[k] = pytest.mark.parametrize(mark.args[0], kept, **mark.kwargs).mark
                rows.append(kept)
        given = [value for kept in rows for row in kept for value in _values(row)]
        wants = any(value is each for value in given for each in wanted)
        if not all(rows) or _mentions(test.__code__, OTHER):
            return False
        return wants or _mentions(test.__code__, called | {*stands})

    return {name: test for name, test in names.items() if name.startswith("test_") and asked(test)}
