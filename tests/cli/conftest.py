"""What the tests of the command line share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_samples import TINY

from tfopt.cli import main


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, which is the current one too."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(folder, capsys):
    """Run the command line in this process."""

    def run(*arguments) -> Outcome:
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def shell(folder):
    """Run the command line in a process of its own."""

    def run(*arguments, env=None, **options) -> subprocess.CompletedProcess:
        options = {"capture_output": True, "timeout": 60} | options
        return subprocess.run(
            [sys.executable, "-m", "tfopt", *arguments], env=os.environ | (env or {}), **options
        )

    return run


@pytest.fixture
def tiny(folder) -> Path:
    path = folder / "tiny.svm"
    path.write_text(TINY)
    return path


@pytest.fixture
def tiny_model(cli, tiny) -> Path:
    assert cli("train", tiny, "--model", "tiny.npz", "--quiet").code == 0
    return tiny.with_name("tiny.npz")
