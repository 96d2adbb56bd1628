"""Mutation testing: which mutants are made, that they are carried out, and what became of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign.mutants import draw, page, schemata
from campaign.mutants.equivalent import EQUIVALENT
from campaign.mutants.sites import mutants_of

PYTHON = '''
"""A module."""

from __future__ import annotations

LIMIT = 3


def first(a: int, b: int) -> int:
    """Not changed: a + b."""
    c: int = a + b  # nor this: a + b
    if a < b and not c == 2:
        c -= min(a, b)
    elif a is None:
        raise ValueError(f"{a + 1}")
    for k in range(0, b):
        if k in (a, 7):
            continue
        c += -k
    bounds = dict(zip((0.0,), (b,), strict=True))
    return max(c, 1) if a >= 0 else c * 2
'''

COMPILED = '''"""A module."""

cdef enum:
    FEW = 3

ctypedef fused real:
    float
    double


cdef inline real between(const real *p, real low, real high) noexcept nogil:
    cdef real x = p[0] * <real>2, y, z = -low
    cdef const real last = p[1]
    if real is float:
        y = <real>1
    else:
        y = x + z
    while x < high:
        x += 1
    prefetch(p + 4)
    return y if x > low else fmin(last, high)


cdef int check(int n) except -1:
    cdef team t = gather_team(n, 1)
    if n < 0:
        raise ValueError
    return 0
'''


def changes(tmp_path: Path, name: str, text: str) -> set[tuple[str, str]]:
    (path := tmp_path / name).write_text(text)
    return {(mutant.before, mutant.after) for mutant in mutants_of(path, tmp_path)}


def test_mutants_of_python(tmp_path: Path) -> None:
    condition = "if a < b and not c == 2:"
    assert changes(tmp_path, "x.py", PYTHON) == {
        ("c: int = a + b", "c: int = a - b"),
        ("c: int = a + b", "c: int = a"),
        (condition, "if a <= b and not c == 2:"),
        (condition, "if a >= b and not c == 2:"),
        (condition, "if a < b or not c == 2:"),
        (condition, "if a < b and c == 2:"),
        (condition, "if a < b and not c != 2:"),
        (condition, "if a < b and not c == 3:"),
        (condition, "if a < b and not c == 1:"),
        ("c -= min(a, b)", "c += min(a, b)"),
        ("c -= min(a, b)", "c -= max(a, b)"),
        ("c -= min(a, b)", "pass"),
        ("elif a is None:", "elif a is not None:"),
        ("for k in range(0, b):", "for k in range(1, b):"),
        ("if k in (a, 7):", "if k not in (a, 7):"),
        ("if k in (a, 7):", "if k in (a, 8):"),
        ("if k in (a, 7):", "if k in (a, 6):"),
        ("continue", "break"),
        ("c += -k", "c -= -k"),
        ("c += -k", "c += k"),
        ("c += -k", "pass"),
        (
            "bounds = dict(zip((0.0,), (b,), strict=True))",
            "bounds = dict(zip((1.0,), (b,), strict=True))",
        ),
        *(
            ("return max(c, 1) if a >= 0 else c * 2", f"return {after}")
            for after in (
                "min(c, 1) if a >= 0 else c * 2",
                "max(c, 2) if a >= 0 else c * 2",
                "max(c, 0) if a >= 0 else c * 2",
                "max(c, 1) if a > 0 else c * 2",
                "max(c, 1) if a < 0 else c * 2",
                "max(c, 1) if a >= 1 else c * 2",
                "max(c, 1) if a >= 0 else c / 2",
                "max(c, 1) if a >= 0 else c",
                "max(c, 1) if a >= 0 else c * 3",
                "max(c, 1) if a >= 0 else c * 1",
            )
        ),
    }


def test_mutants_of_cython(tmp_path: Path) -> None:
    """Types, casts, choices among types, addresses and prefetching are left alone.

    So are numbers of threads, and the 0 of a function that says only whether it has raised.
    """
    found = changes(tmp_path, "x.pyx", COMPILED)
    declaration = "cdef real x = p[0] * <real>2, y, z = -low"
    assert {after for before, after in found if before == declaration} == {
        "cdef real x = p[0] / <real>2, y, z = -low",
        "cdef real x = p[0] , y, z = -low",
        "cdef real x = p[0] * <real>3, y, z = -low",
        "cdef real x = p[0] * <real>1, y, z = -low",
        "cdef real x = p[0] * <real>2, y, z = low",
        "cdef real x = p[0] * <real>2, y, z = -high",
    }
    assert {before for before, _ in found} == {
        declaration,
        "y = <real>1",
        "y = x + z",
        "while x < high:",
        "x += 1",
        "return y if x > low else fmin(last, high)",
        "if n < 0:",
    }
    assert {after for before, after in found if before == "y = <real>1"} == {
        "y = <real>2",
        "y = <real>0",
    }


def results(text: str, choose: int = 0) -> list[Any]:
    """Return what the function of a text does for some arguments, with a mutant chosen."""
    scope: dict[str, Any] = {}
    text = text.replace(schemata.IMPORT, "")
    scope["tfopt_mutated"] = lambda number: number == choose
    exec(compile(text, "text", "exec", dont_inherit=True), scope)
    found: list[Any] = []
    for a in (-2, 0, 1, 3):
        for b in (0, 1, 2, 9):
            try:
                found.append(scope["first"](a, b))
            except Exception as error:
                found.append(repr(error))
    return found


def test_the_mutant_that_is_chosen_is_carried_out(tmp_path: Path) -> None:
    (path := tmp_path / "x.py").write_text(PYTHON)
    mutants = list(enumerate(mutants_of(path, tmp_path), 1))
    text = schemata.with_mutants(PYTHON, mutants, compiled=False)
    assert text.index("from __future__") < text.index(schemata.IMPORT) < text.index("LIMIT")
    assert results(text) == results(PYTHON)
    for number, mutant in mutants:
        alone = PYTHON[: mutant.start] + mutant.new + PYTHON[mutant.end :]
        assert results(text, number) == results(alone), mutant.after
    differing = sum(results(text, number) != results(text) for number, _ in mutants)
    assert differing > len(mutants) * 0.8


def test_a_declaration_is_taken_apart(tmp_path: Path) -> None:
    (path := tmp_path / "x.pyx").write_text(COMPILED)
    mutants = [m for m in mutants_of(path, tmp_path) if m.after.endswith("z = low")]
    text = schemata.with_mutants(COMPILED, [(5, *mutants)], compiled=True)
    assert (
        """
    cdef real x, y, z
    x = p[0] * <real>2
    if tfopt_mutated(5):
        z = low
    else:
        z = -low
    cdef const real last"""
        in text
    )


SERVED = """
import os
import subprocess
import sys

