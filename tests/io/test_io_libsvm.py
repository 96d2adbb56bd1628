"""LIBSVM files: sources, compression, options, and errors of malformed ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfopt.errors import FileFormatError, InvalidArgumentError, InvalidTypeError
from tfopt.io import LibsvmData, iter_libsvm, read_libsvm
from tfopt.io import libsvm as module
from tfopt.io.libsvm_faults import find_fault
from tfopt.kernels.text.libsvm import parse
from tfopt.printable import printable

TEXT = b"1 2:0.5  # one\n\n-1 qid:7 1:1 3:2\n"


def _read(text: bytes, **options: Any) -> LibsvmData:
    return read_libsvm(io.BytesIO(text), **options)


def _same(one: LibsvmData, other: LibsvmData) -> None:
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(one.X, name), getattr(other.X, name))
    for name in ("y", "lines", "query_ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.X.shape, one.zero_based) == (other.X.shape, other.zero_based)


def test_what_a_file_holds() -> None:
    data = _read(TEXT)
    assert data.X.toarray().tolist() == [[0, 0.5, 0], [1, 0, 2]]
    assert data.X.has_sorted_indices
    assert data.y.tolist() == [1, -1]
    assert data.query_ids is not None
    assert data.query_ids.tolist() == [-1, 7]
    assert (data.lines.tolist(), data.n_skipped, data.zero_based) == ([1, 3], 0, False)


def test_zero_based_files() -> None:
    text = b"1 0:3 2:1\n"
    for zero_based in ("auto", True):
        data = _read(text, zero_based=zero_based)
        assert (data.X.toarray().tolist(), data.zero_based) == ([[3, 0, 1]], True)
    assert _read(b"1 2:1\n", zero_based=True).X.shape == (1, 3)
    with pytest.raises(FileFormatError, match="one-based file '0:3'"):
        _read(text, zero_based=False)
    assert _read(b"1\n0\n").X.shape == (2, 1)
    with pytest.raises(FileFormatError, match="the index is above 7 '8:1'"):
        _read(b"1 8:1", max_index=7)


def test_the_width_that_is_asked_for() -> None:
    assert _read(b"1 2:1", n_features=5).X.shape == (1, 5)
    assert _read(b"1 2:1", n_features=3, zero_based=True).X.shape == (1, 3)
    with pytest.raises(FileFormatError, match=r":1:3: the index is above 1 '2:1'"):
        _read(b"1 2:1", n_features=1, zero_based=False)
    assert _read(b"1 3:1", n_features=3).X.toarray().tolist() == [[0, 0, 1]]
    with pytest.raises(FileFormatError, match=r"<BytesIO>:3: the index is above 2"):
        _read(b"1 0:1\n2\n1 1:2 3:1\n1 3:1", n_features=3)


def test_single_precision() -> None:
    data = _read(b"1 1:0.1 2:1e-46 3:1e-40", dtype=np.float32)
    assert data.X.dtype == np.float32
    assert data.X.data.tolist() == np.array([0.1, 1e-46, 1e-40]).astype(np.float32).tolist()


# ---- sources


def _zstd_compress(text: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        zstd = pytest.importorskip("backports.zstd", reason="backports.zstd is not installed")
    compressed: bytes = zstd.compress(text)
    return compressed


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, bz2.compress, lzma.compress, _zstd_compress]
)
def test_files_are_decompressed_by_their_content(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.write_bytes(compress(TEXT))
    _same(read_libsvm(path), _read(TEXT))
    _same(read_libsvm(str(path)), _read(TEXT))
    with open(path, "rb") as file:
        _same(read_libsvm(file), _read(TEXT))
        assert not file.closed
    (path,) = tmp_path.iterdir()
    if compress is not bytes:
        values = np.random.default_rng(0).random(3000)
        whole = compress("".join(f"1 1:{value!r}\n" for value in values.tolist()).encode())
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(FileFormatError, match="the compressed data end too early"):
            read_libsvm(path)
        # in the checksum at the end: damage elsewhere may be text that is malformed
        path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 255]) + whole[-5:])
        with pytest.raises(FileFormatError, match="the compressed data are damaged") as info:
            read_libsvm(path)
        assert str(info.value).startswith(f"{path}:{info.value.line}: ")
        assert info.value.line is not None
        assert 1 <= info.value.line <= 3001


def test_a_python_without_bzip2_and_xz_reads_other_files(tmp_path: Path) -> None:
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        (tmp_path / compress.__module__.lstrip("_")).write_bytes(compress(TEXT))
    code = """
    import sys
    for name in ("_bz2", "_lzma"):
        sys.modules[name] = None
    from tfopt.io import read_libsvm
    print(read_libsvm("gzip").y.tolist())
    for name in ("bz2", "lzma"):
        try:
            read_libsvm(name)
        except ImportError as error:
            print(error.name)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split("\n") == ["[1.0, -1.0]", "_bz2", "_lzma", ""], done.stderr


