"""The page of the figures' history is what has been measured, and regressions are found."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCH = Path(__file__).parents[2] / "asv_bench"


@pytest.fixture(scope="module")
def history() -> Iterator[Any]:
    """The script, with what it keeps and what it checks."""
    sys.path.insert(0, str(BENCH))
    modules = [import_module(f"history{part}") for part in ("", "_check", "_results")]
    yield SimpleNamespace(**{k: v for module in reversed(modules) for k, v in vars(module).items()})
    sys.path.remove(str(BENCH))


def test_the_page_is_what_was_measured(history: Any) -> None:
    text, commits = history.PAGE.read_text(encoding="utf-8"), history.load()
    assert len(commits) >= 2
    assert history.written(text, commits, history.benchmarks()) == text, (
        "python asv_bench/history.py page writes the page"
    )
    assert history.PICTURE.stat().st_size > 1000


def test_every_benchmark_has_figures_of_the_last_commit(history: Any) -> None:
    last = max(history.load(), key=lambda commit: commit.when)
    for name, of in history.benchmarks().items():
        assert all(value > 0 for value in last.figures[name].values()), name
        assert len(last.figures[name]) > 0
        # asv plots a figure against parameters that are numbers
        numeric = [all(text.isdigit() for text in values) for values in of["params"]]
        assert not of["params"] or any(numeric), name


def test_a_figure_far_from_both_neighbours_is_left_out(history: Any) -> None:
    of = ("a",)

    def kept(*values: float) -> list[float | None]:
        commits = [history.Commit("", None, "", None, {"x": {of: value}}) for value in values]
        return [commit.figures["x"].get(of) for commit in history.plausible(commits)]

    assert kept(2.0, 169.0, 0.3, 0.3) == [2.0, None, 0.3, 0.3]
    assert kept(1.0, 0.2, 1.0) == [1.0, None, 1.0]
    assert kept(66.0, 12.0, 13.0) == [66.0, 12.0, 13.0]  # a step, not an outlier
    assert kept(1.0, 3.9, 1.0) == [1.0, 3.9, 1.0]
    assert kept(100.0, 1.0) == [100.0, 1.0] and kept(1.0) == [1.0]


NAME, PARAMETERS = "history.Dense.track_percent", ("8",)


def commit_of(history: Any, value: float) -> Any:
    now = datetime.now(UTC)
    return history.Commit("new", now, "m", now, {NAME: {PARAMETERS: value}})


def reported(
    history: Any, before: Sequence[float], now: float, unit: str, allowed: float = 1.0
) -> bool:
    of = {NAME: unit}, {(NAME, PARAMETERS): allowed}
    return bool([*history.regressions({(NAME, PARAMETERS): before}, commit_of(history, now), *of)])


@given(st.floats(0.1, 100), st.integers(1, 30), st.sampled_from(["%", "times"]))
def test_without_noise_a_regression_is_a_tenth(
    history: Any, value: float, count: int, unit: str
) -> None:
    before = [value] * count
    worse = (lambda factor: value / factor) if unit == "%" else (lambda factor: value * factor)
    assert reported(history, before, worse(1.11), unit)
    assert not reported(history, before, worse(1.09), unit)
    assert not reported(history, before, worse(0.5), unit)
    # of what was accepted, more is reported
    assert not reported(history, before, worse(1.3), unit, allowed=1.2)
    assert reported(history, before, worse(1.33), unit, allowed=1.2)


@pytest.mark.parametrize("deviation", [0.02, 0.05, 0.1])
def test_noise_is_no_regression(history: Any, deviation: float) -> None:
    """Of many histories, at most one in a hundred is reported, and each with a planted one."""
    logarithms = np.random.default_rng(0).normal(0, deviation, (1000, 31))
    found = [reported(history, row[:-1], row[-1], "times") for row in np.exp(logarithms).tolist()]
    assert np.mean(found) <= 0.01
    # nine times the deviation, or a fifth: from the noise of the last commit, too
    logarithms[:, -1] += max(9 * deviation, np.log(1.2))
    found = [reported(history, row[:-1], row[-1], "times") for row in np.exp(logarithms).tolist()]
    assert np.mean(found) >= 0.99


def test_a_figure_is_compared_with_the_better_of_two_medians(history: Any) -> None:
    """So neither an improvement hides what is lost of it later, nor is a slow decline followed."""
    improved, declining = [10.0] * 20 + [5.0] * 5, [10.0] * 20 + [10.5, 11, 11.5, 12, 12.5]
    assert not reported(history, improved, 5.4, "times")
    assert reported(history, improved, 6.0, "times")
    assert reported(history, declining, 12.5, "times")


def test_check_passes_for_the_kept_results(
    history: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """So a figure that is worse in the last commit is explained in history/accepted.json."""
    assert history.check(None) == 0, capsys.readouterr().out


def test_a_regression_of_any_kept_figure_is_found(history: Any) -> None:
    *before, last = history.load()
    units = {name: of["unit"] for name, of in history.benchmarks().items()}
    allowed = history.factors()
    series = history.in_order(before)
    for (name, parameters), values in series.items():
        if parameters not in last.figures.get(name, {}):
            continue
        more = history.more_is_better(name, units[name])
        margin = max(1.1, history.noise(values) ** history.NOISES)
        factor = 1.01 * margin * allowed.get((name, parameters), 1.0)
        worse = history.usual(values, more) * (1 / factor if more else factor)
        planted = replace(last, figures={name: {parameters: worse}})
        (line,) = history.regressions(series, planted, units, allowed)
        assert line.startswith(f"{name}({', '.join(parameters)}): usually ")


def test_check_fails_on_a_regression(
    history: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Of the last commit, and of one that is named; and not if it has been accepted."""
    monkeypatch.setattr("history_results.KEPT", tmp_path)
    monkeypatch.setattr("history_results.KNOWN", tmp_path / "benchmarks.json")
    monkeypatch.setattr("history_check.ACCEPTED", tmp_path / "accepted.json")
    known = {NAME: {"unit": "%", "param_names": ["n"], "params": [["8"]]}, "version": 2}
    (tmp_path / "benchmarks.json").write_text(json.dumps(known))
    (tmp_path / "m").mkdir()
    commits = [("aa", 50.0), ("ab", 51.0), ("ac", None), ("ad", 50.0), ("ba", 40.0)]
    for day, (commit, value) in enumerate(commits):
        content = {
            "commit_hash": commit,
            "date": 1000 * 86400 * day,
            "result_columns": ["result", "params"],
            "results": {NAME: [value and [value, None], [["8", "16"]]]},
        }
        (tmp_path / "m" / f"{commit}.json").write_text(json.dumps(content))
    assert [commit.name for commit in history.load()] == ["aa", "ab", "ad", "ba"]
    assert history.check(None) == 1
    assert capsys.readouterr().out == f"{NAME}(8): usually 50, is 40 %: more than 10 % worse\n"
    assert history.check("ad") == 0
    assert "no figure of ad is worse than of the 2 commits before it" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="3 of the commits with results begin with a"):
        history.check("a")
    reason = {"benchmark": NAME, "parameters": [["8"]], "factor": 1.2, "reason": "it is smaller"}
    (tmp_path / "accepted.json").write_text(json.dumps([reason]))
    assert history.check(None) == 0
    said = "accepted: Dense (8), by a factor of up to 1.2: it is smaller"
    assert said in capsys.readouterr().out


