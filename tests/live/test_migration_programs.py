"""The programs before and after a migration end alike, and what the pages call theirs is theirs.

A library that is not installed is skipped; .ci/run has scikit-learn, TensorFlow and torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from migration_pages import PAGES, Page, arguments, check, code, members

REQUIRED = {"tensorflow": "TFOPT_REQUIRE_TENSORFLOW", "torch": "TFOPT_REQUIRE_TORCH"}

each = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def need(page: Page) -> None:
    """Skip a page whose programs cannot run."""
    for library in (page.library, "sklearn"):
        if not os.environ.get(REQUIRED.get(library, "")):
            pytest.importorskip(library)


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


@each
def test_both_programs_end_alike(page: Page) -> None:
    need(page)
    before, after = (np.asarray(page.outcome(program)) for program in (page.before(), page.after()))
    assert before.shape == after.shape
    np.testing.assert_allclose(after, before, rtol=0, atol=page.difference)


@each
def test_their_column_names_what_exists(page: Page) -> None:
    need(page)
    spans = [span for theirs, *_ in page.rows() for span in code(theirs)]
    if page.library == "vowpalwabbit":
        program = "from vowpalwabbit import Workspace; Workspace('--help')"
        said = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True
        )  # it ends the process
        options = set(re.findall(r"(?<![\w-])--?\w+", said.stdout + said.stderr))
        assert {span.split()[0] for span in spans if span.startswith("-")} <= options
        return
    names, keywords = globals()[page.library]()
    for span in spans:
        if not span.startswith(("-", "train ")):  # liblinear's command line
            check(span, names, keywords)
