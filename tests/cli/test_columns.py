"""Columns of Arrow as numbers: each type's values, what is missing, and what is no column."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from tfopt.cli.columns import convert, days_in, numbers_in

DAY = datetime.date(2020, 2, 29)
NOON = datetime.datetime(2020, 2, 29, 12)
#: An array, and the kind and the values that it has; the texts if it is text.
ARRAYS = {
    "integers": (pa.array([1, None, 2**53]), "number", [1, np.nan, 2.0**53]),
    "small": (pa.array([1, 2], pa.uint8()), "number", [1, 2]),
    "float32": (pa.array([0.1, None], pa.float32()), "number", [np.float32(0.1), np.nan]),
    "float16": (pa.array(np.array([0.5, 2], np.float16)), "number", [0.5, 2]),
    "float64": (pa.array([0.1, float("nan"), float("inf")]), "number", [0.1, np.nan, np.inf]),
    "booleans": (pa.array([True, None, False]), "number", [1, np.nan, 0]),
    "decimals": (pa.array([decimal.Decimal("1.25"), None]), "number", [1.25, np.nan]),
    "dates": (pa.array([DAY, None]), "time", [18321, np.nan]),
    "days of 64 bits": (pa.array([DAY], pa.date64()), "time", [18321]),
    "times": (pa.array([NOON, None], pa.timestamp("s")), "time", [18321.5, np.nan]),
    "nanoseconds": (pa.array([NOON], pa.timestamp("ns")), "time", [18321.5]),
    "times of a zone": (pa.array([NOON], pa.timestamp("ms", "Asia/Tokyo")), "time", [18321.5]),
    "times of a day": (pa.array([datetime.time(6), None]), "time", [0.25, np.nan]),
    "durations": (pa.array([datetime.timedelta(1.5)]), "time", [1.5]),
    "nothing": (pa.array([None, None]), None, [np.nan, np.nan]),
    "text": (pa.array(["b", None, "a", "b", ""]), "text", ["b", None, "a", "b", None]),
    "large text": (pa.array(["b"], pa.large_string()), "text", ["b"]),
    "views": (pa.array(["b", "a"], pa.string_view()), "text", ["b", "a"]),
    "a dictionary": (
        pa.DictionaryArray.from_arrays([2, 0, None, 1, 3], ["b", None, "a", ""]),
        "text",
        ["a", "b", None, None, None],
    ),
    "a dictionary of numbers": (
        pa.DictionaryArray.from_arrays([1, None, 0], [7.5, 8.0]),
        "number",
        [8, np.nan, 7.5],
    ),
    "text without text": (pa.array(["", None]), None, [np.nan, np.nan]),
}


@pytest.mark.parametrize("place", [slice(None), slice(1, None)], ids=["whole", "sliced"])
@pytest.mark.parametrize(("array", "kind", "values"), ARRAYS.values(), ids=ARRAYS)
def test_each_type_of_arrow(array, kind, values, place):
    found = convert(array[place])
    has_texts = kind != "text" or any(values[place])  # else it is not even known to be text
    assert found.kind == (kind if has_texts else None) and found.faulty is None
    if kind == "text":
        assert len({*found.levels}) == len(found.levels)
        texts = [None if np.isnan(x) else found.levels[int(x)] for x in found.values]
        assert texts == values[place]
    else:
        np.testing.assert_array_equal(found.values, values[place])


@pytest.mark.parametrize("wanted", ["number", "time", "text"])
@pytest.mark.parametrize(("array", "kind", "values"), ARRAYS.values(), ids=ARRAYS)
def test_another_kind_is_a_fault_where_there_is_a_value(array, kind, values, wanted):
    found = convert(array, wanted)
    absent = np.array([x is None or x != x for x in values])
    if wanted == "text":
        assert found.faulty is None and (np.isnan(found.values) == absent).all()
    elif kind != wanted and kind is not None:
        assert (found.faulty == ~absent).all() and np.isnan(found.values).all()
    else:
        assert found.faulty is None and found.kind in (wanted, None)


def test_text_can_be_numbers_or_dates():
    numbers = convert(pa.array(["+5", " 7 ", "x", None, "1e2", "1_0"]), "number")
    np.testing.assert_array_equal(numbers.values, [5, 7, np.nan, np.nan, 100, np.nan])
    assert numbers.faulty.tolist() == [False, False, True, False, False, True]
    dates = convert(pa.array(["2020-02-29", None, "2020-02-29T12:00Z", "now", "29.2.2020"]), "time")
    np.testing.assert_array_equal(dates.values, [18321, np.nan, 18321.5, np.nan, np.nan])
    assert dates.faulty.tolist() == [False, False, False, True, True]
    assert np.isnan(numbers_in(["", "x", "0x1"])).all() and np.isinf(numbers_in(["inf"])).all()
    assert np.isnan(days_in(["today", "NaT", "", "2020-02-30", "2020-01-01T00:00+01:00"])).all()


@pytest.mark.parametrize(
    "array",
    [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([b"x"]), pa.array([b"x"]).dictionary_encode()],
)
def test_other_types_are_no_columns(array):
    for wanted in (None, "number", "time", "text"):
        assert convert(array, wanted) is None
