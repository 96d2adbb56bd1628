"""Time the CUDA path on a GPU, beside torch: python bench.py [--json FILE] [--exponent 28].

Each figure is the median of CUDA events, after warm-up. Percentages are of the rate at which torch
copies memory in the same run, for the bytes an update has to move.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
from collections.abc import Callable
from typing import Any

import torch
from bench_bags import pooled
from bench_optimizers import Bench, optimizers
from common.cases import ordinary_hypers

import tfopt
from tfopt.cuda.calls import dense_update
from tfopt.cuda.clipped_updates import run_clipped
from tfopt.kernels import kernels
from tfopt.rules import ELEMENTWISE, Rule

Step = Callable[[], Any]


def milliseconds(step: Step, repeat: int = 20) -> float:
    times = []
    for k in range(repeat + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        if k >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def ours(rule: Rule, arrays: list[Any], **options: Any) -> Step:
    function = getattr(tfopt.training_ops, f"apply_{rule.name}")
    hypers = ordinary_hypers(rule)
    return lambda: function(*arrays, **hypers, **options)


def copy_rate(n: int) -> float:
    """Return the bytes that a copy reads and writes in a millisecond."""
    source, target = (torch.rand(n, device="cuda") for _ in range(2))
    return 8 * n / milliseconds(lambda: target.copy_(source))


GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "random": lambda grad: grad.sub_(0.5),
    "99 % zero": lambda grad: grad.mul_(torch.rand_like(grad) < 0.01),
    "zero": lambda grad: grad.zero_(),
}


def dense(n: int, rate: float) -> list[dict[str, Any]]:
    rows = []
    for rule in ELEMENTWISE:
        arrays = [torch.rand(n, device="cuda") for _ in rule.operands]
        for name, change in GRADIENTS.items():
            change(arrays[-1])
            time = milliseconds(ours(rule, arrays))
            share = 4 * n * rule.traffic / time / rate
            work = f"{rule.name}, {name} gradient"
            rows.append({"work": work, "ms": time, "percent of copy": 100 * share})
        del arrays
    return rows


def torch_optimizer(kind: str, tensors: list[Any], **options: Any) -> Step:
    for tensor in tensors:
        tensor.grad = torch.rand_like(tensor)
    return getattr(torch.optim, kind)(tensors, lr=1e-3, **options).step


def rival_time(kind: str, sizes: list[int], options: tuple[str, ...]) -> tuple[float, str]:
    """Return the time of torch's step by the first of the options that it has on a GPU, and it."""
    for option in options:
        tensors = [torch.rand(n, device="cuda") for n in sizes]
        try:  # some versions refuse fused=True at once, others in the first step
            return milliseconds(torch_optimizer(kind, tensors, **{option: True})), option
        except (RuntimeError, TypeError) as error:
            print(f"torch {kind}, {option}: {error}")
    raise RuntimeError(f"torch has no {kind} here")


RIVALS = {
    "adam": ("Adam", ("fused", "foreach")),
    "gradient_descent": ("SGD", ("fused", "foreach")),
    "adagrad": ("Adagrad", ("fused", "foreach")),
    "adamax": ("Adamax", ("foreach",)),
}


def against_torch(sizes: list[int], what: str) -> list[dict[str, Any]]:
    rows = []
    for rule in ELEMENTWISE:
        if rule.name not in RIVALS:
            continue
        kind, options = RIVALS[rule.name]
        columns = [[torch.rand(n, device="cuda") for n in sizes] for _ in rule.operands]
        arrays = columns if len(sizes) > 1 else [column[0] for column in columns]
        time = milliseconds(ours(rule, arrays))
        del columns, arrays
        rival, how = rival_time(kind, sizes, options)
        label = f"{rule.name}, {what}, torch {how} {kind}"
        rows.append({"work": label, "ms": time, "torch ms": rival, "ratio": rival / time})
    return rows


def sparse(rate: float, rows: int, width: int, lookups: int) -> list[dict[str, Any]]:
    rule = next(rule for rule in ELEMENTWISE if rule.name == "adamax")
    arrays = [torch.rand(rows, width, device="cuda") for _ in rule.operands[:-1]]
    arrays.append(torch.rand(lookups, width, device="cuda"))
    made = []
    for name, indices in (
        ("distinct", torch.randperm(rows, device="cuda")[:lookups]),
        ("uniform", torch.randint(rows, (lookups,), device="cuda")),
    ):
        distinct = int(torch.unique(indices).numel())
        moved = 4 * width * (2 * len(rule.slots) + 2) * distinct + lookups * (4 * width + 8)
        for check in (True, False):
            time = milliseconds(ours(rule, arrays, indices=indices, check_indices=check))
            made.append(
                {
                    "work": f"adamax, {lookups} {name} rows of {rows} x {width}, check {check}",
                    "ms": time,
                    "percent of copy": 100 * moved / time / rate,
                }
            )
    return made


