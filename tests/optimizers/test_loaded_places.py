"""Arrays that are replaced after a state has been loaded keep the state of their entries."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.step_cases import every_optimizer, everything, gradients, params

import tfopt

each = pytest.mark.parametrize("name", every_optimizer())
Tree = dict[str, Any]


def copied(tree: Any) -> Any:
    """Return the same structure of other arrays."""
    if isinstance(tree, dict):
        return {key: copied(branch) for key, branch in tree.items()}
    return [copied(branch) for branch in tree] if isinstance(tree, list) else tree.copy()


def nested(tree: Tree) -> Tree:
    return {"layers": [{"w": tree["dense"]}, {"w": tree["table"]}], "rest": tree["half"]}


@each
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
@pytest.mark.parametrize("way", ["dict", "file"])
def test_replaced_arrays_keep_what_was_loaded(
    name: str, way: str, used: bool, tmp_path: Path
) -> None:
    """Into a new optimizer, and into one that has taken steps."""
    make, ends = every_optimizer()[name], []
    for replaced in (False, True):
        variables, first = nested(params()), make()
        grads = [nested(gradients(params(), seed)) for seed in range(4)]
        for grad in grads[:3]:
            first.step(variables, grad)
        second = make()
        if used:
            second.step(variables, grads[3])
        if way == "dict":
            second.load_state_dict(copy.deepcopy(first.state_dict(variables)), variables)
        else:
            first.save(tmp_path / "state.npz", variables)
            second.load(tmp_path / "state.npz", variables)
        if replaced:
            variables = copied(variables)
        for grad in grads[2:]:
            second.step(variables, grad)
        ends.append(everything(second, variables, settled=True))
    assert ends[0] == ends[1]


def test_a_single_array_is_its_own_entry() -> None:
    first, w = tfopt.optimizers.Adam(0.5), np.ones(3)
    first.step(w, np.ones(3))
    second = tfopt.optimizers.Adam()
    second.load_state_dict(first.state_dict(w), w)
    second.step(w.copy(), np.ones(3))
    assert len(second.weights) == 3


def test_a_refused_state_leaves_entries_alone() -> None:
    opt, w = tfopt.optimizers.Adam(0.5), {"w": np.ones(3)}
    opt.step(w, {"w": np.ones(3)})
    state = copy.deepcopy(opt.state_dict(w))
    del state["slots"]["w"]["v"]
    with pytest.raises(tfopt.InvalidArgumentError):
        opt.load_state_dict(state, w)
    other = {"w": w["w"].copy()}
    opt.step(other, {"w": np.ones(3)})
    assert len(opt.weights) == 3