import mutated_module


def test_of_some() -> None:
    assert mutated_module.first(1, 2) == 2


def test_of_others() -> None:
    code = "import mutated_module; print(mutated_module.first(-2, 9))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "-40\\n", run


def test_that_fails_anyway() -> None:
    assert False
"""


def test_mutants_are_killed_by_tests_that_reach_them(tmp_path: Path) -> None:
    """In a child of the server, and in processes that a test starts."""
    (path := tmp_path / "mutated_module.py").write_text(PYTHON)
    mutants = list(enumerate(mutants_of(path, tmp_path), 1))
    path.write_text(schemata.with_mutants(PYTHON, mutants, compiled=False))
    (tmp_path / "tfopt_mutants.py").write_text(schemata.MODULE)
    (tmp_path / "test_served.py").write_text(SERVED)
    job = {
        "folder": str(tmp_path),
        "record": str(tmp_path / "record.json"),
        "mutants": [number for number, _ in mutants],
        "most": 9.0,
        "anew": True,
        "tests": {str(tmp_path / "test_served.py"): "digest"},
        "numbering": "digest",
        "sample": False,
    }
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    tests = str(Path(__file__).parents[1])
    for numbers in ([], job["mutants"]):  # the first records what the tests reach
        (tmp_path / "job.json").write_text(json.dumps(job | {"mutants": numbers}))
        run = subprocess.run(
            [sys.executable, "-m", "campaign.mutants.server", str(tmp_path / "job.json")],
            cwd=tmp_path,
            env={"PYTHONPATH": f"{tests}:{tmp_path}", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stdout + run.stderr
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts").read_text().splitlines()]
    assert [verdict["number"] for verdict in verdicts] == job["mutants"]
    for (number, mutant), verdict in zip(mutants, verdicts, strict=True):
        alone = PYTHON[: mutant.start] + mutant.new + PYTHON[mutant.end :]
        scope: dict[str, Any] = {}
        exec(compile(alone, "text", "exec", dont_inherit=True), scope)
        try:
            same = scope["first"](1, 2) == 2 and scope["first"](-2, 9) == -40
        except Exception:
            same = False
        assert (verdict["by"] is None) == same, (number, mutant.after, verdict)
    killers = {verdict["by"].rpartition("::")[2] for verdict in verdicts if verdict["by"]}
    assert killers == {"test_of_some", "test_of_others"}


# ---- what became of them


def test_the_page_shows_the_last_run() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text) == text


def test_most_mutants_are_killed() -> None:
    """Of 100 that change a result 99; the page names the others."""
    run = page.read()
    tried = sum(counts[0] for counts in run["files"].values())
    equivalent = len(run["survived"]) - len(page.survivors())
    assert tried >= run["count"] * 0.98
    assert len(page.survivors()) <= 0.01 * (tried - equivalent)


@pytest.mark.parametrize("key", EQUIVALENT)
def test_the_equivalent_mutants_exist(key: str) -> None:
    """Its line was there in the last run, or is there since: else the reason is about nothing."""
    assert EQUIVALENT[key]
    survived = {mutant["key"] for mutant in page.read()["survived"]}
    file = draw.ROOT / key.partition("::")[0]
    mutants = {mutant.key for mutant in mutants_of(file, draw.ROOT)} if file.exists() else set()
    assert key in survived | mutants, "take it out of campaign/mutants/equivalent.py"
