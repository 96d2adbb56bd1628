"""Checkpoint files: what they hold, what is refused, and what is left when writing fails."""

from __future__ import annotations

import copy
import os
import resource
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfopt import Variable, checkpoints
from tfopt.errors import CheckpointError, InvalidArgumentError, InvalidTypeError
from tfopt.optimizers import Adam

SUFFIXES = ("npz", "safetensors")
each = pytest.mark.parametrize("suffix", SUFFIXES)
DTYPES = [
    *("bool", "f2", "f4", "f8", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"),
    *(">f4", ">i8", ">c16"),
]


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, (np.ndarray, np.generic)):
        expected = np.asarray(expected)
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype.newbyteorder("=")
        assert found.shape == expected.shape
        native = np.ascontiguousarray(expected.astype(found.dtype))
        assert found.tobytes() == native.tobytes()
        assert found.flags.writeable
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_equal(found[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_equal(a, b)
    else:
        assert type(found) is type(expected)
        assert found == expected or found != found


arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
leaves = st.one_of(
    arrays,
    arrays.map(np.transpose),
    arrays.map(lambda array: array[..., ::2] if array.ndim else array),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
)
names = st.text(max_size=4)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)


@each
@given(tree=trees)
def test_what_is_saved_comes_back(tmp_path_factory: Any, suffix: str, tree: Any) -> None:
    path = tmp_path_factory.mktemp("saved") / f"x.{suffix}"
    checkpoints.save(path, tree)
    assert_equal(checkpoints.load(path), tree)


@each
def test_bfloat16_and_variables(tmp_path: Path, suffix: str) -> None:
    array = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    checkpoints.save(tmp_path / f"x.{suffix}", {"a": array, "b": Variable(array[:, ::2])})
    assert_equal(checkpoints.load(tmp_path / f"x.{suffix}"), {"a": array, "b": array[:, ::2]})


TREE = {"w": np.arange(3.0), "slots": {"m": np.float32([[1], [2]])}, "header": np.ones(1, "?")}


def test_numpy_reads_it(tmp_path: Path) -> None:
    checkpoints.save(tmp_path / "x.npz", TREE)
    with np.load(tmp_path / "x.npz") as archive:
        assert archive.files == ["header", "w", "slots/m", "header#2"]
        np.testing.assert_array_equal(archive["slots/m"], TREE["slots"]["m"])
        assert b"tfopt checkpoint" in archive["header"].item()
    assert zipfile.ZipFile(tmp_path / "x.npz").testzip() is None


def test_safetensors_reads_it(tmp_path: Path) -> None:
    more = {**TREE, "z": np.complex128([1 + 2j]), "bf": np.ones(2, ml_dtypes.bfloat16)}
    checkpoints.save(tmp_path / "x.safetensors", more)
    with safetensors.safe_open(tmp_path / "x.safetensors", "numpy") as file:
        assert set(file.keys()) == {"w", "slots/m", "header#2", "z", "bf", "checksums"}
        np.testing.assert_array_equal(file.get_tensor("w"), TREE["w"])
        np.testing.assert_array_equal(file.get_tensor("z"), [[1, 2]])
        assert "tfopt checkpoint" in file.metadata()["tfopt"]


@given(names=st.lists(st.text("ab", min_size=1, max_size=9), max_size=3, unique=True))
def test_arrays_begin_where_words_do(tmp_path_factory: Any, names: list[str]) -> None:
    """As safetensors wants it, so that they can be mapped."""
    path = tmp_path_factory.mktemp("saved") / "x.safetensors"
    checkpoints.save(path, {name: np.ones(2) for name in names})
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    assert length % 8 == 0


@given(array=hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, min_side=0)))
def test_arrays_in_archives_begin_as_numpys_do(tmp_path_factory: Any, array: np.ndarray) -> None:
    """At multiples of 64 bytes of their members."""
    path = tmp_path_factory.mktemp("saved") / "x.npz"
    checkpoints.save(path, {"a": array})
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            (length,) = struct.unpack("<8xH", archive.read(name)[:10])
            assert (10 + length) % 64 == 0


def test_the_end_of_an_archive(tmp_path: Path) -> None:
    """Which readers look at in part: there is one disk, and one directory on it."""
    checkpoints.save(path := tmp_path / "x.npz", TREE)
    data = path.read_bytes()
    end64 = data.rindex(b"PK\6\6")
    assert struct.unpack("<IQI", data[-38:-22])[0::2] == (0, 1)
    assert struct.unpack("<IQI", data[-38:-22])[1] == end64
    size, _, _, disk, first, here, members, length, start = struct.unpack(
        "<QHHIIQQQQ", data[end64 + 4 : end64 + 56]
    )
    assert (size, disk, first, here, members) == (44, 0, 0, 4, 4)
    assert start + length == end64
    assert data[start : start + 4] == b"PK\1\2"


