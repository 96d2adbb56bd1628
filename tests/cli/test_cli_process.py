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

import pytest
from cli_samples import TINY

COMMAND = [sys.executable, "-m", "tfopt"]


def test_standard_input(shell, folder, tiny_model):
    done = shell("predict", tiny_model, "-", "--quiet", input=bz2.compress(TINY.encode()))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 8
    done = shell("train", "-", input=b"1 1:1\n0 1:nan\n")
    assert done.stderr == b"<stdin>:2: the value is not finite '1:nan'\n"
    assert done.returncode == 1


@pytest.mark.parametrize("columns", [0, 120])
def test_a_bar_on_a_terminal(folder, tiny, columns):
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    try:
        done = subprocess.run(
            [*COMMAND, "train", tiny, "--epochs", "3"], stderr=slave, stdout=subprocess.PIPE
        )
        shown = os.read(master, 100_000)
    finally:
        os.close(slave)
        os.close(master)
    assert done.returncode == 0
    assert b"100%|" in shown
    assert b" 24.0/24.0 [00:00<00:00, " in shown
    assert b"epoch" not in shown
    if columns:
        assert re.search(rb"rows/s, train loss=0\.\d+\]", shown)


@pytest.mark.parametrize("arguments", [["--help"], ["predict", "tiny.npz", "big.svm"]])
def test_a_reader_that_goes_away_is_no_error(folder, tiny_model, arguments):
    (folder / "big.svm").write_text(TINY * 5000)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered
    )
    if arguments != ["--help"]:
        process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141


def test_a_full_disk_is_an_error(shell, tiny, tiny_model):
    with open("/dev/full", "wb") as full:
        streams = {"capture_output": False, "stdout": full, "stderr": subprocess.PIPE}
        done = shell("predict", tiny_model, tiny, "--quiet", **streams)
    assert done.stderr == b"<stdout>: No space left on device\n"
    assert done.returncode == 1


def test_interrupt_leaves_nothing(folder, tiny):
    process = subprocess.Popen(
        [*COMMAND, "train", tiny, "--epochs", "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # what runs the tests in the background may have them ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for _ in range(3):
            assert process.stderr.readline().startswith("epoch ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    assert err.endswith("interrupted\n")
    assert "Traceback" not in err
    assert list(folder.iterdir()) == [tiny]


@pytest.mark.parametrize(
    ("closed", "arguments", "code", "err"),
    [
        ("<&-", "train -", 1, b"<stdin>: is closed\n"),
        (">&-", "train tiny.svm --quiet", 0, b""),
        (">&-", "predict tiny.npz tiny.svm", 1, b"<stdout>: is closed\n"),
        ("2>&-", "train tiny.svm", 0, b""),
        ("2>&-", "train missing.svm", 1, b""),
    ],
)
def test_closed_streams(folder, tiny, tiny_model, closed, arguments, code, err):
    command = f"exec {sys.executable} -m tfopt {arguments} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60)
    assert done.returncode == code
    assert done.stderr == err


@pytest.mark.parametrize("name", ["-new\nline", "é\udcff"])
def test_odd_file_names(shell, cli, folder, name):
    (folder / name).write_text(TINY)
    environment = {"PYTHONIOENCODING": "ascii"}
    done = shell("train", "--quiet", f"--model=./{name}.npz", "--", name, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 3
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
