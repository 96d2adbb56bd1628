"""A fit of an estimator, its certificate by the definitions, and what can be done with it next."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import itertools
import json
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common.linear_losses import DEFINITIONS, conjugate, phi
from scipy import sparse
from scipy.special import logsumexp
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GroupKFold, check_cv

from laws.estimator_data import FORMS, LABELS, WEIGHTS, features
from tfopt import cli, linear_model
from tfopt.linear_model import load_model, save_model, sdca_path

__all__ = ["CHANGES", "WAYS", "EstimatorRun"]

#: The ways to a model that `go` knows, and what an estimator needs for them.
WAYS: dict[str, tuple[str, ...]] = {
    "nowhere": (),
    "pickle": (),
    "copy": (),
    "clone": (),
    "npz": (),
    "json": (),
    "convert": (),
    "by_hand": (),
    "sparsify": (),
    "refused": (),
    "warm_start": ("SDCA", "fits"),
    "path": ("SDCA", "fits"),
    "blocks": ("SDCA", "fits"),
    "cli": ("SDCA", "fits"),
    "class_weight": ("SDCA", "fits", "classes"),
    "partial_fit": ("FTRL",),
    "chosen": ("chooses",),
    "groups": ("chooses",),
}
#: The equivalent problems that `change` knows, and what an estimator needs for them.
CHANGES: dict[str, tuple[str, ...]] = {
    "form": (),
    "renamed": ("classes",),
    "threads": ("SDCA",),
    "permuted": ("SDCA", "fits"),
    "columns": ("SDCA", "fits"),
    "repeated": ("SDCA", "fits"),
    "without_zeros": ("SDCA", "fits"),
    "scaled": ("SDCA", "fits"),
}
LONG = np.longdouble
#: What rounding may do to an objective, as a share of it and of the sizes of its sums.
ROUNDING = 1e-9


class EstimatorRun:
    """Data, and an estimator that is fitted to them."""

    def __init__(
        self,
        name: str,
        *,
        loss: str,
        l1: float,
        l2: float,
        solver: str,
        intercept: bool,
        form: str,
        dtype: str,
        features: str,
        labels: str,
        n_classes: int,
        weights: str,
        numbers: str,
        seed: int,
    ) -> None:
        self.name, self.loss, self.form, self.l1, self.l2 = name, loss, form, l1, l2
        self.random = np.random.default_rng(seed)
        self.number = {"float": float, "np.float64": np.float64, "np.float32": np.float32}[numbers]
        self.kind: Any = getattr(linear_model, name)
        self.options = self._options(solver, intercept)
        self._make_data(features, labels, n_classes, weights)
        self.given = FORMS[form](self.X.astype(dtype))
        self.model: Any = None

    # ---- what is fitted

    def _options(self, solver: str, intercept: bool) -> dict[str, Any]:
        options: dict[str, Any] = {
            "l1": self.number(self.l1),
            "l2": self.number(self.l2),
            "fit_intercept": intercept,
            "loss": self.loss,
            "solver": solver,
            "tol": self.number(2.0**-20),
            "max_iter": 3 if self.name.startswith("FTRL") else 60,
            "cv": 2,
        }
        if self.chooses:
            options["l2s"] = [self.l2, 8 * self.l2]
            del options["l2"]
        if (own := self._own_parameter) is not None:
            options[own] = self.number(1.25 if own == "power" else 0.25)
        known = inspect.signature(self.kind).parameters
        return {name: value for name, value in options.items() if name in known}

    @property
    def chooses(self) -> bool:
        return self.name.endswith("CV")

    @property
    def _own_parameter(self) -> str | None:
        return DEFINITIONS[self._kernel_loss].option

    @property
    def _kernel_loss(self) -> str:
        return "logistic" if self.loss == "multinomial" else self.loss

    def _make_data(self, kind: str, labels: str, n_classes: int, weights: str) -> None:
        self.X = features(kind, self.random)
        n, d = self.X.shape
        self.weight = WEIGHTS[weights](n)
        noise = self.random.integers(-2, 3, n)
        order = np.argsort(self.X @ self.random.integers(-1, 2, d) + noise, kind="stable")
        ranks = np.empty(n, int)
        ranks[order] = np.arange(n)
        if is_classifier(self.kind()):
            self.classes = LABELS[labels][:n_classes]
            # each class has every weight that there is: no fold is without one
            self.codes = ranks * n_classes // n
            self.y = self.classes[self.codes]
        else:
            self.y = ranks.astype(float)
            if self.loss in ("poisson", "gamma", "tweedie"):
                self.y = self.y % 7 + (self.loss == "gamma")

    def _fitted(self, X: Any, y: Any, weight: Any = None, **more: Any) -> Any:
        groups = {key: more.pop(key) for key in ("groups",) if key in more}
        model = self.kind(**{**self.options, **more})
        return model.fit(X, y, sample_weight=weight, **groups)

    def fit(self) -> None:
        """Fit to the data in their form."""
        self.model = self._fitted(self.given, self.y, self.weight)
        if is_classifier(self.model):
            assert self.model.classes_.tolist() == np.unique(self.y).tolist()

    def is_refused(self) -> None:
        """Fit in vain; nothing is left of it."""
        model = self.kind(**self.options)
        before = copy.deepcopy(model.__dict__)
        try:
            model.fit(self.given, self.y, sample_weight=self.weight)
        except ValueError as error:
            assert str(error)
        else:
            raise AssertionError("the fit was not refused")
        assert str(model.__dict__) == str(before)

    # ---- what it says

    def certify(self) -> None:
        """Recompute the objective and the gap by their definitions, in long double."""
        if hasattr(self.model, "dual_gap_"):
            self._certified(self.model, self.X, self.y, self.weight, self.model.l1, self._l2())

    def _l2(self) -> Any:
        return self.model.l2_ if self.chooses else self.model.l2

    def _certified(self, model: Any, X: Any, y: Any, weight: Any, l1: Any, l2: Any) -> None:
        X, l1, l2 = X.astype(LONG), LONG(l1), LONG(l2)
        c = np.ones(len(y), LONG) if weight is None else weight.astype(LONG)
        coef = np.atleast_2d(model.coef_).astype(LONG)
        biases = np.ravel(model.intercept_).astype(LONG)
        objectives, gaps = np.ravel(model.objective_), np.ravel(model.dual_gap_)
        duals = np.atleast_2d(model.dual_coef_) if hasattr(model, "dual_coef_") else None
        assert (gaps >= 0).all()
        if self.loss == "multinomial" and len(coef) > 1:
            z = X @ coef.T + biases
            codes = np.searchsorted(model.classes_, y)
            each = logsumexp(z.astype(float), axis=1) - z[np.arange(len(z)), codes]
            primal = c @ each + l1 * np.abs(coef).sum() + l2 / 2 * np.square(coef).sum()
            assert abs(objectives[0] - primal) <= ROUNDING * (1 + primal)
            return
        own = self._own_parameter
        parameter = LONG(getattr(model, own)) if own is not None else LONG(1)
        for k, (w, b) in enumerate(zip(coef, biases, strict=True)):
            target = y
            if is_classifier(model):
                positive = model.classes_[-1 if len(coef) == 1 else k]
                target = np.where(y == positive, 1, -1)
            target = target.astype(LONG)
            each = phi(self._kernel_loss, X @ w + b, target, parameter)
            primal = c @ each + l1 * np.abs(w).sum() + l2 / 2 * (w @ w)
            assert abs(objectives[k] - primal) <= ROUNDING * (1 + primal), (objectives[k], primal)
            if duals is None:
                continue
            a = duals[k].astype(LONG)
            v = X.T @ (c * a)
            S = np.sign(v) * np.maximum(np.abs(v) - l1, 0)
            if l2 == 0:  # it is bounded instead
                assert np.abs(S).max() <= 1e-9 * l1
            square = S @ S / (2 * l2) if l2 else 0
            weighted = np.where(c > 0, conjugate(self._kernel_loss, a, target, parameter), 0)
            size = primal + np.abs(c * weighted).sum() + square
            gap = primal + c @ weighted + square
            assert abs(gaps[k] - gap) <= 1e-4 * gap + ROUNDING * (1 + size), (gaps[k], gap)

    def predict(self) -> None:
        """Compare predictions with the definition."""
        self._same_predictions(self.model, self.model)

    def _same_predictions(self, model: Any, other: Any) -> None:
        """Compare the predictions of two models, and those of one with its coefficients."""
        with np.errstate(over="ignore"):
            expected = self.X @ np.atleast_2d(other.coef_).T + np.ravel(other.intercept_)
            predicted = model.predict(self.given)
        if is_classifier(model):
            scores = model.decision_function(self.given).reshape(len(self.X), -1)
            best = expected.argmax(axis=1) if len(other.classes_) > 2 else expected[:, 0] > 0
            clear = np.abs(expected).min(axis=1) > 1e-9 * (1 + np.abs(expected).max())
            right = predicted[clear] == other.classes_[best.astype(int)][clear]
            assert right.all() and [*map(type, predicted.tolist())] == [
                *map(type, other.classes_[best.astype(int)].tolist())
            ]
        else:
            scores = predicted[:, None]
            if self.loss in ("poisson", "gamma", "tweedie"):
                expected = np.exp(np.minimum(expected, 700))
        size = 1 + np.abs(expected).max()
        assert np.abs(np.minimum(scores, 1e300) - expected).max() <= 1e-9 * size or size > 1e100

    # ---- ways

    def go(self, way: str) -> None:
        """Go a way to a model, and compare it with this one."""
        getattr(self, f"_go_{way}")()

    def _go_nowhere(self) -> None:
        pass

    def _same(self, model: Any) -> None:
        for name in ("coef_", "intercept_", "classes_"):
            if hasattr(self.model, name):
                mine, other = (np.ravel(getattr(each, name)) for each in (self.model, model))
                assert mine.tolist() == other.tolist(), name
        self._same_predictions(model, self.model)

    def _go_pickle(self) -> None:
        self._same(pickle.loads(pickle.dumps(self.model)))

    def _go_copy(self) -> None:
        self._same(copy.deepcopy(self.model))

    def _go_clone(self) -> None:
        again = clone(self.model)
        assert str(again.get_params()) == str(self.model.get_params())
        self._same(again.fit(self.given, self.y, sample_weight=self.weight))

    def _go_npz(self, form: str = "npz") -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, f"model.{form}")
            save_model(path, self.model)
            loaded = load_model(path)
        if self.form == "frame":
            assert loaded.feature_names_in_.tolist() == self.model.feature_names_in_.tolist()
        self._same(loaded)
        own = self._own_parameter
        for name in ("loss", *([] if own is None else [own])):
            assert getattr(loaded, name) == getattr(self.model, name, "logistic"), name
        if self.name.startswith("SDCA"):
            kept = self.model.get_params()
            expected = {"l1": kept["l1"], "l2": self._l2(), "tol": kept["tol"]}
            assert {name: getattr(loaded, name) for name in expected} == expected

    def _go_json(self) -> None:
        self._go_npz("json")

    def _go_convert(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for ends in (("npz", "json", "npz"), ("json", "npz", "json")):
                paths = [os.path.join(folder, f"{k}.{end}") for k, end in enumerate(ends)]
                save_model(paths[0], self.model)
                for there, back in itertools.pairwise(paths):
                    assert cli.main(["convert", there, back]) == 0
                assert Path(paths[0]).read_bytes() == Path(paths[2]).read_bytes()

    def _go_by_hand(self) -> None:
        model = self.kind(**self.options)
        for name in ("coef_", "intercept_", "classes_"):
            if hasattr(self.model, name):
                setattr(model, name, copy.copy(getattr(self.model, name)))
        if self.form == "frame":
            self.given = self.given.to_numpy()
        self._same_predictions(model, self.model)

    def _go_sparsify(self) -> None:
        model = copy.deepcopy(self.model).sparsify()
        assert sparse.issparse(model.coef_)
        self._same(model.densify())
        model.sparsify().predict(self.given)

    def _go_refused(self) -> None:
        """Calls that are refused change nothing."""
        before = pickle.dumps(self.model)
        wrong = self.X.astype(float)
        wrong[0, 0] = np.nan
        calls = [
            lambda: self.model.fit(wrong, self.y),
            lambda: self.model.fit(self.X, self.y[:-1]),
            lambda: self.model.fit(self.X, self.y, sample_weight=-np.ones(len(self.y))),
            lambda: self.model.predict(wrong),
            lambda: self.model.predict(np.hstack([self.X, self.X])),
        ]
        for call in calls:
            try:
                call()
            except ValueError as error:
                assert str(error)
            else:
                raise AssertionError("the call was not refused")
            assert pickle.dumps(self.model) == before

    def _go_warm_start(self) -> None:
        model = copy.deepcopy(self.model).set_params(warm_start=True)
        model.fit(self.given, self.y, sample_weight=self.weight)
        self._certified(model, self.X, self.y, self.weight, model.l1, model.l2)
        self._overlap(model)

    def _go_path(self) -> None:
        more = {k: v for k, v in self.options.items() if k not in ("l1", "l2", "loss")}
        l1s = self.options["l2"] == 0
        penalties = {"l1s": [self.l1], "l2": self.l2} if l1s else {"l2s": [self.l2], "l1": self.l1}
        path = sdca_path(
            self.given, self.y, self.loss, sample_weight=self.weight, **penalties, **more
        )
        self._overlap_of(path.objectives[0], path.dual_gaps[0])

    def _go_blocks(self) -> None:
        n = len(self.y)
        sizes = [n // 3, n - n // 3]
        model = self._fitted(self.given, self.y, self.weight, num_loss_partitions=sizes)
        self._certified(model, self.X, self.y, self.weight, model.l1, model.l2)
        self._overlap(model)

    def _go_cli(self) -> None:
        n, own = len(self.y), self._own_parameter
        with tempfile.TemporaryDirectory() as folder:
            data = os.path.join(folder, "data.svm")
            with open(data, "w") as file:
                for label, row in zip(self.y.tolist(), self.X.tolist(), strict=True):
                    entries = [f"{k + 1}:{v}" for k, v in enumerate(row) if v]
                    file.write(" ".join([f"{label}", *entries]) + "\n")
            line = ["train", data, "--loss", self.loss, "--json", "--quiet"]
            line += ["--l1", repr(self.l1 / n), "--l2", repr(self.l2 / n), "--tol", "1e-6"]
            line += ["--epochs", "60", "--model", os.path.join(folder, "m.npz")]
            line += [] if own is None else [f"--{own}", "1.25" if own == "power" else "0.25"]
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                assert cli.main(line) in (0, 3)
        certificate = json.loads(printed.getvalue())["certificate"]
        each = certificate.get("classes", [certificate])
        objectives, gaps = (np.array([c[key] for c in each]) * n for key in ("objective", "gap"))
        self._overlap_of(objectives, gaps)

    def _go_class_weight(self) -> None:
        factors = dict(zip(self.classes.tolist(), [1.0, 2.0, 0.5], strict=False))
        model = self._fitted(self.given, self.y, self.weight, class_weight=factors)
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        weight = weight * np.array([1.0, 2.0, 0.5])[self.codes]
        self._certified(model, self.X, self.y, weight, model.l1, model.l2)
        other = self._fitted(self.given, self.y, weight)
        self._overlap_of(*self._interval(other), model)

    def _go_partial_fit(self) -> None:
        parts = [slice(0, len(self.y) // 2), slice(len(self.y) // 2, None)]
        models = []
        for X in (self.given, self.X.astype(float)):
            model = self.kind(**self.options)
            classes = {"classes": self.classes} if is_classifier(model) else {}
            for part in parts:
                weight = None if self.weight is None else self.weight[part]
                rows = [*range(len(self.y))[part]]
                model.partial_fit(_rows(X, rows), self.y[part], sample_weight=weight, **classes)
            models.append(model)
        np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-6, atol=1e-9)

    def _go_chosen(self, **groups: Any) -> None:
        """The penalty is the best by the mean loss of the path of each fold."""
        own = {k: v for k, v in self.options.items() if k not in ("loss", "l1", "l2s", "cv")}
        splitter = GroupKFold(2) if groups else 2
        model = self._fitted(self.given, self.y, self.weight, cv=splitter, **groups)
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        X, scores = self.X.astype(float), []
        folds = check_cv(splitter, self.y, classifier=is_classifier(model))
        for a, b in folds.split(X, self.y, **groups):
            path = sdca_path(
                *(_rows(self.given, a), self.y[a], self.loss),
                l2s=self.options["l2s"],
                l1=self.l1,
                sample_weight=weight[a],
                **own,
            )
            scores.append(self._criteria(path, X[b], self.y[b], weight[b], np.unique(self.y[a])))
        means = np.mean(scores, axis=0)
        assert np.isfinite(means).all()
        chosen = self.options["l2s"].index(model.l2_)
        assert means[chosen] >= means.max() - 1e-3 * (1 + abs(means.max())), (means, chosen)
        # but for a constant, which the losses of counts may have
        found, expected = (
            each - np.mean(each, axis=1)[:, None] for each in (model.scores_, scores)
        )
        np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.15)

    def _criteria(self, path: Any, X: Any, y: Any, weight: Any, classes: Any) -> list[float]:
        found, own, signs = [], self._own_parameter, y[:, None]
        parameter = None if own is None else float(self.options[own])
        if is_classifier(self.kind()):
            positive = classes[1:] if len(classes) == 2 else classes
            signs = np.where(y[:, None] == positive, 1.0, -1.0)
            weight = weight * np.isin(y, classes)
        for coef, intercept in zip(path.coefs, path.intercepts, strict=True):
            z = np.minimum(X @ coef.T + intercept, 700)
            if self.loss == "multinomial" and len(classes) > 2:
                each: Any = logsumexp(z, axis=1) - (z * (signs > 0)).sum(axis=1)
            else:
                each = phi(self._kernel_loss, z, signs, parameter).sum(axis=1)
            found.append(-float(np.average(each, weights=weight)))
        return found

    def _go_groups(self) -> None:
        self._go_chosen(groups=np.arange(len(self.y)) % 4)

    # ---- equivalent problems

    def change(self, change: str) -> None:
        """Fit an equivalent problem, and compare the certified minima, or the bits."""
        getattr(self, f"_change_{change}")()

    def _interval(self, model: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.ravel(model.objective_), np.ravel(model.dual_gap_)

    def _overlap(self, model: Any, scale: float = 1.0) -> None:
        objective, gap = self._interval(model)
        self._overlap_of(objective / scale, gap / scale)

    def _overlap_of(self, objective: Any, gap: Any, model: Any = None) -> None:
        """Compare certified intervals: they hold one minimum."""
        mine, my_gap = self._interval(self.model if model is None else model)
        slack = ROUNDING * (1 + np.abs(mine))
        assert (mine - my_gap <= objective + slack).all(), (mine, my_gap, objective, gap)
        assert (objective - gap <= mine + slack).all(), (mine, my_gap, objective, gap)

    def _change_form(self) -> None:
        plain = self._fitted(self.X.astype(float), self.y, self.weight)
        if hasattr(plain, "dual_gap_"):
            if not self.chooses or plain.l2_ == self.model.l2_:
                self._overlap(plain)
        else:
            np.testing.assert_allclose(self.model.coef_, plain.coef_, rtol=1e-6, atol=1e-9)

    def _change_renamed(self) -> None:
        """Labels are names: others in the same order change no bit."""
        names = np.array(["a", "b", "c"])[: len(self.classes)]
        other = self._fitted(self.given, names[self.codes], self.weight)
        for name in ("coef_", "intercept_"):
            assert np.array_equal(getattr(other, name), getattr(self.model, name)), name

    def _change_threads(self) -> None:
        other = self._fitted(self.given, self.y, self.weight, n_jobs=3)
        assert np.array_equal(other.coef_, self.model.coef_)

    def _change_permuted(self) -> None:
        order = self.random.permutation(len(self.y))
        weight = None if self.weight is None else self.weight[order]
        self._overlap(self._fitted(self.X.astype(float)[order], self.y[order], weight))

    def _change_columns(self) -> None:
        order = self.random.permutation(self.X.shape[1])
        self._overlap(self._fitted(self.X.astype(float)[:, order], self.y, self.weight))

    def _change_repeated(self) -> None:
        """A row of weight 2 is a row that is there twice."""
        times = np.ones(len(self.y), int) if self.weight is None else self.weight.astype(int)
        X, y = self.X.astype(float), self.y
        self._overlap(self._fitted(np.repeat(X, times, axis=0), np.repeat(y, times)))

    def _change_without_zeros(self) -> None:
        kept = np.ones(len(self.y), bool) if self.weight is None else self.weight > 0
        weight = None if self.weight is None else self.weight[kept]
        self._overlap(self._fitted(self.X.astype(float)[kept], self.y[kept], weight))

    def _change_scaled(self) -> None:
        """Weights and penalties four times as large: the objective is, too."""
        weight = 4.0 * (np.ones(len(self.y)) if self.weight is None else self.weight)
        more = {"l1": 4 * self.l1, "l2": 4 * self.l2}
        self._overlap(self._fitted(self.given, self.y, weight, **more), scale=4.0)


def _rows(X: Any, rows: list[int]) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list):
        return [X[k] for k in rows]
    return X.tocsr()[rows] if sparse.issparse(X) else X[rows]