def clip_calls(t: Any) -> list[tuple[str, int, Step]]:
    """Return calls that clip a tensor, with how often each reads or writes it."""
    out = torch.empty_like(t)
    rows, rows_out = t.view(-1, 1024), out.view(-1, 1024)
    return [
        ("global_norm", 1, lambda: tfopt.global_norm([t])),
        ("clip_by_value", 2, lambda: tfopt.clip_by_value(t, 0.25, 0.75, out=out)),
        ("clip_by_norm", 3, lambda: tfopt.clip_by_norm(t, 1.0, out=out)),
        ("clip_by_norm, rows", 3, lambda: tfopt.clip_by_norm(rows, 1.0, [1], out=rows_out)),
        ("clip_by_norm, within the limit", 1, lambda: tfopt.clip_by_norm(t, 1e30, out=t)),
    ]


def clipping(n: int, rate: float) -> list[dict[str, Any]]:
    made = []
    for dtype in (torch.float32, torch.bfloat16):
        t = torch.rand(n, device="cuda").to(dtype)
        for name, traffic, call in clip_calls(t):
            time = milliseconds(call)
            share = traffic * t.element_size() * n / time / rate
            made.append({"work": f"{name}, {dtype}", "ms": time, "percent of copy": 100 * share})
    return made


def clipped_steps(sizes: list[int], rate: float, what: str) -> list[dict[str, Any]]:
    """Time steps of Adam that clip; beside them torch's clipping alone."""
    rule = next(rule for rule in ELEMENTWISE if rule.name == "adam")
    columns = tuple([torch.rand(n, device="cuda") for n in sizes] for _ in rule.operands)
    hypers = tuple(ordinary_hypers(rule)[name] for name in rule.hypers)

    def step(**limits: float) -> Step:
        return lambda: run_clipped(
            [dense_update(kernels["adam"], columns, hypers, 0, 1.0)], **limits
        )

    made = []
    for limits, traffic in (({}, 7), ({"clipvalue": 0.5}, 7), ({"global_clipnorm": 1.0}, 8),
                            ({"clipnorm": 1.0}, 8)):  # fmt: skip
        time = milliseconds(step(**limits))
        share = 4 * traffic * sum(sizes) / time / rate
        label = f"adam, {', '.join(limits) or 'not clipped'}, {what}"
        made.append({"work": label, "ms": time, "percent of copy": 100 * share})
    parameters = [torch.zeros_like(grad) for grad in columns[-1]]
    for parameter, grad in zip(parameters, columns[-1], strict=True):
        parameter.grad = grad
    clip = torch.nn.utils.clip_grad_norm_
    time = milliseconds(lambda: clip(parameters, 1.0, foreach=True))
    return [*made, {"work": f"torch clip_grad_norm_ alone, {what}", "ms": time}]


def asked(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    driver = asked("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver.split("\n")[0],
        "CUDA of torch": str(torch.version.cuda),
        "torch": torch.__version__,
        "commit": asked("git", "rev-parse", "HEAD"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--exponent", type=int, default=28)
    parser.add_argument("--table", type=int, default=50_000_000, help="rows of the sparse table")
    arguments = parser.parse_args()
    n = 1 << arguments.exponent
    rate = copy_rate(n)
    bench = Bench(
        lambda array: torch.from_numpy(array).cuda(),
        lambda *shape: torch.rand(*shape, device="cuda"),
        milliseconds,
        torch.cuda.synchronize,
    )
    size, lookups = f"2^{arguments.exponent}", min(1_000_000, arguments.table // 50)
    sections: list[Callable[[], list[dict[str, Any]]]] = [
        lambda: [{"work": "copy", "GB/s": rate / 1e6}],
        lambda: optimizers(bench, arguments.exponent, arguments.table // 10),
        lambda: pooled(bench, arguments.table // 10, 64, 100_000),
        lambda: against_torch([n], size),
        lambda: against_torch([1000] * 1000, "1000 x 1000"),
        lambda: clipping(n, rate),
        lambda: clipped_steps([n], rate, size),
        lambda: clipped_steps([1000] * 1000, rate, "1000 x 1000"),
        lambda: sparse(rate, arguments.table, 64, lookups),
        lambda: dense(n, rate),
    ]
    facts, results = machine(), []
    for section in sections:
        for row in section():
            figures = ", ".join(
                f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}"
                for k, v in row.items()
                if k != "work"
            )
            print(f"{row['work']:<72}{figures}")
            results.append(row)
        if arguments.json:  # a time limit leaves what has been timed
            with open(arguments.json, "w") as file:
                json.dump({**facts, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