def test_standard_input(tmp_path: Path) -> None:
    code = "from tfopt.io import read_libsvm; print(read_libsvm('-').y.tolist())"
    done = subprocess.run([sys.executable, "-c", code], input=TEXT, capture_output=True, check=True)
    assert done.stdout == b"[1.0, -1.0]\n"


def test_file_objects_that_can_only_read() -> None:
    class Reader:
        def __init__(self) -> None:
            self.inner = io.BytesIO(TEXT)

        def read(self, size: int) -> bytes:
            return self.inner.read(min(size, 5))

    _same(read_libsvm(Reader()), _read(TEXT))  # type: ignore[arg-type]


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    for source in (3, io.StringIO("1 1:1"), None, b"1 1:1"):
        with pytest.raises(InvalidTypeError, match="binary mode was expected"):
            read_libsvm(source)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        read_libsvm(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_libsvm(tmp_path)


# ---- blocks


def _many(n: int = 500) -> bytes:
    random = np.random.default_rng(0)
    lines = []
    for row in range(n):
        index = np.flatnonzero(random.uniform(size=30) < 0.3) + 1
        qid = f" qid:{row}" if row % 7 == 0 and row > n // 2 else ""
        entries = " ".join(f"{k}:{random.standard_normal():.6g}" for k in index)
        lines.append(f"{row % 2}{qid} {entries}" + "\n" * (1 + row % 3))
    return "".join(lines).encode()


@pytest.mark.parametrize("block_size", [1, 7, 100, 4096, 2**20])
def test_blocks_are_the_file(block_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = _many()
    whole = _read(text, n_features=30, zero_based=False)
    parts = list(iter_libsvm(io.BytesIO(text), n_features=30, block_size=block_size))
    assert np.concatenate([part.X.toarray() for part in parts]).tobytes() == (
        whole.X.toarray().tobytes()
    )
    for name in ("y", "lines"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole, name))
    assert all(part.y.size for part in parts)
    monkeypatch.setattr(module, "BLOCK", block_size)
    _same(_read(text, n_features=30), whole)
    _same(_read(text + b"1", n_features=30), _read(text + b"1\n", n_features=30))


def test_a_line_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 64)
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    assert _read(b"1" + b" " * 900 + b"\n1\n").y.tolist() == [1, 1]
    with pytest.raises(FileFormatError, match=r"<BytesIO>:1: the line is longer than 1000 bytes"):
        _read(b"1" + b" " * 5000 + b"\n1\n")


def test_an_empty_file_has_no_rows() -> None:
    for text in (b"", b"\n\n", b"# nothing"):
        data = _read(text)
        assert (data.X.shape, data.y.size, data.query_ids) == ((0, 1), 0, None)
        assert list(iter_libsvm(io.BytesIO(text), n_features=3)) == []


# ---- malformed lines

BAD = {
    "x 1:1": ("the label is not a number", "x", 1),
    "1_0 1:1": ("the label is not a number", "1_0", 1),
    "inf": ("the label is not finite", "inf", 1),
    "1:1 2:1": ("the line has no label", "1:1", 1),
    "1 2": ("not of the form index:value", "2", 3),
    "1  a:1": ("the index is not an integer", "a:1", 4),
    "1 -3:1": ("the index is negative", "-3:1", 3),
    "1 0:1": ("index 0 in a one-based file", "0:1", 3),
    "1 10:1": ("the index is above 9", "10:1", 3),
    "1 +10:1": ("the index is above 9", "+10:1", 3),
    "1 +:1": ("the index is not an integer", "+:1", 3),
    "1 ++2:1": ("the index is not an integer", "++2:1", 3),
    "1 2:1 2:3": ("the index is repeated", "2:3", 7),
    "1 2:1 1:3": ("the indices are not in ascending order", "1:3", 7),
    "1 2:": ("the value is not a number", "2:", 3),
    "1 2:nan # 3": ("the value is not finite", "2:nan", 3),
    "1 2:1e400": ("the value is not finite", "2:1e400", 3),
    "1 qid:x 2:1": ("the query id is not a whole number of at most 17 digits", "qid:x", 3),
    "1 2:" + "z" * 90: ("the value is not a number", "2:" + "z" * 38 + "...", 3),
    "\xff\xfe": ("the label is not a number", "\udcff\udcfe", 1),
}


