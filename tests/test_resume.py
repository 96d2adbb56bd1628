"""Ten steps are five, a file, and five more in another process: bit for bit."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import assert_same_bits
from resumption import SCHEDULES, ending, made, runs, take_steps, weights

from tfopt import checkpoints


def leaves(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, np.ndarray):
        return [tree]
    return [
        leaf
        for branch in (tree.values() if isinstance(tree, dict) else tree)
        for leaf in leaves(branch)
    ]


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_every_run_goes_on_in_a_new_process(tmp_path: Path, suffix: str) -> None:
    halves, whole = {}, {}
    for which, schedule, mode in runs():
        name, variables = f"{which}/{schedule}/{mode}", weights()
        optimizer = made(which, learning_rate=SCHEDULES[schedule], sparse=mode)
        take_steps(optimizer, variables, range(5))
        half = {"weights": variables, "optimizer": optimizer.state_dict(variables)}
        halves[name] = copy.deepcopy(half)  # it is written when all runs have ended
        take_steps(optimizer, variables, range(5, 10))
        whole[name] = ending(optimizer, variables)
    cut, out = tmp_path / f"cut.{suffix}", tmp_path / f"out.{suffix}"
    checkpoints.save(cut, halves)
    script = str(Path(__file__).with_name("resumption.py"))
    subprocess.run([sys.executable, script, str(cut), str(out)], check=True, timeout=60)
    resumed = checkpoints.load(out)
    assert list(resumed) == list(whole)
    assert len(whole) > 300
    for name, expected in whole.items():
        for ours, theirs in zip(leaves(resumed[name]), leaves(expected), strict=True):
            assert_same_bits(ours, theirs, name)
