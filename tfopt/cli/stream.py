"""`tfopt train --solver ftrl`: learn rows as they are read, in one pass over files or several."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfopt import checkpoints, linear_model
from tfopt.cli.data import Data, Layout, class_weights, find_classes, labels_of, targets
from tfopt.cli.files import CommandError, File, file_of, kept_input, note, sources_of
from tfopt.cli.hashed_text import reading_of
from tfopt.cli.options import CLASSIFICATION
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.readers import read_blocks, survey
from tfopt.cli.report import Progress, Result, note_model_size
from tfopt.cli.settings import CheckpointFlags, Settings, check_origin, run_origin
from tfopt.errors import InvalidArgumentError
from tfopt.io.streams import open_binary
from tfopt.io.text_options import HashedText
from tfopt.linear_model.stored_model import Columns, StoredModel
from tfopt.linear_model.validation import class_factors

_FORMAT = "tfopt stream"


@dataclasses.dataclass
class _Position:
    """Where a run is: passes that are done, blocks of the next one; what was told on the way."""

    passes: int = 0
    blocks: int = 0
    rows: int = 0
    seconds: float = 0.0
    n_skipped: int = 0
    progress: list[list[float]] = dataclasses.field(default_factory=list)


def fit(
    path: str, reading: ReadOptions, settings: Settings, files: CheckpointFlags
) -> tuple[Result, Layout]:
    """Learn from rows in their order; return the model, and how features are counted.

    The files of a folder are read in the order of their names. `files` says where to save the run,
    and whether to resume it.
    """
    with kept_input(sources_of(path)) as sources:
        name = sources[0].name if len(sources) == 1 else path
        return _fit(name, sources, reading, settings, files, reading.beside(path))


def _fit(
    name: str,
    sources: list[File],
    reading: ReadOptions,
    settings: Settings,
    files: CheckpointFlags,
    beside: list[str],
) -> tuple[Result, Layout]:
    known = survey(sources, reading)
    classes = None
    if settings.loss in CLASSIFICATION:
        classes = find_classes(name, np.array([*known.labels]), settings.loss)
    n_features = settings.hash or known.n_features
    note_model_size(n_features, files.quiet)
    model = _estimator(settings, known.total_weight)
    if settings.class_weight is not None:
        factors = class_weights(
            name, settings.class_weight, labels_of(classes, known.layout.columns)
        )
        if factors == "balanced":  # which an estimator does not know of a stream
            sums = np.array([known.labels[label] for label in sorted(known.labels)])
            each = class_factors(factors, np.arange(sums.size), sums)
            assert each is not None
            factors = {float(k): factor for k, factor in enumerate(each.tolist())}
        model.class_weight = factors
    at, text = _Position(), None
    if reading.is_hashed(sources[0].path):
        text = reading_of(sources[0], reading)
    inputs = [*sources, *map(file_of, beside)]
    saved = _Saved(inputs, settings, files, text) if files.wanted else None
    if files.resume and saved and not saved.resume(model, at) and not files.quiet:
        note(f"{files.path}: not there, so training begins anew")
    layout = known.layout
    total = known.n_rows * settings.epochs
    with (
        Progress(files.quiet, total=total, unit=" rows", unit_scale=True) as progress,
        _deferred_interrupts(saved is not None) as interrupts,
    ):
        progress.advance(at.rows)
        for data in _blocks(sources, reading, settings, layout, at):
            started = time.perf_counter()
            text = getattr(data.features, "reading", text)
            learned = data.labels.size
            _learn(model, data.features_for(n_features, settings.hash is not None), data, classes)
            at.seconds += time.perf_counter() - started
            at.rows += learned
            progress.advance(learned)
            _tell(progress, model, at, known.n_rows)
            if saved and (interrupts or (files.every and at.blocks % files.every == 0)):
                saved.save(model, at)
            if interrupts:
                raise KeyboardInterrupt(f"interrupted; --resume goes on from {files.path}")
    coef = np.atleast_2d(model.coef_)
    stored = StoredModel(
        weights=np.array(coef if len(coef) > 1 else coef[0]),
        bias=np.array(model.intercept_, ndmin=1),
        loss=settings.loss,
        classes=classes,
        zero_based=layout.zero_based,
        optimizer={"name": "FTRL"},
        settings=settings.as_dict(),
        columns=layout.columns or Columns(),
        reading=text,
    )
    rows, skipped = {"train": known.n_rows}, {"train": at.n_skipped // settings.epochs}
    result = Result(stored, {}, {}, rows, skipped, at.seconds, progress=at.progress)
    return result, layout


def _estimator(settings: Settings, total_weight: float) -> Any:
    """Return an estimator, whose penalties are for the sum of the losses of all rows it sees."""
    seen = total_weight * settings.epochs
    options: dict[str, Any] = {"l1": settings.l1 * seen, "l2": settings.l2 * seen / 2}
    options |= {name: getattr(settings, name) for name in ("learning_rate", "beta", "batch_size")}
    is_classifier = settings.loss in CLASSIFICATION
    kind = linear_model.FTRLClassifier if is_classifier else linear_model.FTRLRegressor
    return kind(settings.loss, **options, **settings.loss_options)


def _blocks(
    sources: list[File],
    reading: ReadOptions,
    settings: Settings,
    layout: Layout,
    at: _Position,
) -> Iterator[Data]:
    """Yield the blocks of all passes from a position on, which is moved after each."""
    while at.passes < settings.epochs:
        each = (read_blocks(file, reading, layout) for file in sources)
        for number, data in enumerate(itertools.chain.from_iterable(each)):
            if number < at.blocks:  # it was learned before the run was stopped
                continue
            at.blocks, at.n_skipped = number + 1, at.n_skipped + data.n_skipped
            if data.labels.size:
                yield data
        at.passes, at.blocks = at.passes + 1, 0


def _learn(model: Any, X: Any, data: Data, classes: tuple[float, ...] | None) -> None:
    more: dict[str, Any] = {"sample_weight": data.weights, "offset": data.offset}
    if classes is not None:
        more["classes"] = np.arange(len(classes), dtype=np.float64)
    try:
        model.partial_fit(X, targets(data, classes), **more)
    except ValueError as error:
        raise CommandError(f"{data.name}: {error}") from error


def _tell(progress: Progress, model: Any, at: _Position, n_rows: int) -> None:
    """Show the progressive loss; note it after 1, 2, 4, 8, ... blocks, and at the end of a pass."""
    loss = model.progressive_loss_
    ends = at.rows % n_rows == 0
    line = ""
    if ends or not at.blocks & (at.blocks - 1):
        at.progress.append([at.rows, loss])
        line = f"rows {at.rows:>12,}  loss {loss:.6g}"
    progress.show(line, loss=f"{loss:.4g}")


class _Saved:
    """The file that a run is saved in, and taken up from."""

    def __init__(
        self,
        inputs: list[File],
        settings: Settings,
        files: CheckpointFlags,
        text: HashedText | None,
    ) -> None:
        self._path = files.path
        content = hashlib.sha256()
        for file in inputs:
            with file.opened() as source, open_binary(source) as stream:
                while piece := stream.read(2**20):
                    content.update(piece)
        if text is not None:
            settings = settings.replaced(**dataclasses.asdict(text))
        self._origin = run_origin(settings, {"train": content.hexdigest()})

    def save(self, model: Any, at: _Position) -> None:
        """Save the run, between two blocks."""
        state = {
            name: value
            for name, value in model.__getstate__().items()
            if isinstance(value, (np.ndarray, int, float))
        }
        tree = {"format": _FORMAT, **self._origin, "model": state, "at": dataclasses.asdict(at)}
        checkpoints.save(self._path, tree)

    def resume(self, model: Any, at: _Position) -> bool:
        """Restore a saved run; return whether there is one."""
        try:
            tree = checkpoints.load(self._path)
        except FileNotFoundError:
            return False
        except InvalidArgumentError as error:
            raise CommandError(str(error)) from error
        if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
            raise CommandError(f"{self._path}: is not a checkpoint of tfopt train")
        check_origin(self._path, tree, self._origin)
        model.__setstate__(model.__getstate__() | tree["model"])
        for name, value in tree["at"].items():
            setattr(at, name, value)
        return True


@contextlib.contextmanager
def _deferred_interrupts(wanted: bool) -> Iterator[list[int]]:
    """Note an interrupt, for the end of a block, instead of raising it; a second one is raised."""
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
