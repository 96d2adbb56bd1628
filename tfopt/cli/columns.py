"""Columns of Arrow as numbers: values, days since 1970, or the positions of texts in a list."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types

from tfopt.linear_model.table_facts import Kind

__all__ = ["Converted", "convert", "days_in", "numbers_in"]

_A_DAY = 86_400_000_000  # in microseconds
#: In which type of Arrow a time counts microseconds.
_MICROSECONDS: dict[Callable[[Any], bool], Callable[[Any], Any]] = {
    types.is_date: lambda _: pa.timestamp("us"),
    types.is_timestamp: lambda kind: pa.timestamp("us", kind.tz),
    types.is_time: lambda _: pa.time64("us"),
    types.is_duration: lambda _: pa.duration("us"),
}
_NUMBERS = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
_TEXTS = (types.is_string, types.is_large_string, types.is_string_view)


class Converted(NamedTuple):
    """A column as numbers.

    Attributes
    ----------
    kind : str or None
        None if there is no value.
    values : ndarray, shape (rows,)
        NaN where a value is missing or faulty.
    levels : sequence of str
        The texts; a value of a text column is a position in this list.
    faulty : ndarray of bool, shape (rows,), or None
        True where a value is not of the wanted kind; None: nowhere.
    """

    kind: Kind | None
    values: np.ndarray
    levels: Sequence[str] = ()
    faulty: np.ndarray | None = None


def convert(array: Any, wanted: Kind | None = None) -> Converted | None:
    """Return an Arrow array as numbers, of its own kind or the wanted one; None if it cannot be.

    Text can become any kind, and any kind can become text.
    """
    kind = array.type
    if types.is_dictionary(kind) and not _is_text(kind.value_type):
        return convert(array.dictionary_decode(), wanted)
    if types.is_null(kind):
        return Converted(None, np.full(len(array), np.nan))
    if any(is_number(kind) for is_number in _NUMBERS) and wanted != "text":
        exact = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
        plain = (
            array if exact else array.cast(pa.float64() if types.is_decimal(kind) else pa.float32())
        )
        values = plain.to_numpy(zero_copy_only=False)
        return _as_wanted("number", values, wanted)
    for is_time, unit in _MICROSECONDS.items():
        if is_time(kind) and wanted != "text":
            counts = array.cast(unit(kind), safe=False).cast(pa.int64())
            return _as_wanted("time", counts.to_numpy(zero_copy_only=False) / _A_DAY, wanted)
    texts = _texts(array)
    if texts is None or texts.kind is None or wanted in (None, "text"):
        return texts
    parsed = (numbers_in if wanted == "number" else days_in)(texts.levels)
    present = ~np.isnan(texts.values)
    values = np.full(len(array), np.nan)
    values[present] = parsed[texts.values[present].astype(np.intp)]
    faulty = present & np.isnan(values)
    return Converted(wanted, values, (), faulty if faulty.any() else None)


def _is_text(kind: Any) -> bool:
    return any(is_text(kind) for is_text in _TEXTS)


def _as_wanted(kind: Kind, values: np.ndarray, wanted: Kind | None) -> Converted:
    if wanted in (None, kind):
        return Converted(kind, values)
    return Converted(wanted, np.full(len(values), np.nan), (), ~np.isnan(values))


def _texts(array: Any) -> Converted | None:
    """Return the texts of a column, of which an empty one is missing."""
    kind = array.type
    if types.is_nested(kind) or types.is_binary(kind):
        return None
    if not types.is_dictionary(kind):
        if types.is_floating(kind):  # NaN is missing
            array = pa.array(array.to_numpy(zero_copy_only=False), from_pandas=True)
        array = (array if _is_text(kind) else array.cast(pa.string())).dictionary_encode()
    levels: dict[str, int] = {}
    of_index = [
        float(levels.setdefault(text, len(levels))) if text else np.nan
        for text in array.dictionary.to_pylist()
    ]
    numbers = array.indices.fill_null(len(of_index)).to_numpy(zero_copy_only=False)
    return Converted("text" if levels else None, np.array([*of_index, np.nan])[numbers], [*levels])


def numbers_in(texts: Sequence[str]) -> np.ndarray:
    """Parse texts as numbers; NaN where that fails."""
    return np.array([*map(_number, texts)], np.float64)


def _number(text: str) -> float:
    try:
        return np.nan if "_" in text else float(text)
    except ValueError:
        return np.nan


def days_in(texts: Sequence[str]) -> np.ndarray:
    """Parse dates or times of ISO 8601 as days since 1970; NaN where that fails."""
    return np.array([*map(_days, texts)], np.float64)


def _days(text: str) -> float:
    if not text[:1].isdigit():
        return np.nan
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a time zone
            time = np.datetime64(text.removesuffix("Z"), "us")
    except (ValueError, Warning):
        return np.nan
    return float(time.astype(np.int64)) / _A_DAY
