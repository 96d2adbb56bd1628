"""The compiled reader of LIBSVM text, against Python's float() and scikit-learn's reader."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from tfopt import threads as tfopt_threads
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.text.libsvm import parse, survey

PIECE = 1 << 18  # bytes of a unit of parallel work, as in libsvm.pyx


def _labels(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers that are finite, and which of the texts they are of."""
    labels, _, _, _, lines, _, n_lines, _, n_faults = parse(
        "\n".join(texts).encode(), False, 1, 9, True
    )
    assert n_lines == len(texts)
    assert len(labels) + n_faults == n_lines
    return labels, lines


def _same_as_python(texts: list[str]) -> None:
    labels, lines = _labels(texts)
    expected = np.array([float(text) for text in texts])
    finite = np.flatnonzero(np.isfinite(expected))
    np.testing.assert_array_equal(lines, finite)
    different = np.flatnonzero(labels.view(np.int64) != expected[finite].view(np.int64))
    assert not different.size, texts[finite[different[0]]]


_DIGITS = st.text("0123456789", max_size=30)
_MANTISSAS = st.one_of(
    st.integers(0, 10**25).map(str),
    st.builds("{}.{}".format, st.integers(0, 10**12), _DIGITS),
    st.builds(".{}{}".format, st.integers(0, 9), _DIGITS),
)
_EXPONENTS = st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from("eE"), st.integers()))


@given(
    st.lists(st.builds("{}{}{}".format, st.sampled_from(["", "+", "-"]), _MANTISSAS, _EXPONENTS))
)
@example(
    ["9007199254740993.0001", "9007199254740993.0000"]
)  # at a tie, but for the digit that is cut
@example(["73786976294838214657", "73786976294838214656", "73786976294838214655"])
def test_decimals_are_rounded_as_python_rounds_them(texts: list[str]) -> None:
    _same_as_python(texts)


@given(
    st.lists(st.integers(0, 2**63 - 2**52 - 1)),
    st.sampled_from(["{!r}", "{:.16e}", "{:.18e}", "{:.30e}"]),
)
def test_printed_doubles_come_back(bits: list[int], form: str) -> None:
    values = np.array(bits, np.int64).view(np.float64)
    _same_as_python([form.format(float(value)) for value in values])


@given(st.lists(st.integers(0, 2**63 - 2**52 - 2), min_size=1))
def test_ties_go_to_the_even_double(bits: list[int]) -> None:
    """Halfway between two doubles, where all digits count, and a digit to either side."""
    values = np.array(bits, np.int64)
    texts = []
    with localcontext() as context:
        context.prec = 1100
        for low, high in zip(values.view(np.float64), (values + 1).view(np.float64), strict=True):
            tie = (Decimal(float(low)) + Decimal(float(high))) / 2
            texts += [f"{tie:e}", f"{tie.next_plus():e}", f"{tie.next_minus():e}"]
    _same_as_python(texts)


