"""Help, flags, exit codes and what is refused before any work begins."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tfopt
from tfopt import kernels, threads
from tfopt.cli import main
from tfopt.cli.optimizers import OPTIMIZERS, default_learning_rate
from tfopt.cli.settings import CLASSIFICATION, LOSSES, SDCA_LOSSES
from tfopt.core.versions import versions
from tfopt.linear_model import losses

EXTRA = ["sklearn", "scipy", "tqdm", "matplotlib", "dask", "distributed", "fsspec"]


COMMANDS = ["train", "predict", "cv", "inspect", "convert", "info", "selftest"]


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_goes_to_standard_output(cli, command):
    outcome = cli(*command, "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.startswith("usage: tfopt")
    assert "Exit codes: 0 done, 1 refused" in outcome.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_the_default_of_every_flag(cli, command, monkeypatch):
    parsers = []
    original = argparse.ArgumentParser.parse_known_args

    def record(self, *rest):
        parsers.append(self)
        return original(self, *rest)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", record)
    assert cli(command, "--help").code == 0
    (commands,) = (a for a in parsers[0]._actions if isinstance(a, argparse._SubParsersAction))
    flags = [a for a in commands.choices[command]._actions if a.option_strings[1:] != ["--help"]]
    shown = [flag for flag in flags if flag.help != argparse.SUPPRESS]
    assert len(shown) > 1 or command in ("convert", "info", "selftest")
    for flag in shown:
        assert "default: " in flag.help or flag.required, flag.dest


def test_help_shows_the_learning_rates(cli):
    text = " ".join(cli("train", "--help").out.split())
    shown = (
        f"{loss}: " + ", ".join(f"{o} {default_learning_rate(o, loss):g}" for o in OPTIMIZERS)
        for loss in LOSSES
    )
    assert f"(default: {'; '.join(shown)})" in text


def test_the_documentation_shows_the_learning_rates():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    rows = {
        cells[0].strip(): [cell.strip() for cell in cells[1:]]
        for cells in (line.strip("|").split("|") for line in page.splitlines() if line[:1] == "|")
    }
    assert rows[""] == list(OPTIMIZERS)
    for loss in LOSSES:
        rates = [f"{default_learning_rate(name, loss):g}" for name in OPTIMIZERS]
        assert rows[f"learning rate, {loss}"] == rates


def test_the_losses_are_those_of_the_library():
    """Their names alone are in the command line, whose help loads no library."""
    library = {name: loss for name, loss in losses.LOSSES.items() if not loss.is_joint}
    assert {*SDCA_LOSSES} == {*library} and {*LOSSES} <= {*library}
    assert {*CLASSIFICATION} == {name for name, loss in library.items() if loss.is_classification}


def test_version(cli):
    outcome = cli("--version")
    assert (outcome.code, outcome.out) == (0, f"tfopt {tfopt.__version__}\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("fly", "invalid choice: 'fly'"),
        ("train --fast", "unrecognized arguments: --fast"),
        ("train --optimizer muon", "argument --optimizer: invalid choice: 'muon'"),
        ("train --loss cosine", "argument --loss: invalid choice: 'cosine'"),
        ("train --quantile 0.1", "--quantile works with --solver sdca alone"),
        ("train --solver sdca --quantile 1", "--quantile: must be above 0 and below 1, not 1"),
        ("train --solver sdca --epsilon 1", "--epsilon is for --loss huber or epsilon_insens"),
        ("cv x --quantile 0.1", "--quantile is for --loss quantile"),
        ("train --loss hinge", "--loss hinge works with --solver sdca alone"),
        ("train --solver sdca --l2 0", "--solver sdca needs --l2 above 0"),
        ("train --solver sdca --learning-rate 1", "--learning-rate works with --solver optimizer"),
        ("train --solver sdca --set beta=1", "--set works with --solver optimizer alone"),
        ("train --solver sdca --schedule-set a=9", "--schedule-set works with --solver optimizer"),
        ("train --solver sdca --optimizer adam", "--optimizer works with --solver optimizer alone"),
        ("train --solver sdca --batch-size 7", "--batch-size works with --solver optimizer alone"),
        ("train --solver sdca --patience 7", "--patience works with --solver optimizer alone"),
        ("train --tol 0.1", "--tol works with --solver sdca alone"),
        ("train --blocks 2", "--blocks works with --solver sdca alone"),
        ("train --workers 2", "--workers works with --solver sdca alone"),
        ("train --label y", "--label is for tables (.csv, .tsv, .parquet, or --format)"),
        ("train --weight y", "--weight is for tables (.csv, .tsv, .parquet, or --format)"),
        ("train a.csv --label y --weight y", "--label and --weight cannot be one column"),
        ("train a.csv --label y --zero-based no", "--zero-based is for LIBSVM files"),
        (
            "train --solver sdca --chunk-size 1MB",
            "--chunk-size works with --solver optimizer alone",
        ),
        ("train --chunk-size 1TB", "argument --chunk-size: must be a size such as 256MB, not 1TB"),
        ("train --chunk-size 0", "argument --chunk-size: must be at least 1 byte, not 0"),
        ("train --holdout 9 --chunk-size 1MB", "--holdout and --chunk-size do not go together"),
        ("train --holdout 1", "argument --holdout: must be at least 2, not 1"),
        ("cv", "the following arguments are required: DATA"),
        ("cv a --folds 1", "argument --folds: must be at least 2, not 1"),
        ("cv a --l2 1,0", "argument --l2: must be above 0, not 0"),
        ("cv a --l2 1,x", "argument --l2: invalid list of numbers value: '1,x'"),
        ("cv a --l2 1 --C 1", "argument --C: not allowed with argument --l2"),
        ("predict m a --labels --json", "not allowed with argument"),
        ("inspect", "the following arguments are required: MODEL"),
        ("inspect m --top -1", "argument --top: must be at least 0, not -1"),
        ("convert m", "the following arguments are required: OUT"),
        ("info muon", "argument NAME: invalid choice: 'muon'"),
        ("train --solver sdca --workers 2 --dask tcp://here:1", "not allowed with argument"),
        ("train --solver sdca --workers 0", "argument --workers: must be 1 to 4096, not 0"),
        ("train --solver sdca --blocks 0", "argument --blocks: must be at least 1, not 0"),
        ("train --solver sdca --blocks 2 --resume", "--solver sdca has it on a cluster"),
        ("train --l2 -0.5", "argument --l2: must not be negative, not -0.5"),
        ("train --l2 nan", "argument --l2: must be finite, not nan"),
        ("train --learning-rate 0", "argument --learning-rate: must be above 0, not 0"),
        ("train --learning-rate inf", "argument --learning-rate: must be finite, not inf"),
        ("train --learning-rate x", "argument --learning-rate: invalid number value: 'x'"),
        ("train --epochs 0", "argument --epochs: must be at least 1, not 0"),
        ("train --epochs 1.5", "argument --epochs: invalid integer value: '1.5'"),
        ("train --batch-size 0", "argument --batch-size: must be at least 1, not 0"),
        ("train --seed -1", "argument --seed: must be at least 0, not -1"),
        ("train --threads 0", "argument --threads: must be 1 to 4096, not 0"),
        ("train --threads 5000", "argument --threads: must be 1 to 4096, not 5000"),
        ("train --zero-based maybe", "argument --zero-based: invalid choice: 'maybe'"),
        ("train --plot loss.txt", "--plot needs a file name that ends in one of .png, .svg, .pdf"),
        ("train - --test -", "DATA, --test and --valid cannot both be standard input"),
        ("train a b", "unrecognized arguments: b (see tfopt train --help)"),
        ("train --lr 0.1", "unrecognized arguments: --lr; did you mean --learning-rate?"),
        ("train --bs=7", "unrecognized arguments: --bs=7; did you mean --batch-size?"),
        ("cv a --folsd 3", "unrecognized arguments: --folsd 3; did you mean --folds?"),
        ("train --model out.pkl", "--model needs a file name that ends in one of .npz, .json"),
        ("cv a --model out.txt", "--model needs a file name that ends in one of .npz, .json"),
        ("convert model.npz out.bin", "OUT needs a file name that ends in one of .npz, .json"),
        ("predict model.npz", "the following arguments are required: DATA"),
        ("info adam extra", "unrecognized arguments: extra"),
    ],
)
def test_wrong_usage(cli, folder, line, message):
    outcome = cli(*line.split())
    assert outcome.code == 2
    assert outcome.out == ""
    assert message in outcome.err
    assert outcome.err.startswith("tfopt") and outcome.err.endswith(" --help)\n")
    assert outcome.err.count("\n") == 1
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("flag", ["--model", "--plot"])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no/such/x{ending}", "no/such/x{ending}: no such folder '{folder}/no/such'"),
        ("sub{ending}", "sub{ending}: is a folder"),
        ("tiny.svm/x{ending}", "tiny.svm/x{ending}: Not a directory"),
    ],
)
def test_outputs_are_checked_before_any_work(cli, folder, tiny, monkeypatch, flag, path, message):
    ending = {"--model": ".npz", "--plot": ".png"}[flag]
    (folder / f"sub{ending}").mkdir()
    monkeypatch.setattr("tfopt.cli.readers.read_data", None)
    outcome = cli("train", tiny, flag, path.format(ending=ending))
    assert outcome.err == message.format(folder=folder, ending=ending) + "\n"
    assert outcome.code == 1


def test_inputs_are_not_overwritten(cli, folder, tiny, tiny_model):
    before = tiny.read_bytes(), tiny_model.read_bytes()
    (folder / "link").symlink_to(tiny)
    (folder / "tiny").write_bytes(before[0])
    for line, name in [
        ("train tiny.svm --model link", "link"),
        ("train --test tiny --model tiny", "tiny"),
        ("predict tiny.npz tiny.svm --output ./tiny.npz", "./tiny.npz"),
        ("predict tiny.npz tiny.svm --output tiny.svm", "tiny.svm"),
    ]:
        outcome = cli(*line.split())
        assert outcome.err == f"{name}: is also an input and would be overwritten\n"
        assert outcome.code == 1
    assert before == (tiny.read_bytes(), tiny_model.read_bytes())


def test_a_folder_without_write_permission(cli, folder, tiny, monkeypatch):
    # the tests may run as root, to whom every folder is writable
    monkeypatch.setattr("os.access", lambda path, mode: False)
    outcome = cli("train", tiny)
    assert outcome.err == f"model.npz: '{folder}' is not writable\n"
    assert outcome.code == 1


def test_interrupt(cli, folder, tiny, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tfopt.cli.rows.score", interrupt)
    outcome = cli("train", tiny, "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "interrupted\n")
    assert list(folder.iterdir()) == [tiny]


@pytest.mark.parametrize("module", ["tfopt.cli.parser", "tfopt.cli.train"])
def test_interrupt_while_modules_are_loaded(folder, module):
    code = f"""
