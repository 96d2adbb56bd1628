"""`tfopt train`: read data, fit a model here or on a cluster, write it, and report."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
from pathlib import Path

from tfopt.cli.files import (
    CommandError,
    check_outside,
    check_writable,
    is_folder,
    note_bad_lines,
    print_json,
)
from tfopt.cli.models import write_model
from tfopt.cli.options import FILES, STREAMS
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.readers import read_rows
from tfopt.cli.report import (
    Result,
    note_left_out,
    print_text,
    save_plot,
    train_facts,
    warn_unconverged,
)
from tfopt.cli.rows import Place, Rows


def run(arguments: argparse.Namespace) -> int:
    """Run `tfopt train`; return the exit code."""
    settings, files = arguments.settings, arguments.checkpoints
    paths = {"train": arguments.data, "test": arguments.test}
    inputs = [path for path in paths.values() if path]
    _check_blocks(arguments)
    beside = arguments.reading.beside(arguments.data)
    if beside and is_folder(arguments.data):
        raise CommandError(f"{arguments.data}: is a folder, whose rows have no files of numbers")
    inputs += beside
    is_stream = settings.solver in STREAMS
    saved = files.path if is_stream and files.wanted else None
    for path in filter(None, (arguments.model, arguments.plot, saved)):
        check_writable(path, *inputs)
    if files.wanted:
        check_outside(files.path, *inputs)
    # if they are missing, before training
    for needed, module in ((arguments.plot, "matplotlib"), (_is_onnx(arguments.model), "skl2onnx")):
        if needed:
            importlib.import_module(module)
    if is_stream:
        result = _learn_stream(arguments)
    else:
        from tfopt.cli import sdca  # loaded if needed only

        with _place(arguments) as place:
            parts = _read_parts(paths, arguments, place)
            result = sdca.fit(place, parts, settings, arguments.quiet)
    if arguments.model:
        write_model(arguments.model, result.model)
    if files.wanted:  # the run is done
        _remove(files.path, is_stream)
    note_left_out(arguments.data, result.model.columns, arguments.quiet)
    for part, count in result.bad_lines.items():
        note_bad_lines(paths[part] or "", count, arguments.quiet)
    if arguments.plot:
        save_plot(arguments.plot, f"{settings.loss} loss", result)
    code = 0
    if result.certificate:
        farthest = result.certificate.farthest
        code = warn_unconverged(farthest.relative_gap, farthest.tol, settings.epochs)
    if arguments.json:
        print_json(train_facts(result, arguments))
    else:
        print_text(result, arguments.model)
    return code


def _learn_stream(arguments: argparse.Namespace) -> Result:
    """Learn the rows of a file as they are read, and score the model on the test data."""
    from tfopt.cli import stream  # loaded if needed only

    settings, files = arguments.settings, arguments.checkpoints
    result, layout = stream.fit(arguments.data, arguments.reading, settings, files)
    if not arguments.test:
        return result
    rows = read_rows(arguments.test, _reading_of_test(arguments), Place(), layout)
    loss, scores = rows.evaluate(result.model)
    return dataclasses.replace(
        result,
        losses={"test": loss},
        scores={"test": scores},
        rows={**result.rows, "test": rows.n_rows},
        bad_lines={**result.bad_lines, "test": rows.n_skipped},
    )


def _remove(path: str, is_file: bool) -> None:
    """Remove the checkpoints of a finished run."""
    if is_file:
        Path(path).unlink(missing_ok=True)
        return
    from tfopt.cli import cluster  # loaded if needed only

    cluster.remove(path)


def _is_onnx(path: str | None) -> bool:
    return path is not None and path.lower().endswith(".onnx")


def _check_blocks(arguments: argparse.Namespace) -> None:
    """Refuse blocks that do not go with a folder, or with a file."""
    name, blocks = arguments.data, arguments.blocks
    if blocks == FILES and not is_folder(name):
        raise CommandError(f"{name}: is not a folder of blocks: give --blocks N")
    if blocks not in (None, FILES) and arguments.on_cluster and is_folder(name):
        raise CommandError(
            f"{name}: is a folder, whose files are the blocks on a cluster: leave out --blocks"
        )


def _place(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[Place]:
    """Return what holds the rows and fits them: this process, or a cluster."""
    if not arguments.on_cluster:
        return contextlib.nullcontext(Place())
    from tfopt.cli import cluster  # loaded if needed only

    return cluster.connect(arguments.dask, arguments.workers, arguments.checkpoints)


def _reading_of_test(arguments: argparse.Namespace) -> ReadOptions:
    """Return how test data are read: numbers beside a LIBSVM file are of DATA alone."""
    reading: ReadOptions = arguments.reading
    if reading.format_of(arguments.data) == "libsvm":
        return dataclasses.replace(reading, weight=None, offset=None)
    return reading


def _read_parts(
    paths: dict[str, str | None], arguments: argparse.Namespace, place: Place
) -> dict[str, Rows]:
    """Read the data: "train", and perhaps "test"."""
    parts: dict[str, Rows] = {}
    for part, path in paths.items():
        if path:
            like = parts["train"].layout if parts else None
            reading = _reading_of_test(arguments) if parts else arguments.reading
            parts[part] = read_rows(path, reading, place, like)
    return parts