def test_how_many_parts_a_header_may_have() -> None:
    most = checkpoints.framing.MOST_THINGS
    for size in (0, 31, 32, 3200, 320_000):
        assert not checkpoints.framing.has_too_many(b"[" * (most + size // 32), size)
        assert checkpoints.framing.has_too_many(b"," * (most + size // 32 + 1), size)


@each
def test_equal_trees_are_equal_files(tmp_path: Path, suffix: str) -> None:
    for name in "ab":
        checkpoints.save(tmp_path / f"{name}.{suffix}", TREE)
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


# ---- damaged files


@each
def test_every_flipped_bit_is_refused(tmp_path: Path, suffix: str) -> None:
    path, w = tmp_path / f"x.{suffix}", np.ones(3, np.float32)
    checkpoints.save(path, {"w": w, "n": 1})
    data = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for bit in range(8 * len(data)):
            file.seek(bit >> 3)
            file.write(bytes([data[bit >> 3] ^ 1 << (bit & 7)]))
            with pytest.raises(CheckpointError):
                checkpoints.load(path)
            file.seek(bit >> 3)
            file.write(data[bit >> 3 : (bit >> 3) + 1])
    assert_equal(checkpoints.load(path), {"w": w, "n": 1})


@each
def test_every_shorter_or_longer_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    checkpoints.save(path, TREE)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            checkpoints.load(path)
    for more in (b"\0", data):
        path.write_bytes(data + more)
        with pytest.raises(CheckpointError, match="bytes instead of"):
            checkpoints.load(path)


def foreign_npz(path: Path) -> None:
    np.savez(path, w=np.ones(3))


def foreign_safetensors(path: Path) -> None:
    safetensors.numpy.save_file({"w": np.ones(3)}, path)


def pickled(path: Path) -> None:
    np.savez(path, header=np.array([{}], object), allow_pickle=True)


def long_header(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 1 << 62) + b"{}")


def deep_header(path: Path) -> None:
    text = b"[" * 100_000
    path.write_bytes(struct.pack("<Q", len(text)) + text)


FOREIGN: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "numpy's": ("npz", foreign_npz),
    "pickle": ("npz", pickled),
    "text": ("npz", lambda path: path.write_text("no checkpoint" * 99)),
    "text as safetensors": ("safetensors", lambda path: path.write_text("no checkpoint" * 99)),
    "safetensors": ("safetensors", foreign_safetensors),
    "long header": ("safetensors", long_header),
    "deep header": ("safetensors", deep_header),
    "a list as header": ("safetensors", lambda path: path.write_bytes(b"\2" + bytes(7) + b"[]")),
}


@pytest.mark.parametrize("which", FOREIGN)
def test_foreign_files_are_refused(tmp_path: Path, which: str) -> None:
    suffix, write = FOREIGN[which]
    write(path := tmp_path / f"x.{suffix}")
    with pytest.raises(CheckpointError, match=rf"x\.{suffix}: (the file|not a|the header)"):
        checkpoints.load(path)


@each
@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ('"arrays":[["w","float64",[4611686018427387904]]]', "bytes instead of"),
        ('"arrays":[["w","float64",[-3]]]', "damaged"),
        ('"arrays":[["w","object",[3]]]', "damaged"),
        ('"arrays":[["w","float64",3]]', "damaged"),
        ('"arrays":[["w","float64"]]', "damaged"),
        ('"arrays":7', "damaged"),
        ('"arrays":[["\\ud800","float64",[3]]]', "damaged"),
        ('"arrays":[["w",["float64"],[3]]]', "damaged"),
        ('"arrays":[["w","float64",[0,4611686018427387904,4611686018427387904]]]', "damaged"),
        ('"arrays":[["w","float64",[0,2305843009213693952]]]', "damaged"),
        (f'"arrays":[["w","float64",{[0] * 65}]]', "damaged"),
        ('"tree":{"w":{"__array__":"v"}}', "the array 'v' is missing"),
        ('"tree":{"w":{"__array__":["w"]}}', r"the array \['w'\] is missing"),
    ],
)
def test_declared_sizes_take_no_memory(
    tmp_path: Path, monkeypatch: Any, suffix: str, declared: str, message: str
) -> None:
    path = tmp_path / f"x.{suffix}"
    made = {
        "arrays": b'"arrays":[["w","float64",[3]]]',
        "tree": b'"tree":{"w":{"__array__":"w"}}',
    }[declared.split('"')[1]]
    dumped = checkpoints.files.dumps
    with monkeypatch.context() as patch:  # as a forger would who knows the format
        patch.setattr(
            checkpoints.files, "dumps", lambda tree: dumped(tree).replace(made, declared.encode())
        )
        checkpoints.save(path, {"w": np.ones(3)})
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=message):
            checkpoints.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# ---- optimizers


