"""Every example in the documentation runs, and every public name is documented."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
from common.documented import examples, modules

import tfopt
import tfopt_ref
from tfopt.core.engine import REGISTERED
from tfopt.optimizers import Wrapper
from tfopt.optimizers.arguments import parameters_of
from tfopt.optimizers.state.config import OPTIMIZERS

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    if "_build" not in page.parts
]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Pages whose Python needs a machine that the tests have not: it is parsed, not run.
NOT_RUN = {"gpu.md": "a GPU"}


def specified(module: ModuleType) -> list[str]:
    """Return the names of what a module of the specification defines; most have no list of them."""
    if not module.__name__.startswith("tfopt_ref"):
        return []
    own = {k: getattr(thing, "__module__", None) for k, thing in vars(module).items()}
    return [k for k, home in own.items() if home == module.__name__ and not k.startswith("_")]


def run(test: doctest.DocTest) -> doctest.TestResults:
    return doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)


@pytest.fixture(autouse=True)
def _gradients_unregistered():
    """What an example registers holds for the process, and other tests count on its absence."""
    registered = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(registered)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_a_page(page: Path) -> None:
    """The examples of a page are one session; no Python of a page is left out of it."""
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    if page.name in NOT_RUN:
        for block in blocks:
            compile(block, str(page), "exec")
        return
    assert all(">>>" in block for block in blocks)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    assert run(test) == (0, len(test.examples))


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_a_page_fits_beside_the_side_bars(page: Path) -> None:
    """What a reader types has at most 72 columns; quoted sources may have more."""
    lines = page.read_text(encoding="utf-8").split("\n")
    typed = [line for line in lines if line.startswith((">>> ", "... ", "$ "))]
    assert [line for line in typed if len(line) > 72] == []


@pytest.mark.parametrize("module", modules(tfopt) + modules(tfopt_ref), ids=lambda m: m.__name__)
def test_examples_of_docstrings(module: ModuleType) -> None:
    for test in examples(module):
        assert run(test).failed == 0, test.name


@pytest.mark.parametrize("module", modules(tfopt) + modules(tfopt_ref), ids=lambda m: m.__name__)
def test_public_names_have_docstrings(module: ModuleType) -> None:
    assert module.__doc__
    for name in getattr(module, "__all__", specified(module)):
        thing = getattr(module, name)
        if not (inspect.isclass(thing) or inspect.isroutine(thing)):
            continue
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for method, value in vars(thing).items():
                if inspect.isfunction(value) and not method.startswith("_"):
                    assert inspect.getdoc(getattr(thing, method)), f"{name}.{method}"


@pytest.mark.parametrize("cls", sorted(set(OPTIMIZERS.values()), key=lambda cls: cls.__name__))
def test_keywords_of_optimizers_are_documented(cls: type) -> None:
    doc = inspect.getdoc(cls)
    assert doc is not None and not re.search(r"^ *\{\w+\}$", doc, re.MULTILINE)
    if issubclass(cls, Wrapper):
        return
    for name in parameters_of(cls):
        assert re.search(rf"^(\w+, )*{name}\b.* : |`{name}`", doc, re.MULTILINE), name
