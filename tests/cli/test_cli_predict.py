"""`tfopt predict`: the numbers, where they go, what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.special import expit

from tfopt.cli.metrics import margins
from tfopt.cli.models import write_model
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.readers import read_data
from tfopt.linear_model.model_file import read_model


def test_prints_probabilities_and_scores(cli, tiny, tiny_model):
    outcome = cli("predict", tiny_model, tiny)
    model, data = read_model(str(tiny_model)), read_data(str(tiny), ReadOptions())
    expected = expit(data.features.toarray() @ model.weights + model.bias)
    printed = np.array([float(line) for line in outcome.out.splitlines()])
    np.testing.assert_allclose(printed, expected, rtol=1e-15)
    assert ((printed > 0.5) == (data.labels == 1)).all()
    assert outcome.err.startswith("accuracy 1  log-loss 0.")
    assert outcome.err.endswith("  AUC 1\n")
    assert outcome.code == 0


def test_prints_values_for_the_squared_loss(cli, tiny):
    cli("train", tiny, "--loss", "squared", "--quiet")
    model = read_model("model.npz")
    outcome = cli("predict", "model.npz", tiny)
    assert float(outcome.out.splitlines()[1]) == model.weights[1] + model.bias[0]
    assert outcome.err.startswith("RMSE ")


def test_output_file_has_what_standard_output_would_have(cli, folder, tiny, tiny_model):
    printed = cli("predict", tiny_model, tiny, "--quiet")
    assert printed.err == ""
    written = cli("predict", tiny_model, tiny, "--output", "p.txt", "--quiet")
    assert written.out == ""
    assert (folder / "p.txt").read_text() == printed.out
    assert printed.out.count("\n") == 8


def test_floats_come_back_exactly(cli, tiny, tiny_model):
    model, data = read_model(str(tiny_model)), read_data(str(tiny), ReadOptions())
    printed = cli("predict", tiny_model, tiny, "--quiet").out
    expected = expit(margins(model, data))
    assert [float(line) for line in printed.splitlines()] == expected.tolist()


def test_no_scores_for_labels_of_another_kind(cli, folder, tiny_model):
    (folder / "unlabelled.svm").write_text("0 1:1\n0 2:1 77:5\n")
    outcome = cli("predict", tiny_model, "unlabelled.svm")
    assert outcome.code == 0
    assert outcome.out.count("\n") == 2
    assert outcome.err == "no scores: the labels are not those of the training data\n"


def test_unknown_features_are_ignored(cli, folder, tiny_model):
    (folder / "wide.svm").write_text("1 1:1 77:5\n")
    (folder / "same.svm").write_text("1 1:1\n")
    wide = cli("predict", tiny_model, "wide.svm", "--quiet")
    assert wide.out == cli("predict", tiny_model, "same.svm", "--quiet").out != ""


def test_the_model_says_where_features_are_counted_from(cli, folder, tiny_model):
    (folder / "zero.svm").write_text("1 0:1 2:.5\n0 1:1\n" * 4)
    cli("train", "zero.svm", "--model", "zero.npz", "--quiet")
    (folder / "from1.svm").write_text("0 1:1\n")  # not shifted, though 0 does not occur
    shifted = cli("predict", "zero.npz", "from1.svm", "--quiet").out
    assert float(shifted) < 0.5
    refused = cli("predict", tiny_model, "zero.svm")
    assert refused.err == "zero.svm:1:3: index 0 in a one-based file '0:1'\n"
    assert (refused.code, refused.out) == (1, "")


def test_a_prediction_that_overflows_is_refused(cli, folder, tiny_model):
    (folder / "huge.svm").write_text("1 1:1\n\n1 1:1e308 3:1e308\n" + "1 1:-1e308 2:1e308\n")
    model = read_model(str(tiny_model))
    write_model("huge.npz", dataclasses.replace(model, weights=model.weights * 1e9))
    outcome = cli("predict", "huge.npz", "huge.svm", "--output", "p.txt")
    assert outcome.err == "huge.svm:3: the model's prediction is not finite\n"
    assert outcome.code == 1
    assert not (folder / "p.txt").exists()


def test_scores_may_be_infinite(cli, folder, tiny):
    cli("train", tiny, "--loss", "squared", "--quiet")
    (folder / "huge.svm").write_text("1 1:1e200\n2 2:1\n")
    outcome = cli("predict", "model.npz", "huge.svm")
    assert outcome.err.startswith("RMSE inf  MAE ")
    outcome = cli("train", tiny, "--loss", "squared", "--test", "huge.svm", "--quiet")
    assert outcome.code == 1
    assert outcome.err.startswith("the test loss is not finite: ")


@pytest.mark.parametrize("content", [b"", b"not a model", b"PK\x03\x04" + bytes(100)])
def test_refuses_what_is_not_a_model(cli, folder, tiny, content):
    (folder / "bad.npz").write_bytes(content)
    outcome = cli("predict", "bad.npz", tiny, "--output", "p.txt")
    assert outcome.code == 1
    assert outcome.err == (
        "bad.npz: is not a model that this tfopt reads: not an .npz file, or cut short\n"
    )
    assert not (folder / "p.txt").exists()


def test_refuses_bad_data_without_output(cli, folder, tiny_model):
    (folder / "bad.svm").write_text("1 1:1\n1 1:x\n")
    outcome = cli("predict", tiny_model, "bad.svm", "--output", "p.txt")
    assert outcome.err == "bad.svm:2:3: the value is not a number '1:x'\n"
    assert outcome.code == 1
    assert not (folder / "p.txt").exists()
