"""`--weight` and `--offset`: columns of tables, and files of numbers beside LIBSVM files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from common.dask_cluster import processes

from tfopt.linear_model import FTRLClassifier, FTRLRegressor, LinearClassifier, LinearRegressor
from tfopt.linear_model.model_file import read_model

ROWS = 60


@pytest.fixture(scope="module")
def there():
    """The address of a cluster, which takes longer to start than a test of it."""
    with processes(2) as client:
        yield client.scheduler.address


@pytest.fixture
def rows(folder):
    """Counts with exposures: a table, and a LIBSVM file with files of numbers beside."""
    random = np.random.default_rng(0)
    X = random.standard_normal((ROWS, 3)).round(3)
    exposure = random.uniform(0.5, 3, ROWS)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["y"] = random.poisson(exposure * np.exp(0.5 * X[:, 0]))
    frame["w"] = random.integers(1, 4, ROWS)
    frame["o"] = np.log(exposure)
    frame.to_csv("data.csv", index=False)
    lines = (
        f"{int(row.y)} 1:{row.a} 2:{row.b} 3:{row.c}\n" for row in frame.itertuples(index=False)
    )
    (folder / "data.svm").write_text("".join(lines))
    for name in ("w", "o"):
        (folder / name).write_text("".join(f"{value!r}\n" for value in frame[name].tolist()))
    return frame


LABEL = {"data.csv": ["--label", "y"], "data.svm": []}
NUMBERS = ["--weight", "w", "--offset", "o"]
FIT = ["--l2", "0.01", "--tol", "1e-10", "--quiet", "--json"]


@pytest.mark.parametrize("loss", ["poisson", "squared", "quantile"])
@pytest.mark.parametrize("name", LABEL)
def test_they_are_the_estimators(cli, rows, name, loss):
    flags = [*LABEL[name], *NUMBERS, "--loss", loss, *FIT]
    result = cli("train", name, *flags).json()
    total = rows["w"].sum()
    expected = LinearRegressor(loss, l2=0.01 * total, tol=1e-10)
    X, y, w, offset = rows[["a", "b", "c"]].to_numpy(), rows["y"], rows["w"], rows["o"].to_numpy()
    expected.fit(X, y, w, offset=offset)
    np.testing.assert_allclose(read_model("model.npz").weights, expected.coef_, rtol=1e-3)
    numbers = NUMBERS if name == "data.svm" else [*LABEL[name], *NUMBERS]
    predicted = cli("predict", "model.npz", name, *numbers, "--json").json()
    values = [row["value"] for row in predicted["predictions"]]
    np.testing.assert_allclose(values, expected.predict(X, offset), rtol=1e-2, atol=1e-3)
    assert predicted["scores"] == pytest.approx(result["scores"]["train"], rel=1e-9)
    without = cli("predict", "model.npz", name, *numbers[:-2], "--json").json()
    assert without["scores"] != predicted["scores"]


def test_both_formats_give_one_result(cli, rows):
    for command in (["train"], ["cv", "--folds", "3"]):
        found = []
        for name, label in LABEL.items():
            flags = [*label, *NUMBERS, "--loss", "poisson", "--tol", "1e-10", "--quiet", "--json"]
            result = cli(command[0], name, *command[1:], *flags).json()
            found.append(result["best"]["loss"] if "best" in result else result["losses"]["train"])
        assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_a_stream_has_weights(cli, rows):
    X, y, w = rows[["a", "b", "c"]].to_numpy(), rows["y"], rows["w"]
    expected = FTRLRegressor("squared").partial_fit(X, y, sample_weight=w)
    flags = ["--weight", "w", "--solver", "ftrl", "--loss", "squared", "--json", "--quiet"]
    for more in (["--checkpoint-every", "1"], ["--on-bad-line", "skip"]):
        result = cli("train", "data.svm", *flags, *more).json()
        np.testing.assert_allclose(read_model("model.npz").weights, expected.coef_, rtol=1e-12)
        mean = result["progressive_losses"][-1][1]
        assert mean == pytest.approx(expected.progressive_loss_, rel=1e-12)


@pytest.mark.parametrize("name", LABEL)
@pytest.mark.parametrize("solver", ["auto", "ftrl"])
def test_two_classes_have_an_offset(cli, rows, folder, name, solver):
    """The logarithm of odds, of smooth losses and with l1; of a stream also of other losses."""
    rows["y"] = (rows["y"] > 1) * 1
    rows.to_csv("data.csv", index=False)
    lines = (folder / "data.svm").read_text().splitlines()
    lines = [f"{y} {line.split(' ', 1)[1]}\n" for y, line in zip(rows["y"], lines, strict=True)]
    (folder / "data.svm").write_text("".join(lines))
    X, y, w, offset = rows[["a", "b", "c"]].to_numpy(), rows["y"], rows["w"], rows["o"].to_numpy()
    losses = {"auto": ["logistic", "squared_hinge"], "ftrl": ["logistic", "hinge"]}[solver]
    for loss in losses:
        l1 = 0.01 if loss == "squared_hinge" else 0.0
        flags = [*LABEL[name], *NUMBERS, "--loss", loss, "--solver", solver, "--quiet", "--json"]
        flags += ["--l1", f"{l1}"]
        more = ["--l2", "0.01", "--tol", "1e-10"] if solver == "auto" else []
        assert cli("train", name, *flags, *more).code == 0
        if solver == "auto":
            penalties = {"l1": l1 * w.sum(), "l2": 0.01 * w.sum()}
            expected = LinearClassifier(loss, **penalties, tol=1e-10)
            expected.fit(X, y, w, offset=offset)
        else:
            if name == "data.csv":
                X = (X - X.mean(axis=0)) / X.std(axis=0)
            expected = FTRLClassifier(loss).partial_fit(X, y, [0, 1], w, offset=offset)
        np.testing.assert_allclose(read_model("model.npz").weights, expected.coef_[0], rtol=1e-5)
        numbers = NUMBERS if name == "data.svm" else [*LABEL[name], *NUMBERS]
        predicted = cli("predict", "model.npz", name, *numbers, "--labels").out.split()
        assert [*map(float, predicted)] == expected.predict(X, offset).tolist()
        assert cli("predict", "model.npz", name, *numbers[:-2], "--labels").out.split() != predicted


@pytest.mark.parametrize("loss", ["poisson", "squared"])
def test_a_stream_has_an_offset(cli, rows, loss):
    X, y, w, offset = rows[["a", "b", "c"]].to_numpy(), rows["y"], rows["w"], rows["o"].to_numpy()
    expected = FTRLRegressor(loss).partial_fit(X, y, sample_weight=w, offset=offset)
    flags = [*NUMBERS, "--solver", "ftrl", "--loss", loss, "--json", "--quiet"]
    for more in ([], ["--on-bad-line", "skip"], ["--checkpoint-every", "1", "--resume"]):
        result = cli("train", "data.svm", *flags, *more).json()
        np.testing.assert_allclose(read_model("model.npz").weights, expected.coef_, rtol=1e-12)
        mean = result["progressive_losses"][-1][1]
        assert mean == pytest.approx(expected.progressive_loss_, rel=1e-12)


@pytest.mark.parametrize("name", [*LABEL, "parts"])
def test_blocks_and_a_cluster_have_an_offset(cli, rows, folder, there, name):
    """The same file with and without a cluster: of the rows of a file, or of a folder's files."""
    flags = [*NUMBERS, *LABEL.get(name, ["--label", "y"]), "--loss", "poisson", "--quiet"]
    if name == "parts":
        (folder / name).mkdir()
        for k in range(3):
            rows[20 * k : 20 * k + 20].to_csv(f"parts/{k}.csv", index=False)
        flags += ["--format", "csv"]
    found = {}
    for place in (["--blocks", "files" if name == "parts" else "3"], ["--dask", there]):
        blocks = ["--blocks", "3"] if name != "parts" and "--dask" in place else []
        assert cli("train", name, *flags, *place, *blocks).code == 0
        found[place[0]] = (folder / "model.npz").read_bytes()
    assert found["--blocks"] == found["--dask"]
    X, y, w, offset = rows[["a", "b", "c"]].to_numpy(), rows["y"], rows["w"], rows["o"].to_numpy()
    expected = LinearRegressor("poisson").fit(X, y, w, offset=offset)
    np.testing.assert_allclose(read_model("model.npz").weights, expected.coef_, atol=1e-2)


