"""The programs and tables of names on the migration pages."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
_BEFORE = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
_AFTER = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Page(NamedTuple):
    """A page: the module that its library is imported as, and how near both programs end."""

    name: str
    library: str
    #: The result of the programs, an expression, and the largest difference between both.
    result: str
    difference: float

    def text(self) -> str:
        return (DOCS / self.name).read_text(encoding="utf-8")

    def before(self) -> str:
        (program,) = _BEFORE.findall(self.text())
        return program

    def after(self) -> str:
        """Return the program after a change, without its output."""
        text = self.text()
        program = _AFTER.findall(text[text.index("After:") :])[0]
        return "".join(example.source for example in doctest.DocTestParser().get_examples(program))

    def outcome(self, program: str) -> Any:
        names: dict[str, Any] = {}
        exec(compile(program, self.name, "exec"), names)
        found = eval(self.result, names)
        return found.detach() if hasattr(found, "detach") else found  # of torch, with a gradient

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of the tables whose head names the library's names and ours."""
        for table in re.findall(r"(?:^\|.*\n)+", self.text(), re.MULTILINE):
            head, _, *lines = table.strip().split("\n")
            if not head.startswith("| |"):
                for line in lines:
                    yield [cell.strip() for cell in line.strip("| ").split(" | ")]


#: TensorFlow, optax and VW compute in float32, and Keras rounds the betas to it, which changes a
#: step by 1e-5 of its length. torch adds a smaller epsilon, after the bias correction. scikit-learn
#: and Snap ML stop at a tolerance.
PAGES = [
    Page("from_tensorflow.md", "tensorflow", "w", 1e-4),
    Page("from_torch.md", "torch", "w", 1e-5),
    Page("from_optax.md", "optax", "params['w']", 1e-5),
    Page("from_scikit_learn.md", "sklearn", "w", 2e-3),
    Page("from_snapml.md", "snapml", "w", 1e-3),
    Page("from_vw.md", "vowpalwabbit", "w", 1e-4),
]


def code(cell: str) -> list[str]:
    """Return the texts in backticks of a cell, without the names that a role links."""
    return re.findall(r"`([^`]+)`", re.sub(r"\{[\w:]+\}`[^`]+`", "", cell))


def arguments(function: Any) -> set[str]:
    """Return the keywords that a function or class takes, of all constructors if it hands on."""
    found: set[str] = set()
    for each in function.__mro__ if inspect.isclass(function) else [function]:
        if each is object or (inspect.isclass(each) and "__init__" not in vars(each)):
            continue
        parameters = inspect.signature(each).parameters.values()
        found |= {of.name for of in parameters}
        if all(of.kind is not inspect.Parameter.VAR_KEYWORD for of in parameters):
            break
    return found


def parsed(span: str) -> list[ast.expr | ast.keyword]:
    """Return a span's expressions: names, calls, or keywords as in a call."""
    call = ast.parse(f"_({span})", mode="eval").body
    assert isinstance(call, ast.Call)
    return [*call.args, *call.keywords]


def members(*owners: Any) -> dict[str, Any]:
    """Return what modules, classes or objects have, by name."""
    return {name: getattr(owner, name) for owner in owners for name in dir(owner)}


def resolved(name: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the object with a dotted name."""
    root, *path = ast.unparse(name).split(".")
    assert root in names, f"there is no {root}"
    return reduce(getattr, path, names[root])


def check(span: str, names: Mapping[str, Any], keywords: set[str]) -> None:
    """Assert that the names of a span exist, and that calls take their keywords."""
    for part in parsed(span):
        if isinstance(part, ast.keyword):
            assert part.arg in keywords, f"nothing takes {part.arg}"
        elif isinstance(part, ast.Call):
            known = arguments(resolved(part.func, names))
            assert {of.arg for of in part.keywords} - {None} <= known, span
        else:
            assert isinstance(part, ast.Name | ast.Attribute), span
            if not (isinstance(part, ast.Name) and part.id in keywords):
                resolved(part, names)
