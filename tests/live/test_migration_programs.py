"""The programs before and after a migration end alike, and what the pages call theirs is theirs.

A library that is not installed is skipped; .ci/run has scikit-learn, TensorFlow and torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from common.migration_pages import PAGES, Page, arguments, check, code, members

REQUIRED = {"tensorflow": "TFOPT_REQUIRE_TENSORFLOW", "torch": "TFOPT_REQUIRE_TORCH"}
#: What would change this process for other tests: Snap ML flushes denormals, JAX starts threads.
ALONE = ("optax", "snapml")

each = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def need(page: Page) -> None:
    """Skip a page whose programs cannot run."""
    for library in (page.library, "sklearn"):
        if not os.environ.get(REQUIRED.get(library, "")) and find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


def tensorflow() -> tuple[dict[str, Any], set[str]]:
    import tensorflow

    return {"tf": tensorflow}, set()


def torch() -> tuple[dict[str, Any], set[str]]:
    import torch

    optim, adam = torch.optim, torch.optim.Adam
    names = members(torch, torch.amp, optim, optim.lr_scheduler, torch.nn.utils)
    names |= {"lr_scheduler": optim.lr_scheduler, "swa_utils": optim.swa_utils}
    return names | {"utils": torch.utils, "optimizer": adam([torch.zeros(1)])}, arguments(adam)


def optax() -> tuple[dict[str, Any], set[str]]:
    import optax
    import optax.contrib

    names = {**members(optax), "contrib": optax.contrib, "tx": optax.adam(0.1)}
    return names, arguments(optax.adam)


def sklearn() -> tuple[dict[str, Any], set[str]]:
    from sklearn import linear_model, multiclass, svm

    return members(linear_model, multiclass, svm), set()


def snapml() -> tuple[dict[str, Any], set[str]]:
    import snapml

    return members(snapml), set()


def run(page: Page, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that imports a page's library, if need be in another process."""
    if page.library not in ALONE:
        return function(*arguments)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def outcome(page: Page, program: str) -> np.ndarray:
    return np.asarray(page.outcome(program))


@each
def test_both_programs_end_alike(page: Page) -> None:
    need(page)
    before = run(page, outcome, page, page.before())
    after = outcome(page, page.after())
    assert before.shape == after.shape
    np.testing.assert_allclose(after, before, rtol=0, atol=page.difference)


def check_options_of_vw(spans: list[str]) -> None:
    program = "from vowpalwabbit import Workspace; Workspace('--help')"
    command = [sys.executable, "-c", program]  # which ends the process
    said = subprocess.run(command, capture_output=True, text=True)
    options = set(re.findall(r"(?<![\w-])--?\w+", said.stdout + said.stderr))
    assert {span.split()[0] for span in spans if span.startswith("-")} <= options


def check_names(library: str, spans: list[str]) -> None:
    names, keywords = globals()[library]()
    for span in spans:
        if not span.startswith(("-", "train ")):  # liblinear's command line
            check(span, names, keywords)


@each
def test_their_column_names_what_exists(page: Page) -> None:
    need(page)
    spans = [span for theirs, *_ in page.rows() for span in code(theirs)]
    if page.library == "vowpalwabbit":
        check_options_of_vw(spans)
    else:
        run(page, check_names, page.library, spans)
