"""The migration pages' names exist, and their programs agree."""

from __future__ import annotations

import numpy as np
import pytest
from common.migration_pages import DOCS, PAGES, Page, arguments, check, code, members

pytest.importorskip("sklearn")

import tfopt
from tfopt import linear_model, optimizers
from tfopt.optimizers import schedules

ESTIMATORS = [linear_model.SDCAClassifier, linear_model.SDCARegressor, linear_model.FTRLClassifier]
NAMES = {
    **members(*ESTIMATORS, optimizers.AdamW, schedules, optimizers, linear_model),
    "tfopt": tfopt,
    "np": np,
    "optimizer": optimizers.Adam(),
}
KEYWORDS = set().union(
    *(arguments(of) for of in ESTIMATORS),
    *(arguments(of) for of in members(optimizers).values() if isinstance(of, type)),
    arguments(linear_model.FTRLClassifier.partial_fit),
)
#: What is no name but Python's syntax.
SYNTAX = {"@", "table[ids]"}

each = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_every_page_is_tested() -> None:
    assert {page.name for page in PAGES} == {path.name for path in DOCS.glob("from_*.md")}


@each
def test_names_in_our_column_exist(page: Page) -> None:
    rows = list(page.rows())
    assert len(rows) > 5
    for theirs, ours, *_ in rows:
        if ours == "`tfopt.` and the same name":
            for name in code(theirs):
                check(name.replace("tf.", "tfopt.", 1), NAMES, set())
            continue
        for span in set(code(ours)) - SYNTAX:
            check(span, NAMES, KEYWORDS)


@each
def test_the_program_after_runs_by_itself(page: Page) -> None:
    assert np.isfinite(np.asarray(page.outcome(page.after()))).all()


def test_names_that_do_not_exist_are_found() -> None:
    for span in ("Adamm", "Adam(beta1=0.9)", "optimizer.stepp", "global_norm_clip=c", "tfopt.x.y"):
        with pytest.raises((AssertionError, AttributeError)):
            check(span, NAMES, KEYWORDS)
