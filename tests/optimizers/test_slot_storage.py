"""Slots stored otherwise than their variables: in 16 bits, float32, or blocks of codes."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.block_codes import BLOCKS, same
from common.cases import RULES, WITH_ROWS, arrays_for, ordinary_hypers
from common.updates import update
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref
from tfopt import IndexedSlices, checkpoints, optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.state.slot_storage import FEWEST
from tfopt.rules import Rule
from tfopt.storage import POSITIVE4, POSITIVE8, POSITIVE_DYNAMIC8, SIGNED8, quantize

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
VARIABLES = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]
SLOTS = [*VARIABLES, *BLOCKS]
CODES = {"signed": SIGNED8, "positive": POSITIVE8}
#: Numbers for which rules choose other steps than for the ordinary ones.
OTHERWISE = {"l1": 0.0, "lr_power": -1.0, "rectifier": 0.0}

REAL = [rule for rule in RULES if rule.slots]
each_rule = pytest.mark.parametrize("rule", REAL, ids=lambda rule: rule.name)
each_rule_of_blocks = pytest.mark.parametrize(
    "rule", [rule for rule in REAL if rule.whole[1:]], ids=lambda rule: rule.name
)


def as_stored(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return values in a storage."""
    with np.errstate(all="ignore"):
        return quantize(values, dtype) if dtype in BLOCKS else values.astype(dtype)


# ---- steps


def slots_of(rule: Rule, values: list[np.ndarray], dtypes: list[np.dtype[Any]]) -> list[Any]:
    """Return the operands of a rule, with slots in their storages."""
    var, *slots, grad = values
    named = zip(rule.slots, slots, dtypes, strict=True)
    stored_ = [
        slot.copy() if name in rule.row_slots and dtype in BLOCKS else as_stored(slot, dtype)
        for name, slot, dtype in named
    ]
    return [var, *stored_, grad]


@each_rule
@given(data=st.data())
def test_steps_are_those_of_the_specification(rule: Rule, data: st.DataObject) -> None:
    """For any storage of the variable and of each slot, of one variable, lists, and rows."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    own = data.draw(st.sampled_from(VARIABLES))
    dtypes = [data.draw(st.sampled_from(SLOTS)) for _ in rule.slots]
    if data.draw(st.booleans()):  # as an optimizer stores them: there are loops for these codes
        dtypes = [CODES.get(rule.codes.get(slot, ""), own) for slot in rule.slots]
    rows = rule in WITH_ROWS and data.draw(st.booleans())
    rows = rows and not any(dtype in BLOCKS for dtype in dtypes)
    shapes = [(0,), (1,), (256,), (1100,), (3, 100), (40, 97), (9, 64), (2, 3, 200), (0, 3), (3, 0)]
    shape = data.draw(st.sampled_from(shapes))
    rows = rows and 0 not in shape[1:]  # which some rules refuse
    flush, threads = data.draw(st.booleans()), data.draw(st.sampled_from([1, 3]))
    options: dict[str, Any] = {**ordinary_hypers(rule), "grad_scale": random.choice([1.0, 0.3])}
    values = arrays_for(rule, shape, np.float32, random.integers(1000))
    values[0], values[-1] = values[0].astype(own), values[-1].astype(own)
    if rows:
        n = int(random.integers(0, 9)) if np.prod(shape) else 0
        options["indices"] = random.integers(0, max(shape[0], 1), n)
        values[-1] = random.standard_normal((n, *shape[1:])).astype(own)
    elif len(shape) > 1 and data.draw(st.booleans()):
        values[-1] = np.asfortranarray(values[-1])
    tfopt.threads.set_num_threads(threads)
    results = []
    for package in (tfopt, tfopt_ref):
        package.set_flush_denormals(flush)
        operands = slots_of(rule, [value.copy("K") for value in values], dtypes)
        update(package, rule.name, *operands, **options)
        results.append(operands)
    for name, fast, ref in zip(rule.operands, *results, strict=True):
        assert same(np.ascontiguousarray(fast), np.ascontiguousarray(ref)), name


@pytest.mark.parametrize("own", VARIABLES, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_variants_are_those_of_the_specification(rule: Rule, own: np.dtype[Any]) -> None:
    """For all flags and choices: in the variable's dtype and in blocks, whole and in rows."""
    ids = np.array([7, 0, 33, 7, 12])
    codes = [CODES.get(rule.codes.get(slot, ""), own) for slot in rule.slots]
    names = [*rule.flags, *(name for name in OTHERWISE if name in rule.hypers)]
    for chosen in product((False, True), repeat=len(names)):
        options: dict[str, Any] = {**ordinary_hypers(rule), "grad_scale": 0.5, "var_scale": 0.75}
        for name, other in zip(names, chosen, strict=True):
            if name in rule.flags or other:
                options[name] = OTHERWISE.get(name, other)
        for dtypes, shape, indices in (
            ([own] * len(codes), (1100,), None),
            (codes, (1100,), None),
            (codes, (40, 67), None),
            ([own] * len(codes), (40, 67), ids),
            ([own] * len(codes), (40, 1), ids),
        ):
            if indices is not None and rule not in WITH_ROWS:
                continue
            values = arrays_for(rule, shape, np.float32, 5)
            values[0], values[-1] = values[0].astype(own), values[-1].astype(own)
            if indices is not None:
                values[-1], options["indices"] = values[-1][: indices.size], indices
            results = []
            for package in (tfopt, tfopt_ref):
                operands = slots_of(rule, [value.copy() for value in values], dtypes)
                with np.errstate(all="ignore"):
                    update(package, rule.name, *operands, **options)
                results.append(operands)
            for name, fast, ref in zip(rule.operands, *results, strict=True):
                assert same(fast, ref), f"{name}, {chosen}, {dtypes}, {shape}, {indices}"


