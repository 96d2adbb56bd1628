"""The command line as a process: terminals, pipes, signals, closed streams, odd names."""

from __future__ import annotations

import bz2
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from tempfile import TemporaryFile

import pytest
from cli_samples import TINY

COMMAND = [sys.executable, "-m", "tfopt"]


def reader_of(data):
    """Return the end of a pipe that data can be read from, up to what a pipe holds."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return open(reading, "rb")


def test_standard_input(shell, tiny_model):
    with reader_of(bz2.compress(TINY.encode())) as stream:
        done = shell("tfopt", "predict", tiny_model, "-", "--quiet", stdin=stream)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 8
    with reader_of(b"1 1:1\n0 1:nan\n") as stream:
        done = shell("tfopt", "train", "-", stdin=stream)
    assert done.err == "<stdin>:2:3: the value is not finite '1:nan'\n"
    assert done.code == 1


@pytest.mark.parametrize("columns", [0, 80, 120])
def test_a_bar_on_a_terminal(shell, tiny, columns):
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    try:
        done = shell("tfopt", "train", tiny, stderr=slave)
        shown = os.read(master, 100_000)
    finally:
        os.close(slave)
        os.close(master)
    assert done.code == 0
    last = [line for line in re.split(rb"[\r\n]+", shown) if line][-1]
    assert re.search(rb"training 100%\|.*\| 00:0\d, iteration=\d+, gap=\d\.\de-\d\d$", last)
    assert len(last.decode()) <= 80
    assert shown.count(b"\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["predict", "tiny.npz", "big.svm"]])
def test_a_reader_that_goes_away_is_no_error(start, folder, tiny_model, arguments):
    (folder / "big.svm").write_text(TINY * 5000)
    out, writing = os.pipe()
    with open("err", "wb") as err:
        process = start("tfopt", *arguments, stdout=writing, stderr=err)
    os.close(writing)
    if arguments != ["--help"]:
        os.read(out, 1)
    os.close(out)
    assert process.wait() == 141
    assert (folder / "err").read_bytes() == b""


def test_a_full_disk_is_an_error(shell, tiny, tiny_model):
    with open("/dev/full", "wb") as full:
        done = shell("tfopt", "predict", tiny_model, tiny, "--quiet", stdout=full)
    assert done.err == "<stdout>: No space left on device\n"
    assert done.code == 1


def test_interrupt_leaves_nothing(start, folder):
    reading, writing = os.pipe()
    with open(reading) as err, TemporaryFile() as out:
        arguments = ["train", "--tol", "1e-300", "--epochs", "1000000", "--blocks", "2"]
        process = start("tfopt", *arguments, stdout=out, stderr=writing)
        os.close(writing)
        for _ in range(3):
            assert err.readline().startswith("iteration ")
        os.kill(process.pid, signal.SIGINT)
        rest = err.read()
        assert process.wait() == 130
        assert out.tell() == 0
    assert rest.endswith("interrupted\n")
    assert "Traceback" not in rest
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("closed", "arguments", "code", "err"),
    [
        ("stdin", "train -", 1, "<stdin>: is closed\n"),
        ("stdout", "train tiny.svm --quiet", 0, ""),
        ("stdout", "predict tiny.npz tiny.svm", 1, "<stdout>: is closed\n"),
        ("stderr", "train tiny.svm", 0, ""),
        ("stderr", "train missing.svm", 1, ""),
    ],
)
def test_closed_streams(shell, tiny, tiny_model, closed, arguments, code, err):
    done = shell("tfopt", *arguments.split(), **{closed: "closed"})
    assert (done.code, done.err) == (code, err)


def test_a_stream_that_a_shell_has_closed(tiny_model):
    command = f"exec {sys.executable} -m tfopt predict tiny.npz tiny.svm >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"<stdout>: is closed\n")


def test_odd_file_names(cli, shell, folder):
    name = "-new\nline \x1b é\udcff"
    (folder / name).write_text(TINY)
    line = ["train", "--quiet", f"--model=./{name}.npz", "--", name]
    done = shell("tfopt", *line, env={"PYTHONIOENCODING": "ascii"})
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 5
    assert "\x1b" not in done.out and done.out.isascii()
    assert cli("predict", f"./{name}.npz", f"--output=./{name}.txt", "--", name).code == 0
    assert (folder / f"{name}.txt").read_text().count("\n") == 8
    (folder / name).write_text("1 1:x\n")
    refused = cli("train", "--", name)
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "\x1b" not in refused.err


def test_help_is_quick():
    started = time.perf_counter()
    subprocess.run([*COMMAND, "--help"], capture_output=True, check=True)
    assert time.perf_counter() - started < 2  # scikit-learn alone would add one second