import importlib.abc, sys
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from tfopt.cli import main
sys.exit(main(["train"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_current_folder_that_has_been_removed(cli, folder):
    (folder / "gone").mkdir()
    os.chdir(folder / "gone")
    (folder / "gone").rmdir()
    outcome = cli("train")
    assert (outcome.code, outcome.err) == (1, "the current folder has been removed\n")


def test_an_output_that_is_a_circle_of_links(cli, folder, tiny, monkeypatch):
    (folder / "m.npz").symlink_to("m.npz")
    monkeypatch.setattr("tfopt.cli.readers.read_data", None)
    outcome = cli("train", tiny, "--model", "m.npz")
    assert outcome.err == "m.npz: Too many levels of symbolic links\n"
    assert outcome.code == 1


def test_out_of_memory(cli, tiny, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("tfopt.cli.readers.read_data", fail)
    outcome = cli("train", tiny)
    assert (outcome.code, outcome.err) == (1, "not enough memory\n")


@pytest.mark.parametrize(
    ("module", "packages", "command"),
    [
        ("sklearn", "scikit-learn tqdm", "predict model.npz data.svm"),
        ("tqdm", "tqdm", "train"),
        ("matplotlib", "matplotlib", "train --plot loss.png"),
        ("skl2onnx", "skl2onnx", "train --model model.onnx"),
        ("distributed", "dask distributed", "train --solver sdca --workers 2"),
        ("dask", "dask distributed", "train --solver sdca --dask tcp://here:1"),
        ("fsspec", "fsspec", "train s3://bucket/day --solver sdca"),
        ("pandas", "pandas pyarrow", "train data.csv --label y"),
    ],
)
def test_a_missing_package_says_what_to_install(shell, folder, module, packages, command):
    done = shell("tfopt", *command.split(), missing=module)
    assert done.err == f"this needs {module}, which is not installed: pip install {packages}\n"
    assert (done.code, done.out) == (1, "")
    assert list(folder.iterdir()) == []


def test_light_commands_load_nothing_but_numpy():
    code = f"""
import sys
from tfopt.cli import main
for arguments in (["--help"], ["train", "--help"], ["info"], ["info", "adam"]):
    assert main(arguments) == 0
    print([name for name in {EXTRA!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert [line for line in done.stdout.splitlines() if line[:1] == "["] == ["[]"] * 4, done.stderr


def test_a_missing_module_of_our_own_is_a_bug_and_shown_as_one(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "tfopt.cli.train", None)
    with pytest.raises(ModuleNotFoundError, match=r"tfopt\.cli\.train"):
        main(["train", str(tiny)])


def test_info(cli):
    result = cli("info", "--json").json()
    assert result == {"schema": 1, **versions()}
    assert result["tfopt"] == tfopt.__version__
    assert result["numpy"] == np.__version__
    assert result["optional"]["scikit-learn"] == importlib.metadata.version("scikit-learn")
    assert result["instruction_set"] == kernels.cpu
    assert result["instruction_sets_available"] == list(kernels.available)
    assert result["threads"] == threads.get_num_threads()
    assert result["openmp"] is threads.openmp()
    assert result["cuda"] == (tfopt.cuda.why_not() or "available")


def test_the_version_is_that_of_the_installed_package():
    try:
        installed = importlib.metadata.version("tfopt")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tfopt runs from its source tree: it is not installed")
    assert installed == tfopt.__version__


def test_info_in_words(cli, monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    outcome = cli("info")
    facts = dict(re.split(r"  +", line) for line in outcome.out.splitlines())
    assert facts["instruction set"] == kernels.cpu
    assert facts["openmp"] == ("yes" if threads.openmp() else "no")
    assert facts["tqdm"] == "not installed"


def test_the_shell_is_told_how_a_line_may_go_on(cli, monkeypatch):
    """By argcomplete, which asks the parser and ends the process."""
    asked = []

    def autocomplete(parser):
        asked.append(parser.prog)
        raise SystemExit(0)

    monkeypatch.setitem(sys.modules, "argcomplete", SimpleNamespace(autocomplete=autocomplete))
    assert cli("info", "--json").code == 0 and asked == []
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert (cli("info").code, asked) == (0, ["tfopt"])
