"""Labelled rows in blocks: one of a file, or one for each file of a folder, wherever they lie."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from tfopt.cli.console import printable
from tfopt.cli.data import Base, Data, read_libsvm, targets
from tfopt.cli.errors import CommandError
from tfopt.cli.folders import File, files_in, is_folder
from tfopt.cli.losses import loss_of
from tfopt.cli.model import Model
from tfopt.cli.scores import score, score_of_sums, score_sums

__all__ = ["Here", "Place", "Rows", "read_rows"]


class Place(Protocol):
    """Where blocks lie. What it has of them is known to itself alone."""

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Return what a function makes of each row of the columns and of what is shared."""
        ...

    def common(self, value: Any) -> Any:
        """Return a large value, to be shared."""
        ...

    def held(self, function: Callable[..., Any], values: Sequence[Any], shared: Any) -> list[Any]:
        """Return what a function makes of each value and of what is shared: once, to stay there."""
        ...

    def told(self, values: list[Any]) -> list[Any]:
        """Return values as they are."""
        ...


class Here:
    """The memory of this process."""

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Return what a function makes of each row of the columns and of what is shared."""
        return [function(*each, *shared) for each in zip(*columns, strict=True)]

    def common(self, value: Any) -> Any:
        """Return the value."""
        return value

    def held(self, function: Callable[..., Any], values: Sequence[Any], shared: Any) -> list[Any]:
        """Return what a function makes of each value and of what is shared."""
        return [function(value, shared) for value in values]

    def told(self, values: list[Any]) -> list[Any]:
        """Return the values."""
        return values


@dataclasses.dataclass(frozen=True)
class Rows:
    """What a fit and its report need of labelled rows.

    Attributes
    ----------
    name : str
        In messages.
    place : Place
    blocks : list
        Of Data, as the place has them, all of `n_features` and `zero_based`.
    lengths : tuple of int
        How many rows each block has.
    n_features : int
    zero_based : bool
    mean : float
        Of the labels.
    of_folder : bool
        Whether the blocks are files; otherwise there is one.
    """

    name: str
    place: Place
    blocks: list[Any]
    lengths: tuple[int, ...]
    n_features: int
    zero_based: bool
    mean: float
    of_folder: bool

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return sum(self.lengths)

    def labels(self) -> np.ndarray:
        """Return the different labels, in ascending order."""
        return np.unique(np.concatenate(self._told(_labels)))

    def fingerprint(self) -> str:
        """Return what is different for other data, names and line numbers aside."""
        parts = self._told(Data.fingerprint)
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def examples(
        self, classes: tuple[float, ...] | None, bias: float | None
    ) -> tuple[list[Any], list[Any]]:
        """Return features, with one of the value `bias` unless it is None, and targets, in blocks.

        See `tfopt.cli.data.targets`.
        """
        pairs = self.place.map(_examples, self.blocks, shared=(classes, bias))
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def measured(self, model: Model) -> tuple[float, dict[str, float | None]]:
        """Return the mean loss of a model, and its scores; of a folder, without AUC."""
        if not self.of_folder:
            loss, margins, truth = _judged(self.blocks[0], model)
            return loss.mean(margins, truth), score(model.loss, loss.predict(margins), truth)
        parts = self._told(_sums, self.place.common(model), self.mean)
        sums = {name: sum(part[name] for part in parts) for name in parts[0]}
        return sums["loss"] / self.n_rows, score_of_sums(sums)

    def _told(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        return self.place.told(self.place.map(function, self.blocks, shared=shared))


def read_rows(path: str, zero_based: Base, place: Place) -> Rows:
    """Read a file into the memory of this process, or have the files of a folder read at a place.

    Raises
    ------
    CommandError
        If there is no file, or one of them is refused.
    """
    if is_folder(path):
        return _rows_of_folder(path, zero_based, place)
    return _rows_of_file(path, zero_based)


def _rows_of_file(path: str, zero_based: Base) -> Rows:
    data = read_libsvm(path, zero_based)
    return Rows(
        name=data.name,
        place=Here(),
        blocks=[data],
        lengths=data.labels.shape,
        n_features=data.features.shape[1],
        zero_based=data.zero_based,
        mean=float(data.labels.mean()),
        of_folder=False,
    )


def _rows_of_folder(path: str, zero_based: Base, place: Place) -> Rows:
    read = place.held(_read, files_in(path), zero_based)
    facts: list[_Facts] = place.told(place.map(_facts, read))
    base = _base(facts) if zero_based == "auto" else zero_based
    n_features = max(each.n_features + base - each.zero_based for each in facts)
    lengths = tuple(each.n_rows for each in facts)
    return Rows(
        name=printable(path),
        place=place,
        blocks=place.map(_made_alike, read, facts, shared=(base, n_features)),
        lengths=lengths,
        n_features=n_features,
        zero_based=base,
        mean=sum(each.label_sum for each in facts) / sum(lengths),
        of_folder=True,
    )


# ---- what is done where the rows lie


@dataclasses.dataclass(frozen=True)
class _Facts:
    """What is to be known of a file before anything else is done."""

    n_rows: int
    n_features: int
    n_values: int
    zero_based: bool
    label_sum: float
    fingerprint: str


def _read(file: File, zero_based: Base) -> tuple[Data, _Facts]:
    data = read_libsvm(file.path, zero_based, file.name)
    n_rows, n_features = data.features.shape
    return data, _Facts(
        n_rows=n_rows,
        n_features=n_features,
        n_values=data.features.nnz,
        zero_based=data.zero_based,
        label_sum=float(data.labels.sum()),
        fingerprint=data.fingerprint(),
    )


def _facts(read: tuple[Data, _Facts]) -> _Facts:
    return read[1]


def _base(facts: list[_Facts]) -> bool:
    """Return whether features are counted from 0; a file without any has no say."""
    saying = [each.zero_based for each in facts if each.n_values]
    return any(saying) or not saying


def _made_alike(
    read: tuple[Data, _Facts], before: _Facts, zero_based: bool, n_features: int
) -> Data:
    """Return a file's rows as those of all files are, unless it is not what it was.

    On a cluster it is read again if a worker dies.
    """
    data, facts = read
    if facts != before:
        raise CommandError(f"{data.name}: has changed since it was read first")
    return data.counted_from(zero_based).with_width(n_features)


def _labels(data: Data) -> np.ndarray:
    return np.unique(data.labels)


def _examples(
    data: Data, classes: tuple[float, ...] | None, bias: float | None
) -> tuple[Any, np.ndarray]:
    X = data.features
    if bias is not None:
        X = sparse.hstack([X, np.full((X.shape[0], 1), bias)], format="csr")
    return X, targets(data, classes)


def _judged(data: Data, model: Model) -> tuple[Any, np.ndarray, np.ndarray]:
    truth = targets(data, model.classes)
    return loss_of(model.loss, model.classes), model.margins(data), truth


def _sums(data: Data, model: Model, mean: float) -> dict[str, float]:
    """Return sums of losses, and of what scores are made of."""
    loss, margins, truth = _judged(data, model)
    of_losses = {"loss": loss.mean(margins, truth) * len(truth)}
    return of_losses | score_sums(model.loss, loss.predict(margins), truth, mean)