def trained() -> tuple[Adam, dict[str, np.ndarray]]:
    optimizer, variables = Adam(0.1), {"w": np.ones((4, 2)), "b": np.zeros(2, np.float32)}
    for _ in range(2):
        optimizer.apply_gradients([(np.ones_like(v), v) for v in variables.values()])
    return optimizer, variables


@each
def test_an_optimizer_in_a_file(tmp_path: Path, suffix: str) -> None:
    optimizer, variables = trained()
    optimizer.save(tmp_path / f"x.{suffix}", variables)
    other = Adam()
    other.load(tmp_path / f"x.{suffix}", variables)
    assert_equal(other.state_dict(variables), optimizer.state_dict(variables) | {
        "config": {**optimizer.state_dict(variables)["config"], "name": other.name}
    })  # fmt: skip


@each
@pytest.mark.parametrize("other", [{"w": np.ones((4, 3)), "b": np.zeros(2, "f4")}, {"w": 0}, {}])
def test_a_file_of_another_model_changes_nothing(tmp_path: Path, suffix: str, other: Any) -> None:
    optimizer, variables = trained()
    optimizer.save(path := tmp_path / f"x.{suffix}", variables)
    theirs = {name: np.array(value) for name, value in other.items()}
    second = Adam(0.5)
    before = copy.deepcopy(second.state_dict(theirs))
    with pytest.raises(InvalidArgumentError, match="variable"):
        second.load(path, theirs)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="bytes instead of"):
        second.load(path, variables)
    assert_equal(second.state_dict(theirs), before)


@each
def test_no_second_copy_in_memory(tmp_path: Path, suffix: str) -> None:
    optimizer, w = Adam(), np.zeros(1 << 22, np.float32)
    optimizer.apply_gradients([(np.ones_like(w), w)])
    state = 2 * w.nbytes
    tracemalloc.start()
    try:
        optimizer.save(tmp_path / f"x.{suffix}", [w])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.reset_peak()
        Adam().load(tmp_path / f"x.{suffix}", [w])
        assert tracemalloc.get_traced_memory()[1] < state + (1 << 20)
    finally:
        tracemalloc.stop()


# ---- what cannot be written


def test_names_and_things_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"end in \.npz or \.safetensors, not 'x\.pt'"):
        checkpoints.save(tmp_path / "x.pt", {})
    with pytest.raises(InvalidArgumentError, match="end in"):
        checkpoints.load(tmp_path / "x")
    for tree, message in [
        ({"a": object()}, "cannot hold a, of type object: it holds arrays, "),
        ({1: 2}, "keys of a checkpoint must be strings"),
        ({"a": {"__array__": "b"}}, "keys of a must be strings"),
        ({"a": np.array(["x"])}, "cannot hold a of dtype <U1"),
        ({"a": np.array([None])}, "cannot hold a of dtype object"),
    ]:
        with pytest.raises(InvalidTypeError, match=message):
            checkpoints.save(tmp_path / "x.npz", tree)
    for name in ("a" * 40_000, "\ud800"):
        with pytest.raises(InvalidArgumentError, match="cannot be the name"):
            checkpoints.save(tmp_path / "x.npz", {name: np.ones(2)})
    with pytest.raises(FileNotFoundError, match=r"x\.npz"):
        checkpoints.load(tmp_path / "x.npz")
    assert list(tmp_path.iterdir()) == []


@each
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    checkpoints.save(path, TREE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match=f"File too large.*x.{suffix}"):
            checkpoints.save(path, {"w": np.ones(1 << 20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_equal(checkpoints.load(path), TREE)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none/x\.npz"):
        checkpoints.save(tmp_path / "none" / "x.npz", TREE)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: Any, failing: str) -> None:
    def refuse(*arguments: Any) -> None:
        raise PermissionError(13, "Permission denied")

    checkpoints.save(path := tmp_path / "x.npz", TREE)
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, refuse)
        with pytest.raises(PermissionError, match=r"Permission denied: .*x\.npz"):
            checkpoints.save(path, {})
    assert_equal(checkpoints.load(path), TREE)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_without_permission(tmp_path: Path) -> None:
    checkpoints.save(path := tmp_path / "x.npz", TREE)
    child = os.fork()
    if child == 0:  # as nobody, for root may write anywhere
        code = 1
        try:
            tmp_path.chmod(0o555)
            if os.geteuid() == 0:
                os.setuid(65534)
            checkpoints.save(path, {})
        except PermissionError as error:
            code = 0 if error.filename == os.fspath(path) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tmp_path.chmod(0o755)
    assert_equal(checkpoints.load(path), TREE)


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    child = os.fork()
    if child == 0:
        os.fsync = lambda descriptor: os._exit(0)  # as if killed there
        checkpoints.save(path, TREE)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".tfopt-")
    checkpoints.save(tmp_path / "y.npz", TREE)
    assert left.exists()  # another file's
    checkpoints.save(path, TREE)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.npz", "y.npz"]


