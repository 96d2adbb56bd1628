"""Ctrl-C between any two things that Python does in a step: the step is whole, or not taken."""

from __future__ import annotations

from functools import partial

import numpy as np
from common.interrupted import MAKERS, raising_at
from common.step_cases import everything, gradients, params

from campaign.calls import one
from campaign.check import drawn


def _case(random: np.random.Generator) -> int:
    """A step interrupted at any call or return: happens and is counted, or changes nothing."""
    which, constrained = one(random, [*MAKERS]), bool(random.integers(2))
    late = which.startswith("catching up")
    optimizer, variables = MAKERS[which](), params(constrained)
    if late:  # of 16 bits no row catches up
        del variables["half"]
    taken = int(random.integers(0, 3))
    for seed in range(taken):
        optimizer.step(variables, gradients(variables, seed))
    grads = gradients(variables, 100)
    before = everything(optimizer, variables, late)
    event, interruptions = 1, 0
    while True:
        event += int(random.geometric(0.02))
        interrupted = raising_at(event, partial(optimizer.step, variables, grads))
        found = everything(optimizer, variables, late)
        interruptions += 1
        if not interrupted:
            return interruptions
        if found != before:  # it was taken: is it what a step makes of the same?
            break
    again, same = MAKERS[which](), params(constrained)
    if late:
        del same["half"]
    for seed in range(taken):
        again.step(same, gradients(same, seed))
    again.step(same, grads)
    assert everything(again, same, late) == found, f"{which}: half a step, event {event}"
    return interruptions


CHECK = drawn("interruptions", _case)
