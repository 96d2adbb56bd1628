"""The other instruction sets of this machine: a process chooses its set once, at import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tfopt

NAMES = ("test_twin.py", "test_clip_twin.py", "test_guard_pages.py", "test_storage.py")
BITS = [str(Path(__file__).with_name(name)) for name in NAMES]
OTHERS = [cpu for cpu in tfopt.kernels.available if cpu != tfopt.kernels.cpu]


@pytest.mark.skipif(not OTHERS, reason="this machine, or this build, has one instruction set")
def test_the_bits_are_the_twins_on_every_set() -> None:
    for cpu in OTHERS:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *BITS],
            env={**os.environ, "TFOPT_CPU": cpu},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        assert f"tfopt on {cpu} against" in done.stdout
