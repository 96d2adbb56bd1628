"""Hashed text: the rows of the specification and of dicts, restarts, threads, faults."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction import FeatureHasher

import tfopt
from tfopt.errors import FileFormatError, InvalidArgumentError
from tfopt.io import HashedBlock, iter_hashed
from tfopt.io.text_options import HashedText
from tfopt.kernels.text.hashed_text import parse
from tfopt.linear_model import FTRLClassifier
from tfopt_ref import hashed_text as twin

TEXT = b"click\tsite\tprice\n1\ta\t0.5\n0\t\t\n\n1\tb\t-2\n"
OPTIONS: dict[str, Any] = {"names": "header", "label": "click", "numeric": ["price"]}
CELL = st.text(st.sampled_from('ab"\té ,|*=:\n\r'), max_size=5) | st.sampled_from(
    ["x", "", "é" * 9]
)
NUMBER = st.sampled_from(["", "0", "1", "-2.5", " 1e3 ", "+.5", "0.0"])
PARTS = ("data", "indices", "indptr")


def read(text: bytes, n_hashes: int = 64, **options: Any) -> list[HashedBlock]:
    return list(iter_hashed(io.BytesIO(text), n_hashes, **options))


def whole(blocks: list[HashedBlock]) -> tuple[Any, ...]:
    """Return what the blocks have together."""
    X = sparse.vstack([block.X for block in blocks], format="csr")
    return X, *(
        None if getattr(blocks[0], name) is None else [x for b in blocks for x in getattr(b, name)]
        for name in ("y", "sample_weight")
    )


def assert_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    for part in PARTS:
        np.testing.assert_array_equal(getattr(one[0], part), getattr(other[0], part))
    assert one[0].shape == other[0].shape and one[0].dtype == other[0].dtype
    for a, b in zip(one[1:], other[1:], strict=True):
        np.testing.assert_array_equal(a, b)


def joined(features: Iterable[list[twin.Pair]]) -> list[twin.Pair]:
    return [*itertools.chain.from_iterable(features)]


def specified(features: list[list[twin.Pair]], n_hashes: int) -> Any:
    """Return the matrix that the specification makes of rows of features."""
    rows = [twin.hashed(pairs, n_hashes) for pairs in features]
    ends = np.cumsum([0, *map(len, rows)])
    indices = [column for row in rows for column in row]
    values = [value for row in rows for value in row.values()]
    return sparse.csr_matrix((np.array(values, float), indices, ends), (len(rows), n_hashes))


def test_what_a_file_holds() -> None:
    (block,) = read(TEXT, **OPTIONS)
    dicts = [{"site": "a", "price": 0.5}, {}, {"site": "b", "price": -2.0}]
    np.testing.assert_array_equal(block.X.toarray(), FeatureHasher(64).transform(dicts).toarray())
    assert block.y is not None and block.y.tolist() == [1, 0, 1]
    assert (block.sample_weight, block.end, block.n_bad) == (None, len(TEXT), 0)
    assert block.X.has_sorted_indices


@st.composite
def tables(draw: Any) -> tuple[list[str], list[list[str]], list[int]]:
    n = draw(st.integers(1, 4))
    names = draw(st.lists(CELL.filter(bool), min_size=n, max_size=n, unique=True))
    numeric = draw(st.lists(st.integers(0, n - 1), unique=True))
    row = st.tuples(*(NUMBER if k in numeric else CELL for k in range(n)))
    return names, [[*cells] for cells in draw(st.lists(row, min_size=1, max_size=6))], numeric


@given(
    tables(),
    st.sampled_from(["\t", ",", " ", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from([1, 7, 16, 2**18, 2**31 - 1]),
    st.sampled_from([1, 5, 30, 2**20]),
    st.booleans(),
)
def test_the_rows_of_the_specification_and_of_dicts(
    table: Any, sep: str, end: str, quoting: Any, n_hashes: int, block_size: int, ends: bool
) -> None:
    names, rows, numeric = table
    rows = [["1", *row] for row in rows]
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=sep, lineterminator=end, quoting=quoting).writerows(rows)
    text = file.getvalue().encode()
    text = text if ends else text.removesuffix(end.encode())
    options: dict[str, Any] = {
        "sep": sep, "names": ["y", *names], "numeric": [k + 1 for k in numeric],
    }  # fmt: skip
    found = whole(read(text, n_hashes, block_size=block_size, **options))
    # the specification's
    fields = [row[1:] for row in twin.rows(text, sep.encode())]
    assert fields == [[cell.encode() for cell in row[1:]] for row in rows]
    columns = [name.encode() for name in names]
    features = [joined(twin.named(row, columns, numeric)) for row in fields]
    assert_same(found, (specified(features, n_hashes), [1.0] * len(rows), None))
    # that of dicts
    dicts = [
        {name: float(x) if k in numeric else x for k, (name, x) in cells if x}
        for cells in (enumerate(zip(names, row[1:], strict=True)) for row in rows)
    ]
    assert_same(found, (FeatureHasher(n_hashes).transform(dicts), [1.0] * len(rows), None))


@given(st.lists(st.tuples(*[st.sampled_from(["", "a", "b", "é"])] * 3), min_size=1, max_size=5))
def test_crosses_are_those_of_the_specification(rows: Any) -> None:
    text = "".join(f"1,{a},{b},{c},2.5\n" for a, b, c in rows).encode()
    crosses = [(1, 2), (4, 3)]
    found = whole(read(text, 32, sep=",", numeric=[4], crosses=crosses))
    names, features = [b"1", b"2", b"3", b"4"], []
    for row in twin.rows(text, b","):
        of = twin.named(row[1:], names, [3])
        features.append(joined(of) + twin.crossed(of[0], of[1]) + twin.crossed(of[3], of[2]))
    assert_same(found[:1], (specified(features, 32),))
    dicts = [{"1": a, "2": b, "3": c, "4": 2.5} for a, b, c in rows]
    for each in dicts:
        a, b, c = (each[name] for name in "123")
        each |= {f"1={a}*2={b}": 1.0} if a and b else {}  # type: ignore[dict-item]
        each |= {f"4*3={c}": 2.5} if c else {}  # type: ignore[dict-item]
    filled = [{name: x for name, x in each.items() if x} for each in dicts]
    assert_same(found[:1], (FeatureHasher(32).transform(filled),))


WORD = st.text(st.sampled_from("abé*="), min_size=1, max_size=3)
FEATURE = st.builds("{}{}".format, WORD, st.sampled_from(["", ":2", ":-0.5", ":0", ":1e2"]))
SPACE = st.tuples(st.sampled_from(["", "s", "t", "s:2", "é"]), st.lists(FEATURE, max_size=4))


@given(st.lists(st.lists(SPACE, min_size=1, max_size=4), min_size=1, max_size=5), st.booleans())
def test_the_lines_of_vowpal_wabbit(lines: Any, crosses: bool) -> None:
    heads = ["1", "-1 2", "1 0.5 'tag", "", "'only", "0 1 tag"]
    text, features = b"", []
    pairs = [("s", "t"), ("t", "é")] if crosses else []
    for k, spaces in enumerate(lines):
        tail = "".join(f"|{space} {' '.join(words)} " for space, words in spaces).encode()
        head = heads[k % len(heads)].encode()
        text += head + (b"" if head.endswith(b"tag") else b" ") + tail + b"\n"
        of = twin.namespaces(tail)
        more = [twin.crossed(of.get(a.encode(), []), of.get(b.encode(), [])) for a, b in pairs]
        features.append(joined([*spaces_in_order(tail), *more]))
    y = [1, -1, 1, np.nan, np.nan, 0]
    weights = [1, 2, 0.5, 1, 1, 1]
    found = whole(read(text, 128, format="vw", crosses=pairs, block_size=7))
    assert_same(found, (specified(features, 128), y[: len(lines)], weights[: len(lines)]))


def spaces_in_order(line: bytes) -> list[list[twin.Pair]]:
    return [joined(twin.namespaces(b"|" + part).values()) for part in line.split(b"|")[1:]]


def test_a_namespace_is_a_column() -> None:
    """A line of Vowpal Wabbit and a row with the same text are the same features."""
    (one,) = read(b"1 |site a |device b |price :2\n".replace(b" |price :2", b""), format="vw")
    (other,) = read(b"1,a,b\n", sep=",", names=["y", "site", "device"])
    np.testing.assert_array_equal(one.X.toarray(), other.X.toarray())


def test_a_model_of_dicts_is_the_model_of_text() -> None:
    rng = np.random.default_rng(0)
    rows = [(k % 2, f"s{rng.integers(9)}", f"d{rng.integers(5)}", k % 4 + 0.0) for k in range(300)]
    text = "".join(f"{y},{a},{b},{x}\n" for y, a, b, x in rows).encode()
    dicts = [{"s": a, "d": b, "x": x} for _, a, b, x in rows]
    options: dict[str, Any] = {"sep": ",", "names": ["y", "s", "d", "x"], "numeric": ["x"]}
    of_dicts = FTRLClassifier(n_hashes=64, batch_size=1)
    of_dicts.partial_fit(dicts, [row[0] for row in rows], classes=[0, 1])
    for block_size in (100, 2**20):
        of_text = FTRLClassifier(n_hashes=64, batch_size=1)
        for block in read(text, 64, block_size=block_size, **options):
            of_text.partial_fit(block.X, block.y, classes=[0, 1])
            assert (of_text.predict(block.X) == of_text.predict(block.X[:])).all()
        np.testing.assert_array_equal(of_text.coef_, of_dicts.coef_)
        np.testing.assert_array_equal(of_text._state, of_dicts._state)
        assert of_text.progressive_loss_ == pytest.approx(of_dicts.progressive_loss_, rel=1e-12)
    with pytest.raises(InvalidArgumentError, match="hashed to 32, and the model has n_hashes=64"):
        of_text.predict(read(text, 32, **options)[0].X)


MANY = b"".join(
    b'%d,"a ""%d"",\n%s",%d\n' % (k % 2, k % 7, b"x" * (k % 5), k % 3) for k in range(200)
)


@pytest.mark.parametrize("block_size", [1, 50, 333, 2**20])
def test_to_restart_gives_the_rest(block_size: int) -> None:
    options: dict[str, Any] = {"sep": ",", "block_size": block_size}
    blocks = read(MANY, **options)
    assert blocks[-1].end == len(MANY) and len(blocks) > (block_size < 400)
    together = whole(blocks)
    for k, block in enumerate(blocks[:-1:7]):
        rest = whole(read(MANY, start=block.end, **{**options, "block_size": 77}))
        assert_same(rest, whole(blocks[7 * k + 1 :]))
    assert_same(together, whole(read(MANY, sep=",")))
    assert read(MANY, start=len(MANY), sep=",") == []


def test_to_restart_with_a_header_and_from_other_sources(tmp_path: Path) -> None:
    (block,) = read(TEXT, **OPTIONS)
    end = TEXT.index(b"0\t\t")
    rest = (block.X[1:], [0.0, 1.0], None)
    path = tmp_path / "rows"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT)
    assert_same(whole([*iter_hashed(path, 64, start=end + 3, **OPTIONS)]), rest)
    path.write_bytes(gzip.compress(TEXT))
    assert_same(whole([*iter_hashed(path, 64, start=end, **OPTIONS)]), rest)

    class Pipe:
        def __init__(self, text: bytes) -> None:
            self.file = io.BytesIO(text)

        def read(self, n: int) -> bytes:
            return self.file.read(min(n, 7))

    pipe: Any = Pipe(TEXT)
    assert_same(whole([*iter_hashed(pipe, 64, start=end, **OPTIONS)]), rest)
    pipe = Pipe(TEXT + b"x\ty\tz\n")
    with pytest.raises(FileFormatError, match=r"<Pipe>:6:1: the label is not a finite number 'x'"):
        [*iter_hashed(pipe, 64, start=end, **OPTIONS)]
    with pytest.raises(FileFormatError, match=r"<BytesIO>:6:1: the label is not a finite number"):
        read(TEXT + b"x\ty\tz\n", start=end, **OPTIONS)


@pytest.mark.parametrize("start", [1, 18, len(TEXT) - 1, len(TEXT) + 1, 2**40])
def test_no_row_begins_there(start: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"start={start}"):
        read(TEXT, start=start, **OPTIONS)


def test_threads_change_nothing() -> None:
    text = MANY * 400  # more than two pieces
    before = tfopt.threads.get_num_threads()
    found = []
    try:
        for n in (1, 2, 5):
            tfopt.threads.set_num_threads(n)
            found.append(whole(read(text, sep=",", block_size=2**22)))
    finally:
        tfopt.threads.set_num_threads(before)
    for each in found[1:]:
        assert_same(each, found[0])
    assert found[0][0].shape[0] == 400 * 200
    plain = b"".join(b"%d,%d,%d\n" % (k % 2, k, k % 9) for k in range(150000))
    assert_same(whole(read(plain, sep=",")), whole(read(plain, sep=",", block_size=2**18)))


FAULTS = {
    b"1,a\n": (2, 1, "the row has 2 fields, and not 3", None),
    b"1,a,2,3,\n": (2, 1, "the row has 5 fields, and not 3", None),
    b"x,a,2\n": (2, 1, "the label is not a finite number", "x"),
    b",a,2\n": (2, 1, "the label is not a finite number", ""),
    b"nan,a,2\n": (2, 1, "the label is not a finite number", "nan"),
    b'1,a,"1""2"\r\n': (2, 5, "the value is not a finite number", '"1""2"'),
    b"1,\xc3\xa9,1e999\n": (2, 6, "the value is not a finite number", "1e999"),
    b'1,"a"b,2\n': (2, 3, "something follows the closing quote", '"a"b'),
    b'1,"a\nb",z\n': (3, 4, "the value is not a finite number", "z"),
}


@pytest.mark.parametrize("row", FAULTS)
@pytest.mark.parametrize("block_size", [1, 2**20])
def test_malformed_rows(row: bytes, block_size: int) -> None:
    line, column, message, token = FAULTS[row]
    options: dict[str, Any] = {"sep": ",", "numeric": [2], "block_size": block_size}
    text = b"1,a,2\n" + row + b"0,b,3\n"
    with pytest.raises(FileFormatError) as caught:
        read(text, **options)
    error = caught.value
    assert (error.line, error.column, error.message, error.token) == (line, column, message, token)
    assert error.name == "<BytesIO>"
    blocks = read(text, on_bad="skip", **options)
    assert sum(block.n_bad for block in blocks) == 1
    assert_same(whole(blocks), whole(read(b"1,a,2\n0,b,3\n", **options)))


@pytest.mark.parametrize("block_size", [1, 9, 2**20])
def test_a_quote_that_is_not_closed(block_size: int) -> None:
    text = b'1,a\n1,"b\n0,c\n0,d'
    with pytest.raises(FileFormatError, match=r'<BytesIO>:2:3: the quote is not closed \'"b\''):
        read(text, sep=",", block_size=block_size)
    blocks = read(text, sep=",", block_size=block_size, on_bad="skip")
    assert whole(blocks)[1] == [1, 0, 0] and sum(block.n_bad for block in blocks) == 1
    assert whole(read(text, sep=",", quotes=False))[1] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    {
        b"1 a b\n": ":1:1: there is no | before the features",
        b"x |a b\n": ":1:1: the label is not a finite number 'x'",
        b"1 -1 |a b\n": ":1:3: the weight is not a finite number from 0 '-1'",
        b"1 1 0.5 |a b\n": ":1:5: only a label, an importance and a tag may",
        b"1 |a b:x\n": ":1:6: the value is not a finite number 'b:x'",
        b"1 |a:x b\n": ":1:4: the value is not a finite number 'a:x'",
        b"1 |s a:1e200 |t b:1e200\n": ":1:1: the product of two crossed features is not finite",
    }.items(),
)
def test_malformed_lines_of_vowpal_wabbit(line: bytes, message: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read(line, format="vw", crosses=[("s", "t")])
    assert message in str(caught.value)
    ((X, y, _),) = [
        whole(read(line + b"1 | a\n", format="vw", crosses=[("s", "t")], on_bad="skip"))
    ]
    assert X.shape[0] == 1 and y == [1]


def test_weights_and_columns_that_are_left_out() -> None:
    text = b"w,y,a,b\n2,1,x,z\n0,0,x,q\n"
    (block,) = read(text, sep=",", names="header", label="y", weight="w", skip=["b"])
    assert block.sample_weight is not None and block.sample_weight.tolist() == [2, 0]
    assert block.X.nnz == 2
    with pytest.raises(
        FileFormatError, match=r":4:1: the weight is not a finite number from 0 '-1'"
    ):
        read(text + b"-1,0,x,q\n", sep=",", names="header", label="y", weight="w")
    (block,) = read(b"a\nb\n", label=None)
    assert block.y is None and block.X.nnz == 2


def test_single_precision() -> None:
    options: dict[str, Any] = {"label": None, "numeric": [0, 1], "sep": ","}
    (block,) = read(b"0.1,1e-40\n", 64, dtype=np.float32, **options)
    rows = [{"0": 0.1, "1": 1e-40}]
    expected = FeatureHasher(64, dtype=np.float32).transform(rows)
    assert block.X.dtype == np.float32
    np.testing.assert_array_equal(block.X.toarray(), expected.toarray())
    with pytest.raises(FileFormatError, match="is not a finite number '1e39'"):
        read(b"1e39,1\n", dtype=np.float32, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_hashes": 0}, "n_hashes must be from 1"),
        ({"n_hashes": 2**31}, "n_hashes must be from 1"),
        ({"format": "csv"}, "format must be"),
        ({"sep": ""}, "sep must be one ASCII character"),
        ({"sep": '"'}, "sep must be one ASCII character"),
        ({"sep": "é"}, "sep must be one ASCII character"),
        ({"label": -1}, "label must be the name of a column or its number"),
        ({"label": 9}, "there is no column 9: there are 3"),
        ({"label": "z"}, "there is no column 'z': there are '0', '1', '2'"),
        ({"label": 1.5}, "label must be"),
        ({"numeric": "price"}, "numeric must be a list"),
        ({"numeric": [0]}, "'0' has two roles"),
        ({"numeric": [1], "skip": [1]}, "'1' has two roles"),
        ({"names": "no"}, "names must be None"),
        ({"names": ["a", "a"]}, "two columns have the name 'a'"),
        ({"names": [1]}, "names must be None"),
        ({"crosses": [(1, 1)]}, "must not pair 1 with itself"),
        ({"crosses": [1]}, "must have pairs"),
        ({"crosses": [(0, 1)]}, "'0' is crossed and no feature"),
        ({"quotes": 1}, "quotes must be True or False"),
        ({"dtype": np.int32}, "dtype must be"),
        ({"start": -1}, "start must be at least 0"),
        ({"block_size": 0}, "block_size at least 1"),
        ({"on_bad": "no"}, "on_bad must be"),
        ({"format": "vw", "label": 1}, "label is for delimited text"),
        ({"format": "vw", "crosses": [(0, 1)]}, "crosses must name namespaces"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    options = {"n_hashes": 8, **options}
    with pytest.raises(InvalidArgumentError, match=message):
        read(b"1\ta\tb\n", **options)


def test_empty_files() -> None:
    for text in (b"", b"\n\n", b"\r\n"):
        assert read(text) == [] and read(text, format="vw") == []
    assert read(b"a\tb\n", names="header") == []


@example(b'1,"\n')
@given(
    st.binary(max_size=60) | st.text(st.sampled_from('1,"\n\r|a: '), max_size=60).map(str.encode)
)
def test_any_bytes_are_rows_or_refused(text: bytes) -> None:
    for options in ({"sep": ",", "names": ["a", "b"]}, {"format": "vw"}):
        found = [read(text, on_bad="skip", block_size=n, **options) for n in (1, 6, 100)]
        counts = {sum(block.n_bad for block in blocks) for blocks in found}
        assert len(counts) == 1
        assert len({sum(block.X.shape[0] for block in blocks) for blocks in found}) == 1
        if counts == {0}:
            read(text, **options)
        else:
            with pytest.raises(FileFormatError):
                read(text, **options)


@pytest.mark.parametrize(
    "change",
    [
        {"n_hashes": 0}, {"separator": 256}, {"roles": b"\1"}, {"crosses": [(0, 2)]},
        {"crosses": [(-1, 0)]},
    ],
)  # fmt: skip
def test_the_kernel_refuses_what_does_not_fit(change: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "text": b"a,b", "is_last": True, "names": [b"x", b"y"], "roles": b"\1\1", "crosses": [],
        "n_hashes": 8, "separator": 44, "has_quotes": True, "single": False, "skips": False,
    }  # fmt: skip
    assert parse(**arguments)[0].size == 1
    with pytest.raises(InvalidArgumentError):
        parse(**{**arguments, **change})


@pytest.mark.parametrize(
    "changed",
    [{}, {"format": "vw"}, {"sep": ","}, {"label": None}, {"names": ("a", "b")}, {"numeric": (1,)},
     {"skip": (1,)}, {"weight": 1}, {"crosses": ((1, 2),)}, {"quotes": False}],
)  # fmt: skip
def test_options_that_are_not_the_defaults_are_shown(changed: dict[str, Any]) -> None:
    assert HashedText(16, **changed).shown() == changed
