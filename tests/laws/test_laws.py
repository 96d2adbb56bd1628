"""Every law, on draws that cover all pairs of levels of its factors."""

from __future__ import annotations

import os
import warnings
from itertools import chain, islice

import numpy as np
import pytest

from laws import law as laws
from laws.law import LAWS, Draw, Law

#: Draws of a law in an ordinary run of the tests: enough for its pairs, if there are so many.
MOST = 1500


def _tried(law: Law, draw: Draw) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            laws.run(law.program(draw))
        except Exception as error:
            text = law.program(laws.shrunk(law, draw))
            pytest.fail(f"{error!r}. In tests/, run this program again:\n\n{text}")


@pytest.mark.parametrize("name", LAWS)
def test_law(name: str) -> None:
    law = laws.found(name)
    seed = int(os.environ.get("TFOPT_SEED", "0"))
    random = np.random.default_rng(seed)
    covering = laws.covering(law, seed)
    further = (laws.drawn(law, random) for _ in range(MOST // 10))
    covered = set()
    for draw in chain(islice(covering, MOST), further):
        covered |= laws.pairs(draw)
        _tried(law, draw)
    every = [*laws.all_pairs(law)]
    print(f"{name}: {len(covered)} of {len(every)} pairs; the others are refused together")
    assert len(covered) > 0.9 * len(every)
