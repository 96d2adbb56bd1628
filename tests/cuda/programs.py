"""Programs of users: TFOPT_TEST_DEVICE=torch python programs.py [--json FILE].

Each is as a user of torch on a GPU writes it, checks what it did and returns figures. On a machine
without a GPU, test_cuda_programs.py runs those that do not say what they need one for, on tensors
in host memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from devices import DEVICE, HostTorch, Torch

import tfopt
from tfopt.optimizers import (
    SGD,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    GradientAccumulation,
    LossScaleOptimizer,
    Mirror,
    WeightAverage,
    schedules,
)

TORCH: Torch = DEVICE if isinstance(DEVICE, Torch) else HostTorch()


class Program(NamedTuple):
    """What a user does, and why it takes a GPU, if it does."""

    run: Callable[[], Any]
    needs: str | None


PROGRAMS: dict[str, Program] = {}


def program(needs: str | None = None) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a program."""

    def register(run: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[run.__name__] = Program(run, needs)
        return run

    return register


def tensor(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    """Return a tensor of normal numbers on the device, the same each time."""
    return TORCH.to(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def on_gpu(*shape: int) -> Any:
    """Return a tensor of normal numbers that are drawn on the GPU."""
    return torch.randn(shape, device="cuda")


def milliseconds(step: Callable[[], Any], repeat: int = 20) -> dict[str, float]:
    """Time a step: the median on the GPU, and the mean on the host's clock."""
    times = []
    for k in range(repeat + 5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        if k >= 5:
            times.append(begin.elapsed_time(end))
    start = time.perf_counter()
    for _ in range(repeat):
        step()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - start) / repeat * 1000
    return {"gpu": round(statistics.median(times), 4), "wall": round(wall, 4)}


# ---- training


def training(update: Callable[[list[Any], list[Any]], Any], steps: int = 60) -> Iterator[float]:
    """Train a small network on fixed data; yield the loss before each step."""
    nn = torch.nn
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    model = layers if DEVICE.on_host else layers.cuda()
    inputs = tensor(512, 64).as_subclass(torch.Tensor)
    labels = inputs[:, :10].argmax(1)
    parameters = list(model.parameters())
    seen = [TORCH.seen(parameter.data) for parameter in parameters]
    for _ in range(steps):
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        update([TORCH.seen(parameter.grad) for parameter in parameters], seen)
        yield loss.item()


@program()
def a_network_trained_by_adam_as_by_torchs() -> Any:
    opt = Adam(1e-2, epsilon=1e-8)
    ours = list(training(lambda grads, variables: opt.step(variables, grads)))
    rivals: list[Any] = []

    def by_torch(grads: list[Any], variables: list[Any]) -> None:
        if not rivals:
            own = [variable.as_subclass(torch.Tensor) for variable in variables]
            rivals.append((own, torch.optim.Adam(own, 1e-2)))
        own, rival = rivals[0]
        for variable, grad in zip(own, grads, strict=True):
            variable.grad = grad.as_subclass(torch.Tensor)
        rival.step()

    theirs = list(training(by_torch))
    assert abs(ours[-1] - theirs[-1]) < 0.02 * theirs[0], (ours[-1], theirs[-1])
    return {"loss": ours[-1], "torch": theirs[-1]}


@program()
def a_network_with_clipping_decay_and_a_schedule() -> Any:
    rate = schedules.CosineDecay(2e-2, 60)
    opt = AdamW(rate, weight_decay=0.01, global_clipnorm=1.0)
    losses = list(
        training(lambda grads, variables: opt.apply_gradients(zip(grads, variables, strict=True)))
    )
    assert losses[-1] < 0.5 * losses[0], losses
    return {"first": losses[0], "last": losses[-1]}


@program()
def batches_with_a_loss_scale_and_an_average() -> Any:
    inner = GradientAccumulation(Adam(2e-2, clipnorm=1.0), 2)
    opt = WeightAverage(LossScaleOptimizer(inner, 2.0**24), 0.9)
    seen: list[Any] = []

    def update(grads: list[Any], variables: list[Any]) -> None:
        scale = float(opt.optimizer.dynamic_scale)
        scaled = [(grad * scale).half() for grad in grads]  # of a loss in 16 bits
        seen[:] = variables
        opt.apply_gradients(zip(scaled, variables, strict=True))

    losses = list(training(update, 80))
    assert losses[-1] < 0.5 * losses[0], losses
    left_out = int(80 - 2 * int(opt.iterations)) - int(inner.pending)
    assert float(opt.optimizer.dynamic_scale) < 2.0**24 and 0 < left_out < 30
    before = [variable.clone() for variable in seen]
    with opt.averaged():
        assert not torch.equal(before[0], seen[0])
    assert all(map(torch.equal, before, seen))
    return {"first": losses[0], "last": losses[-1], "left out": left_out}


@program()
def a_model_in_bfloat16() -> Any:
    opt = Mirror(SGD(2.0**-12))
    master, ones = TORCH.to(np.ones(1000, np.float32)), TORCH.to(np.ones(1000, np.float32))
    weights = opt.mirror(master)
    for _ in range(64):
        opt.apply_gradients([(ones, master)])
    assert weights.dtype == torch.bfloat16 and float(weights[0]) == 0.984375
    return float(weights[0])


@program()
def bfloat16_near_float32() -> Any:
    half = tensor(10_000).bfloat16()
    full, grad = half.float(), tensor(10_000, seed=1).bfloat16()
    opt, other = Adam(1e-2), Adam(1e-2)
    for _ in range(5):
        opt.apply_gradients([(grad, half)])
        other.apply_gradients([(grad.float(), full)])
    apart = float((half.float() - full).abs().max())
    assert apart < 0.05, apart
    return apart


@program()
def the_hosts_bits() -> Any:
    kinds = "SGD Adam Adamax Adagrad RMSprop Nadam Ftrl AdamW Lion Yogi RAdam ADOPT AdEMAMix Signum"
    shape = (64, 50) if DEVICE.on_host else (2048, 2048)
    tfopt.set_flush_denormals(False)
    differing = {}
    for kind in kinds.split():
        host, device = (getattr(tfopt.optimizers, kind)(0.01) for _ in range(2))
        variable = tensor(*shape)
        here = TORCH.back(variable).copy()
        for seed in range(1, 4):
            grad = tensor(*shape, seed=seed)
            host.apply_gradients([(TORCH.back(grad), here)])
            device.apply_gradients([(grad, variable)])
        differing[kind] = int(np.count_nonzero(TORCH.back(variable) != here))
    assert not any(differing.values()), differing
    return f"{len(differing)} optimizers"


@program()
def a_state_saved_and_loaded() -> None:
    first, second = Adam(1e-2), Adam()
    one, grad = tensor(100), tensor(100, seed=1)
    for _ in range(3):
        first.apply_gradients([(grad, one)])
    other = TORCH.to(TORCH.back(one))
    variables = [tfopt.Variable(one, name="w")], [tfopt.Variable(other, name="w")]
    second.load_state_dict(first.state_dict(variables[0]), variables[1])
    first.apply_gradients([(grad, one)])
    second.apply_gradients([(grad, other)])
    assert torch.equal(one, other)


@program()
def norms_that_are_not_finite() -> None:
    grad = tensor(1000)
    grad[3] = float("inf")
    (clipped, nothing, empty), norm = tfopt.clip_by_global_norm([grad, None, grad[:0]], 1.0)
    assert np.isinf(TORCH.back(norm)) and nothing is None and empty.shape == (0,)
    assert np.isnan(TORCH.back(clipped)).all()


# ---- rows of a table


def lookups(rows: int, width: int, n: int) -> tfopt.IndexedSlices:
    """Return gradients of rows, of which some are looked up far more often than others."""
    ids = np.random.default_rng(2).zipf(1.2, n).astype(np.int64) % rows
    return tfopt.IndexedSlices(tensor(n, width, seed=3), TORCH.to(ids))


@program()
def lazy_adam_as_torchs_sparse_adam() -> Any:
    table, slices = tensor(1000, 8), lookups(1000, 8, 300)
    other = torch.nn.Parameter(table.clone().as_subclass(torch.Tensor))
    ours, theirs = Adam(0.01, epsilon=1e-8, sparse="lazy"), torch.optim.SparseAdam([other], 0.01)
    plain = [part.as_subclass(torch.Tensor) for part in (slices.indices[None], slices.values)]
    other.grad = torch.sparse_coo_tensor(*plain, (1000, 8), check_invariants=True)
    for _ in range(5):
        ours.apply_gradients([(slices, table)])
        theirs.step()
    apart = float((table.as_subclass(torch.Tensor) - other.detach()).abs().max())
    assert apart < 1e-5, apart
    return apart


@program()
def a_bad_index_that_changes_nothing() -> str:
    table, values = tensor(1000, 8), tensor(3, 8, seed=1)
    before, message = table.clone(), ""
    slices = tfopt.IndexedSlices(values, TORCH.to(np.array([1, 5000, 2])))
    for opt in (Adagrad(0.1), Adamax(0.1), SGD(0.1), Adam(0.1, sparse="lazy")):
        try:
            opt.apply_gradients([(slices, table)])
        except tfopt.IndexOutOfRangeError as error:
            message = str(error)
        else:
            raise AssertionError("an index out of range was accepted")
    assert torch.equal(table, before)
    return message


@program("figures of time")
def times_of_rows() -> Any:
    found: dict[str, Any] = {}
    table, slices = on_gpu(5_000_000, 64), lookups(5_000_000, 64, 100_000)
    for opt in (Adagrad(0.01), Adamax(0.01), SGD(0.01), Adam(0.01, sparse="lazy")):
        step = partial(opt.apply_gradients, [(slices, table)])
        found[type(opt).__name__] = milliseconds(step)
    other = torch.nn.Parameter(table)
    other.grad = torch.sparse_coo_tensor(
        slices.indices[None], slices.values, table.shape, check_invariants=False
    )
    found["torch SparseAdam"] = milliseconds(torch.optim.SparseAdam([other], 0.01).step)
    return found


# ---- time and memory


def times_beside_torch(shapes: list[tuple[int, ...]]) -> Any:
    """Time steps of Adam, with and without clipping, beside torch's."""
    variables, grads = ([on_gpu(*shape) for shape in shapes] for _ in range(2))
    for variable, grad in zip(variables, grads, strict=True):
        variable.grad = grad
    pairs = list(zip(grads, variables, strict=True))
    plain, clipped = Adam(1e-3), Adam(1e-3, global_clipnorm=1.0)
    fused = torch.optim.Adam(variables, 1e-3, fused=True)

    def clip_and_step() -> None:
        torch.nn.utils.clip_grad_norm_(variables, 1.0, foreach=True)
        fused.step()

    return {
        "tfopt": milliseconds(lambda: plain.apply_gradients(pairs)),
        "torch, fused": milliseconds(fused.step),
        "tfopt, clipped": milliseconds(lambda: clipped.apply_gradients(pairs)),
        "torch, clipped": milliseconds(clip_and_step),
    }


@program("figures of time")
def times_of_gpt_2() -> Any:
    block = [(768,)] * 6 + [(768, 2304), (2304,), (768, 768), (768, 3072), (3072,), (3072, 768)]
    return times_beside_torch([(50_257, 768), (1024, 768), *block * 12, (768,), (768,)])


@program("figures of time")
def times_of_small_steps() -> Any:
    sizes = ((1, 16), (100, 1000), (1000, 64))
    return {f"{n} x {size}": times_beside_torch([(size,)] * n) for n, size in sizes}


@program("its memory")
def memory_that_does_not_grow() -> int:
    variable, grad, table = on_gpu(1 << 20), on_gpu(1 << 20), on_gpu(100_000, 8)
    opt, other = Adam(1e-3, global_clipnorm=1.0), Adagrad(0.1)
    free = []
    for steps in (50, 1000):
        for _ in range(steps):
            ids = torch.randint(100_000, (500,), device="cuda")
            opt.apply_gradients([(grad, variable)])
            other.apply_gradients([(tfopt.IndexedSlices(on_gpu(500, 8), ids), table)])
        torch.cuda.synchronize()
        free.append(torch.cuda.mem_get_info()[0])
    assert free[0] - free[1] < 8 << 20, free
    return free[0] - free[1]


@program("8 GiB of its memory")
def more_than_2_31_elements() -> None:
    n = (1 << 31) + 1000
    variable, grad = (torch.ones(n, device="cuda") for _ in range(2))
    tfopt.training_ops.apply_gradient_descent(variable, grad, alpha=0.5)
    assert all(float(variable[k]) == 0.5 for k in (0, 1 << 31, -1))
    assert abs(float(tfopt.global_norm([grad])) - n**0.5) < 1


# ---- streams and graphs


@program("CUDA graphs")
def a_step_in_a_graph() -> None:
    variables, grads = ([on_gpu(1000) for _ in range(50)] for _ in range(2))
    others = [variable.clone() for variable in variables]
    opt, expected, stream = SGD(0.1, momentum=0.9), SGD(0.1, momentum=0.9), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            opt.step(variables, grads)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        opt.step(variables, grads)
    for _ in range(4):
        graph.replay()
    for _ in range(7):
        expected.step(others, grads)
    torch.cuda.synchronize()
    assert all(map(torch.equal, variables, others))


@program("streams")
def a_gradient_that_is_late() -> None:
    for _ in range(50):
        stream, variable = torch.cuda.Stream(), torch.ones(1 << 20, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            grad = torch.full((1 << 20,), 2.0, device="cuda")
            tfopt.training_ops.apply_gradient_descent(variable, grad, alpha=0.25)
            seen = variable.clone()
        stream.synchronize()
        assert bool((seen == 0.5).all())


@program("streams")
def threads_on_streams_of_their_own() -> None:
    variables, errors = [torch.ones(1 << 20, device="cuda") for _ in range(4)], []

    def work(variable: Any) -> None:
        try:
            stream, opt = torch.cuda.Stream(), SGD(0.001)
            with torch.cuda.stream(stream):
                grad = torch.ones_like(variable)
                for _ in range(200):
                    opt.apply_gradients([(grad, variable)])
            stream.synchronize()
        except Exception as error:
            errors.append(error)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(variable,)) for variable in variables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert all(torch.equal(variables[0], variable) for variable in variables)
    assert abs(float(variables[0][0]) - 0.8) < 1e-3


# ---- other libraries


@program()
def the_drop_in_for_torch() -> None:
    drop_in = __import__("tfopt.interop.torch", fromlist=["Adam"]).Adam
    ours, theirs = tensor(100), tensor(100).as_subclass(torch.Tensor)
    optimizers = drop_in([ours], lr=0.01), torch.optim.Adam([theirs], lr=0.01)
    for seed in range(1, 4):
        ours.grad = tensor(100, seed=seed)
        theirs.grad = ours.grad.as_subclass(torch.Tensor)
        for optimizer in optimizers:
            optimizer.step()
    assert float((ours.as_subclass(torch.Tensor) - theirs).abs().max()) < 1e-5


@program("CuPy's and Numba's arrays")
def arrays_of_cupy_and_numba() -> None:
    import cupy

    array = cupy.ones(10, "float32")
    tfopt.training_ops.apply_gradient_descent(array, cupy.ones(10, "float32"), alpha=0.5)
    assert float(array[0]) == 0.5
    try:
        from numba import cuda
    except ImportError:
        return
    other, grad = (cuda.to_device(np.ones(10, np.float32)) for _ in range(2))
    tfopt.training_ops.apply_gradient_descent(other, grad, alpha=0.5)
    assert other.copy_to_host()[0] == 0.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if DEVICE.on_host:
        parser.error("it takes a GPU and TFOPT_TEST_DEVICE=torch")
    failed, results = [], {}
    for name, (run, _) in PROGRAMS.items():
        start = time.perf_counter()
        try:
            results[name] = run()
        except Exception:
            failed.append(name)
            traceback.print_exc()
        torch.cuda.empty_cache()
        took = time.perf_counter() - start
        print(f"{name}: {results.get(name, '')}  [{took:.1f} s]", flush=True)
    print(f"{len(PROGRAMS) - len(failed)} of {len(PROGRAMS)} programs; failed: {failed}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"failed": failed, "results": results}, file, indent=1)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