@each_rule_of_blocks
def test_blocks_do_not_depend_on_threads_or_on_what_is_stepped_beside_them(rule: Rule) -> None:
    sizes = [5, 70_000, 300, 20_011]
    each = [arrays_for(rule, size, np.float32, size) for size in sizes]
    alone = [slots_of(rule, values, [SIGNED8] * len(rule.slots)) for values in each]
    op = getattr(tfopt.training_ops, f"apply_{rule.name}")
    for operands in alone:
        operands[0] = operands[0].copy()
        op(*operands, **ordinary_hypers(rule))
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        lists = [slots_of(rule, values, [SIGNED8] * len(rule.slots)) for values in each]
        columns = [list(column) for column in zip(*lists, strict=True)]
        columns[0] = [var.copy() for var in columns[0]]
        op(*columns, **ordinary_hypers(rule))
        for operands, together in zip(alone, zip(*columns, strict=True), strict=True):
            assert all(map(same, operands[:-1], together[:-1]))


@each_rule_of_blocks
@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda o: o | {1: o[1][:-1]}, InvalidArgumentError, "a block for each 256 elements"),
        (lambda o: o | {0: o[0].astype(np.float64)}, InvalidTypeError, "as var is"),
        (lambda o: o | {0: np.zeros(1200, np.float32)[::2]}, InvalidArgumentError, "C-con"),
        (lambda o: o | {1: np.zeros(6, SIGNED8)[::2]}, InvalidArgumentError, "block|C-contiguous"),
        (lambda o: o | {1: o[1]["codes"]}, InvalidTypeError, "not int8"),
        (lambda o: o | {0: o[1]}, InvalidTypeError, "must be float16, bfloat16, float32"),
        (lambda o: o | {len(o) - 1: o[1]}, InvalidTypeError, "as var is"),
    ],
)
def test_refused_steps_change_nothing(rule: Rule, spoil: Any, error: Any, message: str) -> None:
    values = slots_of(rule, arrays_for(rule, 600, np.float32), [SIGNED8] * len(rule.slots))
    values = [*spoil(dict(enumerate(values))).values()]
    before = copy.deepcopy(values)
    with pytest.raises(error, match=message):
        update(tfopt, rule.name, *values, **ordinary_hypers(rule))
    for a, b in zip(values, before, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "rule", [rule for rule in WITH_ROWS if rule.whole[1:]], ids=lambda rule: rule.name
)
def test_rows_of_blocks_are_refused(rule: Rule) -> None:
    values = slots_of(rule, arrays_for(rule, (6, 100), np.float32), [SIGNED8] * len(rule.slots))
    values[-1] = values[-1][:2]
    before = copy.deepcopy(values)
    with pytest.raises(InvalidTypeError, match="stored in blocks of codes, which only dense"):
        update(tfopt, rule.name, *values, indices=np.array([0, 3]), **ordinary_hypers(rule))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(values, before, strict=True))


# ---- optimizers

