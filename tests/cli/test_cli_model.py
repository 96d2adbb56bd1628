"""The model file: whole or absent, and nothing but a model is taken for one."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from common.interrupted import interrupting, raising_at

from tfopt.cli.files import CommandError, write_atomically
from tfopt.cli.models import write_model
from tfopt.errors import FileFormatError
from tfopt.linear_model.model_file import read_model
from tfopt.linear_model.model_json import write_json
from tfopt.linear_model.model_npz import encode_npz
from tfopt.linear_model.stored_model import StoredModel


@pytest.fixture
def model():
    return StoredModel(
        weights=np.array([1.5, -0.25, 0.0]),
        bias=np.array([0.5]),
        loss="logistic",
        classes=(-1.0, 1.0),
        zero_based=False,
        optimizer={"name": "Adamax", "learning_rate": 0.05},
        settings={"seed": 0},
    )


MEMBERS = "it must hold the arrays header, coefficients and intercepts"
OLD_MODELS = Path(__file__).parent.parent / "data" / "old_models"


def arrays_of(path):
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def complaint(path):
    with pytest.raises((FileFormatError, OSError)) as caught:
        read_model(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_round_trip(folder, model):
    write_model("a.npz", model)
    write_model("b.npz", model)
    again = read_model("a.npz")
    for name in ("weights", "bias"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name), strict=True)
    for name in ("loss", "classes", "zero_based", "optimizer", "settings", "tfopt_version"):
        assert getattr(again, name) == getattr(model, name)
    assert (folder / "a.npz").read_bytes() == (folder / "b.npz").read_bytes()


@interrupting
def test_ctrl_c_stays_what_it_is(model):
    """zipfile, which is left with a file open, says something else."""
    event = 0
    while raising_at(event := event + 1, lambda: encode_npz(model)):
        pass
    assert event > 100


def test_round_trip_of_several_classes(folder, model):
    classes = (-1.0, 2.0, 5.0)
    several = dataclasses.replace(
        model, weights=np.arange(12.0).reshape(3, 4), bias=np.arange(3.0), classes=classes
    )
    write_model("a.npz", several)
    again = read_model("a.npz")
    for name in ("weights", "bias"):
        np.testing.assert_array_equal(getattr(again, name), getattr(several, name), strict=True)
    assert again.classes == classes and again.n_features == 4


def test_it_holds_the_document_and_its_numbers_as_arrays(folder, model):
    write_model("a.npz", model)
    arrays = arrays_of("a.npz")
    document = json.loads(str(arrays.pop("header")))
    numbers = {name: array.tolist() for name, array in arrays.items()}
    assert document | numbers == json.loads(write_json(model))
    assert numbers == {"coefficients": [[1.5, -0.25, 0.0]], "intercepts": [0.5]}
    changes = {"classes": [1.0, 2.0, 3.0]}
    np.savez("b.npz", **arrays, header=np.array(json.dumps(document | changes)))
    assert complaint("b.npz").endswith(
        '"coefficients" must have the shape (3, 3) for these "classes" and "feature_names", not '
        "(1, 3)"
    )


def test_no_clock_time_is_stored(folder, model):
    write_model("a.npz", model)
    with zipfile.ZipFile("a.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


CHANGES = {
    "schema": ("numpy", 'the document must be an object with "schema": "tfopt.linear_model"'),
    "version": (4, "the document's version is 4, and 1 to 3 are known"),
    "tfopt": (1, ""),
    "loss": ("cosine", ""),
    "loss_parameters": ({"gamma": 1.0}, '"loss_parameters" does not fit "loss": "logistic"'),
    "link": ("log", '"link" does not fit "loss": "logistic"'),
    "classes": ([1.0, -1.0], '"classes" must be in ascending order'),
    "label_type": ("int", '"classes" must be of the "label_type" "int"'),
    "feature_names": (
        ["a"],
        '"coefficients" must have the shape (1, 1) for these "classes" and "feature_names", not '
        "(1, 3)",
    ),
    "label_name": (1, ""),
    "zero_based": (0, ""),
    "optimizer": ("Adamax", ""),
    "settings": (None, ""),
}


def test_refuses_a_changed_header(folder, model):
    write_model("a.npz", model)
    arrays = arrays_of("a.npz")
    header = json.loads(str(arrays["header"]))
    assert list(header) == list(CHANGES)
    for key, (value, message) in CHANGES.items():
        missing = f'the document has no valid "{key}"'
        np.savez("b.npz", **arrays | {"header": np.array(json.dumps(header | {key: value}))})
        reason = message or missing
        assert complaint("b.npz") == f"b.npz: is not a model that this tfopt reads: {reason}"
        lacking = {name: value for name, value in header.items() if name != key}
        np.savez("b.npz", **arrays | {"header": np.array(json.dumps(lacking))})
        reason = {"schema": message, "version": message.replace("4,", "None,")}.get(key, missing)
        assert complaint("b.npz") == f"b.npz: is not a model that this tfopt reads: {reason}"


OLD_CHANGES = {
    "format": ("numpy", "its header does not say 'tfopt linear model', of version 1 to 3"),
    "version": (4, "its header does not say 'tfopt linear model', of version 1 to 3"),
    "loss": ("cosine", 'the document has no valid "loss"'),
    "classes": ([1.0, -1.0], '"classes" must be in ascending order'),
    "n_features": (4, "weights has shape (3,), for 4 features"),
    "zero_based": (0, 'the document has no valid "zero_based"'),
    "optimizer": ("Adamax", 'the document has no valid "optimizer"'),
    "settings": (None, 'the document has no valid "settings"'),
    "tfopt": (1, 'the document has no valid "tfopt"'),
}


def test_refuses_a_changed_header_of_an_old_file(folder):
    arrays = arrays_of(OLD_MODELS / "floats.npz")
    header = json.loads(str(arrays["header"]))
    assert list(header) == list(OLD_CHANGES)
    for key, (value, message) in OLD_CHANGES.items():
        np.savez("b.npz", **arrays | {"header": np.array(json.dumps(header | {key: value}))})
        assert complaint("b.npz") == f"b.npz: is not a model that this tfopt reads: {message}"
        lacking = {name: value for name, value in header.items() if name != key}
        np.savez("b.npz", **arrays | {"header": np.array(json.dumps(lacking))})
        assert complaint("b.npz").startswith("b.npz: is not a model that this tfopt reads: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coefficients": None}, MEMBERS),
        ({"more": np.zeros(1)}, MEMBERS),
        ({"coefficients": np.zeros(3)}, '"coefficients" must have the shape (1, 3)'),
        ({"coefficients": np.zeros((3, 1))}, '"coefficients" must have the shape (1, 1)'),
        ({"coefficients": np.zeros(())}, '"coefficients" must have the shape (1, 0)'),
        ({"coefficients": np.zeros((1, 3), "f4")}, '"coefficients" has dtype float32 instead'),
        ({"coefficients": np.zeros((1, 3), ">f8")}, '"coefficients" has dtype >f8 instead'),
        (
            {"coefficients": np.array([[1, np.nan, 1]])},
            '"coefficients" has values that are not fin',
        ),
        ({"intercepts": np.zeros(())}, '"intercepts" must have the shape (1,)'),
        ({"intercepts": np.array([np.inf])}, '"intercepts" has values that are not finite'),
        ({"coefficients": np.array([{}] * 3)}, "its arrays are damaged"),
        ({"header": np.array([1])}, "its header is not a string"),
        ({"header": np.array("{")}, "the text is not JSON: "),
        ({"header": np.array("[" * 100_000)}, "the text is not JSON: "),
        ({"header": np.array("[" + "[],{}," * 600_000 + "0]")}, "the text has too many objects"),
        ({"header": np.array("[]")}, 'the document must be an object with "schema": '),
    ],
)
def test_refuses_changed_arrays(folder, model, changes, message):
    write_model("a.npz", model)
    arrays = {k: v for k, v in (arrays_of("a.npz") | changes).items() if v is not None}
    np.savez("a.npz", **arrays)
    reason = complaint("a.npz").removeprefix("a.npz: is not a model that this tfopt reads: ")
    assert reason.startswith(message)


def test_refuses_compression_since_sizes_could_then_explode(folder, model):
    write_model("a.npz", model)
    np.savez_compressed("b.npz", **arrays_of("a.npz"))
    assert complaint("b.npz").endswith(": its arrays are compressed")


def test_refuses_a_shape_that_the_file_cannot_hold(folder, model):
    write_model("a.npz", model)
    content = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (2**50,)}
    np.lib.format.write_array_header_1_0(content, shape)
    with zipfile.ZipFile("a.npz") as old, zipfile.ZipFile("b.npz", "w") as new:
        for name in old.namelist():
            new.writestr(name, content.getvalue() if "coef" in name else old.read(name))
    assert complaint("b.npz").endswith(": its arrays are damaged")


#: What NumPy's reader of headers, or Python's of literals, stumble over in as many ways.
HEADERS = {
    "a huge shape": b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % 2**70,
    "an open bracket": b"{'descr': '<f8', (((",
    "an open string": b"{'descr': '<f8', '''",
    "an odd end": b"{'descr': '<f8' \\",
    "an indent": b"  {\n   1\n 2",
    "a list as key": b"{[]: 1}",
    "a set": b"{'descr', 'shape'}",
    "a dictionary as key": b"{{}: 1, 'shape': 2}",
    "a number": b"7",
    "an expression": b"__import__('os').abort()",
    "a NUL": b"{'descr': '<f8\0', 'fortran_order': False, 'shape': (1, 3), }",
    "of Python 2": b"{'descr': '<f8', 'fortran_order': False, 'shape': (3L,), }",
    "an escape that is none": rb"{'descr': '\<f8', 'fortran_order': False, 'shape': (1, 3), }",
    "a dtype's old name": b"{'descr': '|a8', 'fortran_order': False, 'shape': (1, 3), }",
    "a key of two": b"{'descr': '<f8', 'shape': (1, 3), 'shape': (1, 3), }",
    "a dtype too large": b"{'descr': '|V%d', 'fortran_order': False, 'shape': (1, 3), }" % 2**40,
    "deep": b"(" * 300 + b")" * 300,
    "deeper": b"-" * 9000 + b"1",
}


def with_weights(start: bytes) -> None:
    """Write "b.npz", the model of "a.npz" but for how its weights begin."""
    head = b"\x93NUMPY\1\0" + struct.pack("<H", len(start)) + start + bytes(24)
    with zipfile.ZipFile("a.npz") as old, zipfile.ZipFile("b.npz", "w") as new:
        for name in old.namelist():
            new.writestr(name, head if "coef" in name else old.read(name))


@pytest.mark.parametrize(
    "line",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 3)}",
        b"{'shape': (1, 3), 'descr': '<f8', 'fortran_order': True, }  \n",
    ],
)
def test_the_order_and_space_of_an_array_s_header_do_not_count(folder, model, line):
    write_model("a.npz", model)
    with_weights(line)
    np.testing.assert_array_equal(read_model("b.npz").weights, np.zeros(3))


@pytest.mark.parametrize("which", HEADERS)
def test_refuses_headers_that_are_no_array_s(cli, folder, model, tiny, which):
    write_model("a.npz", model)
    with_weights(HEADERS[which] + b"\n")
    outcome = cli("predict", "b.npz", tiny)
    assert outcome.err == "b.npz: is not a model that this tfopt reads: its arrays are damaged\n"
    assert (outcome.code, outcome.out) == (1, "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an .npz file, or cut short"),
        (b"1 1:1\n", "not an .npz file, or cut short"),
        (b"\x93NUMPY\x01\x00", "not an .npz file, or cut short"),
    ],
)
def test_refuses_other_files(folder, content, message):
    (folder / "x").write_bytes(content)
    assert complaint("x") == f"x: is not a model that this tfopt reads: {message}"
    for name, reason in (("missing", "No such file or directory"), (".", "Is a directory")):
        with pytest.raises(OSError, match=reason):
            read_model(name)


def test_refuses_every_truncation_and_never_loads_other_numbers(folder, model):
    write_model("a.npz", model)
    whole = (folder / "a.npz").read_bytes()
    for length in range(len(whole)):
        (folder / "b.npz").write_bytes(whole[:length])
        complaint("b.npz")
    refused = 0
    for place in range(len(whole)):
        (folder / "b.npz").write_bytes(
            whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
        )
        try:
            again = read_model("b.npz")
        except (FileFormatError, OSError):
            refused += 1
        else:  # a byte that means nothing, like the clock time
            assert again.weights.tolist() == model.weights.tolist()
            assert (again.bias, again.classes) == (model.bias, model.classes)
    assert refused > len(whole) // 2


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(folder, model, monkeypatch, failing):
    write_model("a.npz", model)
    old = (folder / "a.npz").read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(CommandError, match=r"^a.npz: No space left on device$"):
        write_atomically("a.npz", [b"new"])
    assert [path.name for path in folder.iterdir()] == ["a.npz"]
    assert (folder / "a.npz").read_bytes() == old


def test_an_interrupt_leaves_nothing(folder):
    def chunks():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically("a.npz", chunks())
    assert list(folder.iterdir()) == []


def test_links_are_followed_and_permissions_are_ordinary(folder):
    (folder / "link").symlink_to("file")
    write_atomically("link", [b"x"])
    assert (folder / "link").is_symlink()
    assert (folder / "file").read_bytes() == b"x"
    (folder / "plain").write_bytes(b"")
    assert (folder / "file").stat().st_mode == (folder / "plain").stat().st_mode


def test_a_pipe_is_written_and_not_replaced(folder):
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically("pipe", [b"some", b" text"])
        assert os.read(reader, 100) == b"some text"
    finally:
        os.close(reader)
    assert (folder / "pipe").is_fifo()
