"""Every law, on draws that cover all pairs of levels of its factors."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

from laws import law as laws
from laws.law import LAWS, Draw, Law
from laws.toy import LAW as TOY


def _tried(law: Law, draws: list[Draw]) -> None:
    """Run the programs of draws; print the first that fails, made small."""
    failed, why = None, ""
    if law.alone:
        number, why = laws.first_that_fails([law.program(draw) for draw in draws]) or (None, "")
        failed = None if number is None else draws[number]
    for draw in [] if law.alone else draws:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                laws.run(law.program(draw))
            except Exception as error:
                failed, why = draw, repr(error)
                break
    if failed is not None:
        text = law.program(laws.shrunk(law, failed))
        pytest.fail(f"{why}. In tests/, run this program again:\n\n{text}")


@pytest.mark.sampled_in_part
@pytest.mark.parametrize("name", LAWS)
def test_law(name: str, pytestconfig: pytest.Config) -> None:
    """In a sample, a law is tried on its further draws alone, and in the rest on the covering."""
    if not laws.can_be_tried(name):
        pytest.skip(f"it needs {' and '.join(laws.NEEDS[name])}")
    law = laws.found(name)
    seed = int(os.environ.get("TFOPT_SEED", "0"))
    random = np.random.default_rng(seed)
    few, rest = pytestconfig.option.sample, pytestconfig.option.rest
    covering = [] if few else laws.covering(law, seed)
    further = 0 if rest and not few else law.further
    draws = [*covering, *(laws.drawn(law, random) for _ in range(further))]
    _tried(law, draws)
    if few:
        return
    law.not_idle()
    covered = set().union(*map(laws.pairs, draws))
    every = [*laws.all_pairs(law)]
    print(f"{name}: {len(covered)} of {len(every)} pairs in {len(draws)} programs")
    assert len(covered) > 0.95 * len(every)  # a third factor excludes the others


# ---- the laws' own machinery


def test_a_failing_program_is_made_small() -> None:
    draw = Draw({"color": "red", "size": "large"}, ("rise", "fall", "rise", "rise"), 7)
    with pytest.raises(AssertionError, match="planted"):
        laws.run(TOY.program(draw))
    assert laws.shrunk(TOY, draw) == Draw({"color": "red", "size": "small"}, ("fall",), 7)


def test_a_program_that_ends_its_process_is_found() -> None:
    number, said = laws.first_that_fails(["pass", "import os; os.abort()", "pass"]) or (None, "")
    assert number == 1 and "ended with -6" in said
    assert laws.first_that_fails(["pass"]) is None


def test_coverings_have_all_compatible_pairs() -> None:
    covered = [pair for draw in laws.covering(TOY, 0) for pair in laws.pairs(draw)]
    assert set(covered) == set(laws.all_pairs(TOY))
    assert (("color", "blue"), ("size", "huge")) not in covered


def test_draws_go_together() -> None:
    random = np.random.default_rng(0)
    found = [laws.drawn(TOY, random) for _ in range(100)]
    assert {len(draw.events) for draw in found} == {0, 1, 2, 3, 4}
    assert len({tuple(draw.levels.values()) for draw in found}) == 5
