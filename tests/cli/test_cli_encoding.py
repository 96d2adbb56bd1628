"""Ordinary tables, with text, missing values and dates: every command takes the same file."""

from __future__ import annotations

import csv
import dataclasses
import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies
from scipy.special import expit

from tfopt.cli import csv_pieces, tables
from tfopt.cli.data import Layout
from tfopt.cli.files import CommandError, file_of
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.readers import read_blocks, read_data, survey
from tfopt.linear_model import LinearClassifier, encoding, load_model, save_model
from tfopt.linear_model.model_file import encode_model, read_model
from tfopt.linear_model.stored_model import stored_model_of

ROWS = 400
LABEL = "Will renew?"


@pytest.fixture
def people(folder) -> pd.DataFrame:
    """People of some cities, in a CSV file with quotes, spaces and gaps, and in a Parquet file."""
    random = np.random.default_rng(5)
    age = random.normal(40, 12, ROWS).round()
    cities = ["New York", 'the "Hague"', "Oslo, Norway", *(f"village {k}" for k in range(40))]
    shares = np.array([60, 20, 20, *[1] * 40]) / 140
    city = random.choice(cities, ROWS, p=shares)
    plan = random.choice(["basic", "premium"], ROWS)
    spent = random.lognormal(3, 1, ROWS).round(2)
    signed_up = pd.Timestamp("2020-02-28") + pd.to_timedelta(random.integers(0, 900, ROWS), "D")
    margin = (age - 40) / 20 + (plan == "premium") - 0.5 + (city == "New York")
    table = pd.DataFrame({"Age (years)": age, " home city ": city, "Plan": plan})
    table["monthly spend"] = np.where(random.random(ROWS) < 0.05, np.nan, spent)
    table["signed up"] = np.array(signed_up.strftime("%Y-%m-%d"), object)
    table["is new"] = random.random(ROWS) < 0.5
    table.loc[random.random(ROWS) < 0.05, "Plan"] = None
    table[LABEL] = np.where(random.random(ROWS) < expit(margin), "yes", "no")
    write(table)
    return table


def write(table: pd.DataFrame, name: str = "people") -> None:
    table.to_csv(f"{name}.csv", index=False, quoting=csv.QUOTE_NONNUMERIC)
    dates = pd.to_datetime(table["signed up"]).dt.date
    table.assign(**{"signed up": dates}).to_parquet(f"{name}.parquet", index=False)


def train(cli, name: str, *flags: str) -> dict:
    outcome = cli("train", name, "--label", LABEL, "--json", "--quiet", *flags)
    assert outcome.code == 0, outcome.err
    return outcome.json()


def test_a_csv_gives_the_optimum_and_its_gap(cli, people):
    result = train(cli, "people.csv")
    assert result["classes"] == ["no", "yes"]
    certificate = result["certificate"]
    assert 0 <= certificate["gap"] <= 1e-4 * certificate["objective"]
    assert result["scores"]["train"]["accuracy"] > people[LABEL].value_counts(normalize=True).max()
    names = read_model("model.npz").columns.features
    assert tuple(name for name in names if "village" not in name) == (
        *("Age (years)", "home city=New York", "home city=Oslo, Norway", 'home city=the "Hague"'),
        *("home city=(rare)", "Plan=basic", "Plan=premium", "Plan=(missing)"),
        *("monthly spend", "monthly spend=(missing)", "signed up", "is new"),
    )
    shown = cli("inspect", "model.npz").out
    assert "home city=New York" in shown and f"features  {len(names)}, named" in shown


def test_options_of_tables(cli, people, folder):
    """What is between fields, columns that are no features or are text, and missing values."""
    text = (folder / "people.csv").read_text().replace("Oslo, Norway", "Oslo")
    (folder / "other.csv").write_text(text.replace(",", ";").replace('"basic"', '"none"'))
    flags = ["--sep", ";", "--drop", "signed up", "--drop", "home city", "--missing", "none"]
    train(cli, "other.csv", *flags, "--categorical", "is new", "--scale")
    model = read_model("model.npz")
    names = model.columns.features
    assert not [name for name in names if name.startswith(("signed up", "home city"))]
    assert {"Plan=premium", "Plan=(missing)"} <= {*names} and "Plan=none" not in names
    assert [name for name in names if name.startswith("is new=")]
    assert model.columns.encoding.columns[0].spread == pytest.approx(
        people["Age (years)"].std(ddof=0)
    )
    assert cli("predict", "model.npz", "other.csv", "--sep", ";").code == 0
    assert cli("predict", "model.npz", "other.csv").code == 1


