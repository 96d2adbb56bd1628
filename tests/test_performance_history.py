"""The page of the figures' history is what has been measured, and regressions are found."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCH = Path(__file__).parent.parent / "asv_bench"


@pytest.fixture(scope="module")
def history() -> Any:
    sys.path.insert(0, str(BENCH))
    yield import_module("history")
    sys.path.remove(str(BENCH))


def test_the_page_is_what_was_measured(history: ModuleType) -> None:
    text, commits = history.PAGE.read_text(encoding="utf-8"), history.load()
    assert len(commits) >= 2
    assert history.written(text, commits, history.benchmarks()) == text, (
        "python asv_bench/history.py page writes the page"
    )
    assert history.PICTURE.stat().st_size > 1000


def test_every_benchmark_has_figures_of_the_last_commit(history: ModuleType) -> None:
    last = max(history.load(), key=lambda commit: commit.when)
    for name, of in history.benchmarks().items():
        assert all(value > 0 for value in last.figures[name].values()), name
        assert len(last.figures[name]) > 0
        # asv plots a figure against parameters that are numbers
        numeric = [all(text.isdigit() for text in values) for values in of["params"]]
        assert not of["params"] or any(numeric), name


def commit_of(history: ModuleType, name: str, figures: dict[str, float]) -> Any:
    rows = {(key,): value for key, value in figures.items()}
    return history.Commit(name, datetime.now(UTC), "m", {"a.B.track_percent": rows})


figures = st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 100))


@given(figures, figures, st.sampled_from(["%", "times"]))
def test_regressions_are_a_tenth_worse(
    history: ModuleType, old: dict[str, float], new: dict[str, float], unit: str
) -> None:
    before, now = commit_of(history, "1", old), commit_of(history, "2", new)
    found = list(history.regressions(before, now, {"a.B.track_percent": unit}))
    worse = (lambda a, b: a / b) if unit == "%" else (lambda a, b: b / a)
    keys = [key for key in new if key in old and worse(old[key], new[key]) > 1.1]
    assert [line.partition("(")[2][0] for line in found] == keys
    assert not list(history.regressions(now, now, {}))


def test_check_fails_on_a_regression(
    history: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Of the last two commits, of two that are named, and of two files."""
    monkeypatch.setattr(history, "KEPT", tmp_path)
    monkeypatch.setattr(history, "KNOWN", tmp_path / "benchmarks.json")
    name = "history.Dense.track_percent"
    known = {name: {"unit": "%", "param_names": ["n"], "params": [["8"]]}, "version": 2}
    (tmp_path / "benchmarks.json").write_text(json.dumps(known))
    (tmp_path / "m").mkdir()
    for day, (commit, value) in enumerate([("aa", 50.0), ("ab", 60.0), ("ba", 40.0)]):
        content = {
            "commit_hash": commit,
            "date": 1000 * 86400 * day,
            "result_columns": ["result", "params"],
            "results": {name: [[value, None], [["8", "16"]]]},
        }
        (tmp_path / "m" / f"{commit}.json").write_text(json.dumps(content))
    assert history.check([]) == 1
    assert capsys.readouterr().out == f"{name}(8): was 60, is 40 %\n"
    assert history.check(["aa", "ab"]) == 0
    assert "no figure of ab is more than 10 % worse than of aa" in capsys.readouterr().out
    assert history.check([str(tmp_path / "m" / f"{it}.json") for it in ("aa", "ba")]) == 1
    with pytest.raises(SystemExit, match="2 of the commits with results begin with a"):
        history.check(["a", "b"])


@given(st.lists(st.integers(), min_size=1, unique=True), st.integers(1, 30))
def test_commits_are_evenly_spaced(history: ModuleType, things: list[int], count: int) -> None:
    chosen = history.spaced(things, count)
    assert len(chosen) == min(count, len(things))
    assert chosen[-1] == things[-1] and (count == 1 or chosen[0] == things[0])
    places = [things.index(thing) for thing in chosen]
    gaps = [b - a for a, b in pairwise(places)]
    assert not gaps or (min(gaps) > 0 and max(gaps) - min(gaps) <= 1)
