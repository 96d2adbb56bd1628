"""Fingerprints of every kind of input, and what is refused; test_sdca_golden has TensorFlow's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tfopt

KNOWN = {
    "abc": (4143508125394299908, -6879828354153669051),
    "very looooooong string": (5849691694103072671, -4874542629849009556),
    "def": (603227410218889250, 8762207001949257490),
}
TEXTS = [*KNOWN]


@pytest.mark.parametrize(
    "strings",
    [
        TEXTS,
        tuple(TEXTS),
        [text.encode() for text in TEXTS],
        np.array(TEXTS),
        np.array(TEXTS).astype("S"),
        np.array(TEXTS * 2).astype("S40")[::2],
        np.array(TEXTS, object),
        np.array(TEXTS, np.dtypes.StringDType()),
        [np.str_(TEXTS[0]), np.bytes_(TEXTS[1].encode()), TEXTS[2]],
    ],
    ids=str,
)
def test_known(strings: Any) -> None:
    fingerprints = tfopt.sdca_ops.sdca_fprint(strings)
    assert fingerprints.dtype == np.int64
    assert [tuple(row) for row in fingerprints.tolist()] == [
        KNOWN[text if isinstance(text, str) else text.decode()] for text in strings
    ]


@pytest.mark.parametrize("step", [1, 2, -3])
def test_fields_of_bytes(step: int) -> None:
    """NumPy's bytes end before the zeros that fill them, as its own comparisons have it."""
    random = np.random.default_rng(0)
    field = np.array([random.bytes(n) for n in range(60)] + [b"a\0b\0", b"\0"])[::step]
    fprint = tfopt.sdca_ops.sdca_fprint
    np.testing.assert_array_equal(fprint(field), fprint(field.tolist()))


def test_threads_change_no_bits() -> None:
    strings = [str(k) for k in range(20_000)]
    field = np.array(strings, "S")
    answers = set()
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        answers |= {tfopt.sdca_ops.sdca_fprint(given).tobytes() for given in (strings, field)}
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("input", "error", "message"),
    [
        ("abc", "InvalidArgumentError", "Input must be a vector, got shape []"),
        (np.array([["a"]]), "InvalidArgumentError", "Input must be a vector, got shape [1,1]"),
        ([1], "InvalidTypeError", "input must be strings, and input[0] is int"),
        (np.array([1.0]), "InvalidTypeError", "input must be strings, and input[0] is float"),
        (["a", ["b"]], "InvalidTypeError", "input[1] is list"),
        (["a", None], "InvalidTypeError", "input[1] is NoneType"),
        (["\ud800"], "InvalidArgumentError", "input[0] is not valid UTF-8"),
    ],
)
def test_refused(input: Any, error: str, message: str) -> None:
    with pytest.raises(getattr(tfopt, error), match=re.escape(message)) as caught:
        tfopt.sdca_ops.sdca_fprint(input)
    assert type(caught.value).__name__ == error
