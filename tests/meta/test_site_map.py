"""Every page that a newcomer needs is two clicks from the documentation's landing page."""

from __future__ import annotations

import os
import re
from collections import deque
from functools import cache
from pathlib import Path

import pytest

import tfopt_ref

DOCS = Path(__file__).parents[2] / "docs"
#: Where pages name others: links, cards, and lists of contents, which the sidebar shows.
_LINK = re.compile(r"\]\(([^)\s]+)\)|^:link: (\S+)$", re.MULTILINE)
_CONTENTS = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^(?!:)(?:.*<(.+)>|(\S.*))$", re.MULTILINE)

#: What a newcomer does, and the pages that say how.
TASKS = {
    "a network in NumPy: AdamW, warm-up and cosine decay, clipping, saving and resuming": (
        "first_steps", "optimizers", "training_loops", "clipping", "checkpoints", "api/schedules",
    ),
    "gradients by a tape, custom gradients, traced functions": ("autodiff", "autodiff_examples"),
    "embeddings: a step for some rows of a table": ("embeddings",),
    "LogisticRegression replaced": ("linear_model", "from_scikit_learn", "api/linear_model"),
    "a model of a file, on the command line": ("cli", "data_files"),
    "a torch program that changes one import": ("from_torch", "moving_in"),
    "a fit on a Dask cluster": ("dask", "dask_training"),
    "what a rule computes for repeated rows": ("twin", "formulas", "rules", "api/tfopt_ref"),
}  # fmt: skip


def others(page: str) -> set[str]:
    """Return the pages that a page leads to, by their paths without suffix."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    named = [a or b for a, b in _LINK.findall(text)]
    for contents in _CONTENTS.findall(text):
        named += [a or b for a, b in _ENTRY.findall(contents)]
    paths = (name.partition("#")[0] for name in named if "://" not in name)
    folder = os.path.dirname(page)
    found = {os.path.normpath(os.path.join(folder, path.removesuffix(".md"))) for path in paths}
    return {path for path in found if (DOCS / f"{path}.md").exists()}


@cache
def clicks() -> dict[str, int]:
    """Return how many clicks each page is from the landing page."""
    far, waiting = {"index": 0}, deque(["index"])
    while waiting:
        page = waiting.popleft()
        for other in others(page) - far.keys():
            far[other] = far[page] + 1
            waiting.append(other)
    return far


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_two_clicks_away(task: str) -> None:
    assert {page: clicks()[page] for page in TASKS[task] if clicks()[page] > 2} == {}


def test_every_page_is_two_clicks_away() -> None:
    pages = {
        str(path.relative_to(DOCS).with_suffix(""))
        for path in DOCS.rglob("*.md")
        if not {"_build", "changes", "generated"} & set(path.parts)
    }
    assert {page: clicks().get(page) for page in pages if clicks().get(page, 9) > 2} == {}


def test_every_module_of_the_specification_has_a_page() -> None:
    page = (DOCS / "api" / "tfopt_ref.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   (\w+)$", page, re.MULTILINE)
    files = [*(DOCS.parent / "tfopt_ref").glob("*.py"), *(DOCS.parent / "tfopt_ref").glob("*/*.py")]
    assert sorted(listed) == sorted(file.stem for file in files if file.stem != "__init__")


def test_the_reading_order_of_the_specification_has_every_module() -> None:
    named = re.findall(r"`(\w+)`", str(tfopt_ref.__doc__))
    modules = {file.stem for file in (DOCS.parent / "tfopt_ref").glob("*.py")} - {"__init__"}
    assert sorted(named) == sorted({*modules, "autodiff", "train_step"})