@given(st.lists(st.tuples(st.integers(2**52, 2**53 - 1), st.integers(0, 23)), min_size=1))
def test_ties_of_few_digits_go_to_the_even_double(ties: list[tuple[int, int]]) -> None:
    """Such as 2^53 + 1 and 1e23: they have 54 bits, the last of which is 1."""
    texts = []
    for half, power in ties:
        tie = (2 * half + 1) * 2 ** (power % 10)
        texts += [str(tie - 1), str(tie), str(tie + 1)]
        least = -(-(2**53) // 5**power)
        texts.append(f"{least + half % least | 1}e{power}")
        for k, fraction in enumerate(("5", "25", "125", "0625")):
            texts.append(f"{half >> k}.{fraction}")
    _same_as_python(texts)


@pytest.mark.parametrize(
    "text",
    ["", "+", "-", ".", "e5", "1e", "1e+", "0x1p3", "1_0", "nan", "inf", "1e999", "1,2", "1-"],
)
def test_what_is_no_finite_number_is_a_fault(text: str) -> None:
    for line in (f"{text} 1:1", f"1 1:{text}", f"1 1:1 2:{text} 3:1"):
        parsed = parse(f"1 1:1\n\n{line}\n2 1:1".encode(), False, 1, 9, False)
        if not text and line.startswith(" "):
            continue  # the first feature is then where the label was
        assert parsed[7] == (7, 2), line
        assert parsed[8] == 1


@pytest.mark.parametrize(
    "line",
    ["1 2:1 2:1", "1 3:1 2:1", "1 0:1", "1 -1:1", "1 10:1", "1 99999999999999999999:1", "1 1",
     "1 :1", "1 1:", "1 a:1", "1 1:1 x", "1 1:1:1", "1:1", "1 qid:x 1:1", "1 qid:-1 1:1", 
     "1 1:1 qid:1",
     "1 1 :1", "1 1: 1", "1 1:1\x002:1", "\xff"],
)  # fmt: skip
def test_lines_that_are_wrong(line: str) -> None:
    text = f"1 1:1 # 2:1\n{line}\n-1 3:1\n".encode("latin-1")
    parsed = parse(text, False, 1, 9, False)
    assert parsed[7:] == ((12, 1), 1)
    labels, values, indices, indptr, lines, queries, n_lines, fault, n_faults = parse(
        text, True, 1, 9, True
    )
    assert (labels.tolist(), lines.tolist()) == ([1, -1], [0, 2])
    assert (values.dtype, values.tolist(), indices.tolist()) == (np.float32, [1, 1], [0, 2])
    assert (indptr.tolist(), queries, n_lines) == ([0, 1, 2], None, 3)
    assert (fault, n_faults) == ((12, 1), 1)


def _text(rows: int, first_index: int, newline: str) -> bytes:
    random = np.random.default_rng(first_index)
    lines = []
    for row in range(rows):
        index = np.flatnonzero(random.uniform(size=60) < 0.2) + first_index
        entries = " ".join(f"{k}:{random.standard_normal():.{k % 18}g}" for k in index)
        lines.append(f"{random.integers(-1, 3)} {entries}")
        if row % 97 == 0:
            lines.append(("", "# 1:1", "\t")[row % 3])
    return newline.join(lines).encode()


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Set the number of threads, for a test."""
    before = tfopt_threads.get_num_threads()
    yield tfopt_threads.set_num_threads
    tfopt_threads.set_num_threads(before)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n \n"])
@pytest.mark.parametrize("first_index", [0, 1])
def test_rows_are_those_of_scikit_learn(
    newline: str, end: str, first_index: int, threads: Callable[[int], None]
) -> None:
    """Several pieces, so that rows have to be moved to where blank lines were counted."""
    text = _text(6000, first_index, newline) + end.encode()
    assert len(text) > 2 * PIECE
    expected, y = load_svmlight_file(io.BytesIO(text), zero_based=first_index == 0)
    for number in (1, 2, 3):
        threads(number)
        labels, values, indices, indptr, lines, queries, n_lines, fault, n_faults = parse(
            text, False, first_index, 100, False
        )
        np.testing.assert_array_equal(labels, y)
        np.testing.assert_array_equal(values, expected.data)
        np.testing.assert_array_equal(indices, expected.indices)
        np.testing.assert_array_equal(indptr, expected.indptr)
        assert (queries, fault, n_faults) == (None, None, 0)
        shown = text.split(b"\n")
        assert n_lines == len(shown) - (not shown[-1])
        assert [float(shown[line].split()[0]) for line in lines[::500]] == y[::500].tolist()


def test_query_ids() -> None:
    text = b"1 qid:3 1:1\n2 1:1\n0 qid:0\n"
    parsed = parse(text, False, 1, 9, False)
    assert parsed[5].tolist() == [3, -1, 0]
    assert parsed[3].tolist() == [0, 1, 2, 2]


def test_a_fault_in_any_piece_is_placed() -> None:
    text = _text(6000, 1, "\n")
    places = [place for place in range(0, len(text), 99_991) if text[place : place + 1] != b"\n"]
    for place in places:
        start = text.rfind(b"\n", 0, place) + 1
        wrong = text[:start] + b"?" + text[start:]
        expected = (start, text.count(b"\n", 0, start))
        assert parse(wrong, False, 1, 100, False)[7:] == (expected, 1)
        assert parse(wrong, False, 1, 100, True)[7:] == (expected, 1)


def test_an_empty_text_has_no_rows() -> None:
    for text in (b"", b"\n", b" \n# only a comment"):
        labels, values, indices, indptr, *_ = parse(text, True, 1, 9, False)
        assert (labels.size, values.size, indices.size, indptr.tolist()) == (0, 0, 0, [0])


@pytest.mark.parametrize(("first", "last"), [(2, 9), (-1, 9), (0, -1)])
def test_wrong_limits_are_refused(first: int, last: int) -> None:
    with pytest.raises(InvalidArgumentError, match="first_index must be 0 or 1"):
        parse(b"1 1:1", False, first, last, False)


@given(st.lists(st.sampled_from([*b"0123456789:.+-eqid # \t\n", *b"  ::11\n"]), max_size=40))
def test_a_survey_finds_what_the_reader_finds(characters: list[int]) -> None:
    text = bytes(characters)
    labels, values, indices, _, _, _, _, fault, _ = parse(text, False, 0, 99, False)
    found = survey(text, 99)
    if fault is None:
        assert found is not None
        np.testing.assert_array_equal(found[0], labels)
        least, largest = (indices.min(), indices.max()) if indices.size else (99, -1)
        assert found[1:] == (values.size, least, largest)


@pytest.mark.parametrize(
    "line", [b"x 1:1", b"1 qid:x 1:1", b"1 :1", b"1 a:1", b"1 1:1 100:1", b"1 1"]
)
def test_a_survey_is_silent_about_malformed_lines(line: bytes) -> None:
    assert survey(b"1 1:1\n" + line, 99) is None
    assert survey(b"1 1:1\n#" + line, 99) is not None
