"""Malformed LIBSVM text: the same rows as a plain Python parser reads, or a named error."""

from __future__ import annotations

import io
import re
import resource

import numpy as np

from campaign.calls import one
from campaign.check import drawn
from tfopt import threads
from tfopt.errors import FileFormatError
from tfopt.io import read_libsvm

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LIMIT = 2**31 - 1
Row = tuple[float, list[tuple[int, float]]]


def _number(text: bytes) -> float:
    if not _NUMBER.fullmatch(text) or not np.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def _row(line: bytes) -> Row | None:
    """Return the label and the entries of a line, None if it is blank; or raise ValueError."""
    label, *entries = line.partition(b"#")[0].split() or [b""]
    if not label:
        return None
    if entries and re.fullmatch(rb"qid:\d{1,18}", entries[0]):
        entries.pop(0)
    found: list[tuple[int, float]] = []
    for entry in entries:
        index, colon, value = entry.partition(b":")
        if not colon or not re.fullmatch(rb"\d+", index) or int(index) > _LIMIT:
            raise ValueError(entry)
        if found and int(index) <= found[-1][0]:
            raise ValueError(entry)
        found.append((int(index), _number(value)))
    return _number(label), found


def _text(random: np.random.Generator) -> bytes:
    """Return some rows, as they are written by programs and people."""
    lines = []
    for _ in range(int(random.integers(1, 30))):
        index = np.flatnonzero(random.random(12) < 0.3) + 1
        form = one(random, ("{:.17g}", "{:.3f}", "{:g}", "{:e}", "{:+.1f}"))
        entries = " ".join(f"{k}:{form.format(random.standard_normal())}" for k in index)
        lines.append(f"{one(random, ('1', '-1', '+1', '0.5', '2'))} {entries}")
        if random.random() < 0.1:
            lines.append(one(random, ("", "# 1:1", " \t", lines[-1] + " # text 3:4")))
    return one(random, ("\n", "\r\n")).join(lines).encode() + one(random, (b"", b"\n"))


def _mutated(random: np.random.Generator, text: bytes) -> bytes:
    changed = bytearray(text)
    for _ in range(int(random.geometric(0.5))):
        place = int(random.integers(len(changed) + 1))
        token = one(
            random,
            (b":", b" ", b"\n", b"0", b"-", b"e", b".", b"#", b"qid:", b"nan", b"\0", b"\xff",
             b"9" * 25, b"1e999", b"\r", b"\t", b"0x1", b"1_0", random.bytes(3)),
        )  # fmt: skip
        cut = int(random.integers(0, 4))
        changed[place : place + cut] = one(random, (token, b"", bytes(changed[place:])))
    return bytes(changed)


def _case(random: np.random.Generator) -> int:
    """A mutated LIBSVM file: gives a plain parser's rows, or an error that names the line."""
    threads.set_num_threads(int(random.integers(1, 3)))
    text = _text(random)
    if random.random() < 0.9:
        text = _mutated(random, text)
    if not text or text[:2] == b"\x1f\x8b" or text[:3] == b"BZh":
        return 0  # no text
    expected, fault = [], None
    for number, line in enumerate(re.split(rb"\n", text), start=1):
        try:
            row = _row(line)
        except ValueError:
            fault = fault or number
            continue
        if row is not None and row[1] and row[1][-1][0] > 10_000:
            return 0  # a wide matrix takes memory, as it is asked to
        expected += [row] if row is not None else []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        data = read_libsvm(io.BytesIO(text))
    except FileFormatError as error:
        assert fault is not None, f"refused {text!r}: {error}"
        assert re.search(rf":{fault}:\d+: ", str(error)), f"line {fault} of {text!r}: {error}"
        return 1
    finally:
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 << 10, f"{grown} KiB for {text!r}"
    assert fault is None, f"line {fault} is accepted in {text!r}"
    shift = 0 if any(row[1] and row[1][0][0] == 0 for row in expected) else 1
    assert data.y.tolist() == [label for label, _ in expected], repr(text)
    rows = data.X.tocsr()
    for k, (_, entries) in enumerate(expected):
        part = slice(rows.indptr[k], rows.indptr[k + 1])
        got = list(
            zip((rows.indices[part] + shift).tolist(), rows.data[part].tolist(), strict=True)
        )
        assert got == entries, f"row {k} of {text!r}: {got}"
    return 1


CHECK = drawn("libsvm_text", _case)
