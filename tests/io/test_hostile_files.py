"""Files made to do harm: each is refused by an error, soon, and in little memory."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfopt import checkpoints
from tfopt.errors import CheckpointError, FileFormatError, InvalidArgumentError
from tfopt.io import read_libsvm
from tfopt.linear_model import SDCAClassifier, load_model, save_model

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="memory as Linux counts it"
)
MIB = 2**20
HERE = Path(__file__).parents[1]


def taken(read: Callable[[], Any]) -> tuple[str, int]:
    """Read in a child; return the error, or what was read, and the memory it took, at most."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            Path("/proc/self/clear_refs").write_text("5")  # count the peak anew
            before = _peak()
            try:
                said = repr(read())
            except (CheckpointError, FileFormatError, InvalidArgumentError, OSError) as error:
                said = f"{type(error).__name__}: {error}"
            except BaseException as error:
                said = f"unnamed {type(error).__name__}: {error}"
            os.write(theirs, json.dumps([said[:500], _peak() - before]).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as file:
        said, memory = json.loads(file.read())
    os.waitpid(child, 0)
    return said, memory


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]


def refused(path: Path, load: Callable[[Any], Any], most: int, message: str = "") -> None:
    """See that a file is refused by an error that names it."""
    begun = time.monotonic()
    said, memory = taken(lambda: load(path))
    assert re.match(r"(CheckpointError|FileFormatError|\w*Error: \[Errno)", said), said
    assert path.name in said
    assert message in said
    assert "\n" not in said
    assert memory < most, f"{memory / MIB:.0f} MiB: {said}"
    assert time.monotonic() - begun < 60


# ---- archives


def header(shape: Any, descr: str = "<f8", version: bytes = b"\1\0") -> bytes:
    """Return the head of an array, whatever its values."""
    line = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(line))
    return b"\x93NUMPY" + version + length + line


def archive(path: Path, compression: int = zipfile.ZIP_STORED, **members: bytes) -> None:
    """Write an archive of a model, with other members instead of its own."""
    save_model(own := path.with_name("own.npz"), fitted())
    with zipfile.ZipFile(own) as old, zipfile.ZipFile(path, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, members.pop(name.removesuffix(".npy"), old.read(name)))
        for name, data in members.items():
            new.writestr(name, data)
    own.unlink()


def fitted() -> SDCAClassifier:
    X = np.arange(12.0).reshape(4, 3)
    return SDCAClassifier(max_iter=2, tol=1e9).fit(X, [0, 1, 0, 1])


def bomb(path: Path) -> None:
    """A gigabyte of zeros, in a megabyte."""
    piece = bytes(MIB)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in ("header.npy", "coefficients.npy", "intercepts.npy"):
            with new.open(name, "w") as member:
                member.write(header((2**25,)))
                for _ in range(256):
                    member.write(piece)


def crowded(path: Path) -> None:
    """Fifty thousand members."""
    with zipfile.ZipFile(path, "w") as new:
        for k in range(50_000):
            new.writestr(str(k), b"")


def overlapping(path: Path) -> None:
    """Members whose entries in the directory all name the same bytes."""
    archive(path)
    data = bytearray(path.read_bytes())
    at = [found.start() for found in re.finditer(b"PK\1\2", bytes(data))]
    first = data[at[0] + 42 : at[0] + 46]
    for start in at:
        data[start + 42 : start + 46] = first
    path.write_bytes(data)


def pickled(path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(path.with_name("harm")),)

    content = io.BytesIO()
    np.save(content, np.array([Harm()] * 3, object), allow_pickle=True)
    archive(path, coefficients=content.getvalue())


def is_long(path: Path) -> None:
    """A gigabyte of zeros, which takes no room on the disk."""
    archive(path)
    with path.open("r+b") as file:
        file.truncate(2**30)


ARCHIVES: dict[str, Callable[[Path], None]] = {
    "bomb": bomb,
    "crowded": crowded,
    "overlapping": overlapping,
    "pickle": pickled,
    "long": is_long,
    "a header of 4 GiB": lambda path: archive(
        path, coefficients=b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1) + b"{" * 100
    ),
    "2^60 numbers": lambda path: archive(path, coefficients=header((2**60,)) + bytes(24)),
    "2^33 numbers": lambda path: archive(path, coefficients=header((2**33,)) + bytes(24)),
    "2^28 numbers": lambda path: archive(path, coefficients=header((2**28,)) + bytes(24)),
    "more than 64 bits": lambda path: archive(
        path, coefficients=header((2**40, 2**40)) + bytes(24)
    ),
    "negative": lambda path: archive(path, coefficients=header((-3,)) + bytes(24)),
    "an array of 2^28 empty texts": lambda path: archive(path, header=header((2**28,), "<U0")),
    "a text of 2^30 characters": lambda path: archive(path, header=header((), f"<U{2**30}")),
    "objects": lambda path: archive(path, coefficients=header((3,), "|O") + bytes(24)),
    "a member above its folder": lambda path: archive(path, **{"../../harm": b"1"}),
    "empty": lambda path: path.write_bytes(b"PK\5\6" + bytes(18)) and None,
}


# ---- documents