def test_test_rows_of_libsvm_count_once(cli, rows):
    result = cli("train", "data.svm", "--test", "data.svm", "--weight", "w", *FIT[:2], *FIT[4:])
    plain = cli("predict", "model.npz", "data.svm", "--json").json()["scores"]
    assert result.json()["scores"]["test"] == pytest.approx(plain)
    assert result.json()["scores"]["train"] != pytest.approx(plain)


@pytest.mark.parametrize("solver", ["auto", "ftrl"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n" * 59, "numbers: has 59 numbers, fewer than there are rows in data.svm\n"),
        ("1\n" * 61, "numbers: has 61 numbers, more than there are rows in data.svm\n"),
        ("1\n" * 9 + "x\n", "numbers:10: the value is not a finite number of at least 0 'x'\n"),
        ("1\n" * 9 + "-1\n", "numbers:10: the value is not a finite number of at least 0 '-1'\n"),
        ("1\n" * 9 + "inf\n", "numbers:10: the value is not a finite number of at least 0 'inf'\n"),
        ("0\n" * 60, "the weights have the sum 0"),
    ],
)
def test_bad_files_of_weights(cli, rows, folder, solver, text, message):
    (folder / "numbers").write_text(text)
    flags = ["--weight", "numbers", "--loss", "squared", "--solver", solver, "--quiet"]
    outcome = cli("train", "data.svm", *flags)
    assert outcome.code == 1 and message in outcome.err and outcome.err.count("\n") == 1
    assert not (folder / "model.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("train classes.svm --offset o", 1, "--offset is for two classes, or for numbers"),
        (
            "train classes.svm --offset o --solver ftrl",
            1,
            "an offset needs two classes, but",
        ),
        ("train two.svm --offset o --loss hinge", 1, "an offset of a classifier needs a smoo"),
        ("train two.svm --offset o --solver sdca", 1, "of a classifier needs solver='auto' or"),
        ("train two.svm --offset o --blocks 2", 1, "an offset of a classifier needs num_loss_part"),
        ("train two.svm --offset o --dask {there}", 1, "an offset of classes is not for blocks"),
        ("cv two.svm --offset o", 2, "--offset of cv is for the losses of numbers, not of"),
        ("train data.svm --loss squared --offset o --test data.svm", 2, "does not go with --test"),
        ("train data.svm --loss squared --offset no", 1, "no: No such file or directory"),
        ("train data.csv --label y --loss squared --offset no", 1, "no column 'no' (from"),
        ("train data.csv --label y --loss squared --offset w --weight w", 2, "one column"),
        ("train data.svm --weight w --model w", 1, "w: is also an input and would be overwritten"),
        ("train . --weight w", 1, ".: is a folder, whose rows have no files of numbers"),
        ("predict classes.npz data.svm --offset o", 1, "--offset is for two classes, or for"),
    ],
)
def test_what_is_refused(cli, rows, folder, there, arguments, code, message):
    (folder / "classes.svm").write_text("1 1:1\n0 2:1\n2 1:3\n" * 20)
    (folder / "two.svm").write_text("1 1:1\n0 2:1\n" * 30)
    assert cli("train", "classes.svm", "--model", "classes.npz", "--quiet").code == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}
    outcome = cli(*arguments.format(there=there).split())
    assert outcome.code == code and message in outcome.err, outcome.err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
