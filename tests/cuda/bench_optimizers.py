"""Time steps of optimizers on a GPU, beside those of torch and bitsandbytes; a part of bench.py."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from test_cuda_docs import CLASSES

import tfopt
from tfopt.errors import InvalidArgumentError
from tfopt.interop import torch as drop_ins

Row = dict[str, Any]
Step = Callable[[], Any]


class Bench(NamedTuple):
    """Where tensors are, and how steps are timed."""

    tensor: Callable[[np.ndarray], Any]  # puts an array where steps are timed
    filled: Callable[..., Any]  # the same of random numbers of a shape
    milliseconds: Callable[[Step], float]
    synchronize: Callable[[], Any]
    repeat: int = 20
    fused: bool = True  # whether torch has fused optimizers for the tensors

    def times(self, step: Step) -> Row:
        """Return what a step takes on the GPU, and what the host takes to queue it."""
        row = {"ms": self.milliseconds(step)}
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(self.repeat):
            step()
        row["host ms"] = (time.perf_counter() - begin) / self.repeat * 1000
        self.synchronize()
        return row


#: The sizes of GPT-2's tensors, of 124 M elements.
GPT_2 = [50_257 * 768, 1024 * 768, 768, 768]
for _ in range(12):
    GPT_2 += [768, 768, 768 * 2304, 2304, 768 * 768, 768]
    GPT_2 += [768, 768, 768 * 3072, 3072, 3072 * 768, 768]


def applied(opt: Any, variables: list[Any], grads: list[Any]) -> Step:
    return lambda: opt.apply_gradients(list(zip(grads, variables, strict=True)))


def tried(work: str, bench: Bench, step: Callable[[], Step]) -> Row:
    """Time what `step` returns; say why if it is refused, or if another library lacks it."""
    try:
        made = step()
        made()
        return {"work": work, **bench.times(made)}
    except (AssertionError, ImportError, InvalidArgumentError, RuntimeError) as error:
        if isinstance(error, getattr(torch.cuda, "OutOfMemoryError", ())):
            raise
        return {"work": work, "refused": f"{type(error).__name__}: {error}"[:200]}


def every_optimizer(bench: Bench, n: int) -> list[Row]:
    """Time a step of each optimizer of the library; what it refuses on a GPU is named."""

    def step(kind: Any) -> Step:
        variable, grad = (bench.filled(n // 1024, 1024) for _ in range(2))
        return applied(kind(), [variable], [grad])

    kinds = sorted(
        (k, v) for k, v in CLASSES.items() if not issubclass(v, tfopt.optimizers.Wrapper)
    )
    return [
        tried(f"{name}, {n} elements", bench, lambda kind=kind: step(kind)) for name, kind in kinds
    ]


def beside_torch(bench: Bench, sizes: list[int], what: str) -> list[Row]:
    """Time Adam with and without a global clip: ours, torch's on our kernels, and torch's."""

    def tensors() -> tuple[list[Any], list[Any]]:
        return [bench.filled(n) for n in sizes], [bench.filled(n) for n in sizes]

    def ours(**limits: float) -> Step:
        return applied(tfopt.optimizers.Adam(1e-3, **limits), *tensors())

    def by_torch(library: Any, clips: bool, **options: Any) -> Step:
        variables, grads = tensors()
        parameters = [torch.nn.Parameter(variable) for variable in variables]
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        opt = library.Adam(parameters, lr=1e-3, **options)
        if not clips:
            return opt.step
        clip = torch.nn.utils.clip_grad_norm_
        return lambda: (clip(parameters, 1.0), opt.step())

    best = {"fused": True} if bench.fused else {}
    steps = {
        "Adam": ours,
        "tfopt.interop.torch.Adam": lambda: by_torch(drop_ins, False),
        "torch Adam": lambda: by_torch(torch.optim, False, **best),
        "Adam, global_clipnorm": lambda: ours(global_clipnorm=1.0),
        "torch clip_grad_norm_, Adam": lambda: by_torch(torch.optim, True, **best),
    }
    return [tried(f"{name}, {what}", bench, step) for name, step in steps.items()]


#: How often rows occur: the exponent of Zipf's law, or none.
FREQUENCIES = {"uniform": None, "Zipf 1.05": 1.05, "Zipf 1.2": 1.2}


def lookups(rows: int, n: int, exponent: float | None) -> np.ndarray:
    random = np.random.default_rng(0)
    if exponent is None:
        return random.integers(rows, size=n)
    return (random.zipf(exponent, 4 * n) - 1)[:n].astype(np.uint64) % np.uint64(rows)


def embeddings(bench: Bench, rows: int, width: int, n: int) -> list[Row]:
    """Time steps of rows of a table, some of which occur often, beside torch's SparseAdam."""
    made: list[Row] = []
    for name, exponent in FREQUENCIES.items():
        ids = bench.tensor(lookups(rows, n, exponent).astype(np.int64))
        made += of_rows(bench, bench.filled(rows, width), bench.filled(n, width), ids, name)
    return made


