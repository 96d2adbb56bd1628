"""`tfopt train --solver sdca`: the minimum, its proof, and models of every loss."""

from __future__ import annotations

import numpy as np
import pytest

ROWS = "3 1:1\n0 2:1\n2 1:.5 2:.5\n5 1:2\n1 3:.1\n0 2:2\n"


def test_the_minimum_of_a9a_and_its_proof(cli):
    outcome = cli("train", "--solver", "sdca", "--tol", "1e-9", "--json", "--quiet")
    result = outcome.json()
    assert result["certificate"]["objective"] * 32561 == pytest.approx(10528.57243054, rel=1e-9)
    assert 0 <= result["certificate"]["relative_gap"] <= 1e-9
    assert result["settings"]["l2"] == 1 / 32561 and "optimizer" not in result["settings"]
    assert result["scores"]["test"]["accuracy"] == pytest.approx(0.8498, abs=1e-4)
    assert result["scores"]["test"]["log_loss"] == pytest.approx(0.3241, abs=1e-4)


def test_the_proof_is_printed(cli, tiny):
    outcome = cli("train", tiny, "--solver", "sdca", "--quiet")
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("proof"))
    assert "above the minimum; " in line and line.endswith(" iterations")
    outcome = cli("train", tiny, "--solver", "sdca", "--epochs", "1", "--tol", "1e-14")
    assert "above the minimum, which is above tol 1e-14; 1 iterations" in outcome.out


@pytest.mark.parametrize("loss", ["logistic", "hinge", "smooth_hinge", "squared", "poisson"])
@pytest.mark.parametrize("l1", ["0", "0.05"])
def test_models_of_every_loss_predict(cli, tiny, folder, loss, l1):
    data = tiny
    if loss in ("squared", "poisson"):
        data = folder / "counts"
        data.write_text(ROWS)
    trained = cli("train", data, "--solver", "sdca", "--loss", loss, "--l1", l1, "--json").json()
    predicted = cli("predict", "model.npz", data)
    values = np.array(predicted.out.split(), float)
    scores = trained["scores"]["train"]
    if loss in ("squared", "poisson"):
        truth = np.array([float(row.split()[0]) for row in ROWS.splitlines()])
        assert np.sqrt(np.mean((values - truth) ** 2)) == pytest.approx(scores["rmse"])
    else:
        assert scores["accuracy"] == 1
        assert ((values > (0.5 if loss == "logistic" else 0)) == [True, False] * 4).all()
    assert "accuracy" in predicted.err or "RMSE" in predicted.err


def test_labels_that_a_loss_forbids(cli, folder):
    (folder / "data").write_text("-1 1:1\n2 1:2\n3 1:1\n")
    for loss, message in {
        "poisson": "data: loss='poisson' needs non-negative targets",
        "hinge": "data: hinge loss needs two classes, the labels have 3: -1, 2, 3",
    }.items():
        outcome = cli("train", "data", "--solver", "sdca", "--loss", loss)
        assert outcome.code == 1 and message in outcome.err


def test_threads_change_no_bytes(cli, tiny, folder):
    for threads in (1, 2):
        cli("train", tiny, "--solver", "sdca", "--threads", threads, "--model", f"{threads}.npz")
    assert (folder / "1.npz").read_bytes() == (folder / "2.npz").read_bytes()
