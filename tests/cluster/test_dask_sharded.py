"""Tables in parts: the bits of one table, files, dead workers, more than a worker's memory."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.dask_cluster import addresses, processes
from distributed import Client

import tfopt
from tfopt import IndexedSlices, checkpoints
from tfopt import optimizers as opts
from tfopt.checkpoints.folder import MANIFEST, Folder
from tfopt.dask import LostShardError, ShardedVariable, UniformRows
from tfopt.errors import CheckpointError

ROWS, WIDTH = 50, 3
INITIAL = UniformRows(-1, 1, seed=5)
EVERY = np.arange(ROWS)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with processes(2) as made:
        yield made


def gradients(step: int, dtype: Any = np.float32) -> IndexedSlices:
    """Rows of some parts or none, several times some of them."""
    random = np.random.default_rng([1, step])
    n = 0 if step == 2 else 6
    ids = random.integers(0, 17 if step % 2 else ROWS, n)
    return IndexedSlices(random.normal(size=(n, WIDTH)).astype(dtype), ids)


def one_table(optimizer: Any, steps: range, dtype: Any = np.float32) -> np.ndarray:
    table = INITIAL(0, ROWS, WIDTH).astype(dtype)
    for step in steps:
        optimizer.apply_gradients([(gradients(step, dtype), table)])
    optimizer.flush()
    return table


RULES: list[tuple[Any, dict[str, Any]]] = [
    (opts.SGD, {"momentum": 0.9, "nesterov": True}),
    (opts.Adam, {"amsgrad": True, "clipvalue": 0.5}),
    (opts.AdamW, {"weight_decay": 0.1}),
    (opts.Adagrad, {}),
    (opts.Adadelta, {}),
    (opts.Adamax, {}),
    (opts.Lion, {}),
    (opts.Nadam, {}),
    (opts.RMSprop, {"centered": True, "momentum": 0.5}),
    (opts.Ftrl, {"l1_regularization_strength": 0.01}),
]
CASES = [
    (cls, {**options, "sparse": sparse})
    for cls, options in RULES
    for sparse in ("tensorflow", "lazy", "catch_up")
    if (cls, sparse) != (opts.Ftrl, "catch_up")
]


@pytest.mark.parametrize(("cls", "options"), CASES, ids=lambda case: str(case))
def test_parts_have_the_bits_of_one_table(client: Client, cls: Any, options: Any) -> None:
    rate = opts.schedules.ExponentialDecay(0.1, 2, 0.5) if cls is not opts.Nadam else 0.1
    table = ShardedVariable(
        ROWS, WIDTH, cls(rate, **options), initializer=INITIAL, shards=3, client=client
    )
    counts = [table.apply_gradients(gradients(step)) for step in range(5)]
    assert counts == [1, 2, 3, 4, 5] and table.iterations == 5
    assert table.gather(EVERY).tobytes() == one_table(cls(rate, **options), range(5)).tobytes()
    table.close()


@pytest.mark.parametrize("shards", [1, 2, 7, ROWS])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_number_of_parts_changes_no_bit(client: Client, shards: int, dtype: Any) -> None:
    options = {"initializer": INITIAL, "dtype": dtype, "client": client}
    table = ShardedVariable(ROWS, WIDTH, opts.Adam(0.1), shards=shards, **options)
    for step in range(3):
        table.apply_gradients(gradients(step, dtype))
    whole = table.gather(EVERY)
    assert whole.dtype == dtype
    assert whole.tobytes() == one_table(opts.Adam(0.1), range(3), dtype).tobytes()
    table.close()


def test_rows_are_gathered_in_any_shape(client: Client) -> None:
    table = ShardedVariable(ROWS, WIDTH, opts.SGD(), initializer=INITIAL, shards=3, client=client)
    whole = INITIAL(0, ROWS, WIDTH).astype(np.float32)
    for ids in (7, [], [[3, 49], [3, 0]], EVERY[::-1], np.int32([[[16]], [[17]]])):
        rows = table.gather(ids)
        assert np.array_equal(rows, whole[np.asarray(ids, np.int64)])
        assert rows.shape == (*np.shape(ids), WIDTH)
    rows[...] = 0
    assert table.gather(16).any()


def gather_there(table: ShardedVariable, ids: list[int]) -> np.ndarray:
    with pytest.raises(RuntimeError, match="where it was made"):
        table.apply_gradients(IndexedSlices(np.ones((1, WIDTH), np.float32), [0]))
    return table.gather(ids)


def test_a_task_can_read_a_table(client: Client) -> None:
    table = ShardedVariable(ROWS, WIDTH, opts.SGD(), initializer=INITIAL, shards=2, client=client)
    for worker in addresses(client):
        rows = client.submit(gather_there, table, [3, 40], workers=[worker], pure=False).result()
        assert np.array_equal(rows, table.gather([3, 40]))


class Doubled(opts.SGD):
    def _next_rate(self, step: int) -> float:
        return 2 * super()._next_rate(step)


def test_an_optimizer_of_ones_own(client: Client, tmp_path: Path) -> None:
    ones = IndexedSlices(np.ones((1, WIDTH), np.float32), [4])
    table = ShardedVariable(ROWS, WIDTH, Doubled(0.5), client=client)
    table.apply_gradients(ones)
    assert table.gather(4).tolist() == [-1] * WIDTH
    table.save(tmp_path)
    with pytest.raises(tfopt.InvalidArgumentError, match="Doubled"):
        ShardedVariable.load(tmp_path, client=client)
    again = ShardedVariable.load(tmp_path, Doubled(), client=client)
    again.apply_gradients(ones)
    assert again.gather(4).tolist() == [-2] * WIDTH


def test_what_does_not_decay_in_one_table_does_not_in_parts(client: Client) -> None:
    optimizer = opts.AdamW(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    ones = IndexedSlices(np.zeros((ROWS, 1), np.float32), EVERY)
    for name, left in (("my_bias", 1.0), ("weights", np.float32(0.95))):
        table = ShardedVariable(ROWS, 1, optimizer, initializer=1.0, name=name, client=client)
        table.apply_gradients(ones)
        assert set(table.gather(EVERY).ravel()) == {left}


# ---- refusals


def wrong_slices() -> list[tuple[Any, type[Exception], str]]:
    ones = np.ones((2, WIDTH), np.float32)
    return [
        (IndexedSlices(ones, [3, ROWS]), tfopt.IndexOutOfRangeError, r"ids\[1\] = 50"),
        (IndexedSlices(ones, [-1, 3]), tfopt.IndexOutOfRangeError, r"ids\[0\] = -1"),
        (IndexedSlices(ones, [3]), tfopt.InvalidArgumentError, "shape"),
        (IndexedSlices(ones, [[3, 4]]), tfopt.InvalidArgumentError, "one-dimensional"),
        (IndexedSlices(ones[:, :2], [3, 4]), tfopt.InvalidArgumentError, "shape"),
        (IndexedSlices(ones, [3.0, 4.0]), tfopt.InvalidTypeError, "int32 or int64"),
        (IndexedSlices(np.ones((2, WIDTH)), [3, 49]), tfopt.InvalidTypeError, "float64"),
        (ones, tfopt.InvalidTypeError, "IndexedSlices, not ndarray"),
    ]


def test_a_refused_step_changes_nothing(client: Client) -> None:
    table = ShardedVariable(ROWS, WIDTH, opts.Adam(), initializer=INITIAL, shards=3, client=client)
    before = table.gather(EVERY)
    for slices, error, says in wrong_slices():
        with pytest.raises(error, match=says):
            table.apply_gradients(slices)
    assert table.iterations == 0 and np.array_equal(table.gather(EVERY), before)
    with pytest.raises(tfopt.IndexOutOfRangeError, match=r"ids\[2\] = 50"):
        table.gather([[0, 1], [50, 51]])
    with pytest.raises(tfopt.InvalidTypeError):
        table.gather([0.5])
    table.apply_gradients(gradients(0))
    assert table.gather(EVERY).tobytes() == one_table(opts.Adam(), range(1)).tobytes()


def test_optimizers_that_parts_cannot_have_are_refused(client: Client) -> None:
    used = opts.SGD()
    used.apply_gradients([(np.ones(1), np.ones(1))])
    for optimizer in (
        opts.Adam(clipnorm=1.0),
        opts.Adam(global_clipnorm=1.0),
        opts.SGD(gradient_aggregator=lambda pairs: pairs),
        opts.SGD(gradient_transformers=[lambda pairs: pairs]),
        opts.SGD(lambda: 0.1),
        used,
    ):
        with pytest.raises(tfopt.InvalidArgumentError):
            ShardedVariable(ROWS, WIDTH, optimizer, client=client)
    for other in (opts.WeightAverage(opts.SGD()), opts.Adafactor(), "adam"):
        with pytest.raises(tfopt.InvalidTypeError):
            ShardedVariable(ROWS, WIDTH, other, client=client)  # type: ignore[arg-type]
    for numbers in ((0, 3, None), (3, 0, None), (3, 3, 4), (3, 3, 0)):
        with pytest.raises(tfopt.InvalidArgumentError):
            ShardedVariable(*numbers[:2], opts.SGD(), shards=numbers[2], client=client)
    for numbers in ((3.5, 3, 1), ("3", 3, 1), (True, 3, 1), (3, 3.0, 1), (3, 3, 1.5)):
        with pytest.raises(tfopt.InvalidTypeError, match="must be an integer"):
            ShardedVariable(*numbers[:2], opts.SGD(), shards=numbers[2], client=client)
    with pytest.raises(tfopt.InvalidArgumentError, match="shape"):
        flat = lambda start, stop, width: np.zeros(width)  # noqa: E731
        ShardedVariable(3, 3, opts.SGD(), initializer=flat, client=client)


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_seeds_that_no_generator_has_are_refused(seed: int) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="seed must be at least 0"):
        UniformRows(seed=seed)


def test_a_closed_table_says_so(client: Client) -> None:
    table = ShardedVariable(np.int64(3), np.int32(2), opts.SGD(), client=client)
    assert [type(length) for length in table.shape] == [int, int]
    table.close()
    with pytest.raises(RuntimeError, match="has been closed"):
        table.gather([1])


# ---- files


@pytest.mark.parametrize("sparse", ["tensorflow", "catch_up"])
@pytest.mark.parametrize("shards", [3, 1, 5])
def test_steps_go_on_from_a_file(client: Client, tmp_path: Path, sparse: str, shards: int) -> None:
    """Into another number of parts, too; and saving changes no bit of what is saved."""

    def optimizer() -> Any:
        return opts.Nadam(0.1, sparse=sparse)

    table = ShardedVariable(ROWS, WIDTH, optimizer(), initializer=INITIAL, shards=3, client=client)
    for step in range(3):
        table.apply_gradients(gradients(step))
    table.save(tmp_path)
    again = ShardedVariable.load(tmp_path, shards=shards, client=client)
    for one in (table, again):
        for step in range(3, 6):
            one.apply_gradients(gradients(step))
        assert one.iterations == 6
        assert one.gather(EVERY).tobytes() == one_table(optimizer(), range(6)).tobytes()
        one.close()


def test_a_folder_has_the_last_table_alone(client: Client, tmp_path: Path) -> None:
    table = ShardedVariable(ROWS, WIDTH, opts.SGD(0.1), shards=3, client=client)
    for step in range(2):
        table.save(tmp_path)
        names = {path.name for path in tmp_path.iterdir()}
        manifest = checkpoints.load(tmp_path / MANIFEST)
        assert names == {MANIFEST, *(entry["file"] for entry in manifest["files"])}
        assert len(names) == 4
        table.apply_gradients(gradients(step))


def test_a_save_that_fails_leaves_the_one_before(client: Client, tmp_path: Path) -> None:
    table = ShardedVariable(ROWS, WIDTH, opts.SGD(0.1), shards=2, client=client)
    table.save(tmp_path)
    table.apply_gradients(gradients(0))
    before = (tmp_path / MANIFEST).read_bytes()
    table._config = table._config._replace(
        optimizer_config={"rate": object()}
    )  # which no file can hold
    with pytest.raises(TypeError):
        table.save(tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == before
    assert not ShardedVariable.load(tmp_path, client=client).gather(EVERY).any()


def test_damage_is_seen(client: Client, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"there is no {MANIFEST}"):
        ShardedVariable.load(tmp_path, client=client)
    ShardedVariable(ROWS, WIDTH, opts.SGD(0.1), shards=2, client=client).save(tmp_path)
    [file, _] = sorted(tmp_path.glob("rows-*"))
    content = bytearray(file.read_bytes())
    content[-300] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=file.name):
        ShardedVariable.load(tmp_path, client=client)
    file.unlink()
    with pytest.raises(CheckpointError, match=f"there is no {file.name}"):
        ShardedVariable.load(tmp_path, client=client)
    manifest = (tmp_path / MANIFEST).read_bytes()
    (tmp_path / MANIFEST).write_bytes(manifest[:-1])
    with pytest.raises(CheckpointError, match=MANIFEST):
        ShardedVariable.load(tmp_path, client=client)
    checkpoints.save(tmp_path / MANIFEST, {})
    with pytest.raises(CheckpointError, match="version"):
        ShardedVariable.load(tmp_path, client=client)


# ---- workers


def test_a_dead_worker_is_said_and_a_save_brings_the_table_back(tmp_path: Path) -> None:
    with processes(2) as client:
        table = ShardedVariable(ROWS, WIDTH, opts.Adam(0.1), initializer=INITIAL, client=client)
        table.apply_gradients(gradients(0))
        table.save(tmp_path)
        table.apply_gradients(gradients(1))
        pid = client.submit(os.getpid, workers=[addresses(client)[1]], pure=False).result()
        os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(LostShardError, match="rows 25 to 49 of ShardedVariable were lost"):
                table.apply_gradients(gradients(2))
        with pytest.raises(LostShardError):
            table.gather([30])
        assert table.gather([3]).shape == (1, WIDTH)
        client.wait_for_workers(2)
        again = ShardedVariable.load(tmp_path, client=client)
        for step in range(1, 3):
            again.apply_gradients(gradients(step))
        whole = again.gather(EVERY)
    assert whole.tobytes() == one_table(opts.Adam(0.1), range(3)).tobytes()


class Silent:
    """What Dask leaves when a worker dies in a call at the wrong moment."""

    status = "error"

    def answer(self, *_: Any) -> Silent:
        return self

    def result(self, timeout: float) -> Any:
        raise TimeoutError


def test_a_call_that_stays_without_an_answer_is_given_up_with_its_worker(client: Client) -> None:
    table = ShardedVariable(ROWS, WIDTH, opts.SGD(), shards=2, client=client)
    there = table._futures[1], table._shards[1]
    table._futures[1], table._shards[1] = Silent(), Silent()
    with pytest.raises(LostShardError, match="rows 25 to 49"):
        table.gather(EVERY)
    assert not table.gather([3]).any()
    table._futures[1], table._shards[1] = there


def test_a_table_can_be_larger_than_a_workers_memory(tmp_path: Path) -> None:
    """No process has it all: neither a worker, which would be ended, nor this one."""
    limit, rows, width = 400 << 20, 2_500_000, 64
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with processes(4, memory_limit=limit) as client:
        table = ShardedVariable(rows, width, opts.SGD(0.5), initializer=1.0, client=client)
        assert rows * width * 4 > 1.5 * limit
        ids = np.arange(0, rows, 1 << 16)
        ones = np.ones((ids.size, width), np.float32)
        table.apply_gradients(IndexedSlices(ones, ids))
        assert set(table.gather(ids).ravel()) == {0.5} and set(table.gather(ids + 1).ravel()) == {1}
        assert len(addresses(client)) == 4
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < 100 << 20


# ---- files elsewhere, without a cluster


@pytest.mark.parametrize("local", [True, False])
def test_files_are_replaced_as_a_whole_where_fsspec_reaches(
    local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "tables") if local else "memory://tables/one"
    folder = Folder(url)
    folder.make()
    for name in ("rows-a.npz", "rows-b.npz"):
        with pytest.raises(CheckpointError, match=f"there is no {name}"):
            folder.load(name)
        folder.save(name, {"rows": np.arange(3), "name": name})
        folder.save(MANIFEST, {"files": [name]})
        folder.keep_only({name}, "rows-")
        assert folder.load(name)["name"] == name
        assert folder.load(MANIFEST) == {"files": [name]}

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    there = [] if local else [(type(folder._fs), "mv")]
    for where, what in [(os, "replace"), (os, "rename"), *there]:
        monkeypatch.setattr(where, what, fails)
    with pytest.raises(OSError, match="No space"):
        folder.save("rows-b.npz", {"rows": np.zeros(3)})
    assert folder.load("rows-b.npz")["rows"].tolist() == [0, 1, 2]
    paths = os.listdir(url) if local else folder._fs.ls(folder._path, detail=False)
    names = [path.rpartition("/")[2] for path in paths]
    assert sorted(names) == [MANIFEST, "rows-b.npz"]
    folder.keep_only(set(), "rows-")
    folder.keep_only(set(), MANIFEST)
    folder.remove_if_empty()
    assert not folder.has("rows-b.npz") and not (tmp_path / "tables").exists()