def test_every_command_takes_the_same_file(cli, people, folder):
    result = train(cli, "people.csv")
    data = read_data("people.csv", ReadOptions(label=LABEL))
    estimator = load_model("model.npz")
    features = pd.DataFrame(data.features, columns=data.columns.features)
    expected = estimator.predict_proba(features)[:, 1]
    predicted = cli("predict", "model.npz", "people.csv")
    np.testing.assert_allclose([*map(float, predicted.out.split())], expected, rtol=1e-12)
    assert f"log-loss {result['scores']['train']['log_loss']:.6g}" in predicted.err
    for name in ("model.json", "again.npz"):
        source = "model.npz" if name == "model.json" else "model.json"
        assert cli("convert", source, name).code == 0
        assert cli("predict", name, "people.csv") == predicted
    assert (folder / "again.npz").read_bytes() == (folder / "model.npz").read_bytes()
    save_model("saved.npz", estimator)
    np.testing.assert_array_equal(
        cli("predict", "saved.npz", "people.csv", "--quiet").out, predicted.out
    )
    estimator.fit(data.features[:, :3], data.labels)  # of other features now
    save_model("saved.npz", estimator)
    assert read_model("saved.npz").columns.encoding is None
    table = cli("cv", "people.csv", "--label", LABEL, "--model", "best.npz", "--json", "--quiet")
    assert table.code == 0 and cli("predict", "best.npz", "people.csv").code == 0
    test = train(cli, "people.csv", "--test", "people.parquet")["scores"]
    assert test["train"] == test["test"]


def test_forms_pieces_and_the_order_of_columns_do_not_matter(cli, people, folder, monkeypatch):
    train(cli, "people.csv")
    model = (folder / "model.npz").read_bytes()
    predicted = cli("predict", "model.npz", "people.csv")
    people[[LABEL, *people.columns[-2::-1]]].to_csv("other.csv", index=False)
    for name in ("people.parquet", "other.csv"):
        assert cli("predict", "model.npz", name) == predicted
    train(cli, "people.parquet")
    assert (folder / "model.npz").read_bytes() == model
    monkeypatch.setattr(csv_pieces, "SIZE", 300)
    monkeypatch.setattr(tables, "BLOCK", 7)
    for name in ("people.csv", "people.parquet"):
        train(cli, name)
        assert (folder / "model.npz").read_bytes() == model
        assert cli("predict", "model.npz", name) == predicted


def test_a_folder_gives_the_model_of_one_file(cli, people, folder):
    whole = train(cli, "people.csv", "--tol", "1e-10")
    one = read_model("model.npz")
    (folder / "day").mkdir()
    for k, rows in enumerate((people[:90], people[90:91], people[91:])):
        write(rows, f"day/{k}")
        (folder / f"day/{k}.parquet").unlink()
    parts = train(cli, "day", "--format", "csv", "--tol", "1e-10", "--test", "people.csv")
    two = read_model("model.npz")
    assert two.columns.features == one.columns.features
    np.testing.assert_allclose(two.weights, one.weights, rtol=1e-3, atol=1e-6)
    objectives = (each["certificate"]["objective"] for each in (parts, whole))
    assert next(objectives) == pytest.approx(next(objectives), rel=1e-8)
    found = parts["scores"]["test"]["log_loss"]
    assert found == pytest.approx(parts["scores"]["train"]["log_loss"], rel=1e-9)


def test_values_that_training_did_not_see(cli, people, folder):
    train(cli, "people.csv")
    new = people[:3].drop(columns=LABEL)
    new.loc[0, " home city "] = "Atlantis"  # rare, as other villages
    new.loc[1, "Plan"] = "gold"  # no plan was rare, so that this one has no weight
    new.to_csv("new.csv", index=False)
    of_model = read_model("model.npz")
    weights = dict(zip(of_model.columns.features, of_model.weights, strict=True))
    (data,) = read_blocks("new.csv", ReadOptions(), Layout(True, of_model.columns))
    named = pd.DataFrame(data.features, columns=[*weights])
    assert named.loc[0, "home city=(rare)"] == 1
    assert not named.loc[1, [name for name in weights if name.startswith("Plan=")]].any()
    before = (folder / "model.npz").read_bytes()
    for column, value, message in [
        ("Age (years)", "", ":3:1: the value of 'Age (years)' is missing\n"),
        ("Age (years)", "old", ":3:1: the value of 'Age (years)' is not a number 'old'\n"),
        ("Age (years)", "inf", ":3:1: the value of 'Age (years)' is not finite 'inf'\n"),
        ("signed up", "yesterday", ":3:5: the value of 'signed up' is not a date 'yesterday'\n"),
        ("signed up", "2020", ":3:5: the value of 'signed up' is not a date '2020'\n"),
        (" home city ", "", ":3:2: the value of 'home city' is missing\n"),
    ]:
        wrong = new.astype(object)
        wrong.loc[1, column] = value
        if value == "2020":
            wrong["signed up"] = value
            message = message.replace(":3:", ":2:")
        wrong.to_csv("wrong.csv", index=False)
        refused = cli("predict", "model.npz", "wrong.csv")
        assert (refused.code, refused.err) == (1, f"wrong.csv{message}")
        if value not in ("2020",):
            kept = cli("predict", "model.npz", "wrong.csv", "--on-bad-line", "skip")
            assert kept.code == 0 and kept.out.count("\n") == 2
    assert (folder / "model.npz").read_bytes() == before