def test_a_symbolic_link_stays(tmp_path: Path) -> None:
    (tmp_path / "link.npz").symlink_to(tmp_path / "x.npz")
    checkpoints.save(tmp_path / "link.npz", TREE)
    assert (tmp_path / "link.npz").is_symlink()
    assert_equal(checkpoints.load(tmp_path / "x.npz"), TREE)


# ---- texts that would take more memory than their files


def forged(path: Path, tree: bytes, arrays: bytes = b"[]") -> None:
    """Write a file with such a header, as somebody would who knows the format."""
    text = b'{"format":"tfopt checkpoint","version":1,"arrays":%b,"tree":%b}' % (arrays, tree)
    make, _ = checkpoints.files._FORMATS[path.suffix]
    framing = make(text, [])
    path.write_bytes(framing.opening() + framing.closing([]))


#: Each takes many times its bytes once it is parsed.
SWOLLEN = {
    "lists": b"[[],%b[]]" % (b"[],{}," * 300_000),
    "dictionaries": b'[{},%b{"a":1}]' % (b'{"a":1},' * 450_000),
    "numbers": b"[0%b]" % (b",257" * 1_600_000),
}


@each
@pytest.mark.parametrize("kind", SWOLLEN)
def test_a_swollen_header_is_refused_unparsed(
    tmp_path: Path, monkeypatch: Any, suffix: str, kind: str
) -> None:
    forged(path := tmp_path / f"x.{suffix}", SWOLLEN[kind])
    monkeypatch.setattr("json.loads", None)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=r"x\.\w+: the header has too many parts"):
            checkpoints.load(path)
        assert tracemalloc.get_traced_memory()[1] < 2 * path.stat().st_size
    finally:
        tracemalloc.stop()


@each
def test_entries_without_room_for_them_in_the_file_are_refused(tmp_path: Path, suffix: str) -> None:
    forged(
        path := tmp_path / f"x.{suffix}", b"0", b'[["","bool",[0]]%b]' % (b',["","bool",[0]]' * 999)
    )
    with pytest.raises(CheckpointError, match="bytes instead of more than"):
        checkpoints.load(path)


@each
@pytest.mark.parametrize("deep", [b"[" * 900 + b"]" * 900, b'{"a":' * 101 + b"[]" + b"}" * 101])
def test_a_deep_header_is_refused(tmp_path: Path, suffix: str, deep: bytes) -> None:
    forged(path := tmp_path / f"x.{suffix}", deep)
    with pytest.raises(CheckpointError, match="nested more than 100 deep"):
        checkpoints.load(path)


@each
def test_what_load_would_refuse_is_not_saved(tmp_path: Path, suffix: str, monkeypatch: Any) -> None:
    path = tmp_path / f"x.{suffix}"
    deep: Any = np.ones(3)
    for _ in range(100):
        deep = [deep]
    checkpoints.save(path, deep)
    assert_equal(checkpoints.load(path), deep)
    circle: list[Any] = []
    circle.append({"again": circle})
    monkeypatch.setattr(checkpoints.framing, "MOST_THINGS", 900)
    for tree, message in [
        ([deep], r"nested more than 100 deep: 0/0/0"),
        (circle, r"nested more than 100 deep: 0/again/0"),
        ({"n": 1 << 14_000}, "cannot hold n, an integer of 14001 bits"),
        ([0.5] * 1200, "too many numbers, strings, lists and dictionaries besides the arrays"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            checkpoints.save(path, tree)
    assert_equal(checkpoints.load(path), deep)
    checkpoints.save(path, [(1 << 14_000) - 1, -1 << 13_999, np.full(1000, 0.5)])
    checkpoints.save(path, [0.5] * 800)  # which takes as many parts
    assert checkpoints.load(path) == [0.5] * 800


def test_a_masked_array_is_not_saved_without_its_mask(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    with pytest.raises(InvalidTypeError, match=r"a/b .*mask"):
        checkpoints.save(path, {"a": {"b": masked}})
    assert not path.exists()
    checkpoints.save(path, {"data": masked.data, "mask": masked.mask})
    assert checkpoints.load(path)["mask"].tolist() == [False, True]


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_an_empty_array_may_have_the_longest_axis(tmp_path: Path, ending: str) -> None:
    path, empty = tmp_path / f"a.{ending}", np.zeros((0, 2**63 - 1), np.int8)
    checkpoints.save(path, {"a": empty})
    assert checkpoints.load(path)["a"].shape == empty.shape
