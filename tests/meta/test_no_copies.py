"""The specification is independent: it shares no run of code lines with tfopt."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import tfopt
import tfopt_ref

LINES = 8


def left_out(node: ast.AST) -> range:
    """Return the numbers of lines that say what a thing is called: imports, names, signatures."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return range(node.lineno, node.end_lineno + 1)
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
        return range(node.lineno, node.end_lineno + 1)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return range(node.lineno, node.body[0].lineno)
    return range(0)


def docstring(node: ast.AST) -> range:
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    if isinstance(node, documented) and ast.get_docstring(node) is not None:
        return range(node.body[0].lineno, node.body[0].end_lineno + 1)
    return range(0)


def code(source: str) -> list[str]:
    """Return the lines of code, without comments and blank lines."""
    without = {
        number
        for node in ast.walk(ast.parse(source))
        for lines in (left_out(node), docstring(node))
        for number in lines
    }
    lines = ((k, line.strip()) for k, line in enumerate(source.splitlines(), 1))
    return [line for k, line in lines if line and k not in without and not line.startswith("#")]


def runs(path: Path) -> set[tuple[str, ...]]:
    lines = code(path.read_text(encoding="utf-8"))
    return {tuple(lines[k : k + LINES]) for k in range(len(lines) - LINES + 1)}


def files(package: ModuleType) -> dict[str, set[tuple[str, ...]]]:
    folder = Path(package.__file__).parent
    return {str(path.relative_to(folder)): runs(path) for path in sorted(folder.rglob("*.py"))}


def test_lines_of_code_are_recognized() -> None:
    source = (
        '"""A."""\nimport b\n\n\ndef f(\n    x,\n):\n    """C."""\n    # d\n    return (\n  x\n)\n'
    )
    assert code(source) == ["return (", "x", ")"]


def test_the_specification_is_no_copy() -> None:
    ours, theirs = files(tfopt), files(tfopt_ref)
    shared = {(a, b) for a, own in theirs.items() for b, other in ours.items() if own & other}
    assert shared == set()