def test_text_that_begins_as_numbers_is_read_again_as_text(cli, folder, monkeypatch):
    """The numbers are then the texts that the file has."""
    monkeypatch.setattr(csv_pieces, "SIZE", 60)
    rows = [f"{'007' if k < 40 else f'{k % 3}B'},{k % 2}\n" for k in range(120)]
    (folder / "units.csv").write_text("unit,y\n" + "".join(rows))
    data = read_data("units.csv", ReadOptions(label="y"))
    assert data.columns.features == ("unit=007", "unit=0B", "unit=1B", "unit=2B")
    assert (data.features.argmax(axis=1)[:40] == 0).all() and (data.features.sum(axis=1) == 1).all()
    refused = cli("train", "-", "--format", "csv", "--label", "y")
    assert refused.code == 1


def test_text_that_says_nothing_is_left_out(cli, people, folder):
    people["id"] = [f"id {k}" for k in range(ROWS)]
    people["same"], people["nothing"] = "x", None
    write(people, "more")
    told = (
        "more.csv: left out 'id', 'same', 'nothing': no value, or no two texts that occur often\n"
    )
    for command in ("train", "cv"):
        outcome = cli(command, "more.csv", "--label", LABEL, "--model", "model.npz")
        assert outcome.code == 0 and told in outcome.err
    known = read_model("model.npz").columns.encoding
    assert known.left_out == ("id", "same", "nothing")
    people[["id"]].assign(y=people[LABEL]).to_csv("ids.csv", index=False)
    refused = cli("train", "ids.csv", "--label", "y")
    assert refused.err == "ids.csv: no column has information about the labels\n"


def test_columns_of_one_name_are_refused_with_their_places(cli, folder):
    (folder / "two.csv").write_text('a,"b", a ,b,y\n1,2,3,4,0\n')
    refused = cli("train", "two.csv", "--label", "y")
    assert refused.err == (
        "two.csv: has 2 columns 'a', at 1 and 3: rename them, or train without them (--drop)\n"
    )


def test_numbers_alone_are_features_as_they_are(cli, folder):
    """Their model files have no encoding, and their matrix is that of the file."""
    values = np.random.default_rng(0).normal(size=(50, 3))
    values[values < -1] = 0
    table = pd.DataFrame(values, columns=["a", "b", "y"])
    table["y"] = (table["y"] > 0).astype(int)
    table.to_csv("n.csv", index=False)
    table.astype({"a": "f"}).to_parquet("n.parquet", index=False)
    for name in ("n.csv", "n.parquet"):
        data = read_data(name, ReadOptions(label="y"))
        assert data.columns.encoding is None and data.columns.features == ("a", "b")
        assert isinstance(data.features, np.ndarray) and data.features.flags.c_contiguous
        expected = table[["a", "b"]].to_numpy().copy()
        if name == "n.parquet":
            expected[:, 0] = expected[:, 0].astype("f")
        assert (data.features == expected).all() and (data.labels == table["y"]).all()


def test_the_encoding_of_a_model_file_is_checked(cli, people, folder):
    train(cli, "people.csv", "--model", "model.json")
    document = json.loads((folder / "model.json").read_text())
    assert document["encoding"]["version"] == 1
    for change in (
        {"encoding": {"version": 1}},
        {"encoding": []},
        {"feature_names": document["feature_names"][::-1]},
        {"feature_names": None},
    ):
        (folder / "bad.json").write_text(json.dumps(document | change))
        refused = cli("predict", "bad.json", "people.csv")
        assert refused.code == 1 and "encoding" in refused.err


