"""Ten steps are five, a file, and five more in another process: bit for bit."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from common.cases import assert_same_bits
from resumption import ending, made, runs, take_steps, weights

from tfopt import checkpoints


def leaves(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, np.ndarray):
        return [tree]
    return [
        leaf
        for branch in (tree.values() if isinstance(tree, dict) else tree)
        for leaf in leaves(branch)
    ]


def test_every_run_goes_on_in_a_new_process(tmp_path: Path) -> None:
    halves: dict[str, Any] = {"npz": {}, "safetensors": {}}
    whole = {}
    for run, suffix in zip(runs(), itertools.cycle(halves)):
        name, variables = "/".join(run), weights()
        optimizer = made(run, variables, first=True)
        take_steps(run, optimizer, variables, range(5))
        half = {"weights": variables, "optimizer": optimizer.state_dict(variables)}
        halves[suffix][name] = copy.deepcopy(half)  # it is written when all runs have ended
        take_steps(run, optimizer, variables, range(5, 10))
        whole[name] = ending(optimizer, variables)
    for suffix, some in halves.items():
        checkpoints.save(tmp_path / f"cut.{suffix}", some)
    script = str(Path(__file__).with_name("resumption.py"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, script, str(tmp_path)]
    subprocess.run(command, env=environment, check=True, timeout=60)
    resumed = checkpoints.load(tmp_path / "ends.npz")
    assert sorted(resumed) == sorted(whole)
    assert len(whole) > 450
    for name, expected in whole.items():
        for ours, theirs in zip(leaves(resumed[name]), leaves(expected), strict=True):
            assert_same_bits(ours, theirs, name)
