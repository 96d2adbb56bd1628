"""Every bad input is refused in one line that names its place, and leaves no file behind."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import tracemalloc

import numpy as np
import pytest
from cli_samples import TINY

from tfopt.cli.files import CommandError
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.readers import MAX_INDEX, read_data
from tfopt.io import libsvm
from tfopt.printable import printable

GOOD = "1 1:2\n-1 2:3\n"
BAD_LINES = {
    "label": ("one 1:2", "the label is not a number 'one'"),
    "no label": ("1:2 2:3", "the line has no label '1:2'"),
    "several labels": ("1,2 1:2", "the label is not a number '1,2'"),
    "nan label": ("nan 1:2", "the label is not finite 'nan'"),
    "huge label": ("1e999 1:2", "the label is not finite '1e999'"),
    "value": ("1 1:2 2:x", "the value is not a number '2:x'"),
    "no value": ("1 1:", "the value is not a number '1:'"),
    "hexadecimal value": ("1 1:0x10", "the value is not a number '1:0x10'"),
    "grouped digits": ("1 1:1_000", "the value is not a number '1:1_000'"),
    "nan": ("1 1:2 2:NaN", "the value is not finite '2:NaN'"),
    "inf": ("1 1:-inf", "the value is not finite '1:-inf'"),
    "overflow": ("1 1:2 2:1e999", "the value is not finite '2:1e999'"),
    "two colons": ("1 1:2:3", "the value is not a number '1:2:3'"),
    "no colon": ("1 1:2 5", "not of the form index:value '5'"),
    "no index": ("1 :5", "the index is not an integer ':5'"),
    "index": ("1 a:5", "the index is not an integer 'a:5'"),
    "grouped index": ("1 1_0:5", "the index is not an integer '1_0:5'"),
    "fractional index": ("1 1.5:5", "the index is not an integer '1.5:5'"),
    "negative index": ("1 -3:5", "the index is negative '-3:5'"),
    "unsorted": ("1 2:1 1:1", "the indices are not in ascending order '1:1'"),
    "duplicate": ("1 2:1 2:1", "the index is repeated '2:1'"),
    "too large": (f"1 {MAX_INDEX + 1}:5", f"the index is above {MAX_INDEX} '{MAX_INDEX + 1}:5'"),
    "32 bits": ("1 9999999999:5", f"the index is above {MAX_INDEX} '9999999999:5'"),
    "5000 digits": (
        f"1 {'9' * 5000}:5",
        f"the index is above {MAX_INDEX} '{'9' * 40}...'",
    ),
    "qid without number": (
        "1 qid:x 1:2",
        "the query id is not a whole number of at most 17 digits 'qid:x'",
    ),
    "control character": ("1 1:2\x1b[31m", "the value is not a number '1:2\\x1b[31m'"),
    "null byte": ("1 1:2\0", "the value is not a number '1:2\\x00'"),
    "not text": ("\udc89PNG", "the label is not a number '\\udc89PNG'"),
}


def refused(outcome, folder, line):
    assert outcome.err == line + "\n"
    assert outcome.out == ""
    assert outcome.code == 1
    assert [p.name for p in folder.iterdir() if p.suffix in (".npz", ".tmp")] == []


@pytest.mark.parametrize(("text", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_names_the_line_and_the_token(cli, folder, text, message):
    content = f"# a comment\n{GOOD}\n{text}\n{GOOD}".encode("utf-8", "surrogateescape")
    (folder / "bad.svm").write_bytes(content)
    token = message[message.index("'") + 1 : -1].removesuffix("...")
    bad_line = printable(content.split(b"\n")[4].decode("utf-8", "surrogateescape"))
    *_, place = re.finditer(rf"(?<!\S){re.escape(token)}", bad_line)
    column = place.start() + 1
    refused(cli("train", "bad.svm"), folder, f"bad.svm:5:{column}: {message}")


def test_refuses_index_zero_in_a_one_based_file(cli, folder, tiny):
    (folder / "zero.svm").write_text("1 0:2\n-1 1:3\n")
    line = "zero.svm:1:3: index 0 in a one-based file '0:2'"
    refused(cli("train", "zero.svm", "--zero-based", "no"), folder, line)
    # the training data decide for the test data
    refused(cli("train", tiny, "--test", "zero.svm", "--quiet"), folder, line)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.svm", "missing.svm: No such file or directory"),
        ("tiny.svm/x", "tiny.svm/x: Not a directory"),
        ("x" * 300, f"{'x' * 300}: File name too long"),
        ("new\nline\udcff", "new\\nline\\udcff: No such file or directory"),
    ],
    ids=["missing", "below a file", "long name", "odd name"],
)
def test_refuses_what_cannot_be_opened(cli, folder, tiny, name, message):
    refused(cli("train", name), folder, message)
    refused(cli("train", tiny, "--test", name), folder, message)


def test_refuses_a_file_it_may_not_read(cli, folder, tiny, monkeypatch):
    # the tests may run as root, to whom every file is readable
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "tiny.svm")

    monkeypatch.setattr("tfopt.io.streams.open", refuse, raising=False)
    refused(cli("train", "tiny.svm"), folder, "tiny.svm: Permission denied")


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n", " \t\r\n"])
def test_refuses_a_file_without_rows(cli, folder, content):
    (folder / "empty.svm").write_text(content)
    refused(cli("train", "empty.svm"), folder, "empty.svm: no data rows")


COMPRESSORS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_refuses_truncated_and_damaged_compression(cli, folder, suffix):
    # numbers without a pattern, so that the compressed text is long enough to be cut
    values = np.random.default_rng(0).random(3000)
    text = "".join(f"{row % 2} 1:{value!r}\n" for row, value in enumerate(values.tolist()))
    whole = COMPRESSORS[suffix](text.encode())
    path = folder / f"data.{suffix}"

    path.write_bytes(whole[: len(whole) // 2])
    outcome = cli("train", path.name)
    line = int(outcome.err.split(":")[1])
    assert 1 <= line <= 3000
    refused(outcome, folder, f"data.{suffix}:{line}: the compressed data end too early")

    # in the checksum at the end: damage elsewhere may show up as text that makes no sense
    path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 255]) + whole[-5:])
    outcome = cli("train", path.name)
    line = int(outcome.err.split(":")[1])
    refused(outcome, folder, f"data.{suffix}:{line}: the compressed data are damaged")


@pytest.mark.parametrize("suffix", ["txt", *COMPRESSORS])
def test_compression_is_recognised_by_content(folder, suffix):
    content = COMPRESSORS.get(suffix, bytes)(TINY.encode())
    (folder / "data.odd").write_bytes(content)
    data = read_data("data.odd", ReadOptions())
    assert data.features.toarray()[:4].tolist() == [
        [1, 0, 0.5],
        [0, 1, 0],
        [0.8, 0, 0],
        [0, 0.9, 0.1],
    ]
    assert data.labels.tolist() == [1, -1, 1, -1] * 2
    assert data.lines.tolist() == list(range(1, 9))
    assert not data.zero_based


def test_accepts_all_that_the_format_allows(folder):
    (folder / "data.svm").write_bytes(
        b"# head\r\n\r\n  +1   qid:7 +1:1e-3\t2:-.5 # tail 3:9\r\n"
        b"-1.0 qid:7\r\n\n0 1:1E+2 003:4 #nan\n1 2:0"
    )
    data = read_data("data.svm", ReadOptions())
    assert data.features.toarray().tolist() == [[1e-3, -0.5, 0], [0, 0, 0], [100, 0, 4], [0, 0, 0]]
    assert data.labels.tolist() == [1, -1, 0, 1]
    assert data.lines.tolist() == [3, 4, 6, 7]


@pytest.mark.parametrize(
    ("text", "zero_based", "width", "result"),
    [
        ("1 1:2 3:4\n", "auto", 3, False),
        ("1 0:2 3:4\n", "auto", 4, True),
        ("1 1:2 3:4\n", True, 4, True),
        ("1 1:2 3:4\n", False, 3, False),
        ("1\n", "auto", 1, True),
    ],
)
def test_zero_based_rule(folder, text, zero_based, width, result):
    (folder / "data.svm").write_text(text)
    data = read_data("data.svm", ReadOptions(zero_based=zero_based))
    assert data.features.shape == (1, width)
    assert data.zero_based is result


def test_width_follows_the_model(folder):
    (folder / "data.svm").write_text("1 0:1 2:3\n")
    data = read_data("data.svm", ReadOptions())
    assert data.with_width(2).features.toarray().tolist() == [[1, 0]]
    assert data.with_width(4).features.toarray().tolist() == [[1, 0, 3, 0]]
    assert data.features.shape == (1, 3)


def test_logistic_loss_needs_two_classes(cli, folder):
    (folder / "data.svm").write_text("1 1:1\n")
    message = "logistic loss needs two classes or more, the labels have 1: 1"
    refused(cli("train", "data.svm"), folder, f"data.svm: {message}")


def test_refuses_a_test_label_that_training_has_not(cli, folder, tiny):
    (folder / "test.svm").write_text("1 1:1\n\n0 1:1\n")
    line = "test.svm:3: the label does not occur in the training data '0'"
    refused(cli("train", tiny, "--test", "test.svm", "--quiet"), folder, line)


def test_lines_that_are_too_long(cli, folder, monkeypatch):
    monkeypatch.setattr(libsvm, "MAX_LINE", 70_000)
    monkeypatch.setattr(libsvm, "BLOCK", 4096)
    (folder / "short.svm").write_bytes(b"1 1:1\n-1 1:2 #" + b" " * 69_900 + b"\n")
    assert read_data("short.svm", ReadOptions()).labels.tolist() == [1, -1]
    for more in (b"1:1 " * 17_501, b"#" * 70_001, b" " * 200_000):
        for end in (b"", b"\n1 1:1\n"):
            (folder / "long.svm").write_bytes(gzip.compress(b"1 1:1\n\n" + more + end))
            refused(
                cli("train", "long.svm"), folder, "long.svm:3: the line is longer than 70000 bytes"
            )


def test_a_line_without_end_takes_little_memory(folder):
    with gzip.open("long.gz", "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write(b"1:1 " * 2**18)
    tracemalloc.start()
    try:
        with pytest.raises(
            CommandError, match=r"^long.gz:1: the line is longer than 16777216 bytes"
        ):
            read_data("long.gz", ReadOptions())
        assert tracemalloc.get_traced_memory()[1] < 4 * libsvm.MAX_LINE
    finally:
        tracemalloc.stop()


def test_blank_lines_take_little_memory(folder):
    """There may be half a billion in half a megabyte."""
    blank = b"\n \r\n\t\n" * 100_000
    (folder / "blank.svm").write_bytes(blank + b"1 1:1\n" + blank + b"  -1 2:1")
    data = read_data("blank.svm", ReadOptions())
    assert data.lines.tolist() == [300_001, 600_002]