@pytest.mark.parametrize("kind", ["dense", "sparse", "scaled"])
def test_onnx_takes_the_columns_of_the_table(cli, people, folder, kind, monkeypatch):
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setattr(encoding, "SPARSE_BELOW", 2.0 if kind == "sparse" else 0.0)
    people["label"] = people["Age (years)"]  # as outputs are named
    write(people)
    options = ReadOptions(label=LABEL, scale=kind == "scaled")
    data = read_data("people.csv", options)
    y = np.array(data.columns.classes)[data.labels.astype(int)]
    estimator = LinearClassifier().fit(data.features, y)
    model = dataclasses.replace(stored_model_of(estimator), columns=data.columns)
    (folder / "m.onnx").write_bytes(encode_model(model, "m.onnx"))
    (folder / "m.json").write_bytes(encode_model(model, "m.json"))
    people.loc[:2, " home city "] = ["", "Atlantis", "village 1"]
    people.loc[3:5, "Plan"] = ["", "gold", "basic"]
    people.loc[6:7, "monthly spend"] = np.nan
    days = (pd.to_datetime(people["signed up"]) - pd.Timestamp(0)).dt.days
    people["days"] = days.astype(float)
    session = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    given = {}
    for each in session.get_inputs():
        name = {"signed up": "days", "home city": " home city "}.get(each.name, each.name)
        column = people[name.rstrip("'")]
        is_text = each.type == "tensor(string)"
        column = column.fillna("").to_numpy(object) if is_text else column.to_numpy(np.float32)
        given[each.name] = column[:, None]
    labels, p = session.run(None, given)
    people.loc[0, " home city "] = "Atlantis"  # a missing city is refused by predict
    write(people.drop(columns="days"))
    expected = cli("predict", "m.json", "people.csv", "--proba").out.splitlines()[1:]
    expected = np.array([line.split() for line in expected], float)
    np.testing.assert_allclose(p[1:], expected[1:], rtol=1e-4)
    np.testing.assert_array_equal(labels, np.array(["no", "yes"])[p.argmax(axis=1)])


def survey_of(name, options):
    return survey([file_of(name)], options)


@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
@pytest.mark.parametrize("size", [3000, 10**6])
@pytest.mark.parametrize("scale", [False, True])
def test_a_survey_in_pieces_finds_what_reading_finds(people, monkeypatch, name, size, scale):
    """Columns of every kind that a first piece may be wrong about, and labels of each."""
    people["unit"] = [f"{k}" if k < 150 else f"{k % 3}B" for k in range(ROWS)]
    people["code"] = [f"{k:03}" if k % 7 else "+7" for k in range(ROWS)]
    people["late"] = [None if k < 300 else k / 8 for k in range(ROWS)]
    people["w"] = np.arange(ROWS) % 3
    people["truth"] = people["is new"].astype(str).str.upper()
    people["number"] = [f"{k % 2}" if k < 200 else f"{k % 2}.0" for k in range(ROWS)]
    people.to_csv("people.csv", index=False)
    people.to_parquet("people.parquet", index=False)
    monkeypatch.setattr(csv_pieces, "SIZE", size)
    monkeypatch.setattr(tables, "BLOCK", size // 30)
    for label in (LABEL, "truth", "number", "is new", "city of birth"):
        options = ReadOptions(label=label, weight="w", scale=scale, missing=("gold",))
        if label not in people:
            for read in (read_data, survey_of):
                with pytest.raises(CommandError, match=r"no column 'city of birth' \(from"):
                    read(name, options)
            continue
        whole, found = read_data(name, options), survey_of(name, options)
        assert (found.n_rows, found.total_weight) == (ROWS, people["w"].sum())
        assert found.labels == {
            label: whole.weights[whole.labels == label].sum() for label in np.unique(whole.labels)
        }
        if label == "number":  # of regression there may be as many as rows
            assert not survey_of(name, dataclasses.replace(options, has_classes=False)).labels
        one, two = whole.columns, found.layout.columns
        assert (one.features, one.label, one.classes) == (two.features, two.label, two.classes)
        for mine, other in zip(one.encoding.columns, two.encoding.columns, strict=True):
            near = {part: pytest.approx(getattr(mine, part)) for part in ("center", "spread")}
            assert dataclasses.asdict(other) == dataclasses.asdict(mine) | near
        assert one.encoding.left_out == two.encoding.left_out
        blocks = [*read_blocks(name, options, found.layout)]
        assert np.concatenate([block.labels for block in blocks]).tolist() == whole.labels.tolist()
        dense = [
            b.features if isinstance(b.features, np.ndarray) else b.features.toarray()
            for b in blocks
        ]
        X = whole.features if isinstance(whole.features, np.ndarray) else whole.features.toarray()
        np.testing.assert_allclose(np.concatenate(dense), X, rtol=1e-9, atol=1e-9)


def test_streams_of_tables_take_little_memory(cli, folder, monkeypatch):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(20000, 20)).round(3))
    frame[3] = np.where(frame[3] > 1, np.nan, frame[3])
    frame["kind"] = random.choice([*"abc"], len(frame))
    frame["y"] = (frame[0] > 0).astype(int)
    frame.to_csv("large.csv", index=False)
    monkeypatch.setattr(csv_pieces, "SIZE", 2**16)
    tracemalloc.start()
    try:
        outcome = cli("train", "large.csv", "--label", "y", "--solver", "ftrl", "--quiet")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.code == 0 and peak < frame.shape[0] * frame.shape[1] * 8
    assert read_model("model.npz").columns.encoding is not None
    predicted = [*map(float, cli("predict", "model.npz", "large.csv", "--quiet").out.split())]
    assert np.mean((np.array(predicted) > 0.5) == frame["y"]) > 0.9


