"""Pooled lookups of tables, their gradients on tapes and in steps, and what is refused."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from common.cases import LAYOUTS, assert_same_bits, lay_out, numbers
from common.optimizer_makers import MAKERS, make, state
from common.two_orders import gradients_of_two_orders
from common.wrapper_cases import WRAPPERS
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt import Bags, IndexedSlices, IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt_ref import bags as twin
from tfopt_ref.arithmetic import dtype_named

INTEGERS = ["i4", "i8"]
DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
LIMITED = [None, "float64", "float32", "int8", "bool"]  # dtypes of weights


def listed(ids: Any, lengths: list[int], weights: Any) -> list[twin.Bag]:
    """Return the bags as the twin takes them."""
    ends = np.cumsum([0, *lengths])
    some = np.ones(len(ids)) if weights is None else np.asarray(weights, np.float64)
    return [(ids[a:b].tolist(), some[a:b].tolist()) for a, b in pairwise(ends)]


def filled(draw: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "c":
        made = np.empty(shape, dtype)
        made.real, made.imag = (draw(numbers(made.real.dtype, shape)) for _ in range(2))
        return made
    if dtype.name == "bfloat16":  # the upper half of float32
        bits = draw(numbers("f4", shape)).view(np.uint32) >> 16
        return np.asarray(bits.astype(np.uint16)).view(dtype)
    return np.asarray(draw(numbers(dtype, shape)))


def assert_equal(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    """Assert the same bits, of 16-bit numbers and of parts of complex ones, too."""
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ours.dtype.kind == "c":
        assert_same_bits(ours.real, theirs.real, what)
        assert_same_bits(ours.imag, theirs.imag, what)
    else:
        assert_same_bits(ours.astype("f8"), theirs.astype("f8"), what)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_results_have_the_bits_of_the_specification(dtype: str, data: st.DataObject) -> None:
    """Any numbers, layouts, weights, repeated rows and empty bags, by any number of threads."""
    draw, kind = data.draw, dtype_named(dtype)
    tfopt.threads.set_num_threads(draw(st.sampled_from([1, 3])))
    tfopt.set_flush_denormals(draw(st.booleans()))
    n_rows, width = draw(st.integers(1, 6)), draw(st.sampled_from([(), (1,), (5,), (2, 3), (0,)]))
    lengths = draw(st.lists(st.integers(0, 4), max_size=5))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    ids = random.integers(n_rows, size=sum(lengths), dtype=draw(st.sampled_from(INTEGERS)))
    weighted, pooling = draw(st.sampled_from(LIMITED)), draw(st.sampled_from(["sum", "mean"]))
    weights = None
    if weighted is not None:
        weights = draw(numbers("f8", ids.size))
        with np.errstate(all="ignore"):
            weights = weights.astype(weighted)
    with_last = draw(st.booleans()) or not lengths
    offsets = np.cumsum([0, *lengths])[: None if with_last else -1]
    bags = Bags(np.repeat(ids, 2)[::2], offsets.astype(draw(st.sampled_from(INTEGERS))), n_rows,
                pooling, weights, with_last)  # fmt: skip
    layout = draw(st.sampled_from(list(LAYOUTS)))
    table, g = (filled(draw, kind, (n, *width)) for n in (n_rows, len(lengths)))
    expected = listed(ids, lengths, weights)
    pooled = twin.lookup(table, expected, pooling)
    assert len(bags) == len(lengths)
    assert_equal(bags.lookup(lay_out(table, layout)), pooled, "pooled rows")
    for out in (np.empty_like(pooled), lay_out(np.zeros_like(pooled), layout)):
        assert bags.lookup(table, out=out) is out
        assert_equal(out, pooled, "out")
    rows, found = twin.gradient(g, expected, pooling), bags.gradient(lay_out(g, layout))
    assert isinstance(found, IndexedSlices)
    assert found.dense_shape == table.shape
    assert found.indices.tolist() == bags.rows.tolist() == rows.indices.tolist()
    assert_equal(found.values, rows.values, "gradient")


@pytest.mark.parametrize("how", ["zipf", "distinct", "one row"])
@pytest.mark.parametrize("dtype", DTYPES[:4])
@pytest.mark.parametrize("weighted", [False, True])
def test_many_bags_have_the_same_bits_on_any_number_of_threads(
    how: str, dtype: str, weighted: bool
) -> None:
    """More than a thread looks at together; wide enough that threads share the work."""
    random, n = np.random.default_rng(0), 5000
    ids = {
        "zipf": np.minimum(random.zipf(1.5, n), 300),
        "distinct": random.permutation(n),
        "one row": np.full(n, 7),
    }[how]
    lengths = random.multinomial(n, np.full(400, 1 / 400)).tolist()
    weights = random.standard_normal(n) if weighted else None
    table, g = (
        random.standard_normal((k, 40)).astype(np.float32).astype(dtype_named(dtype))
        for k in (n, 400)
    )
    bags = Bags(ids, np.cumsum([0, *lengths]), n, "mean", weights, include_last_offset=True)
    expected = listed(ids, lengths, weights)
    rows = twin.gradient(g, expected, "mean")
    for threads in (1, 3):
        tfopt.threads.set_num_threads(threads)
        assert_equal(bags.lookup(table), twin.lookup(table, expected, "mean"), "pooled rows")
        assert_equal(bags.gradient(g).values, rows.values, "gradient")


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_tables_looked_up_together_have_the_bits_of_one_after_another(threads: int) -> None:
    """Of all dtypes and widths, weighted or not; some have no ids, some are not contiguous."""
    tfopt.threads.set_num_threads(threads)
    random = np.random.default_rng(0)
    bags, tables = [], []
    for k, dtype in enumerate(DTYPES * 3):
        n, width = (3000, 0, 7)[k % 3], (40, 1, 3, 0)[k % 4]
        weights = random.standard_normal(n) if k % 2 else None
        offsets = np.sort(random.integers(0, n + 1, 50))
        offsets[0] = 0
        bags.append(Bags(random.integers(90, size=n), offsets, 90, ("sum", "mean")[k // 2 % 2],
                         weights))  # fmt: skip
        table = random.standard_normal((90, width)).astype(np.float32).astype(dtype_named(dtype))
        tables.append(lay_out(table, list(LAYOUTS)[k % len(LAYOUTS)]))
    found = tfopt.lookup_bags(bags, tables)
    for each, table, pooled in zip(bags, tables, found, strict=True):
        assert_equal(pooled, each.lookup(table), repr(each))
    assert tfopt.lookup_bags([], []) == []


@pytest.mark.parametrize("traced", [False, True])
def test_tapes_record_variables_among_tables(traced: bool) -> None:
    bags = [Bags([1, 3, 1], [0, 2], 4), Bags([0, 2], [0, 1], 3)]
    variable, array = tfopt.Variable(np.ones((4, 2))), np.ones((3, 2))

    def look_up(*tables: Any) -> list[Any]:
        return tfopt.lookup_bags(bags, tables)

    with tfopt.GradientTape() as tape:
        first, second = (tfopt.function(look_up) if traced else look_up)(variable, array)
    assert tape.gradient(first, variable).indices.tolist() == [1, 3]
    assert_equal(second, bags[1].lookup(array), "an array")


def test_bags_of_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    table = torch.arange(12.0).reshape(4, 3)
    bags = Bags(torch.tensor([3, 1, 3]), torch.tensor([0, 2]), 4, weights=torch.tensor([1, 2, 3]))
    assert bags.lookup(table).tolist() == [[15, 18, 21], [27, 30, 33]]
    narrow = bags.lookup(table.to(torch.bfloat16))
    assert narrow.dtype.name == "bfloat16"
    assert narrow.tolist() == [[15, 18, 21], [27, 30, 33]]
    g = torch.ones(2, 3)
    assert bags.gradient(g).values.tolist() == [[4, 4, 4], [2, 2, 2]]


def test_bags_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(1)
    ids, offsets = random.integers(50, size=90), np.array([0, 0, 30, 31, 90])
    table = random.standard_normal((50, 4))
    for pooling in ("sum", "mean"):
        for last in (False, True):
            their = torch.nn.functional.embedding_bag(
                torch.from_numpy(ids), torch.from_numpy(table), torch.from_numpy(offsets),
                mode=pooling, include_last_offset=last,
            )  # fmt: skip
            ours = Bags(ids, offsets, 50, pooling, include_last_offset=last).lookup(table)
            np.testing.assert_allclose(ours, their.numpy(), rtol=1e-12)


def test_means_whose_weights_add_up_to_zero_are_zeros() -> None:
    bags = Bags([0, 1, 0], [0, 2], 2, "mean", [1.0, -1.0, 4.0])
    assert bags.lookup(np.array([[np.nan], [2.0]]))[0] == 0
    assert bags.gradient(np.array([[np.inf], [2.0]])).values[:, 0].tolist()[1:] == [0]
    assert bags.lookup(np.array([[3.0], [2.0]]))[:, 0].tolist() == [0, 3]


def test_a_table_that_is_written_to_as_it_is_read() -> None:
    table = np.arange(8.0).reshape(4, 2)
    bags = Bags([3, 0, 3], [0, 2], 4)
    assert bags.lookup(table, out=table[:2]).tolist() == [[6, 8], [6, 7]]


def test_a_gradient_keeps_its_memory_until_it_is_gone() -> None:
    """Then the next one gets it, as the system takes long to give new memory."""
    bags, g = Bags([3, 0, 3], [0, 2], 4), np.ones((2, 300))
    first = bags.gradient(g).values[:1]
    second = bags.gradient(2 * g).values
    assert first[0].tolist() == [2] * 300
    assert second[0].tolist() == [4] * 300
    where = second.ctypes.data
    del second
    assert bags.gradient(g).values.ctypes.data == where


def test_representation() -> None:
    assert repr(Bags([3, 0, 3], [0, 2], 4)) == "Bags(2 bags of 3 ids, n_rows 4, pooling 'sum')"
    assert repr(Bags([1], [0], 4, "mean", [2])) == (
        "Bags(1 bags of 1 ids, n_rows 4, pooling 'mean', weighted)"
    )


# ---- tapes


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
@pytest.mark.parametrize("traced", [False, True])
def test_gradients_are_those_of_a_dense_matrix(
    pooling: str, weighted: bool, k: int | None, dtype: str, traced: bool
) -> None:
    """Of lookups and gradients, of the first and the second order, and along a direction."""
    random = np.random.default_rng(0)
    ids, offsets = np.array([4, 0, 4, 1, 1, 1]), np.array([0, 3, 3, 4])
    weights = random.uniform(0.5, 1.5, 6) if weighted else None
    bags = Bags(ids, offsets, 5, pooling, weights)
    dense = bags.lookup(np.eye(5)).astype(dtype)
    shapes = [(n, *(() if k is None else (k,))) for n in (5, 4)]
    w, s = (random.uniform(0.5, 1.5, shape).astype(dtype) for shape in shapes)
    products = {
        "lookup": (w, bags.lookup, lambda x: dense @ x),
        "gradient": (s, lambda x: np.add(bags.gradient(x), 0.0), lambda x: dense.T @ x),
    }

    def gradients(f: Any, at: np.ndarray) -> list[np.ndarray]:
        along = tfopt.jvp(f, [at], [at[::-1].copy()])[1]
        return [*gradients_of_two_orders(f, at), np.asarray(along)]

    for at, ours, theirs in products.values():
        f = tfopt.function(ours) if traced else ours
        for found, wanted in zip(gradients(f, at), gradients(theirs, at), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, 1e-4 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_tape_records_tables_of_16_bits(dtype: str) -> None:
    table = tfopt.Variable(np.ones((4, 2)).astype(dtype_named(dtype)))
    bags = Bags([1, 3, 1], [0, 2], 4)
    with tfopt.GradientTape() as tape:
        pooled = bags.lookup(table)
    found = tape.gradient(pooled, table)
    assert found.indices.tolist() == [1, 3]
    assert found.values.dtype.name == dtype
    assert np.asarray(found.values, np.float64).tolist() == [[2, 2], [1, 1]]


# ---- steps


#: Each optimizer with each of its modes; rows of 16 bits do not catch up.
STEPS = [
    (which, mode, dtype)
    for which in MAKERS
    for mode in getattr(make(which), "_modes", lambda: ("tensorflow",))()
    for dtype in ("float16", "float32", "float64")
    if (mode, dtype) != ("catch_up", "float16")
]


@pytest.mark.parametrize(("which", "mode", "dtype"), STEPS)
def test_a_step_is_that_of_the_sums_of_the_rows_of_all_ids(
    which: str, mode: str, dtype: str
) -> None:
    """Of integers, whose sums are exact."""
    random, kind = np.random.default_rng(0), getattr(tfopt.optimizers, which.split("-")[0])
    options = {} if mode == "tensorflow" else {"sparse": mode}
    ours, theirs = (kind(**MAKERS[which], **options) for _ in range(2))
    a, b = (np.linspace(0.5, 1.5, 24).reshape(8, 3).astype(dtype) for _ in range(2))
    for _ in range(3):
        ids, offsets = random.integers(8, size=7), np.array([0, 3, 3])
        g = random.integers(-4, 4, (3, 3)).astype(dtype)
        bags = Bags(ids, offsets, 8)
        for optimizer, table in ((ours, a), (theirs, b)):
            if mode == "catch_up":
                optimizer.catch_up(table, bags.rows)
        ours.step(a, bags.gradient(g))
        theirs.step(b, IndexedSlices(np.repeat(g, [3, 0, 4], axis=0), ids).sum_duplicates())
    for optimizer in (ours, theirs):
        if mode == "catch_up":
            optimizer.flush()
    wanted = state(theirs, [b])
    for name, found in state(ours, [a]).items():
        assert_same_bits(found, wanted[name], name)


def summed(bags: Bags, g: np.ndarray) -> IndexedSlices:
    """Return the gradient of a table with the values that it has for everybody but a step."""
    gradient = bags.gradient(g)
    return IndexedSlices(gradient.values, gradient.indices, gradient.dense_shape)


@pytest.mark.sampled_whole
@pytest.mark.parametrize("flush", [True, False])
@pytest.mark.parametrize(("which", "mode", "dtype"), STEPS)
def test_a_step_that_sums_rows_has_the_bits_of_one_with_their_sums(
    which: str, mode: str, dtype: str, flush: bool
) -> None:
    """Of denormals and zeros of both signs too, and of two tables, by any number of threads."""
    random, kind = np.random.default_rng(0), getattr(tfopt.optimizers, which.split("-")[0])
    options = {} if mode == "tensorflow" else {"sparse": mode}
    tfopt.set_flush_denormals(flush)
    made = [kind(**MAKERS[which], **options) for _ in range(2)]
    first = [random.choice([-0.0, 0.5, 1e-40], (9, k)).astype(dtype) for k in (3, 33)]
    tables = [[table.copy() for table in first] for _ in made]
    tiny = 0.7 * float(np.finfo(dtype).tiny)  # two of which add up to a normal number
    some = np.array([-tiny, tiny, tiny, 1e-41, -0.0, 0.0, -1.0, 1.0, 3.0])
    for number in range(4):
        pooling = ("sum", "mean")[number % 2]
        bags = Bags(random.integers(8, size=20), [0, 6, 6, 7], 9, pooling)
        with np.errstate(over="ignore", invalid="ignore"):
            gs = [random.choice(some, (4, k)).astype(dtype) for k in (3, 33)]
        for optimizer, own, make_gradient in zip(
            made, tables, (Bags.gradient, summed), strict=True
        ):
            tfopt.threads.set_num_threads(1 + number % 3)
            pairs = [(make_gradient(bags, g), table) for g, table in zip(gs, own, strict=True)]
            if mode == "catch_up":
                for table in own:
                    optimizer.catch_up(table, bags.rows)
            optimizer.apply_gradients(pairs)
    for optimizer in made:
        if mode == "catch_up":
            optimizer.flush()
    found, wanted = (state(*each) for each in zip(made, tables, strict=True))
    for name, array in found.items():
        assert_same_bits(array, wanted[name], name)


def test_a_gradient_keeps_the_numbers_that_it_was_made_of() -> None:
    table, bags, g = np.zeros((4, 2)), Bags([3, 0, 3], [0, 2], 4), np.ones((2, 2))
    gradient = bags.gradient(g)
    g[...] = np.nan
    tfopt.optimizers.SGD(1.0).step(table, gradient)
    assert table.tolist() == [[-1, -1], [0, 0], [0, 0], [-2, -2]]
    assert gradient.values.tolist() == [[2, 2], [1, 1]]
    gradient.values *= 2
    tfopt.optimizers.SGD(1.0).step(table, gradient)
    assert table.tolist() == [[-3, -3], [0, 0], [0, 0], [-6, -6]]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]
)
def test_a_copy_of_a_gradient_is_one(copied: Any) -> None:
    gradient = Bags([3, 0, 3], [0, 2], 4).gradient(np.ones((2, 2)))
    other = copied(gradient)
    assert other.values.tolist() == gradient.values.tolist()
    assert other.indices.tolist() == [3, 0]
    assert (other.dense_shape, other.dtype, repr(other)) == ((4, 2), "f8", repr(gradient))


@pytest.mark.parametrize("shape", [(4, 3), (5, 2), (3, 2), (4,)])
def test_a_gradient_of_another_table_is_refused_as_its_values_are(shape: tuple[int, ...]) -> None:
    bags, g, table = Bags([3, 0, 3], [0, 2], 4), np.ones((2, 2)), np.ones(shape)
    errors = []
    for gradient in (bags.gradient(g), summed(bags, g)):
        try:
            tfopt.optimizers.Adam().step(table, gradient)
        except InvalidArgumentError as error:
            errors.append((type(error), str(error)))
    assert len(errors) != 1
    assert errors[:1] == errors[1:]
    assert (table == 1).all() == bool(errors)


@pytest.mark.parametrize("k", [None, 1, 2])
def test_no_bags(k: int | None) -> None:
    columns = () if k is None else (k,)
    bags, table = Bags([], [], 4), np.ones((4, *columns))
    assert bags.lookup(table).shape == (0, *columns)
    gradient = bags.gradient(np.ones((0, *columns)))
    assert gradient.values.shape == (0, *columns)
    tfopt.optimizers.Adam().step(table, gradient)
    assert (table == 1).all()


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize(
    "clip", [{}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.25}]
)
def test_a_wrapped_step_is_that_of_the_summed_rows(name: str, clip: dict[str, float]) -> None:
    random = np.random.default_rng(0)
    tables = [np.ones((8, 3), np.float32) for _ in range(2)]
    made = [WRAPPERS[name].busy(tfopt.optimizers.Adam(0.1, **clip)) for _ in tables]
    for _ in range(4):
        bags = Bags(random.integers(8, size=7), [0, 3, 3], 8, "mean")
        g = random.standard_normal((3, 3)).astype(np.float32)
        rows = twin.gradient(g, [(x.tolist(), [1.0] * len(x)) for x in np.split(bags._ids, [3, 3])],
                             "mean")  # fmt: skip
        given = bags.gradient(g), IndexedSlices(rows.values, rows.indices, (8, 3))
        for optimizer, table, grad in zip(made, tables, given, strict=True):
            optimizer.step(table, grad)
    assert_same_bits(*tables, name)


# ---- refusals

BAGS = Bags([0, 3, 1], [0, 2], 4)
TABLE = np.ones((4, 2), np.float32)


def read_only() -> np.ndarray:
    out = np.zeros((2, 2), np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Bags([0.5], [0], 4), InvalidTypeError, "ids must be int32 or int64, not float64"),
        (lambda: Bags([True], [0], 4), InvalidTypeError, "ids must be int32 or int64, not bool"),
        (lambda: Bags(np.uint64([1]), [0], 4), InvalidTypeError, "ids must be .* not uint64"),
        (lambda: Bags([[1]], [0], 4), InvalidArgumentError, r"ids must be one-dim.*\(1, 1\)"),
        (lambda: Bags([0, 4], [0], 4), IndexOutOfRangeError, r"ids\[1\] is 4.*\[0, 4\)"),
        (lambda: Bags([0, -1], [0], 4), IndexOutOfRangeError, r"ids\[1\] is -1"),
        (lambda: Bags([0], [0], 0), IndexOutOfRangeError, r"ids\[0\] is 0"),
        (lambda: Bags([0], [0], 2.0), TypeError, "integer"),
        (lambda: Bags([0], [0.0], 4), InvalidTypeError, "offsets must be int32 or int64"),
        (lambda: Bags([0], 0, 4), InvalidArgumentError, "offsets must be one-dimensional"),
        (lambda: Bags([0], [], 4), InvalidArgumentError, "1 ids, but no offsets"),
        (lambda: Bags([0, 1], [1], 4), InvalidArgumentError, "begin with 0, not 1"),
        (lambda: Bags([0, 1], [0, 2, 1], 4), InvalidArgumentError,
         r"offsets\[2\] is 1, less than 2"),
        (lambda: Bags([0, 1], [0, 3], 4), InvalidArgumentError, "go to 3, but there are 2 ids"),
        (lambda: Bags([0, 1], [0, 1], 4, include_last_offset=True), InvalidArgumentError,
         "the number of ids, 2, not 1"),
        (lambda: Bags([], [], 4, include_last_offset=True), InvalidArgumentError, "not none"),
        (lambda: Bags([0], [0], 4, "max"), InvalidArgumentError, '"sum" or "mean", not \'max\''),
        (lambda: Bags([0], [0], 4, weights=[1, 2]), InvalidArgumentError, "2 weights for 1 ids"),
        (lambda: Bags([0], [0], 4, weights=[1j]), InvalidTypeError, "real numbers, not complex"),
        (lambda: Bags([0], [0], 4, weights=["a"]), InvalidTypeError, "real numbers, not <U1"),
        (lambda: Bags([0], [0], 4, weights=tfopt.Variable([1.0])), InvalidTypeError,
         "weights have no gradient"),
        (lambda: BAGS.lookup(TABLE[:3]), InvalidArgumentError,
         r"4 rows, one for each row of the table, not the shape \(3, 2\)"),
        (lambda: BAGS.lookup(tfopt.Variable(TABLE[:3])), InvalidArgumentError, "table must have 4"),
        (lambda: BAGS.lookup(np.array(1.0)), InvalidArgumentError, r"not the shape \(\)"),
        (lambda: BAGS.lookup(TABLE.astype(int)), InvalidTypeError, "table must be floats .* int64"),
        (lambda: BAGS.lookup(TABLE.astype(">f4")), InvalidTypeError, "byte-swapped dtype >f4"),
        (lambda: BAGS.gradient(TABLE), InvalidArgumentError, "g must have 2 rows, one for each"),
        (lambda: BAGS.gradient(TABLE[:2].astype(int)), InvalidTypeError, "g must be floats"),
        (lambda: BAGS.lookup(TABLE, out=np.zeros((2, 3), np.float32)), InvalidArgumentError,
         r"out must have the shape \(2, 2\), not \(2, 3\)"),
        (lambda: BAGS.lookup(TABLE, out=np.zeros((2, 2))), InvalidTypeError,
         "out must be an array of float32, as the table, not float64"),
        (lambda: BAGS.lookup(TABLE, out=[0.0]), InvalidTypeError, "not list"),
        (lambda: BAGS.lookup(TABLE, out=read_only()), InvalidArgumentError, "out is read-only"),
        (lambda: BAGS.lookup(tfopt.Variable(TABLE), out=TABLE[:2]), TypeError, "no gradient"),
        (lambda: tfopt.lookup_bags([BAGS], []), InvalidArgumentError, "1 bags, but 0 tables"),
        (lambda: tfopt.lookup_bags([BAGS, TABLE], [TABLE, TABLE]), InvalidTypeError,
         r"bags\[1\] must be Bags, not ndarray"),
        (lambda: tfopt.lookup_bags([BAGS, BAGS], [TABLE, TABLE[:3]]), InvalidArgumentError,
         r"tables\[1\] must have 4 rows, one for each row of the table"),
        (lambda: tfopt.lookup_bags([BAGS], [TABLE.astype(int)]), InvalidTypeError,
         r"tables\[0\] must be floats .* int64"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Any, error: type, message: str) -> None:
    """Nothing is written."""
    with pytest.raises(error, match=message):
        call()
    assert (TABLE == 1).all()


def test_ids_and_weights_may_change_after_bags_are_made() -> None:
    ids, offsets, weights = np.array([0, 3, 1]), np.array([0, 2]), np.ones(3)
    bags = Bags(ids, offsets, 4, weights=weights)
    ids[:] = offsets[:] = 10**9
    weights[:] = np.nan
    assert bags.lookup(TABLE).tolist() == [[2, 2], [1, 1]]
