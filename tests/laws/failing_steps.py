"""Make each allocation of a step fail in turn: run as a program by test_whole_steps.

It is given names of optimizers, and prints of each how many steps failed. A step that fails half
way ends it.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

try:
    from _testcapi import remove_mem_hooks, set_nomemory
except ImportError:
    sys.exit(77)
from common.interrupted import MAKERS
from common.step_cases import everything, gradients, params

#: More allocations than a step makes.
MANY = 3000


def fails(optimizer: Any, variables: Any, grads: Any, number: int) -> bool:
    """Take a step in which one allocation fails; return whether it raised.

    NumPy makes a SystemError of some.
    """
    set_nomemory(number, number + 1)
    try:
        optimizer.step(variables, grads)
    except (MemoryError, SystemError):
        return True
    finally:
        remove_mem_hooks()
    return False


def failures(which: str) -> int:
    """Return how many allocations can fail; none of them leaves half a step."""
    late = which.startswith("catching up")

    def begun() -> tuple[Any, Any]:
        optimizer, variables = MAKERS[which](), params()
        if late:  # of 16 bits no row catches up
            del variables["half"]
        optimizer.step(variables, gradients(variables, 1))
        return optimizer, variables

    optimizer, variables = begun()
    before = everything(optimizer, variables, late)
    grads = gradients(variables, 2)
    optimizer.step(variables, grads)
    after = everything(optimizer, variables, late)
    assert before != after
    optimizer, variables = begun()
    for number in range(MANY):
        failed = fails(optimizer, variables, grads, number)
        found = everything(optimizer, variables, late)
        assert found in (before, after), f"{which}: half a step after allocation {number}"
        if found == after:  # what was not taken has been taken again until here
            optimizer, variables = begun()
            if not failed and number > 150:  # the first ones may be made good without an error
                return number
    raise AssertionError(f"{which}: a step makes more than {MANY} allocations")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        print(name, failures(name), flush=True)
