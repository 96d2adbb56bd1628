"""Training runs of every optimizer and wrapper against the twin's specification of a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from common.compared_steps import compare
from common.optimizer_arguments import RULES
from common.training_plans import STACKS, Run, drawn_plan

import tfopt
import tfopt_ref.storage
from campaign.calls import one
from campaign.check import Case, drawn


def _cases(seed: int) -> Iterator[Case]:
    for storage in (tfopt.optimizers.state.slot_storage, tfopt_ref.storage):
        storage.FEWEST = 2  # type: ignore[attr-defined]  # the variables of a run are small
    yield from _DRAWN.cases(seed)


def _case(random: np.random.Generator) -> int:
    """A step of any optimizer, wrappers and options: compares all weights and slots."""
    plan = drawn_plan(one(random, [*RULES]), one(random, STACKS), int(random.integers(2**32)))
    run, late = Run(plan), "sparse catch_up" in plan.tried
    for number, pairs in enumerate(plan.steps, start=1):
        run.step(pairs)
        if late:
            run.optimizer.flush()
        for name, ours, theirs in run.compared():
            compare(f"{plan.config}: {name} after step {number}", ours, theirs, late)
    return len(plan.steps)


_DRAWN = drawn("steps", _case, numerical=True)
CHECK = _DRAWN._replace(cases=_cases)
