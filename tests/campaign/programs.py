"""Programs of public calls, drawn from the tables of factors of all laws."""

from __future__ import annotations

import warnings

import numpy as np
from laws.law import LAWS, can_be_tried, found, run, shrunk
from laws.law import drawn as drawn_of

from campaign.check import drawn


def _case(random: np.random.Generator) -> None:
    """A program of public calls, of any law: keeps the law, or is reduced and printed."""
    here = [name for name in LAWS if can_be_tried(name)]
    law = found(here[int(random.integers(len(here)))])
    draw = drawn_of(law, random)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(law.program(draw))
        except Exception as error:
            text = law.program(shrunk(law, draw))
            raise AssertionError(
                f"{error!r}. In tests/, run this program again:\n\n{text}"
            ) from error


CHECK = drawn("programs", _case)._replace(patience=600.0)
