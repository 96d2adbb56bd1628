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
from tfopt.cli.options import (
    CERTIFIED,
    CLASSIFICATION,
    LOSS_OPTIONS,
    LOSSES,
    OPTIONS,
    STREAM_LOSSES,
)
from tfopt.cli.parser import _STEPS, COMMANDS
from tfopt.core.versions import versions
from tfopt.linear_model import FTRLClassifier, FTRLRegressor, losses
from tfopt.linear_model.parameters import SOLVERS

EXTRA = ["sklearn", "scipy", "tqdm", "matplotlib", "dask", "distributed", "fsspec"]


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_fits_two_screens(cli, command):
    outcome = cli(*command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert len(lines) <= 48 and max(map(len, lines)) <= 80
    assert lines[0].startswith("usage: tfopt")
    assert command or "Exit codes: 0 done, 1 error" in outcome.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_option_and_its_default(cli, command):
    text = " ".join(cli(command, "--help").out.split())
    rows = [row for row in OPTIONS if command in row.commands]
    for row in rows:
        assert re.search(rf"(^| ){row.flag}[ ,]", text), row
        value = row.shown or ("" if row.default is None else str(row.default))
        assert not value or f"[{value}]" in text, row
        assert all(choice in text for choice in row.choices)


def test_the_table_has_the_losses_and_the_solvers_of_the_library():
    """Their names alone are in the command line, whose help loads no library."""
    library = losses.LOSSES
    assert {*LOSSES} == {*library}
    assert {*CLASSIFICATION} == {name for name, loss in library.items() if loss.is_classification}
    assert ("auto", *SOLVERS) == CERTIFIED
    assert {*STREAM_LOSSES} == {*FTRLClassifier._LOSSES, *FTRLRegressor._LOSSES}
    options = {name: loss.option for name, loss in library.items() if loss.option}
    assert {*LOSS_OPTIONS} == {option.name for option in options.values()}
    for name, row in LOSS_OPTIONS.items():
        assert {*row.losses} == {loss for loss, option in options.items() if option.name == name}
        own = [options[loss] for loss in row.losses]
        assert row.shown == ", ".join(dict.fromkeys(f"{option.default:g}" for option in own))
        for value in (-1.0, 0.0, 0.5, 1.0, 2.0):  # what one loss refuses, the estimator does
            by_some = any(accepts(option.checked, value) for option in own)
            assert accepts(row.convert, str(value)) == by_some


def accepts(convert, value):
    try:
        convert(value)
    except (ValueError, argparse.ArgumentTypeError):
        return False
    return True


def test_version(cli):
    outcome = cli("--version")
    assert (outcome.code, outcome.out) == (0, f"tfopt {tfopt.__version__}\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("fly", "invalid choice: 'fly'"),
        ("train --fast", "unrecognized arguments: --fast"),
        ("train --loss cosine", "argument --loss: invalid choice: 'cosine'"),
        ("train --loss squared-hinge", "; did you mean squared_hinge? (see"),
        ("trian", "did you mean train?"),
        ("train --solver cd --blocks 2", "--blocks works with --solver auto alone"),
        ("train --quantile 0.1", "--quantile is for --loss quantile"),
        ("train --quantile 1", "--quantile: must be above 0 and below 1, not 1"),
        ("train --power 2", "--power: must be above 1 and below 2, not 2"),
        ("train --epsilon 1", "--epsilon is for --loss huber or epsilon_insens"),
        ("cv x --quantile 0.1", "--quantile is for --loss quantile"),
        ("train --l2 -1", "argument --l2: must not be negative, not -1"),
        ("train --label y", "--label is for tables (.csv, .tsv, .parquet, or --format)"),
        ("train a.csv --label y --weight y", "--label and --weight cannot be one column"),
        ("train a.csv --label y --zero-based no", "--zero-based is for LIBSVM files"),
        ("cv", "the following arguments are required: DATA"),
        ("cv a --folds 1", "argument --folds: must be at least 2, not 1"),
        ("cv a --l2 1,0", "argument --l2: must be above 0, not 0"),
        ("cv a --l2 1,x", "argument --l2: invalid list of numbers value: '1,x'"),
        ("cv a --l2 1 --C 1", "argument --C: not allowed with argument --l2"),
        ("predict m a --labels --json", "not allowed with argument"),
        ("inspect", "the following arguments are required: MODEL"),
        ("inspect m --top -1", "argument --top: must be at least 0, not -1"),
        ("convert m", "the following arguments are required: OUT"),
        ("train --workers 2 --dask tcp://here:1", "not allowed with argument"),
        ("train --workers 0", "argument --workers: must be 1 to 4096, not 0"),
        ("train --blocks 0", "argument --blocks: must be at least 1, not 0"),
        ("train --blocks 2 --resume", "--resume is for --solver ftrl, and for clusters"),
        ("train --l1 -0.5", "argument --l1: must not be negative, not -0.5"),
        ("train --l2 nan", "argument --l2: must be finite, not nan"),
        ("train --epochs 0", "argument --epochs: must be at least 1, not 0"),
        ("train --epochs 1.5", "argument --epochs: invalid integer value: '1.5'"),
        ("train --seed -1", "argument --seed: must be at least 0, not -1"),
        ("train --threads 0", "argument --threads: must be 1 to 4096, not 0"),
        ("train --threads 5000", "argument --threads: must be 1 to 4096, not 5000"),
        ("train --zero-based maybe", "argument --zero-based: invalid choice: 'maybe'"),
        ("train --plot loss.txt", "--plot needs a file name that ends in one of .png, .svg, .pdf"),
        ("train - --test -", "DATA and --test cannot both be standard input"),
        ("train a b", "unrecognized arguments: b (see tfopt train --help)"),
        ("cv a --folsd 3", "unrecognized arguments: --folsd 3; did you mean --folds?"),
        ("train --workers 2 --checkpoint x", "--checkpoint needs --checkpoint-every or --resume"),
        ("train --workers 2 --checkpoint m.npz --resume --model m.npz", "cannot be one file"),
        ("train --checkpoint-every 0", "must be at least 1, not 0"),
        (
            "train --class-weight x",
            "--class-weight: must be balanced, or LABEL=WEIGHT,..., not 'x'",
        ),
        ("train --class-weight 1=1,1=2", "must be balanced, or LABEL=WEIGHT,..., not '1=1,1=2'"),
        ("train --class-weight 1=-1", "--class-weight: must not be negative, not -1"),
        ("train --class-weight 1=y", "--class-weight: invalid list of weights value: '1=y'"),
        ("train --loss huber --class-weight 1=1", "--class-weight is for --loss logistic or"),
        ("train a.parquet --label y --sep ;", "--sep is for CSV files"),
        ("train a.csv --label y --sep ab", "--sep: must be a character such as ; or tab, not 'ab'"),
        ("train --drop y", "--drop is for tables (.csv, .tsv, .parquet, or --format)"),
        ("train --model out.pkl", "--model needs a file name that ends in one of .npz, .json"),
        ("cv a --model out.txt", "--model needs a file name that ends in one of .npz, .json"),
        ("convert model.npz out.bin", "OUT needs a file name that ends in one of .npz, .json"),
        ("predict model.npz", "the following arguments are required: DATA"),
        ("info extra", "unrecognized arguments: extra"),
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


@pytest.mark.parametrize(
    "flag",
    [*sorted(_STEPS), "--optimizer=adam", "--solver=optimizer", "--solver=adam", "--solver=sgd"],
)
def test_flags_of_steps_say_where_they_went(cli, flag):
    outcome = cli("train", flag, "1")
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    page, example = re.findall(r"docs/\S+\.(?:md|py)", outcome.err)
    docs = Path(__file__).parents[2]
    assert flag.partition("=")[0] in outcome.err and "training by the steps" in outcome.err
    assert Path(example).name in (docs / page).read_text() and (docs / example).exists()


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

    monkeypatch.setattr("tfopt.cli.rows.Rows.evaluate", interrupt)
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
        ("sklearn", "scikit-learn tqdm", "convert model.npz m.json"),
        ("tqdm", "tqdm", "train"),
        ("matplotlib", "matplotlib", "train --plot loss.png"),
        ("skl2onnx", "skl2onnx", "train --model model.onnx"),
        ("distributed", "dask distributed", "train --workers 2"),
        ("dask", "dask distributed", "train --dask tcp://here:1"),
        ("fsspec", "fsspec", "train s3://bucket/day"),
        ("pyarrow", "pyarrow", "train data.csv --label y"),
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
for arguments in (["--help"], ["train", "--help"], ["cv", "--help"], ["info"]):
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
    assert result == {"schema": 2, **versions()}
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
