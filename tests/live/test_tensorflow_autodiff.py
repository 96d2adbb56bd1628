"""Tapes and custom gradients: that TensorFlow still answers what the golden file says.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from golden.autodiff.facades import Ours, TensorFlow, plain, same
from golden.autodiff.record import FILE, PROGRAMS
from golden.with_tensorflow import required_tensorflow
from hypothesis import given
from hypothesis import strategies as st

tf = required_tensorflow()

RECORDED = json.loads(FILE.read_text())


@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_answers(name: str) -> None:
    found = json.loads(json.dumps(plain(PROGRAMS[name](TensorFlow(tf)))))
    assert same(found, RECORDED[name]), (found, RECORDED[name])
