"""Power failures during saves: every possible state of the disk holds the old file or the new one.

A process saves one version after another, and each operation on a file is recorded. After each of
them the power may have failed: of what was not synced, all, nothing, any pages and names or all but
the end of the last write are on the disk, and the reader must find the last version that was saved,
or the one being saved.
"""

from __future__ import annotations

import ctypes
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from pathlib import Path

import numpy as np

from campaign.check import Case, Check
from campaign.crashes import WAYS, image, write
from campaign.recording import Operation, build, recorded
from tfopt import checkpoints
from tfopt.linear_model import SDCAClassifier, load_model, save_model

VERSIONS = 4
#: Elements of an array of a version: less and more than pages.
_SIZES = (40, 9_000, 300, 2_000)
_MEMORY = Path("/dev/shm")


def _array(version: int) -> np.ndarray:
    return np.full(_SIZES[version % len(_SIZES)], float(version))


def _tree(version: int) -> dict[str, object]:
    return {"version": version, "w": _array(version)}


def _of(tree: dict[str, object]) -> int:
    version = int(tree["version"])  # type: ignore[call-overload]
    assert np.array_equal(tree["w"], _array(version))  # type: ignore[arg-type]
    return version


def _save_file(path: Path, version: int) -> None:
    checkpoints.save(path, _tree(version))


def _load_file(path: Path) -> int:
    return _of(checkpoints.load(path)) if path.exists() else 0


@cache
def _model() -> SDCAClassifier:
    return SDCAClassifier().fit([[0.0], [1.0]], [0, 1])


def _save_model(path: Path, version: int) -> None:
    _model().coef_[0] = version
    save_model(path, _model())


def _load_model(path: Path) -> int:
    return int(load_model(path).coef_[0, 0]) if path.exists() else 0


def _save_folder(path: Path, version: int) -> None:
    """As a fit on a cluster does: blocks under new names, then what lists them."""
    from tfopt.checkpoints.folder import MANIFEST, Folder

    folder, names = Folder(str(path)), [f"epoch-{version}.block-{k}.npz" for k in range(2)]
    folder.make()
    for name in names:
        folder.save(name, _tree(version))
    folder.save(MANIFEST, {"version": version, "w": _array(version), "names": names})
    folder.keep_only({*names}, "epoch-")


def _load_folder(path: Path) -> int:
    from tfopt.checkpoints.folder import MANIFEST, Folder

    folder = Folder(str(path))
    if not folder.has(MANIFEST):
        return 0
    manifest = folder.load(MANIFEST)
    version = _of(manifest)
    assert all(_of(folder.load(name)) == version for name in manifest["names"])
    return version


class Kind:
    """Something that is saved: its name, how it is saved, and which version is read."""

    def __init__(
        self, name: str, save: Callable[[Path, int], None], load: Callable[[Path], int]
    ) -> None:
        self.name, self.save, self.load = name, save, load


KINDS = {
    kind.name: kind
    for kind in (
        Kind("x.npz", _save_file, _load_file),
        Kind("x.safetensors", _save_file, _load_file),
        Kind("model.json", _save_model, _load_model),
        Kind("model.npz", _save_model, _load_model),
        Kind("deep/journal", _save_folder, _load_folder),
    )
}


def saving(folder: Path, name: str) -> None:
    """Save all versions; say when each has been saved."""
    say = ctypes.CDLL(None).tfopt_say
    for version in range(1, VERSIONS + 1):
        KINDS[name].save(folder / name, version)
        say(ctypes.c_long(version))


def record(library: Path, name: str, program: str | None = None) -> list[Operation]:
    """Return what is done to files when all versions of a kind are saved."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "disk")
        folder.mkdir()
        command = ["-m", "campaign.power_losses"] if program is None else ["-c", program]
        done = recorded(
            library, [sys.executable, *command, str(folder), name], folder, Path(temporary, "log")
        )
        # nothing was missed: what was recorded makes what is there
        there = {
            path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
            for path in folder.rglob("*")
        }
    assert image(done, "all", np.random.default_rng(0)) == there, "the record is incomplete"
    assert {each.kind for each in done} >= {*"cwr!"}
    return done


def check(name: str, done: list[Operation], way: str, random: np.random.Generator) -> None:
    """Read what is left after a power failure, and save the next version."""
    saved = max((each.at for each in done if each.kind == "!"), default=0)
    kind, memory = KINDS[name], _MEMORY if _MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(dir=memory))
    try:
        write(image(done, way, random), folder)
        last = done[-1].kind if done else "nothing"
        found = kind.load(folder / name)
        assert found in (saved, saved + 1), (
            f"{name}: version {found} instead of {saved}, {way} of it, after {len(done)}, {last}"
        )
        if random.random() < 0.05:  # it can be saved again, and what was left is removed
            kind.save(folder / name, 9)
            assert kind.load(folder / name) == 9
            left = [path.name for path in folder.glob("*") if path.name != Path(name).parts[0]]
            assert not left, left
    finally:
        shutil.rmtree(folder)


def _images(name: str, done: list[Operation], prefix: int, key: tuple[int, ...]) -> int:
    """Try the images after some operations, random ones several times."""
    random = np.random.default_rng((*key, prefix))
    ways = [*WAYS, "any", "any", "torn"]
    for way in ways:
        check(name, done[:prefix], way, random)
    return len(ways)


def _cases(seed: int) -> Iterator[Case]:
    """Record all kinds, and return the cases, in any order."""
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        records = {} if library is None else {name: record(library, name) for name in KINDS}
    pairs = [(name, prefix) for name, done in records.items() for prefix in range(len(done) + 1)]
    np.random.default_rng(seed).shuffle(pairs)
    for number in count() if pairs else ():
        for name, prefix in pairs:
            yield partial(_images, name, records[name], prefix, (seed, number))


CHECK = Check(_cases, "A power failure after any operation of a save: any state of the disk")

if __name__ == "__main__":
    saving(Path(sys.argv[1]), sys.argv[2])