@pytest.mark.parametrize("line", BAD)
def test_a_malformed_line_is_named(line: str, tmp_path: Path) -> None:
    message, token, column = BAD[line]
    path = tmp_path / "rows"
    path.write_bytes(b"1 1:1\n\n" + line.encode("latin-1") + b"\n1 2:1\n")
    options = {"n_features": 9, "zero_based": False}
    with pytest.raises(FileFormatError) as info:
        read_libsvm(path, **options)  # type: ignore[arg-type]
    error = info.value
    assert str(error) == f"{path}:3:{column}: {message} '{printable(token)}'"
    assert (error.line, error.column, error.token) == (3, column, token)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(FileFormatError, match=":3:"):
        list(iter_libsvm(path, n_features=9, block_size=8))
    left = read_libsvm(path, on_bad_line="skip", **options)  # type: ignore[arg-type]
    assert (left.lines.tolist(), left.n_skipped) == ([1, 4], 1)


@given(st.lists(st.sampled_from([*b"0123456789:.+-eEqid # \t_nax,\xff"]), max_size=30))
def test_the_kernel_and_the_messages_agree(characters: list[int]) -> None:
    """A line that the kernel refuses has a fault, and another one has none."""
    line = bytes(characters)
    fault = parse(line, False, 1, 99, False)[7]
    if fault is not None:
        find_fault(line, 1, 99)
    elif line.partition(b"#")[0].strip():
        with pytest.raises(AssertionError, match="nothing is wrong"):
            find_fault(line, 1, 99)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zero_based": 3}, "zero_based must be"),
        ({"zero_based": "yes"}, "zero_based must be"),
        ({"dtype": np.float16}, "dtype must be float32 or float64, not float16"),
        ({"on_bad_line": "warn"}, 'on_bad_line must be "error" or "skip"'),
        ({"n_features": 0}, "n_features must be from 1"),
        ({"max_index": -1}, "max_index must be from 0"),
        ({"n_features": 2**31}, "n_features must be from 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        _read(TEXT, **options)
    with pytest.raises(InvalidArgumentError, match="block_size must be at least 1"):
        list(iter_libsvm(io.BytesIO(TEXT), n_features=3, block_size=0))
    with pytest.raises(InvalidArgumentError, match="zero_based must be True or False"):
        list(iter_libsvm(io.BytesIO(TEXT), n_features=3, zero_based="auto"))  # type: ignore[arg-type]


LINE = st.builds(
    lambda label, entries, comment: (
        " ".join([str(label), *(f"{k}:{v}" for k, v in sorted(entries.items()))]) + comment
    ),
    st.integers(-1, 2),
    st.dictionaries(st.integers(0, 9), st.sampled_from(["0", "1.5", "-2e3"]), max_size=4),
    st.sampled_from(["", "  ", " # 3:1"]),
)


@given(st.lists(LINE | st.sampled_from(["", "# nothing"]), max_size=6), st.integers(0, 1))
def test_a_survey_is_what_is_read(lines: list[str], first: int) -> None:
    """Of all lines that can be read; it is silent where an index is 0 that may not be."""
    text = "\n".join(lines).encode()
    for zero_based in ("auto", not first):
        found = module.survey_libsvm(io.BytesIO(text), zero_based=zero_based)
        try:
            read = read_libsvm(io.BytesIO(text), zero_based=zero_based)
        except FileFormatError:
            assert found is None
            continue
        assert found is not None
        counts = np.unique(read.y, return_counts=True)
        assert found.labels == dict(zip(*counts, strict=True))
        weights = np.arange(read.y.size) / 2
        weighed = module.survey_libsvm(io.BytesIO(text), zero_based=zero_based, weights=weights)
        assert weighed is not None and weighed.labels == {
            label: weights[read.y == label].sum() for label in counts[0]
        }
        few = module.survey_libsvm(io.BytesIO(text), zero_based=zero_based, weights=weights[1:])
        assert (few is None) == (read.y.size > 0)
        assert found.n_rows == read.y.size
        assert found[2:] == (read.X.nnz, read.X.shape[1], read.zero_based)
        numbers = module.survey_libsvm(io.BytesIO(text), zero_based=zero_based, has_classes=False)
        assert numbers is not None and not numbers.labels
        assert (numbers.n_rows, *numbers[2:]) == (found.n_rows, *found[2:])
