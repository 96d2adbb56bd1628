"""The pages of figures: their tables are those of the measured files, and regressions are found."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import sys
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCH = Path(__file__).parents[2] / "asv_bench"


@pytest.fixture(scope="module", autouse=True)
def bench():
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def page(bench: None) -> ModuleType:
    return import_module("page")


@pytest.fixture(scope="module")
def shown(page: ModuleType) -> dict[str, Any]:
    return page.load()


def test_the_tables_are_what_was_measured(page: ModuleType, shown: dict[str, Any]) -> None:
    for path in page.PAGES:
        text = path.read_text(encoding="utf-8")
        assert page.written(text, shown) == text, (
            f"{path.name} has tables that asv_bench/page.py does not write: asv_bench/README.md "
            "says how to update them"
        )


def test_the_picture_has_the_recorded_times(page: ModuleType, shown: dict[str, Any]) -> None:
    picture = import_module("step_picture")
    drawn = re.findall(r">([\d.]+ (?:ms|µs))</text>", picture.PICTURE.read_text(encoding="utf-8"))
    times = [
        median
        for library in picture.LINES
        for name, (_, median, _) in shown["busy"].rows[f"nothing, {library}"].figures.items()
        if "%" not in name
    ]
    assert drawn == [picture.in_words(median) for median in times]


def test_the_picture_of_rows_has_the_recorded_times(
    page: ModuleType, shown: dict[str, Any]
) -> None:
    picture, step = import_module("rows_picture"), import_module("step_picture")
    drawn = re.findall(r">([\d.]+ (?:ms|µs))  ", picture.PICTURE.read_text(encoding="utf-8"))
    recorded = picture.pairs(shown["compare.sparse"])
    assert drawn == [step.in_words(time) for pair in recorded for time in pair]


def test_the_table_of_the_readme_has_recorded_ratios(
    page: ModuleType, shown: dict[str, Any]
) -> None:
    readme = (BENCH.parent / "README.md").read_text(encoding="utf-8")
    _, _, table = readme.partition("| Adam, float32: how many times as long")
    cells = [line.split(" | ")[1:] for line in table.split("\n\n")[0].split("\n")[2:]]
    figures = [re.sub(r" \(.*| \|$", "", cell) for line in cells for cell in line]
    dense, rows = shown["compare.dense"].rows, shown["compare.sparse"].rows
    recorded = [
        dense[f"adam, 2^{size} against {rival}"]
        for size in (12, 16, 20, 26)
        for rival in ("torch fused Adam", "ResourceApplyAdam")
    ]
    of = "of 1M x 32, cold against"
    recorded.append(rows[f"adam, 100k zipf merged {of} torch SparseAdam"])
    recorded.append(rows[f"adam, 100k zipf catch up {of} Keras Adam"])
    assert figures == [page.shown(row.figures["ratio"], 1) for row in recorded]


def test_each_table_is_in_one_page_once(page: ModuleType) -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in page.PAGES)
    names = [table.name for table in page.TABLES]
    assert len(set(names)) == len(names)
    for name in names:
        assert texts.count(f"<!-- {name} -->") == texts.count(f"<!-- end of {name} -->") == 1, name
    assert texts.count("<!-- ") == 2 * len(names)
    lines = texts.split("\n")
    outside = [n for n, line in enumerate(lines) if line.startswith("| ---")]
    assert len(outside) == len(names)  # so no table has been typed


def selected(command: str, row: str) -> bool:
    """Return whether a command measures a row; the command must exist."""
    python, script, *arguments = shlex.split(command)
    assert python == "python" and (BENCH.parent / script).is_file()
    patterns = ["*"]
    if script.endswith("measure.py"):
        (name, *options) = arguments
        (_, kind), *others = import_module("measure").classes(name)
        assert not others
        combinations = import_module("measure").combinations(kind)
        assert row in map(import_module("measure").row_name, combinations), row
        patterns = options[1:] or patterns
        assert options[:1] in ([], ["--only"])
    elif script.endswith("compare.py"):
        assert arguments[0] == "--only"
        works = import_module("comparison.works").works(quick=False)
        assert row.partition(" against ")[0] in {work.name for work in works}, row
        row, patterns = row.lower(), [f"*{arguments[1].lower()}*"]
    elif script.endswith("linear_table.py"):
        patterns = [argument for argument in arguments if argument != "--solvers"]
        works = (
            import_module("comparison.solvers").choices()
            if "--solvers" in arguments
            else import_module("comparison.linear").fits(quick=False)
        )
        assert row in {work.name for work in works}, row
    else:
        assert script.endswith("busy.py")
    return any(fnmatchcase(row, pattern) for pattern in patterns)


def test_the_command_of_a_table_measures_its_rows(page: ModuleType, shown: dict[str, Any]) -> None:
    for table in page.TABLES:
        record = shown[table.record]
        figures = [
            cell for line in table.grid(record).lines for cell in line if not isinstance(cell, str)
        ]
        assert any(page.known(cell, record) for cell in figures), f"{table.name} has no figures"
        for cell in figures:
            assert selected(table.command, cell.row), (table.name, cell.row)
            assert cell.figure in record.figures or cell.row not in record.rows, cell


def test_rules_without_a_counterpart_are_not_compared() -> None:
    """The libraries need not be installed to know that."""
    common, works = import_module("benchmarks.common"), import_module("comparison.works")
    unavailable = import_module("comparison.rival").Unavailable
    rivals = {
        "torch": import_module("comparison.mapping").TORCH,
        "tensorflow": common.OPS,
    }
    for library, known in rivals.items():
        without = [rule for rule in common.RULES if rule not in known]
        assert "lion" in without
        for rule in without:
            with pytest.raises(unavailable, match=f"{rule}$"):
                import_module(f"comparison.{library}_rival").rivals(works.Dense(rule, 16))


def test_each_row_is_of_a_known_run(page: ModuleType) -> None:
    records = import_module("records")
    files = sorted(records.RESULTS.glob("*.json"))
    assert files
    for path in files:
        record = records.Record.load(path.stem)
        assert record.text() == path.read_text(encoding="utf-8")
        assert set(record.runs) == {row.run for row in record.rows.values()}
        for date, run in record.runs.items():
            assert run["date"] == date
            assert all(run[what] for what in ("commit", "command", "machine", "compiler", "numpy"))
            assert run["changed"] in (None, False, True)
        for row in record.rows.values():
            assert set(row.figures) <= set(record.figures)
            for low, median, high in row.figures.values():
                known = [value for value in (low, median, high) if value is not None]
                assert known == sorted(known) and known and all(map(math.isfinite, known))


positive = st.floats(0.001, 1000)
quartiles = st.tuples(positive, positive, positive).map(sorted).map(tuple)
#: Rows of two files by name: some in both, some in one.
rows = st.dictionaries(st.sampled_from("abcd"), quartiles)


def record_of(figures: dict[str, Any], better: str | None, date: str) -> Any:
    records = import_module("records")
    record = records.Record("x")
    made = {key: records.Row({"ratio": of}) for key, of in figures.items()}
    record.merge({"date": date}, made, {"ratio": {"unit": "times", "better": better}})
    return record


@given(rows, rows)
def test_measured_rows_replace_only_themselves(old: dict[str, Any], new: dict[str, Any]) -> None:
    records = import_module("records")
    both, fresh = record_of(old, "more", "1"), record_of(new, "more", "2")
    both.merge({"date": "2"}, fresh.rows, fresh.figures)
    assert {key: row.figures["ratio"] for key, row in both.rows.items()} == old | new
    assert {key: row.run for key, row in both.rows.items()} == dict.fromkeys(
        old, "1"
    ) | dict.fromkeys(new, "2")
    assert set(both.runs) == {row.run for row in both.rows.values()}
    assert records.Record.parse("x", both.text()) == both


@given(rows, rows, st.sampled_from(["more", "less", None]))
def test_regressions_are_ratios_a_tenth_worse(
    old: dict[str, Any], new: dict[str, Any], better: str | None
) -> None:
    before, now = record_of(old, better, "1"), record_of(new, better, "2")
    found = [line.split(": ")[1] for line in import_module("page").regressions(before, now)]
    worse = {"more": lambda a, b: a / b, "less": lambda a, b: b / a, None: lambda a, b: 0.0}[better]
    assert found == [key for key in new if key in old and worse(old[key][1], new[key][1]) > 1.1]
    assert not list(import_module("page").regressions(now, now))


@pytest.mark.parametrize(
    ("old", "new", "better", "is_worse"),
    [
        ((91, None, 101), (80, 82, 84), "more", True),
        ((91, None, 101), (80, 85, 90), "more", False),
        ((40, None, None), (30, 35, 40), "more", True),
        ((0.98, None, 1.06), (1.1, 1.2, 1.3), "less", True),
        ((0.98, None, 1.06), (1.0, 1.15, 1.2), "less", False),
    ],
)
def test_of_a_range_the_worst_counts(
    page: ModuleType, old: Any, new: Any, better: str, is_worse: bool
) -> None:
    before, now = record_of({"a": old}, better, "1"), record_of({"a": new}, better, "2")
    assert bool(list(page.regressions(before, now))) == is_worse


def test_a_regression_since_a_commit_fails(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def git(*command: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True, capture_output=True)

    for module in (page, import_module("records")):
        monkeypatch.setattr(module, "ROOT", tmp_path)
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    record_of({"a": (1.0, 2.0, 3.0)}, "more", "1").save()
    git("init")
    git("add", ".")
    git("commit", "-m", "x")
    assert page.check("HEAD") == 0
    record_of({"a": (1.0, 1.5, 3.0), "b": (1.0, 1.0, 1.0)}, "more", "2").save()
    record_of({"a": (1.0, 1.0, 1.0)}, "more", "1").save()
    capsys.readouterr()
    assert page.check("HEAD") == 1
    assert capsys.readouterr().out == "x: a: ratio was 2, is 1\n"


def test_rows_name_their_runs_if_these_differ(page: ModuleType) -> None:
    """Of "three" nothing is known."""
    records, cells = import_module("records"), import_module("page_tables.cells")
    once = {"commit": "a" * 12, "changed": False, "machine": "m", "other": 1}
    again = {"commit": "b" * 12, "changed": True, "machine": "n", "other": 2}
    runs = {"1": {"date": "2026-01-01T00:00:00", **once}, "2": {"date": "2026-01-02", **again}}
    lines = [[name, cells.Cell(name, "ratio")] for name in ("one", "two", "three")]
    grid = cells.Grid(["", "r"], lines)
    table = cells.Table("t", "x", "python x.py", "What", lambda _: grid, ("other",))

    def text(second: str) -> str:
        made = {
            "one": records.Row({"ratio": (1.0, 2.0, 3.0)}, "1"),
            "two": records.Row({"ratio": (1.0, None, 3.0)}, second, labels={"busy": "9 %"}),
        }
        return page.rendered(table, records.Record("x", {}, runs, made))

    alike, apart = text("1"), text("2")
    assert "| one | 2 |\n| two | 1\N{EN DASH}3* |\n\n" in alike
    facts = "What; other 1; 2026-01-01 at aaaaaaa; m; \\*: while other programs ran"
    assert alike.endswith(f"*{facts}:* `python x.py`")
    assert "| one | 2 | 2026-01-01 at aaaaaaa, m |" in apart
    assert "| two | 1\N{EN DASH}3* | 2026-01-02 at bbbbbbb with changes, n |" in apart
    assert (
        "other 1, other 2; 2026-01-01 at aaaaaaa; 2026-01-02 at bbbbbbb with changes; m; n" in apart
    )


def test_rows_of_a_benchmark_have_names_of_their_own() -> None:
    measure = import_module("measure")
    for path in sorted((BENCH / "benchmarks").glob("[a-z]*.py")):
        if path.stem in ("common", "peakmem"):
            continue
        for _, kind in measure.classes(path.stem):
            names = list(map(measure.row_name, measure.combinations(kind)))
            assert names and len(set(names)) == len(names)
            for method in measure.methods(kind):
                meaning = measure.meaning(kind, method)
                assert (meaning["unit"] == "s") == method.startswith("time_")
                assert meaning["better"] in {"s": (None,), "%": ("more",)}.get(
                    meaning["unit"], ("more", "less")
                )


def test_a_benchmark_is_called_with_its_parameters() -> None:
    class Toy:
        params = ([2, 3], ["x"])
        param_names = ("number", "letter")

        def setup(self, number: int, letter: str) -> None:
            self.total = number

        def track_speed(self, number: int, letter: str) -> float:
            self.total += 1
            return self.total

        def time_it(self, number: int, letter: str) -> None:
            assert letter == "x"

    measure = import_module("measure")
    for parameters in measure.combinations(Toy):
        figures = measure.measured(Toy, parameters, turns=3)
        first = parameters["number"] + 1
        assert figures["track_speed"] == (first + 0.5, first + 1, first + 1.5)
        assert 0 < figures["time_it"][0] <= figures["time_it"][2] < 1


def test_settings_of_a_benchmark_are_restored() -> None:
    import tfopt

    measure, threads = import_module("measure"), tfopt.threads.get_num_threads()
    tfopt.threads.set_num_threads(threads + 1)
    tfopt.set_flush_denormals(False)
    measure.put_back(import_module("benchmarks.denormals"), threads)
    assert tfopt.threads.get_num_threads() == threads
    assert tfopt.get_flush_denormals()