SHAPE = (70, 64)  # more than FEWEST elements
EIGHT_BITS: dict[str, dict[str, Any]] = {
    "ADOPT": {},
    "RAdam": {},
    "Adadelta": {},
    "Adam": {"amsgrad": True},
    "AdamMini": {},
    "RowwiseAdam": {},
    "LAMB": {},
    "LARS": {},
    "AdamW": {"weight_decay": 0.1},
    "Adamax": {},
    "Lion": {},
    "Nadam": {},
    "RMSprop": {"momentum": 0.5},
    "SGD": {"momentum": 0.9},
    "Signum": {},
}
#: Whose slots cannot be stored in 8 bits: sums, and those of rules without codes.
COARSE = {
    *("AdEMAMix", "Adagrad", "Ftrl", "ScheduleFreeAdamW", "ScheduleFreeSGD", "Yogi"),
    "RowwiseAdagrad",
}
each_optimizer = pytest.mark.parametrize("name", EIGHT_BITS)
each_kind = pytest.mark.parametrize("kind", ["8bit", "4bit"])


def made(name: str, **arguments: Any) -> Any:
    """Return an optimizer whose slots are stored in blocks of codes."""
    return getattr(optimizers, name)(**{"storage": "8bit"} | EIGHT_BITS[name] | arguments)


def gradients(steps: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(SHAPE).astype(np.float32) for _ in range(steps)]


def test_every_optimizer_has_8_bits_or_a_reason() -> None:
    rules = {
        name
        for name in optimizers.__all__
        if isinstance(cls := getattr(optimizers, name), type)
        and issubclass(cls, optimizers.base.rule_optimizer.RuleOptimizer)
    }
    assert {*EIGHT_BITS} | COARSE == rules


@each_optimizer
@each_kind
@pytest.mark.parametrize(
    "changes",
    [{}, {"clipvalue": 0.5}, {"clipnorm": 1.0}, {"global_clipnorm": 1.0}, {"sparse": "lazy"}],
    ids=str,
)
def test_a_step_is_that_of_arrays_stored_so(name: str, kind: str, changes: dict[str, Any]) -> None:
    """Reported or not, in a function or not, the same: so clipping and observation meet blocks."""
    if name in ("LAMB", "LARS") and "sparse" in changes:
        return  # which make sparse gradients dense ones
    plain, watched = (made(name, storage=kind, **changes) for _ in range(2))
    watched.observe = True
    results = []
    for optimizer in (plain, watched):
        w, b = np.ones(SHAPE, np.float32), np.ones(3, np.float32)
        for g in gradients(4):
            optimizer.apply_gradients([(g, w), (g[0, :3].copy(), b)])
        results.append([w, b, *optimizer.get_weights()])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*results, strict=True))
    slots = [slot for slot in optimizer.get_weights() if slot.dtype.kind == "V"]
    assert slots and all(slot.shape == (18,) for slot in slots)


@each_optimizer
def test_fewer_bits_end_near_full_precision(name: str) -> None:
    """In 4 bits, of the first loss less than a 20th is left where sizes of slots are steps."""
    random = np.random.default_rng(0)
    A = random.uniform(0.5, 2, SHAPE).astype(np.float32)
    losses = {}
    for storage in (None, "8bit", "4bit", "dynamic8bit"):
        optimizer = made(name, storage=storage, learning_rate=0.01)
        w = np.ones(SHAPE, np.float32)
        for _ in range(200):
            optimizer.apply_gradients([(A * w, w)])
        losses[storage] = float((A * w * w).sum())
    for storage, left in ("8bit", 0.01), ("4bit", 0.05), ("dynamic8bit", 0.01):
        assert losses[storage] < losses[None] * 1.05 + left * A.sum(), storage


@each_optimizer
@pytest.mark.parametrize("kind", ["8bit", "4bit", "dynamic8bit"])
def test_training_goes_on_from_where_it_was_saved(name: str, kind: str, tmp_path: Path) -> None:
    whole, first = made(name, storage=kind), made(name, storage=kind)
    w, v = np.ones(SHAPE, np.float32), np.ones(SHAPE, np.float32)
    all_gradients = gradients(6)
    for g in all_gradients:
        whole.apply_gradients([(g, w)])
    for g in all_gradients[:3]:
        first.apply_gradients([(g, v)])
    ways: dict[str, tuple[Any, np.ndarray]] = {}
    for suffix in ("npz", "safetensors"):
        path = tmp_path / f"state.{suffix}"
        checkpoints.save(path, {"w": v, "optimizer": first.state_dict({"w": v})})
        tree = checkpoints.load(path)
        ways[suffix] = made(name, storage=kind), tree["w"]
        ways[suffix][0].load_state_dict(tree["optimizer"], {"w": tree["w"]})
    ways["pickle"] = pickle.loads(pickle.dumps((first, v)))
    again = made(name, storage=kind)
    u = v.copy()
    again.apply_gradients([(np.zeros(SHAPE, np.float32), u)])
    u[...] = v
    again.set_weights(first.get_weights())
    ways["weights"] = again, u
    for way, (optimizer, array) in ways.items():
        for g in all_gradients[3:]:
            optimizer.apply_gradients([(g, array)])
        assert array.tobytes() == w.tobytes(), way


