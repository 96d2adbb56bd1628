"""CSV and Parquet: columns by name, in training, prediction and what is refused."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from tfopt.cli import readers, tables
from tfopt.linear_model import load_model
from tfopt.linear_model.model_file import read_model

ROWS = 40


@pytest.fixture
def frame(folder):
    """Forty rows of three named features, in a CSV and a Parquet file."""
    random = np.random.default_rng(3)
    values = random.normal(size=(ROWS, 3)).round(3)
    table = pd.DataFrame(values, columns=["age", "body weight", "z"])
    score = values[:, 0] - values[:, 1] + random.normal(size=ROWS)
    table.insert(1, "sick", np.where(score > 0, "yes", "no"))
    table["w"] = random.integers(1, 4, size=ROWS)
    table.to_csv("data.csv", index=False)
    table.to_csv("data.tsv", index=False, sep="\t")
    table.to_parquet("data.parquet", index=False)
    (folder / "data.csv.gz").write_bytes(gzip.compress((folder / "data.csv").read_bytes()))
    return table


def test_all_forms_of_a_table_give_one_model(cli, frame, folder):
    flags = ["--label", "sick", "--weight", "w", "--quiet"]
    files = []
    for name in ("data.csv", "data.tsv", "data.csv.gz", "data.parquet"):
        assert cli("train", name, *flags).code == 0
        files.append((folder / "model.npz").read_bytes())
    assert len({*files}) == 1
    model = read_model("model.npz")
    assert model.columns.features == ("age", "body weight", "z")
    assert (model.columns.label, model.columns.classes) == ("sick", ("no", "yes"))
    estimator = load_model("model.npz")
    features = frame[[*model.columns.features]]
    predicted = cli("predict", "model.npz", "data.csv", "--labels")
    assert predicted.out.split() == estimator.predict(features).tolist()
    assert predicted.err.startswith("accuracy 0.")


def test_a_weight_of_two_is_a_row_that_is_there_twice(cli, frame, folder):
    frame.loc[frame.index.repeat(frame["w"])].drop(columns="w").to_csv("rows.csv", index=False)
    flags = ["--label", "sick", "--l2", "0.01", "--json", "--quiet", "--tol", "1e-12"]
    weighted = cli("train", "data.csv", "--weight", "w", *flags).json()
    weights = read_model("model.npz").weights
    repeated = cli("train", "rows.csv", *flags).json()
    np.testing.assert_allclose(weights, read_model("model.npz").weights, rtol=1e-6)
    for name in ("accuracy", "log_loss", "auc"):
        scores = (result["scores"]["train"][name] for result in (weighted, repeated))
        assert len({round(score, 6) for score in scores}) == 1


def test_columns_are_found_by_name(cli, frame):
    assert cli("train", "data.csv", "--label", "sick", "--weight", "w", "--quiet").code == 0
    plain = cli("predict", "model.npz", "data.csv", "--quiet").out
    frame[["z", "w", "body weight", "age"]].to_csv("other.csv", index=False)
    outcome = cli("predict", "model.npz", "other.csv")
    assert outcome.out == plain
    assert outcome.err == "no scores: the data have no labels\n"
    frame.rename(columns={"sick": "ill"}).to_csv("other.csv", index=False)
    assert "AUC" in cli("predict", "model.npz", "other.csv", "--label", "ill").err
    frame.drop(columns="z").to_csv("other.csv", index=False)
    refused = cli("predict", "model.npz", "other.csv")
    assert refused.err == "other.csv: has no column 'z', which the model was trained on\n"
    assert refused.code == 1


def test_tables_are_predicted_block_by_block(cli, frame, monkeypatch):
    assert cli("train", "data.csv", "--label", "sick", "--quiet").code == 0
    for name in ("data.csv", "data.parquet"):
        whole = cli("predict", "model.npz", name)
        with monkeypatch.context() as patch:
            patch.setattr(tables, "BLOCK", 7)
            assert cli("predict", "model.npz", name) == whole


def test_inspect_shows_the_names(cli, frame):
    assert cli("train", "data.csv", "--label", "sick", "--weight", "w", "--quiet").code == 0
    weights = read_model("model.npz").weights
    (of_model,) = cli("inspect", "model.npz", "--top", "2", "--json").json()["models"]
    order = np.argsort(-np.abs(weights))[:2]
    names = ["age", "body weight", "z"]
    expected = [{"feature": names[k], "weight": weights[k]} for k in order]
    assert (of_model["label"], of_model["weights"]) == ("yes", expected)
    text = cli("inspect", "model.npz").out
    assert "classes   no, yes\nfeatures  3, named\n" in text
    assert f"body weight  {weights[1]:+.6g}\n" in text


def test_regression_and_numeric_labels(cli, frame):
    frame["y"] = frame["age"] * 2 + 1
    frame.drop(columns=["sick", "w"]).to_csv("numbers.csv", index=False)
    flags = ["--label", "y", "--loss", "squared", "--l2", "1e-9", "--quiet"]
    assert cli("train", "numbers.csv", *flags).code == 0
    model = read_model("model.npz")
    np.testing.assert_allclose(model.weights, [2, 0, 0], atol=1e-4)
    assert model.columns.classes is None and model.classes is None
    refused = cli("train", "data.csv", "--label", "sick", "--loss", "squared", "--quiet")
    assert refused.err.startswith("data.csv:2:2: the value of 'sick' is not a number '")


def test_folders_of_tables(cli, frame, folder):
    frame["sick"] = (frame["sick"] == "yes").astype(int)
    (folder / "day").mkdir()
    frame.to_csv("all.csv", index=False)
    frame[:15].to_csv("day/a.csv", index=False)
    frame[15:].to_csv("day/b.csv", index=False)
    flags = ["--label", "sick", "--quiet", "--tol", "1e-10"]
    assert cli("train", "day", *flags).code == 2  # a folder has no suffix
    assert cli("train", "day", "--format", "csv", *flags).code == 0
    parts = read_model("model.npz").weights
    assert cli("train", "all.csv", *flags).code == 0
    np.testing.assert_allclose(parts, read_model("model.npz").weights, rtol=1e-4)
    frame[15:].drop(columns="z").to_csv("day/b.csv", index=False)
    refused = cli("train", "day", "--format", "csv", *flags)
    assert refused.err == "day/b.csv: has other columns than day/a.csv\n"


def test_folders_of_tables_whose_labels_are_text(cli, folder):
    """No file has all of the classes."""
    (folder / "day").mkdir()
    rows = [f"{k % 7},{k % 5},{'xyz'[k % 3]}\n" for k in range(30)]
    (folder / "all.csv").write_text("a,b,kind\n" + "".join(rows))
    (folder / "day" / "1.csv").write_text("a,b,kind\n" + "".join(r for r in rows if "x" not in r))
    (folder / "day" / "2.csv").write_text("a,b,kind\n" + "".join(r for r in rows if "x" in r))
    flags = ["--label", "kind", "--tol", "1e-10", "--quiet", "--json"]
    parts = cli("train", "day", "--format", "csv", *flags, "--test", "all.csv").json()
    weights = read_model("model.npz").weights
    whole = cli("train", "all.csv", *flags, "--model", "all.npz").json()
    assert parts["classes"] == whole["classes"] == [*"xyz"] and weights.shape == (3, 2)
    np.testing.assert_allclose(weights, read_model("all.npz").weights, rtol=1e-3)
    for of_folder in (parts["scores"]["train"], parts["scores"]["test"]):
        assert of_folder == pytest.approx(whole["scores"]["train"], rel=1e-3)
    (folder / "day" / "3.csv").write_text("a,b,kind\n1,2,3\n")
    refused = cli("train", "day", "--format", "csv", *flags)
    assert refused.err == "day/3.csv: the labels in 'kind' are numbers, and before text\n"


GOOD = "a,b,y\n1,2,0\n3,4,1\n"
BAD = {
    "text": (
        "5,x,1\n",
        "bad.csv:4:2: the value of 'b' is, unlike most others, not a number (see --missing, "
        "--categorical, --drop) 'x'",
    ),
    "infinite": ("5,inf,1\n", "bad.csv:4:2: the value of 'b' is not finite 'inf'"),
    "no label": ("5,6,\n", "bad.csv:4:3: the value of 'y' is missing"),
    "few fields": ("5\n", "bad.csv:4: the line has 1 field instead of 3"),
    "many fields": ("5,6,1,7\n", "bad.csv:4: the line has 4 fields instead of 3"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_bad_lines_are_named_or_left_out(cli, folder, text, message):
    (folder / "bad.csv").write_text(GOOD + text + "\n" + "7,8,0\n")
    refused = cli("train", "bad.csv", "--label", "y")
    assert (refused.code, refused.out, refused.err) == (1, "", message + "\n")
    flags = ["--label", "y", "--on-bad-line", "skip"]
    result = cli("train", "bad.csv", *flags, "--json")
    assert result.json()["bad_lines"] == {"train": 1}
    assert result.json()["rows"] == {"train": 3}
    assert result.err.endswith("bad.csv: 1 malformed line left out\n")
    weights = read_model("model.npz").weights
    (folder / "good.csv").write_text(GOOD + "7,8,0\n")
    assert cli("train", "good.csv", "--label", "y", "--quiet").code == 0
    assert (weights == read_model("model.npz").weights).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '1,"two\nlines"\n2,b\nx,b\n',
            ":6:1: the value of 'a' is, unlike most others, not a number",
        ),
        ('1,"two\n\nmore"\n\n2,b,c\n', ":7: the line has 3 fields instead of 2"),
        ('1,a\n2,b,c\n3,"d\n"\nx,b\n', ":4: the line has 3 fields instead of 2"),
        ('1,a\n\n\n2,"b"\n,\n3,"d\n\n"\ninf,b\n', ":11:1: the value of 'a' is not finite 'inf'"),
        ('1,a 5" pipe\n2,\n', ":4:2: the value of 'the\\nlabel' is missing"),
    ],
)
def test_lines_are_counted_within_quotes_too(cli, folder, text, message):
    """In the names of columns, in fields, and after lines that are left out."""
    (folder / "bad.csv").write_text('a,"the\nlabel"\n' + text)
    flags = ["--label", "the\nlabel"]
    assert cli("train", "bad.csv", *flags).err.startswith(f"bad.csv{message}")


@pytest.mark.parametrize(
    ("name", "content", "flags", "message"),
    [
        ("x.csv", b"", ["--label", "y"], "x.csv: no data rows"),
        ("x.csv", b"a,y\n", ["--label", "y"], "x.csv: no data rows"),
        ("x.csv", b"a,y\n1,2\n", ["--label", "z"],
         "x.csv: no column 'z' (from --label); columns: a, y"),
        ("x.csv", b"a,y\n1,2\n", [], "x.csv: is a table: name the column of the labels with "
         "--label"),
        ("x.csv", b"y\n1\n", ["--label", "y"], "x.csv: has no columns besides the labels"),
        ("x.csv", b"a,y\n\xff,2\n", ["--label", "y"], "x.csv: is not UTF-8 text"),
        ("x.csv", b"a,y,w\n1,2,-1\n", ["--label", "y", "--weight", "w"],
         "x.csv:2:3: the value of 'w' is below 0 '-1'"),
        ("x.csv", b"a,y,w\n1,2,0\n2,3,0\n", ["--label", "y", "--weight", "w"],
         "x.csv: the weights have the sum 0"),
        ("x.parquet", b"PAR1 or so", ["--label", "y"], "x.parquet: is not a Parquet file: "),
    ],
)  # fmt: skip
def test_tables_that_are_refused(cli, folder, name, content, flags, message):
    (folder / name).write_bytes(content)
    outcome = cli("train", name, *flags)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(message) and outcome.err.count("\n") == 1
    outcome = cli("train", "missing.csv", "--label", "y")
    assert outcome.err == "missing.csv: No such file or directory\n"


def test_test_data_have_the_columns_of_the_training_data(cli, frame, folder, tiny):
    flags = ["--label", "sick", "--weight", "w", "--json", "--quiet"]
    frame[["z", "sick", "w", "age", "body weight"]].to_csv("test.csv", index=False)
    scores = cli("train", "data.csv", *flags, "--test", "test.csv").json()["scores"]
    assert scores["train"] == scores["test"]
    outcome = cli("train", "data.csv", *flags, "--test", tiny)
    assert outcome.err == f"{tiny}: is not a table, as the training data are\n"
    outcome = cli("train", tiny, "--test", "data.csv", "--quiet")
    assert outcome.err == "data.csv: is a table, and the training data are not\n"
    frame.loc[3, "sick"] = "perhaps"
    frame.to_csv("test.csv", index=False)
    outcome = cli("train", "data.csv", *flags, "--test", "test.csv")
    assert outcome.err == "test.csv:5: the label does not occur in the training data\n"
    assert cli("train", tiny, "--quiet").code == 0
    outcome = cli("predict", "model.npz", "data.csv")
    assert outcome.err == "data.csv: is a table, and the model has no column names\n"


def test_bad_lines_of_libsvm_files_are_counted(cli, folder, tiny):
    (folder / "bad.svm").write_text(tiny.read_text() + "1 1:x\n-1 2:1 2:1\n")
    flags = ["--on-bad-line", "skip"]
    outcome = cli("train", "bad.svm", *flags, "--json")
    assert outcome.json()["bad_lines"] == {"train": 2}
    assert outcome.err.endswith("bad.svm: 2 malformed lines left out\n")
    outcome = cli("predict", "model.npz", "bad.svm", *flags)
    assert outcome.err.startswith("bad.svm: 2 malformed lines left out\naccuracy 1")
    assert cli("train", "bad.svm", *flags, "--quiet").err == ""


def test_libsvm_files_are_predicted_block_by_block(cli, folder, tiny, monkeypatch):
    (folder / "many.svm").write_text(tiny.read_text() * 30)
    assert cli("train", tiny, "--quiet").code == 0
    whole = cli("predict", "model.npz", "many.svm")
    sizes, iter_libsvm = [], readers.io.iter_libsvm

    def small(*args, **options):
        for block in iter_libsvm(*args, **options, block_size=200):
            sizes.append(block.y.size)
            yield block

    monkeypatch.setattr(readers.io, "iter_libsvm", small)
    assert cli("predict", "model.npz", "many.svm") == whole
    assert len(sizes) > 3 and sum(sizes) == 240
