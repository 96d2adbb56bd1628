"""Mistakes at the command line: each gives a one-line message, and leaves files unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import tfopt
from tfopt import checkpoints
from tfopt.errors import CheckpointError
from tfopt.linear_model import load_model

ROWS = 60
NUMBERS = np.arange(ROWS) % 7 + 0.5
#: Columns of every kind that Arrow has, as far as one writes it to Parquet.
ARROW = {
    "list": pa.array([[1.0, 2.0]] * ROWS),
    "empty lists": pa.array([[]] * ROWS, pa.list_(pa.float64())),
    "struct": pa.array([{"x": 1}] * ROWS),
    "map": pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"\xff\x00"] * ROWS),
    "text": pa.array(["a"] * ROWS),
    "digits": pa.array(["1.5", "2"] * (ROWS // 2)),
    "null": pa.nulls(ROWS),
    "bool": pa.array([True, False] * (ROWS // 2)),
    "date": pa.array([0] * ROWS, pa.date32()),
    "time": pa.array([0] * ROWS, pa.time64("us")),
    "timestamp": pa.array([0] * ROWS, pa.timestamp("ns")),
    "duration": pa.array([1] * ROWS, pa.duration("s")),
    "decimal": pa.array([1] * ROWS, pa.int64()).cast(pa.decimal128(30, 2)),
    "categories": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
    "large": pa.array([2**62] * ROWS),
    "unsigned": pa.array([2**63] * ROWS, pa.uint64()),
    "half": pa.array(np.ones(ROWS, np.float16)),
    "infinite": pa.array([np.inf] * ROWS),
}
TRAIN = ["train", "d.parquet", "--label", "y", "--quiet"]


def one_line(outcome, code: int = 1) -> str:
    assert outcome.code == code, outcome
    assert outcome.err.count("\n") == 1 and "Traceback" not in outcome.err
    return outcome.err


@pytest.mark.parametrize("role", ["feature", "label", "weight"])
@pytest.mark.parametrize("kind", ARROW)
def test_columns_of_any_type(cli, folder, kind, role):
    y = pa.array(NUMBERS > 3)
    columns = {"y": y, "b": pa.array(NUMBERS), "a": ARROW[kind]}
    parquet.write_table(pa.table(columns), "d.parquet")
    flags = {"feature": [], "label": ["--label", "a"], "weight": ["--weight", "a"]}[role]
    outcome = cli(*TRAIN, *flags)
    if outcome.code:
        assert one_line(outcome).startswith("d.parquet:")
        assert not Path("model.npz").exists()
    else:
        assert cli("predict", "model.npz", "d.parquet").code == 0


def test_damage_to_what_pandas_notes(cli, folder):
    """It is read for the columns of an index alone."""
    pd.DataFrame({"a": NUMBERS, "y": NUMBERS > 3}).to_parquet("good.parquet")
    content = Path("good.parquet").read_bytes()
    begin = content.find(b'{"index_columns"')
    for at in range(begin, begin + 400, 3):
        Path("d.parquet").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        outcome = cli(*TRAIN)
        assert outcome.code == 0 or one_line(outcome).startswith("d.parquet: ")


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_two_columns_of_one_name(cli, folder, ending):
    frame = pd.DataFrame(np.column_stack([NUMBERS, NUMBERS, NUMBERS > 3]), columns=["a", "a", "y"])
    if ending == ".parquet":
        table = pa.table([pa.array(frame.iloc[:, k]) for k in range(3)], names=[*frame.columns])
        parquet.write_table(table, "d.parquet")
    else:
        frame.to_csv(f"d{ending}", index=False, sep="\t" if ending == ".tsv" else ",")
    outcome = cli("train", f"d{ending}", "--label", "y")
    assert (
        one_line(outcome)
        == f"d{ending}: has 2 columns 'a', at 1 and 2: rename them, or train without them "
        "(--drop)\n"
    )
    good = frame.set_axis(["a", "b", "y"], axis=1)
    good.to_csv("good.csv", index=False)
    assert cli("train", "good.csv", "--label", "y", "--quiet").code == 0
    assert one_line(cli("predict", "model.npz", f"d{ending}")).startswith(f"d{ending}: has 2")
    frame.set_axis(["a", "y", "y"], axis=1).to_csv("twice.csv", index=False)
    assert one_line(cli("train", "twice.csv", "--label", "y")).startswith("twice.csv: has 2")


def test_a_quoted_name_with_a_line_break_is_one_column(cli, folder):
    lines = ['\ufeff"a\nb",c,y', *(f"{v},{v * v},{int(v > 3)}" for v in NUMBERS)]
    Path("d.csv").write_text("\n".join(lines), "utf-8")
    assert cli("train", "d.csv", "--label", "y", "--quiet").code == 0
    assert [name.strip("\ufeff") for name in load_model("model.npz").feature_names_in_] == [
        "a\nb",
        "c",
    ]


@pytest.mark.parametrize("path", ["old.tsv/d.csv", "a.tsv.csv", "d.csv", "d.tsv", "d.tsv.gz"])
def test_the_separator_is_that_of_the_ending(cli, folder, path):
    Path(path).parent.mkdir(exist_ok=True)
    tabs = path.endswith((".tsv", ".tsv.gz"))
    frame = pd.DataFrame({"a": NUMBERS, "y": (NUMBERS > 3).astype(int)})
    frame.to_csv(path, index=False, sep="\t" if tabs else ",")
    assert cli("train", path, "--label", "y", "--quiet").code == 0
    frame["c"] = 1
    text = frame.to_csv(index=False, sep="\t" if tabs else ",").splitlines()
    if not path.endswith(".gz"):  # a line with too many fields, after a line break in a field
        Path(path).write_text("\n".join([*text[:5], text[5] + ("\t1" if tabs else ",1")]))
        assert one_line(cli("train", path, "--label", "y")).startswith(f"{path}:6")


@pytest.mark.parametrize("form", ["csv", "parquet", "svm"])
def test_labels_that_floats_merge(cli, folder, form):
    labels = np.where(NUMBERS > 3, 2**53, 2**53 + 1)
    frame = pd.DataFrame({"a": NUMBERS, "y": labels})
    frame.to_csv("d.csv", index=False)
    frame.to_parquet("d.parquet")
    Path("d.svm").write_text("".join(f"{y} 1:{a}\n" for a, y in frame.to_numpy(object)))
    flags = [] if form == "svm" else ["--label", "y"]
    outcome = cli("train", f"d.{form}", *flags)
    assert "is beyond 2^53, where float64 merges integers" in one_line(outcome)
    assert not Path("model.npz").exists()


def test_no_labels_are_not_other_labels(cli, folder):
    frame = pd.DataFrame({"a": NUMBERS, "y": (NUMBERS > 3).astype(int)})
    frame.to_csv("d.csv", index=False)
    frame.drop(columns="y").to_csv("none.csv", index=False)
    frame.assign(y=7).to_csv("others.csv", index=False)
    assert cli("train", "d.csv", "--label", "y", "--quiet").code == 0
    assert cli("predict", "model.npz", "none.csv").err == "no scores: the data have no labels\n"
    expected = "no scores: the labels are not those of the training data\n"
    assert cli("predict", "model.npz", "others.csv").err == expected
    refused = one_line(cli("predict", "model.npz", "d.csv", "--label", "nope"))
    assert refused == "d.csv: no column 'nope' (from --label); columns: a, y\n"


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_scores_of_predictions_are_those_of_training(cli, folder, loss):
    random = np.random.default_rng(0)
    y = (NUMBERS + random.normal(size=ROWS) > 3).astype(int)
    frame = pd.DataFrame({"a": NUMBERS, "y": y, "w": random.integers(0, 4, ROWS)})
    frame.to_csv("d.csv", index=False)
    flags = ["--label", "y", "--weight", "w", "--loss", loss, "--json", "--quiet"]
    train = cli("train", "d.csv", *flags).json()["scores"]["train"]
    flags = ["--weight", "w", "--json"]
    scores = cli("predict", "model.npz", "d.csv", *flags).json()["scores"]
    assert scores == pytest.approx(train, rel=1e-12)
    frame.assign(w=0).to_csv("none.csv", index=False)
    assert "weights" in one_line(cli("predict", "model.npz", "none.csv", "--weight", "w"), 0)


def test_a_table_of_another_name(cli, folder):
    Path("people.txt").write_text("Age,Plan,y\n1,2,0\n3,4,1\n")
    assert one_line(cli("train", "people.txt")) == (
        "people.txt:1:1: the label is not a number (a table needs --format csv, or a name that "
        "ends in .csv) 'Age,Plan,y'\n"
    )


def test_a_model_is_no_checkpoint(cli, folder, tiny_model):
    with pytest.raises(CheckpointError, match="a linear model, not a checkpoint"):
        checkpoints.load(str(tiny_model))


def test_a_large_index_takes_no_memory_for_each_feature(cli, folder):
    lines = ["1 1:1 9000000:1\n", "-1 2:1\n", "1 1:0.5\n"]
    Path("wide.svm").write_text("".join(lines))
    Path("narrow.svm").write_text("".join(lines).replace("9000000", "3"))
    for name in ("wide", "narrow"):
        done = cli("train", f"{name}.svm", "--quiet", "--model", f"{name}.npz")
        assert done.code == 0
    wide, narrow = load_model("wide.npz"), load_model("narrow.npz")
    assert wide.coef_.shape == (1, 9_000_000)
    assert (wide.coef_[0, [0, 1, 8_999_999]] == narrow.coef_[0]).all()
    assert np.count_nonzero(wide.coef_) == 3


def test_onnx(cli, folder, tiny, tiny_model):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    assert cli("convert", tiny_model, "m.onnx").code == 0
    assert cli("train", tiny, "--model", "t.onnx", "--quiet").code == 0
    model = load_model(str(tiny_model))
    X = np.random.default_rng(0).standard_normal((20, model.n_features_in_)).astype(np.float32)
    for name in ("m.onnx", "t.onnx"):
        session = runtime.InferenceSession(name, providers=["CPUExecutionProvider"])
        labels, probabilities = session.run(None, {session.get_inputs()[0].name: X})
        assert (labels == model.predict(X)).all()
        np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=1e-5, atol=1e-6)
    assert one_line(cli("convert", "m.onnx", "back.npz")).startswith("m.onnx: is not a model")


def test_no_hint_names_an_extra_of_an_index():
    """`pip install tfopt[...]` would install what somebody else has registered by that name."""
    for path in Path(tfopt.__file__).parent.rglob("*.py*"):
        if path.suffix in (".py", ".pyx", ".pyi"):
            text = path.read_text()
            assert not re.search(r"pip install[^\n]*tfopt\[", text), path


@pytest.mark.parametrize("label", ["b", 2])
def test_a_label_without_weight_is_refused(cli, folder, label):
    labels = ["a", "b", "c"] if label == "b" else [1, 2, 3]
    y = np.array(labels, object)[np.arange(ROWS) % 3]
    weight = (y != label).astype(float)
    pd.DataFrame({"x": NUMBERS, "y": y, "w": weight}).to_csv("d.csv", index=False)
    message = rf"no row of the label {label} has weight: leave these rows out"
    flags = ["--label", "y", "--weight", "w", "--quiet"]
    for command in (["train", "d.csv"], ["cv", "d.csv"]):
        assert re.search(message, one_line(cli(*command, *flags)))
    assert sorted(path.name for path in Path().iterdir()) == ["d.csv"]