@pytest.mark.parametrize("name", sorted(COARSE))
@each_kind
def test_sums_are_refused_few_bits(name: str, kind: str) -> None:
    w = np.ones(SHAPE, np.float32)
    optimizer = getattr(optimizers, name)(storage=kind)
    before = optimizer.get_weights()
    with pytest.raises(InvalidArgumentError, match=f"cannot be stored in {kind[0]} bits"):
        optimizer.apply_gradients([(w.copy(), w)])
    assert (w == 1).all() and optimizer.get_weights() == before


@pytest.mark.parametrize("bad", ["2bit", 8, {"m": "int8"}])
def test_unknown_storages_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="storage must be one of float32, float16"):
        optimizers.Adam(storage=bad)


def test_unknown_slots_are_refused() -> None:
    w = np.ones(SHAPE, np.float32)
    with pytest.raises(InvalidArgumentError, match="no slot 'n'"):
        optimizers.Adam(storage={"n": "8bit"}).apply_gradients([(w.copy(), w)])


def test_variables_of_other_dtypes_are_refused() -> None:
    w = np.ones(SHAPE)
    with pytest.raises(InvalidTypeError, match="'8bit' is for float32, float16 and bfloat16"):
        optimizers.Adam(storage="8bit").apply_gradients([(w.copy(), w)])


@each_kind
def test_sparse_gradients_are_refused_by_blocks(kind: str) -> None:
    w = np.ones(SHAPE, np.float32)
    optimizer = optimizers.Adam(storage=kind, sparse="lazy")
    rows = IndexedSlices(np.ones((1, 64), np.float32), np.array([3]), SHAPE)
    with pytest.raises(InvalidTypeError, match="only dense gradients"):
        optimizer.apply_gradients([(rows, w)])
    assert (w == 1).all() and len(optimizer.get_weights()) == 1


@pytest.mark.parametrize("own", VARIABLES, ids=str)
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "8bit", "4bit", "dynamic8bit"])
def test_each_slot_has_its_storage(own: Any, kind: str) -> None:
    w, small = np.ones(FEWEST).astype(own), np.ones(FEWEST - 1).astype(own)
    optimizer = optimizers.Adam(storage={"v": kind})
    optimizer.apply_gradients([(w.copy(), w), (small.copy(), small)])
    found = optimizer.get_slot(w, "v").dtype
    assert optimizer.get_slot(w, "m").dtype == own
    in_blocks = {"8bit": POSITIVE8, "4bit": POSITIVE4, "dynamic8bit": POSITIVE_DYNAMIC8}
    assert found == in_blocks[kind] if kind in in_blocks else found.name == kind
    assert optimizer.get_slot(small, "v").dtype == (own if kind in in_blocks else found)
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.storage == {"v": kind}


@each_optimizer
@each_kind
def test_a_running_optimizer_is_converted_by_one_call(name: str, kind: str) -> None:
    """What follows is as if its slots had been stored so by hand; and back, but for rounding."""
    first, w = made(name, storage=None), np.ones(SHAPE, np.float32)
    small = np.ones(3, np.float32)
    for g in gradients(3):
        first.apply_gradients([(g, w), (g[0, :3].copy(), small)])
    before = first.get_weights()
    other, v = copy.deepcopy((first, w))
    first.convert_storage(kind)
    after = first.get_weights()
    assert first.storage == kind and len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        expected = quantize(a, b.dtype) if b.dtype in BLOCKS else a
        assert expected.tobytes() == b.tobytes()
    first.apply_gradients([(gradients(4)[3], w)])
    other.convert_storage(kind)
    other.apply_gradients([(gradients(4)[3], v)])
    assert v.tobytes() == w.tobytes()
    first.convert_storage(None)
    assert all(weight.dtype.kind != "V" for weight in first.get_weights())


def test_a_refused_conversion_changes_nothing() -> None:
    w, v = np.ones(SHAPE, np.float32), np.ones(SHAPE)
    optimizer = optimizers.Adam()
    optimizer.apply_gradients([(w.copy(), w), (v.copy(), v)])
    before = optimizer.get_weights()
    with pytest.raises(InvalidTypeError, match="not float64"):
        optimizer.convert_storage("8bit")
    assert optimizer.storage is None
    for a, b in zip(before, optimizer.get_weights(), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
