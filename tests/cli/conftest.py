"""Fixtures of the command line's tests."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from cli_samples import TINY
from forks import STREAMS, Forks, Process

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
    """Run the command line in this process; training writes model.npz, or the model named."""

    def run(*arguments, model: str | None = "model.npz") -> Outcome:
        texts = [str(argument) for argument in arguments]
        if model and texts[:1] == ["train"] and not any(t.startswith("--model") for t in texts):
            texts[1:1] = ["--model", model]
        code = main(texts)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def server():
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture
def start(server, folder):
    """Start the command line, or a script, in a process of its own; see `Forks.start`."""
    with contextlib.ExitStack() as started:

        def start(*command, **options) -> Process:
            process = server.start(*command, **options)
            started.callback(process.close)
            return process

        yield start


@pytest.fixture
def shell(start):
    """Run it to its end: what it reads is empty unless `stdin` is given, what it writes is told.

    Streams of which a test says that they are ``"closed"`` are.
    """

    def run(*command, **options) -> Outcome:
        with contextlib.ExitStack() as files:
            own = {name: files.enter_context(TemporaryFile()) for name in STREAMS}
            streams = own | {name: options.pop(name) for name in STREAMS if name in options}
            is_open = {name: stream for name, stream in streams.items() if stream != "closed"}
            code = start(*command, **is_open, **options).wait()
            for stream in own.values():
                stream.seek(0)
            return Outcome(code, own["stdout"].read().decode(), own["stderr"].read().decode())

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
