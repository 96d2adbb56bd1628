"""Which solvers a plan chooses: those of a table of problems, as recorded."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from common.linear_losses import DEFINITIONS, estimator
from linear_problems import PROBLEMS, sequence
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model import SDCAClassifier
from tfopt.linear_model.parameters import SOLVERS

#: The solvers of each problem, and how many iterations each took.
RECORDED = {
    "logistic (60, 4)": "newton-cholesky 5",
    "logistic (9000, 6)": "newton-cholesky 6",
    "logistic sparse": "sdca 13",
    "logistic l1": "cd 7",
    "logistic blocks": "newton-cholesky 3",
    "hinge (60, 4)": "interior-point 11",
    "hinge (9000, 6)": "interior-point 19",
    "hinge sparse": "sdca 172",
    "hinge l1": "interior-point 14",
    "hinge blocks": "interior-point 5",
    "smooth_hinge (60, 4)": "sdca 2, newton-cholesky 5",
    "smooth_hinge (9000, 6)": "sdca 2, newton-cholesky 7",
    "smooth_hinge sparse": "sdca 42",
    "smooth_hinge l1": "cd 8",
    "smooth_hinge blocks": "sdca 2, newton-cholesky 4",
    "squared_hinge (60, 4)": "newton-cholesky 3",
    "squared_hinge (9000, 6)": "newton-cholesky 5",
    "squared_hinge sparse": "sdca 74",
    "squared_hinge l1": "cd 7",
    "squared_hinge blocks": "newton-cholesky 3",
    "squared (60, 4)": "newton-cholesky 2",
    "squared (9000, 6)": "newton-cholesky 2",
    "squared sparse": "sdca 54",
    "squared l1": "cd 3",
    "squared blocks": "newton-cholesky 2",
    "poisson (60, 4)": "newton-cholesky 5",
    "poisson (9000, 6)": "newton-cholesky 5",
    "poisson sparse": "sdca 56",
    "poisson l1": "cd 5",
    "poisson blocks": "newton-cholesky 3",
    "gamma (60, 4)": "newton-cholesky 5",
    "gamma (9000, 6)": "newton-cholesky 5",
    "gamma sparse": "sdca 50",
    "gamma l1": "cd 5",
    "gamma blocks": "newton-cholesky 3",
    "tweedie (60, 4)": "newton-cholesky 5",
    "tweedie (9000, 6)": "newton-cholesky 4",
    "tweedie sparse": "sdca 46",
    "tweedie l1": "cd 4",
    "tweedie blocks": "newton-cholesky 3",
    "huber (60, 4)": "sdca 2, newton-cholesky 3",
    "huber (9000, 6)": "sdca 2, newton-cholesky 6",
    "huber sparse": "sdca 54",
    "huber l1": "cd 9",
    "huber blocks": "sdca 2, newton-cholesky 3",
    "squared_epsilon_insensitive (60, 4)": "newton-cholesky 4",
    "squared_epsilon_insensitive (9000, 6)": "newton-cholesky 4",
    "squared_epsilon_insensitive sparse": "sdca 101, newton-cg 2",
    "squared_epsilon_insensitive l1": "cd 6",
    "squared_epsilon_insensitive blocks": "newton-cholesky 3",
    "epsilon_insensitive (60, 4)": "interior-point 12",
    "epsilon_insensitive (9000, 6)": "interior-point 20",
    "epsilon_insensitive sparse": "sdca 436, interior-point 2",
    "epsilon_insensitive l1": "interior-point 15",
    "epsilon_insensitive blocks": "interior-point 7",
    "quantile (60, 4)": "interior-point 12",
    "quantile (9000, 6)": "interior-point 16",
    "quantile sparse": "sdca 193, interior-point 2",
    "quantile l1": "interior-point 12",
    "quantile blocks": "interior-point 6",
    "logistic wide": "sdca 2, newton-cholesky 6",
    "logistic warm": "newton-cholesky 1",
    "logistic shifted": "newton-cholesky 6",
    "logistic strong": "sdca 2, newton-cholesky 2",
    "logistic adaptive": "sdca 2, newton-cholesky 4",
    "logistic parts": "sdca 2, newton-cholesky 5",
    "logistic l1, wide sparse": "sdca 100",
    "logistic l1, warm": "cd 1",
    "logistic l1, blocks": "cd 5",
    "squared wide": "newton-cholesky 2",
    "squared warm": "newton-cholesky 1",
    "squared shifted": "newton-cholesky 3",
    "squared strong": "newton-cholesky 2",
    "squared adaptive": "sdca 2, newton-cholesky 2",
    "squared parts": "sdca 2, newton-cholesky 2",
    "squared l1, wide sparse": "cd 6",
    "squared l1, warm": "cd 2",
    "squared l1, blocks": "cd 2",
    "hinge wide": "sdca 2, interior-point 10",
    "hinge warm": "interior-point 1",
    "hinge shifted": "interior-point 15",
    "hinge strong": "interior-point 6",
    "hinge adaptive": "sdca 2, interior-point 10",
    "hinge parts": "sdca 2, interior-point 13",
    "hinge l1, wide sparse": "sdca 300",
    "hinge l1, warm": "sdca 42",
    "hinge l1, blocks": "sdca 60",
    "smooth_hinge wide": "sdca 2, newton-cholesky 4",
    "smooth_hinge warm": "newton-cholesky 1",
    "smooth_hinge shifted": "sdca 2, newton-cholesky 6",
    "smooth_hinge strong": "sdca 2, newton-cholesky 3",
    "smooth_hinge adaptive": "sdca 2, newton-cholesky 6",
    "smooth_hinge parts": "sdca 2, newton-cholesky 5",
    "smooth_hinge l1, wide sparse": "sdca 12, cd 10",
    "smooth_hinge l1, warm": "cd 2",
    "smooth_hinge l1, blocks": "sdca 2, cd 13",
    "logistic by sdca": "sdca 112",
    "logistic by newton-cholesky": "newton-cholesky 6",
    "logistic by newton-cg": "newton-cg 7",
    "logistic by cd": "cd 6",
    "poisson by cd": "cd 5",
    "hinge by interior-point": "interior-point 14",
    "quantile by interior-point": "interior-point 12",
    "logistic of many rows": "newton-cholesky 2",
    "logistic of many features": "newton-cg 8",
    "squared of many features": "newton-cholesky 2",
    "lasso": "cd 4",
    "sparse logistic regression": "cd 6",
    "logistic, 3 classes, 4": "newton-cholesky 4; newton-cholesky 4; newton-cholesky 4",
    "hinge, 3 classes, 4": "interior-point 8; interior-point 9; interior-point 8",
    "l1, 3 classes, 4": "cd 4; cd 4; cd 4",
    "logistic, 3 classes, 700": "sdca 5, newton-cg 7; sdca 5, newton-cg 7; sdca 6, newton-cg 7",
    "hinge, 3 classes, 700": "sdca 137; sdca 134; sdca 133",
    "l1, 3 classes, 700": "sdca 69; sdca 70; sdca 70",
    "multinomial": "newton-cg 7",
    "multinomial, warm": "newton-cg 1",
    "multinomial, sparse": "newton-cg 4",
    "multinomial of 2 classes": "newton-cholesky 6",
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_solvers_and_their_iterations_are_those_recorded(name: str) -> None:
    found, recorded = sequence(PROBLEMS[name].fitted()), RECORDED[name]
    assert re.sub(r" \d+", "", found) == re.sub(r" \d+", "", recorded)
    # rounding, which differs with the library's exp and log, may end a fit a little later
    for n, expected in zip(
        *(re.findall(r" (\d+)", each) for each in (found, recorded)), strict=True
    ):
        assert abs(int(n) - int(expected)) <= max(1, int(expected) // 20)


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_iteration_has_a_reason_for_its_solver(name: str) -> None:
    for history in PROBLEMS[name].fitted().history_:
        for record in history:
            assert record["reason"].startswith(record["solver"] + ": ")


def test_reasons_tell_the_sizes_and_what_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((2000, 7))
    y = X @ random.standard_normal(7) + random.standard_normal(2000) > 0
    first = SDCAClassifier().fit(X, y).history_[0][0]["reason"]
    assert re.fullmatch(r"newton-cholesky: 7 features, 2 000 rows; [0-9.]+ ms expected", first)
    asked = SDCAClassifier(solver="newton-cg").fit(X, y).history_[0][0]["reason"]
    assert asked.endswith("ms expected, asked for")
    slow = SDCAClassifier("smooth_hinge").fit(X, y).history_[0]
    reasons = list(dict.fromkeys(record["reason"] for record in slow))
    assert reasons[0].endswith("; epochs tell whether newton-cholesky is less work")
    assert re.fullmatch(r"newton-cholesky: .+ ms expected, instead of .+ ms", reasons[1])
    capsys.readouterr()
    SDCAClassifier("smooth_hinge", verbose=True).fit(X, y)
    shown = capsys.readouterr()
    assert all((shown.out + shown.err).count(reason) == 1 for reason in reasons)


@pytest.mark.parametrize("loss", DEFINITIONS)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("l1", [0.0, 1.0])
@pytest.mark.parametrize("l2", [0.0, 1.0])
def test_a_solver_is_refused_exactly_where_a_need_of_it_is_not_met(
    loss: str, solver: str, l1: float, l2: float
) -> None:
    X, y = PROBLEMS[f"{loss} (60, 4)"].data()
    model = estimator(loss, l1=l1, l2=l2, solver=solver, tol=1e-2, max_iter=2000)
    if SOLVERS[solver].unmet(model._phi, l1, l2) is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            assert {*model.fit(X, y).solver_} == {solver}
        return
    before = dict(vars(model))
    with pytest.raises(ValueError, match="needs") as refusal:
        model.fit(X, y)
    assert vars(model) == before
    other = re.search(r"set solver='([a-z-]+)'$", str(refusal.value))
    assert other is None or model.set_params(solver=other[1]).fit(X, y).solver_ == [other[1]]