DEEP = b"[" * 100_000
DOCUMENTS: dict[str, bytes] = {
    "deep": b'{"a":' * 50_000,
    "deep arrays": b'{"a":' + DEEP,
    "many arrays": b'{"a":[' + b"[]," * 3_000_000 + b"0]}",
    "many objects": b'{"a":[' + b'{"a":1},' * 2_000_000 + b"0]}",
    "many numbers": b'{"a":[' + b"257," * 3_000_000 + b"0]}",
    "many strings": b'{"a":[' + b'"ab",' * 3_000_000 + b'""]}',
    "a long number": b'{"a":' + b"9" * 10_000_000 + b"}",
    "a long exponent": b'{"a":1e' + b"9" * 1_000_000 + b"}",
    "not text": b"{" + bytes(range(256)) * 1000,
    "NUL": b'{"schema":"tfopt.linear_model\0"}',
    "half a character": b'{"schema":"\\ud800"}',
    "the same name twice": b'{"schema":"tfopt.linear_model","schema":1}',
}


@pytest.mark.parametrize("which", [*ARCHIVES, *DOCUMENTS])
def test_a_model(tmp_path: Path, which: str) -> None:
    path = tmp_path / "model.npz"
    if which in ARCHIVES:
        ARCHIVES[which](path)
    else:
        path.write_bytes(DOCUMENTS[which])
    size = min(path.stat().st_size, 100 * MIB)
    unparsed = which in ("many arrays", "many objects")  # they would take more than a number does
    refused(path, load_model, 4 * size + 64 * MIB if unparsed else 16 * size + 256 * MIB)
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@pytest.mark.parametrize("which", [*ARCHIVES, *DOCUMENTS])
def test_a_checkpoint(tmp_path: Path, which: str, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    if which in ARCHIVES:
        ARCHIVES[which](tmp_path / "x.npz")
        data = (tmp_path / "x.npz").read_bytes()[: 2 * MIB]
        (tmp_path / "x.npz").unlink()
    else:
        data = DOCUMENTS[which]
    path.write_bytes(data if suffix == "npz" else struct.pack("<Q", len(data)) + data)
    refused(path, checkpoints.load, 2 * path.stat().st_size + 64 * MIB)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


# ---- text


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**30)


DATA: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a line of a gigabyte of NUL": (sparse, "longer than"),
    "NUL": (lambda path: path.write_bytes(b"1 1:1\n1 \0001:1\n"), ":2:"),
    "an index of 2^63": (lambda path: path.write_bytes(b"1 9223372036854775808:1\n"), ":1:3"),
    "an index of 2^64 + 1": (lambda path: path.write_bytes(b"1 18446744073709551617:1\n"), ":1:3"),
    "an index of a million digits": (
        lambda path: path.write_bytes(b"1 " + b"9" * 10**6 + b":1\n"),
        ":1:3",
    ),
    "a negative index": (lambda path: path.write_bytes(b"1 -1:1\n"), ":1:3"),
    "a value of a million digits": (
        lambda path: path.write_bytes(b"1 1:1" + b"9" * 10**6 + b"\n"),
        ":1:3",
    ),
    "an exponent of 2^63": (lambda path: path.write_bytes(b"1 1:1e9223372036854775808\n"), ":1:3"),
    "not a number": (lambda path: path.write_bytes(b"1 1:nan\n"), ":1:3"),
    "a label that is infinite": (lambda path: path.write_bytes(b"1e999 1:1\n"), ":1:1"),
    "control characters": (lambda path: path.write_bytes(b"1 \x1b[2J\x07:1\n"), ":1:3"),
    "no UTF-8": (lambda path: path.write_bytes(b"1 \xff\xfe:1\n"), ":1:3"),
}


@pytest.mark.parametrize("which", DATA)
def test_a_data_file(tmp_path: Path, which: str) -> None:
    make, message = DATA[which]
    make(path := tmp_path / "data.svm")
    refused(path, read_libsvm, 256 * MIB, message)
    said, _ = taken(lambda: read_libsvm(path))
    assert said.isprintable()


@pytest.mark.parametrize("load", [load_model, checkpoints.load, read_libsvm])
@pytest.mark.parametrize("kind", ["loop", "nowhere", "folder"])
def test_a_link_that_leads_nowhere(tmp_path: Path, load: Any, kind: str) -> None:
    path, other = tmp_path / "x.npz", tmp_path / "y.npz"
    path.symlink_to({"loop": other, "nowhere": tmp_path / "none", "folder": tmp_path}[kind])
    other.symlink_to(path)
    refused(path, load, 64 * MIB)


def test_a_link_in_place_of_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write into a folder cannot make a save write through a link."""
    (kept := tmp_path / "kept").write_text("kept")
    names: list[str] = []
    drawn = iter(("00000000", "11111111"))
    monkeypatch.setattr("secrets.token_hex", lambda _: next(drawn))
    checkpoints.save(tmp_path / "x.npz", {"n": 1})
    monkeypatch.setattr("secrets.token_hex", lambda _: "22222222")
    create = os.open

    def planting(name: Any, flags: int, *rest: Any, **options: Any) -> int:
        if str(name).endswith("22222222.tmp") and not names:
            names.append(str(name))
            os.symlink(kept, name)
        return create(name, flags, *rest, **options)

    monkeypatch.setattr(os, "open", planting)
    with pytest.raises(FileExistsError, match=r"x\.npz"):
        checkpoints.save(tmp_path / "x.npz", {"n": 2})
    assert kept.read_text() == "kept"
    assert [Path(name).readlink() for name in names] == [kept]
    assert checkpoints.load(tmp_path / "x.npz") == {"n": 1}


# ---- the page of what is promised


def test_the_page_names_tests_that_exist() -> None:
    page = (HERE.parent / ".github/SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 30
    for file, function in named:
        text = next(HERE.rglob(file)).read_text()
        assert re.search(rf"^def {function}\(", text, re.MULTILINE), function
    rows = [line for line in page.splitlines() if line.startswith("| a")]
    assert len(rows) >= 7
    assert all(".py::" in row.split("|")[3] for row in rows)