def test_other_tables_need_only_what_the_model_has(cli, people, folder):
    """What training leaves out may be missing, or there twice."""
    people["more"] = 1
    people.to_csv("train.csv", index=False)
    text = (folder / "train.csv").read_text().replace(",more\n", ",more,more\n", 1)
    (folder / "twice.csv").write_text(text.replace(",1\n", ",1,2\n"))
    flags = ["--drop", "more", "--drop", "signed up"]
    for name in ("twice.csv", "train.csv"):
        test = train(cli, name, *flags, "--test", "people.csv")
        assert test["scores"]["train"] == test["scores"]["test"]
    predicted = cli("predict", "model.npz", "people.csv")
    assert predicted.code == 0 and cli("predict", "model.npz", "twice.csv") == predicted
    refused = cli("train", "twice.csv", "--label", LABEL)
    assert refused.code == 1 and "has 2 columns 'more', at 8 and 9: rename" in refused.err


@pytest.mark.parametrize(
    ("flags", "both"),
    [
        (["--drop", LABEL], f"--drop and --label both name the column '{LABEL}'"),
        (["--weight", "Plan", "--drop", "Plan"], "--drop and --weight both name the column 'Plan'"),
        (
            ["--categorical", "Plan", "--drop", "Plan"],
            "--drop and --categorical both name the column",
        ),
        (["--categorical", LABEL], "--label and --categorical both name the column"),
    ],
)
def test_a_column_is_one_thing(cli, people, folder, flags, both):
    refused = cli("train", "people.csv", "--label", LABEL, *flags)
    assert refused.code == 1 and refused.err.startswith(f"people.csv: {both}")
    assert not (folder / "model.npz").exists()


_TEXTS = strategies.text(
    strategies.sampled_from('ab ,;"\n\r\t=é\u2028\x00'), min_size=1, max_size=6
).filter(lambda text: text.strip("\r\n") not in csv_pieces.MISSING)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    columns=strategies.integers(1, 3),
    data=strategies.data(),
    separator=strategies.sampled_from(",;\t|"),
    size=strategies.integers(1, 60),
    end=strategies.sampled_from(["\n", "\r\n"]),
)
def test_any_text_is_read_back(tmp_path, columns, data, separator, size, end):
    """Quotes, separators and line ends in fields and names, cut into pieces anywhere."""
    rows = data.draw(strategies.lists(strategies.lists(_TEXTS, min_size=columns, max_size=columns)))
    names = data.draw(
        strategies.lists(_TEXTS.map(str.strip), min_size=columns, max_size=columns, unique=True)
    )
    names = [name or f"Unnamed: {k}" for k, name in enumerate(names)]
    assume(len({*names, "y"}) == columns + 1)
    path = tmp_path / "t.csv"
    with open(path, "w", newline="", encoding="utf-8") as stream:
        form = {"delimiter": separator, "lineterminator": end, "quoting": csv.QUOTE_ALL}
        writer = csv.writer(stream, **form)
        writer.writerow([*names, "y"])
        writer.writerows([*row, k % 2] for k, row in enumerate(rows))
    options = ReadOptions(label="y", separator=separator, categorical=tuple(names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_pieces, "SIZE", size)
        found = tables.read_table(file_of(str(path)), options, None)
    table = found.features
    assert table.names == tuple(names) and found.labels.tolist() == [
        k % 2 for k in range(len(rows))
    ]
    for k in range(columns):
        assert [table.levels[k][int(x)] for x in table.values[:, k]] == [row[k] for row in rows]
