"""The encoding of tables: as documented for each row, for any blocks in any order."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
from scipy import sparse

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import encoding, table_facts
from tfopt.linear_model.encoding import Column, Encoding, make_encoding
from tfopt.linear_model.table_facts import Table, distinct_values, facts_of

CITIES = ["Paris"] * 30 + ["Rome"] * 15 + ["Oslo", "Bern", "", "x=y"]
#: The columns of the tables: a value of each row, given a generator; None is missing.
COLUMNS = {
    "age": ("number", lambda random: round(random.normal(40, 10), 1)),
    "income": ("number", lambda random: None if random.random() < 0.2 else random.lognormal(9)),
    "signed up": ("time", lambda random: 19000 + random.integers(900) / 4),
    "seen": ("time", lambda random: None if random.random() < 0.4 else 20000.5),
    "city": ("text", lambda random: CITIES[random.integers(len(CITIES))]),
    "plan": ("text", lambda random: [None, "a", "b"][random.integers(3)]),
    "id": ("text", lambda random: f"id {random.random()}"),
    "empty": ("number", lambda random: None),
}


def rows_of(n: int, seed: int = 0) -> list[dict]:
    random = np.random.default_rng(seed)
    return [{name: draw(random) for name, (_, draw) in COLUMNS.items()} for _ in range(n)]


def table_of(rows: list[dict], order: int = 1) -> Table:
    """Return rows as a table, with texts in one order or the other."""
    values, all_levels = np.empty((len(rows), len(COLUMNS))), []
    for k, (name, (kind, _)) in enumerate(COLUMNS.items()):
        column = [row[name] for row in rows]
        levels = sorted({x for x in column if x is not None})[::order] if kind == "text" else []
        codes = {level: float(code) for code, level in enumerate(levels)}
        values[:, k] = [math.nan if x is None else codes.get(x, x) for x in column]
        all_levels.append(tuple(levels))
    kinds = tuple(kind for kind, _ in COLUMNS.values())
    return Table(values, tuple(COLUMNS), kinds, tuple(all_levels))


def encoding_of(tables: list[Table], **options) -> Encoding:
    facts = [facts_of(table, options.get("scale", False)) for table in tables]
    return make_encoding(facts, lambda k: [distinct_values(t, k) for t in tables], **options)


def expected(rows: list[dict], training: list[dict], scale: bool) -> dict[str, list[float]]:
    """Return the features by their names, straight from the description in docs/tables.md."""
    features: dict[str, list[float]] = {}
    for name, (kind, _) in COLUMNS.items():
        known = [row[name] for row in training if row[name] is not None]
        column, has_missing = [row[name] for row in rows], len(known) < len(training)
        if kind == "text":
            least = min(10, math.ceil(len(training) / 100))
            levels = sorted(x for x, n in Counter(known).items() if n >= least)
            if len(levels) < 2:
                continue
            for level in levels:
                features[f"{name}={level}"] = [float(x == level) for x in column]
            if {*known} - {*levels}:
                rare = [float(x is not None and x not in levels) for x in column]
                features[f"{name}=(rare)"] = rare
        elif known:
            center = np.mean(known) if scale or kind == "time" else 0.0
            spread = (np.std(known) or 1.0) if scale or kind == "time" else 1.0
            center = 0.0 if np.std(known) == 0 else center
            instead = median(known)
            features[name] = [((instead if x is None else x) - center) / spread for x in column]
        else:
            continue
        if has_missing:
            features[f"{name}=(missing)"] = [float(x is None) for x in column]
    return features


@pytest.mark.parametrize("n", [1, 40, 300, 4500])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_each_feature_is_what_the_description_says(n, scale, dense, monkeypatch):
    monkeypatch.setattr(encoding, "SPARSE_BELOW", 0.0 if dense else 2.0)
    training, new = rows_of(n), rows_of(60, seed=1)
    made = encoding_of([table_of(training)], scale=scale)
    # a missing number is refused by the reader unless some were missing in training
    for rows in (training, new if n > 1 else [], []):
        wanted = expected(rows, training, scale)
        assert [*made.features] == [*wanted]
        X = made.encode(table_of(rows))
        assert sparse.issparse(X) != dense and X.dtype == np.float64
        if not dense:
            assert X.has_canonical_format and (X.data != 0).all()
            X = X.toarray()
        assert X.shape == (len(rows), len(wanted))
        np.testing.assert_allclose(X, np.array([*wanted.values()]).T.reshape(X.shape), atol=1e-12)


@pytest.mark.parametrize("cuts", [[], [3], [0, 1, 700], [400, 400, 800]])
def test_blocks_and_the_order_of_rows_do_not_matter(cuts):
    rows = rows_of(1000)
    whole = encoding_of([table_of(rows)])
    shuffled = [rows[k] for k in np.random.default_rng(2).permutation(1000)]
    ends = [0, *cuts, 1000]
    blocks = [table_of(shuffled[a:b], -1) for a, b in pairwise(ends)]
    other = encoding_of(blocks)
    assert other.features == whole.features and other.left_out == whole.left_out == ("id", "empty")
    for one, two in zip(whole.columns, other.columns, strict=True):
        if one.kind == "time":
            assert two.center == pytest.approx(one.center, rel=1e-12)
            assert two.spread == pytest.approx(one.spread, rel=1e-12)
            two = dataclasses.replace(two, center=one.center, spread=one.spread)
        assert two == one
    together = [other.encode(block) for block in blocks]
    stack = sparse.vstack if sparse.issparse(together[0]) else np.vstack
    assert abs(stack(together) - other.encode(table_of(shuffled))).sum() == 0


def test_numbers_without_more_are_the_features_themselves():
    random = np.random.default_rng(0)
    values = random.normal(size=(20, 3))
    kinds: tuple = ("number",) * 3
    table = Table(values, ("a", "b", "c"), kinds, ((),) * 3)
    made = encoding_of([table])
    assert made.is_plain and made.features == ("a", "b", "c")
    assert made.encode(table) is values
    other = Table(values[:, [2, 0, 1]], ("c", "a", "b"), kinds, ((),) * 3)
    assert (made.encode(other) == values).all()
    assert not encoding_of([table], scale=True).is_plain


def test_medians_of_many_values_are_rounded_alike_in_all_blocks(monkeypatch):
    monkeypatch.setattr(table_facts, "MOST_VALUES", 64)
    values = np.random.default_rng(0).normal(size=(1001, 1)) * 1e3
    values[::7] = np.nan
    kinds: tuple = ("number",)
    found = set()
    for size in (1001, 300, 65, 10):
        blocks = [values[k : k + size] for k in range(0, 1001, size)]
        tables = [Table(block, ("a",), kinds, ((),)) for block in blocks[::-1]]
        found.add(encoding_of(tables).columns[0].median)
    (found_median,) = found
    assert abs(found_median - np.nanmedian(values)) < 64


def test_the_document_is_read_back():
    made = encoding_of([table_of(rows_of(300))], missing=["?", "-"])
    text = json.dumps(made.to_json(), allow_nan=False)
    again = Encoding.from_json(json.loads(text))
    assert again == made and again.to_json() == made.to_json()
    rows = table_of(rows_of(50, seed=3))
    assert abs(again.encode(rows) - made.encode(rows)).sum() == 0


WRONG = {
    "no object": lambda d: [],
    "another version": lambda d: d | {"version": 2},
    "an entry more": lambda d: d | {"more": 1},
    "an entry less": lambda d: {k: v for k, v in d.items() if k != "missing"},
    "left_out": lambda d: d | {"left_out": [1]},
    "missing": lambda d: d | {"missing": "?"},
    "columns": lambda d: d | {"columns": {}},
    "a column": lambda d: d | {"columns": [3]},
    "a name twice": lambda d: d | {"columns": d["columns"][:1] * 2},
    "a kind": lambda d: d | {"columns": [d["columns"][0] | {"kind": "word"}]},
    "a kind that is no text": lambda d: d | {"columns": [d["columns"][0] | {"kind": ["text"]}]},
    "an entry of another kind": lambda d: d | {"columns": [d["columns"][0] | {"levels": []}]},
    "a spread": lambda d: d | {"columns": [d["columns"][0] | {"spread": 0.0}]},
    "a center": lambda d: d | {"columns": [d["columns"][0] | {"center": math.inf}]},
    "a median": lambda d: d | {"columns": [d["columns"][0] | {"median": "3"}]},
    "levels": lambda d: d | {"columns": [d["columns"][-1] | {"levels": ["a", "a"]}]},
    "rare": lambda d: d | {"columns": [d["columns"][-1] | {"has_rare": 1}]},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_other_documents_are_refused(change):
    document = encoding_of([table_of(rows_of(300))]).to_json()
    before = json.dumps(document)
    with pytest.raises(InvalidArgumentError, match=r"encoding"):
        Encoding.from_json(change(document))
    assert json.dumps(document) == before


def test_columns_of_other_kinds_and_free_text_are_refused(monkeypatch):
    table = table_of(rows_of(300))
    other = dataclasses.replace(table, kinds=("text", *table.kinds[1:]))
    other = dataclasses.replace(other, levels=(tuple(map(str, range(100))), *table.levels[1:]))
    with pytest.raises(InvalidArgumentError, match=r"'age' is numbers in one part .* text in"):
        encoding_of([table, other])
    monkeypatch.setattr(table_facts, "MOST_TEXTS", 250)
    with pytest.raises(InvalidArgumentError, match=r"'id' has more than 250 different texts"):
        facts_of(table, False)
    halves = [dataclasses.replace(table, values=table.values[k::2]) for k in (0, 1)]
    with pytest.raises(InvalidArgumentError, match=r"'id' has more than 250 different texts"):
        encoding_of(halves)


def test_names_of_features_are_different():
    made = Encoding((Column("a=x", "number"), Column("a", "text", levels=("x", "y"))))
    assert made.features == ("a=x", "a=x'", "a=y")


def test_a_column_has_at_most_so_many_features(monkeypatch):
    monkeypatch.setattr(encoding, "MOST_LEVELS", 3)
    codes = np.repeat(np.arange(5.0), [20, 50, 20, 30, 20])[:, None]
    made = encoding_of([Table(codes, ("a",), ("text",), (("v", "w", "x", "y", "z"),))])
    assert made.features == ("a=v", "a=w", "a=y", "a=(rare)")  # of equal ones the first
