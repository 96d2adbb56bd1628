"""`tfopt train`: a linear model by mini-batches, as one would write it with the library.

(Or, with ``--solver sdca``, by dual coordinate ascent: `tfopt.cli.sdca`.)

`train_epochs` is the part worth reading: sparse gradients through ``Optimizer.apply_gradients``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfopt import SparseRows, Variable
from tfopt.cli.checkpoints import Checkpoints, RunState, run_origin
from tfopt.cli.data import find_classes, targets
from tfopt.cli.files import CommandError, check_outside, check_writable, is_folder, note, print_json
from tfopt.cli.metrics import ModelLoss
from tfopt.cli.models import write_model
from tfopt.cli.optimizers import make_optimizer, set_learning_rate
from tfopt.cli.readers import read_rows, rows_of
from tfopt.cli.report import (
    Progress,
    Result,
    note_bad_lines,
    note_model_size,
    print_text,
    save_plot,
    train_facts,
    warn_unconverged,
)
from tfopt.cli.rows import Executor, Rows
from tfopt.cli.settings import CheckpointFlags, SdcaSettings, Settings
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.stored_model import Columns, StoredModel
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer


@dataclasses.dataclass(frozen=True)
class Examples:
    """Rows to train on, in chunks: one, of all that is in memory, or parts of a file.

    Attributes
    ----------
    lengths : tuple of int
        The numbers of rows of the chunks.
    n_features : int
    read : callable
        Yields, for the numbers of some chunks, the features, a CSR matrix, the targets, 0 or 1 for
        the logistic loss, and perhaps what each row counts, with a mean of 1.
    """

    lengths: tuple[int, ...]
    n_features: int
    read: Callable[[Sequence[int]], Iterator[tuple[Any, np.ndarray, np.ndarray | None]]]

    def occurrences(self) -> np.ndarray:
        """Return how many rows have each feature."""
        counts = np.zeros(self.n_features, np.int64)
        for X, _, _ in self.read(range(len(self.lengths))):
            counts += np.bincount(X.indices, minlength=self.n_features)
        return counts


def train_epochs(
    examples: Examples,
    optimizer: RuleOptimizer,
    settings: Settings,
    run: RunState,
    after_step: Callable[[int], object],
) -> Iterator[None]:
    """Train a linear model; yield after each epoch.

    Parameters
    ----------
    examples : Examples
    optimizer : Optimizer
        One of `tfopt.optimizers`.
    settings : Settings
    run : RunState
        The state to start from, which is updated: weights, bias and position.
    after_step : callable
        Called with the number of rows after each batch.
    """
    lengths = examples.lengths
    loss = ModelLoss(settings.loss, {})
    # float64, as the reader gives the data: float32 takes as long on a9a and rounds more
    w, b = run.weights, run.bias
    weights, bias = Variable(w, name="weights"), Variable(b, name="bias")  # they share the memory
    shuffle = np.random.default_rng(settings.seed)
    if run.shuffle is not None:
        shuffle.bit_generator.state = run.shuffle
    # The gradient of l2/2·|w|² is l2·w, without zeros to leave out. So that gradients stay sparse,
    # each non-zero carries its share of its feature's penalty: right on average over batches.
    if settings.l2:
        share = settings.l2 * sum(lengths) / np.maximum(examples.occurrences(), 1)

    for epoch in range(run.epoch, settings.epochs):
        set_learning_rate(optimizer, settings, epoch)
        run.shuffle = shuffle.bit_generator.state
        chunks = [0] if len(lengths) == 1 else shuffle.permutation(len(lengths)).tolist()
        before = 0  # rows of the epoch in the chunks before
        while chunks and run.row >= before + lengths[chunks[0]]:  # of a run that is resumed
            before += shuffle.permutation(lengths[chunks.pop(0)]).size
        for features, y, weight in examples.read(chunks):
            rows = SparseRows(features)
            order = shuffle.permutation(y.size)
            for start in range(run.row - before, y.size, settings.batch_size):
                chosen = order[start : start + settings.batch_size]
                batch = rows.take(chosen)

                optimizer.catch_up(weights, batch.columns)  # with --sparse catch_up: perhaps behind
                margins = batch.dot(w) + b
                residuals = loss.derivative(margins, y[chosen]) / chosen.size
                if weight is not None:
                    residuals *= weight[chosen]
                # A feature that occurs in many rows of the batch is in the gradient as often;
                # the optimizer sums these entries before it takes its step.
                gradient = batch.gradient(residuals)
                if settings.l2:
                    gradient.values += share[batch.columns] * w[batch.columns] / chosen.size
                total = residuals.sum(keepdims=True)
                optimizer.apply_gradients([(gradient, weights), (total, bias)])
                run.row = before + start + chosen.size
                after_step(chosen.size)
            before += y.size
        optimizer.flush()
        run.epoch, run.row = epoch + 1, 0
        yield


def fit(parts: dict[str, Rows], settings: Settings, quiet: bool, files: CheckpointFlags) -> Result:
    """Train a model on the part "train", and score it on all parts.

    `files` says where to save the run, and whether to resume.
    """
    train = parts["train"]
    classes = None
    if settings.loss == "logistic":
        classes = find_classes(train.name, train.labels, "logistic", at_most=2)
    n_rows, n_features = train.n_rows, train.n_features
    note_model_size(n_features, quiet)
    parts = {part: rows.with_width(n_features) for part, rows in parts.items()}
    optimizer = make_optimizer(settings)
    run = RunState(np.zeros(n_features), np.zeros(1), {part: [] for part in parts})
    model = StoredModel(
        weights=run.weights,  # they share the memory
        bias=run.bias,
        loss=settings.loss,
        classes=classes,
        zero_based=train.zero_based,
        optimizer=optimizer.get_config(),
        settings=settings.as_dict(),
        columns=train.columns or Columns(),
    )
    scores: dict[str, dict[str, float | None]] = {}
    saved = None
    if files.wanted:
        origin = run_origin(settings, {part: _hash_of(rows) for part, rows in parts.items()})
        saved = Checkpoints(files.path, files.every, origin)
    if files.resume and saved and not saved.resume(run, optimizer) and not files.quiet:
        note(f"{files.path}: not there, so training begins anew")
    # an overflowing loss is refused below
    with (
        Progress(quiet, total=n_rows * settings.epochs, unit=" rows", unit_scale=True) as progress,
        np.errstate(all="ignore"),
        _learning_rate_errors(optimizer),
        _deferred_interrupts(saved is not None) as interrupts,
    ):
        progress.advance(run.epoch * n_rows + run.row)
        started = time.perf_counter() - run.seconds

        def after_step(size: int) -> None:
            progress.advance(size)
            if saved:
                run.seconds = time.perf_counter() - started
                saved.after_step(run, optimizer)
                if interrupts:
                    saved.save(run, optimizer)
                    raise KeyboardInterrupt(f"interrupted; --resume goes on from {files.path}")

        for _ in train_epochs(_examples(train, classes), optimizer, settings, run, after_step):
            run.seconds = time.perf_counter() - started
            for part, rows in parts.items():
                if rows.in_parts:  # what is read for its loss is scored, too
                    loss, scores[part] = rows.evaluate(model)
                else:
                    loss = rows.mean_loss(model)
                run.history[part].append(loss)
                if not np.isfinite(run.history[part][-1]):
                    raise CommandError(
                        f"the {part} loss is not finite after epoch {run.epoch}: lower "
                        f"{_describe_learning_rate(settings)} or scale the features"
                    )
            losses = {f"{part} loss": f"{v[-1]:.6g}" for part, v in run.history.items()}
            text = "  ".join(f"{name} {loss}" for name, loss in losses.items())
            progress.show(f"epoch {run.epoch:3}  {text}", **losses)
            if settings.patience is not None and _has_stalled(run, settings.patience):
                break
            started = time.perf_counter() - run.seconds
    if run.best is not None:
        run.weights[...], run.bias[...] = run.best["weights"], run.best["bias"]
        scores = {}  # those were of other weights
    return Result(
        model,
        run.history,
        {part: scores.get(part) or rows.evaluate(model)[1] for part, rows in parts.items()},
        parts,
        run.seconds,
        best_epoch=None if run.best is None else int(run.best["epoch"]),
    )


def _examples(train: Rows, classes: tuple[float, ...] | None) -> Examples:
    """Return rows with their targets, and with weights that have a mean of 1."""
    scale = train.n_rows / train.total_weight

    def read(order: Sequence[int]) -> Iterator[tuple[Any, np.ndarray, np.ndarray | None]]:
        for data in train.read(order):
            weights = None if data.weights is None else data.weights * scale
            yield data.features, targets(data, classes), weights

    return Examples(train.lengths, train.n_features, read)


def _hash_of(rows: Rows) -> str:
    """Return what checkpoints know data by: those of earlier versions had no parts."""
    return rows.fingerprint() if rows.in_parts else rows.blocks[0].fingerprint()


def _has_stalled(run: RunState, patience: int) -> bool:
    """Keep the weights if they are the best; return whether better ones are long ago."""
    loss = run.history["valid"][-1]
    if run.best is None or loss < run.best["loss"]:
        arrays = {name: array.copy() for name, array in run.variables.items()}
        run.best = {"epoch": run.epoch, "loss": loss, **arrays}
    return run.epoch - int(run.best["epoch"]) >= patience


@contextlib.contextmanager
def _deferred_interrupts(wanted: bool) -> Iterator[list[int]]:
    """Note an interrupt, for the end of a step, instead of raising it; a second one is raised."""
    caught: list[int] = []
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def remember(number: int, frame: object) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, before)


def _describe_learning_rate(settings: Settings) -> str:
    if settings.learning_rate is None:
        return "the learning rates of the schedule"
    return f"--learning-rate ({settings.learning_rate:g} here)"


@contextlib.contextmanager
def _learning_rate_errors(optimizer: RuleOptimizer) -> Iterator[None]:
    """Name the step at which a schedule reached a learning rate that the optimizer refuses."""
    try:
        yield
    except InvalidArgumentError as error:
        raise CommandError(f"at step {int(optimizer.iterations)}: {error}") from error


# ---- the command


def run(arguments: argparse.Namespace) -> int:
    """Run `tfopt train`; return the exit code."""
    settings, files = arguments.settings, arguments.checkpoints
    is_sdca, on_cluster = isinstance(settings, SdcaSettings), arguments.on_cluster
    paths = {"train": arguments.data, "valid": arguments.valid, "test": arguments.test}
    inputs = [path for path in paths.values() if path]
    _check_folders(arguments, inputs)
    saves = files.wanted and not on_cluster
    for path in filter(None, (arguments.model, arguments.plot, saves and files.path)):
        check_writable(path, *inputs)
    if files.wanted:
        check_outside(files.path, *inputs)
    # if they are missing, before training
    for needed, module in ((arguments.plot, "matplotlib"), (_is_onnx(arguments.model), "skl2onnx")):
        if needed:
            importlib.import_module(module)
    if is_sdca:
        result = _run_sdca(arguments, paths)
    else:
        parts = _read_parts(paths, arguments, Executor())
        result = fit(parts, settings, arguments.quiet, files)
    write_model(arguments.model, result.model)
    if files.wanted:
        _remove(files.path, on_cluster)  # the run is done
    for part, rows in result.parts.items():
        note_bad_lines(paths[part] or paths["train"], rows.n_skipped, arguments.quiet)
    if arguments.plot:
        kind = "sdca" if is_sdca else settings.optimizer
        save_plot(arguments.plot, f"{kind}, {settings.loss} loss", result)
    code = 0
    if result.certificate:
        farthest = result.certificate.farthest
        code = warn_unconverged(farthest.relative_gap, farthest.tol, settings.epochs)
    if arguments.json:
        print_json(train_facts(result, arguments))
    else:
        print_text(result, arguments.model)
    return code


def _is_onnx(path: str) -> bool:
    return path.lower().endswith(".onnx")


def _check_folders(arguments: argparse.Namespace, inputs: list[str]) -> None:
    folders = [path for path in inputs if is_folder(path)]
    if folders and arguments.solver != "sdca":
        raise CommandError(f"{folders[0]}: is a folder, which --solver sdca alone reads")
    if arguments.data in folders and arguments.blocks is not None:
        raise CommandError(
            f"{arguments.data}: is a folder, whose files are the blocks: leave out --blocks"
        )


def _read_parts(
    paths: dict[str, str | None], arguments: argparse.Namespace, executor: Any
) -> dict[str, Rows]:
    """Read the data: "train", perhaps "valid" and "test"."""
    parts: dict[str, Rows] = {}
    for part, path in paths.items():
        if path:
            like = parts["train"].layout if parts else None
            chunk_size = None if parts else arguments.chunk_size
            parts[part] = read_rows(path, arguments.reading, executor, like, chunk_size)
    every = arguments.holdout
    if every is not None:
        train = parts["train"]
        (data,) = train.blocks
        held = np.arange(train.n_rows) % every == every - 1
        if not held.any():
            raise CommandError(
                f"{train.name}: has {train.n_rows} rows, of which --holdout {every} takes none"
            )
        valid = dataclasses.replace(data.take(np.flatnonzero(held)), n_skipped=0)
        rest = data.take(np.flatnonzero(~held))
        parts = {"train": rows_of(rest), "valid": rows_of(valid)} | {
            part: rows for part, rows in parts.items() if part != "train"
        }
    return parts


def _run_sdca(arguments: argparse.Namespace, paths: dict[str, str | None]) -> Result:
    """Read data and fit a model by SDCA, in this process or on a cluster."""
    from tfopt.cli import sdca  # loaded if needed only

    executors: contextlib.AbstractContextManager[Executor] = contextlib.nullcontext(Executor())
    if arguments.on_cluster:
        from tfopt.cli import cluster  # loaded if needed only

        executors = cluster.connect(arguments.dask, arguments.workers, arguments.checkpoints)
    with executors as executor:
        parts = _read_parts(paths, arguments, executor)
        return sdca.fit(executor, parts, arguments.settings, arguments.quiet)


def _remove(path: str, of_cluster: bool) -> None:
    """Remove the checkpoints of a finished run."""
    if not of_cluster:
        Path(path).unlink(missing_ok=True)
        return
    from tfopt.cli import cluster  # loaded if needed only

    cluster.remove(path)