def of_rows(bench: Bench, table: Any, values: Any, ids: Any, name: str) -> list[Row]:
    slices = tfopt.IndexedSlices(values, ids)

    def rival() -> Step:
        parameter = torch.nn.Parameter(table)
        opt = torch.optim.SparseAdam([parameter])

        def step() -> None:  # a new gradient each time, which has to be coalesced
            parameter.grad = torch.sparse_coo_tensor(ids[None], values, tuple(table.shape))
            opt.step()

        return step

    steps = {
        "Adagrad": lambda: applied(tfopt.optimizers.Adagrad(), [table], [slices]),
        "Adam, lazy": lambda: applied(tfopt.optimizers.Adam(sparse="lazy"), [table], [slices]),
        "torch SparseAdam": rival,
    }
    where = f"{len(values)} rows of {values.shape[1]}, {name}"
    return [tried(f"{which}, {where}", bench, step) for which, step in steps.items()]


def fewer_bytes(bench: Bench, n: int) -> list[Row]:
    """Time Adam with slots of fewer bytes, beside bitsandbytes', where it is installed."""

    def ours(storage: str) -> Step:
        opt = tfopt.optimizers.Adam(1e-3, storage=storage)
        return applied(opt, [bench.filled(n)], [bench.filled(n)])

    def theirs(name: str) -> Step:
        library = importlib.import_module("bitsandbytes.optim")
        parameter = torch.nn.Parameter(bench.filled(n))
        parameter.grad = bench.filled(n)
        return getattr(library, name)([parameter], lr=1e-3).step

    storages = ("float32", "bfloat16", "8bit", "dynamic8bit", "4bit")
    made = [
        tried(f"Adam, storage={each}, {n} elements", bench, lambda each=each: ours(each))
        for each in storages
    ]
    rivals = ("Adam32bit", "Adam8bit")
    return made + [
        tried(f"bitsandbytes {each}, {n} elements", bench, lambda each=each: theirs(each))
        for each in rivals
    ]


#: Sizes of tensors by what they are called.
LISTS = {
    f"{n} x {size}": [size] * n for n, size in ((1, 16), (100, 1000), (1000, 64), (1000, 1000))
}
LISTS["GPT-2's tensors"] = GPT_2


def optimizers(
    bench: Bench, exponent: int, rows: int, lists: dict[str, list[int]] = LISTS
) -> list[Row]:
    """Return all these figures, for arrays of up to 2^exponent elements."""
    n = 1 << exponent
    made = every_optimizer(bench, n >> 4)
    for what, sizes in lists.items():
        made += beside_torch(bench, sizes, what)
    made += embeddings(bench, rows, 64, min(100_000, rows))
    made += fewer_bytes(bench, n)
    made += fewer_bytes(bench, n >> 4)
    return made