@given(st.lists(st.integers(), min_size=1, unique=True), st.integers(1, 30))
def test_commits_are_evenly_spaced(history: Any, things: list[int], count: int) -> None:
    chosen = history.spaced(things, count)
    assert len(chosen) == min(count, len(things))
    assert chosen[-1] == things[-1] and (count == 1 or chosen[0] == things[0])
    places = [things.index(thing) for thing in chosen]
    gaps = [b - a for a, b in pairwise(places)]
    assert not gaps or (min(gaps) > 0 and max(gaps) - min(gaps) <= 1)


@given(st.integers(2, 60), st.data())
def test_the_commits_to_measure_halve_the_largest_gaps(
    history: Any, count: int, data: st.DataObject
) -> None:
    things = list(range(count))
    done = data.draw(st.sets(st.sampled_from(things)))
    order = history.farthest(things, done, count)
    assert sorted([*order, *done]) == things
    for k in range(len(order)):
        # fewer are the beginning of more, so that a run can be interrupted and go on
        assert history.farthest(things, {*done, *order[:k]}, 1) == order[k : k + 1]
        taken = sorted({*done, *order[:k]})
        if taken and taken[0] == 0 and taken[-1] == count - 1:
            low = max(thing for thing in taken if thing < order[k])
            high = min(thing for thing in taken if thing > order[k])
            assert high - low == max(b - a for a, b in pairwise(taken))
            assert abs((high - order[k]) - (order[k] - low)) <= 1
