"""Measure how long a step takes while other programs keep the cores busy.

Adam in float32 from 2^14 to 2^24 elements, by tfopt on one thread and on all, by torch's fused
optimizer and by TensorFlow's op, beside 0, 2 and 16 programs that do nothing but compute. Then
several processes of all threads each, without such programs. In ms: the median and the 99th
percentile of the steps of some seconds. They are saved in results/busy.json.

With ``--fits``, how long fits of linear models take, on one thread and on all, beside 0, 2, 8 and
16 such programs. They are saved in results/busy.fits.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from time import perf_counter, sleep

import numpy as np
from records import Figure, Record, Row, new_run

SIZES = (14, 16, 20, 24)
HOGS = (0, 2, 16)
HOGS_OF_FITS = (0, 2, 8, 16)
PROCESSES = (2, 4)

Step = Callable[[], object]


@contextmanager
def programs(commands: list[list[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Run programs for as long as the context lasts."""
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True) for c in commands]
    try:
        yield running
    finally:
        for each in running:
            each.kill()


def arrays(n: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.random(n, np.float32) for _ in range(4)]


def tfopt_step(n: int) -> Step:
    from tfopt.training_ops import apply_adam

    powers = {"beta1_power": 0.9, "beta2_power": 0.999}
    constants = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
    var, m, v, grad = arrays(n)
    return lambda: apply_adam(var, m, v, grad, **powers, **constants)


def single_step(n: int) -> Step:
    import tfopt

    tfopt.threads.set_num_threads(1)
    return tfopt_step(n)


def torch_step(n: int) -> Step:
    import torch

    var, _, _, grad = (torch.from_numpy(a) for a in arrays(n))
    var.requires_grad_()
    var.grad = grad
    return torch.optim.Adam([var], fused=True).step


def tensorflow_step(n: int) -> Step:
    import tensorflow as tf

    var, m, v, grad = arrays(n)
    slots = {name: tf.Variable(a).handle for name, a in {"var": var, "m": m, "v": v}.items()}
    powers = {"beta1_power": np.float32(0.9), "beta2_power": np.float32(0.999)}
    constants = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
    options = {**slots, **powers, **{k: np.float32(x) for k, x in constants.items()}}
    gradient = tf.constant(grad)
    return lambda: tf.raw_ops.ResourceApplyAdam(**options, grad=gradient)


#: The rows: what must be installed, and what makes a step.
LIBRARIES: dict[str, tuple[str, Callable[[int], Step]]] = {
    "tfopt, 1 thread": ("tfopt", single_step),
    "tfopt": ("tfopt", tfopt_step),
    "torch": ("torch", torch_step),
    "TensorFlow": ("tensorflow", tensorflow_step),
}


def fit(kind: str, library: str) -> Step:
    """Return a logistic regression of 12 000 rows: Newton's steps, or visits of single rows."""
    from scipy import sparse

    from tfopt.linear_model import SDCAClassifier

    random = np.random.default_rng(0)
    rows = random.standard_normal((12_000, 20))
    labels = rows @ random.standard_normal(20) + random.standard_normal(12_000) > 0
    jobs = 1 if library == "tfopt, 1 thread" else None
    model = SDCAClassifier(solver=kind, l2=100, tol=1e-4, n_jobs=jobs)
    if kind == "sdca":
        rows = sparse.csr_matrix(np.where(abs(rows) > 1, rows, 0))
        model.set_params(num_loss_partitions=2)
    return partial(model.fit, rows, labels)


def timed(step: Step, seconds: float) -> dict[str, Figure]:
    """Return the quartiles and the 99th percentile in seconds, the latter's name with ", 99 %"."""
    for _ in range(3):
        step()
    times, end = [], perf_counter() + seconds
    while perf_counter() < end or len(times) < 20:
        before = perf_counter()
        step()
        times.append(perf_counter() - before)
    low, median, high, highest = (
        float(f"{value:.4g}") for value in np.percentile(times, [25, 50, 75, 99])
    )
    return {"": (low, median, high), ", 99 %": (None, highest, None)}


def times(library: str, fits: bool, seconds: float) -> dict[str, Figure]:
    """Return the figures of each size, or of each fit."""
    figures: dict[str, Figure] = {}
    for name in names(fits):
        step = fit(name, library) if fits else LIBRARIES[library][1](1 << int(name[2:]))
        figures |= {name + what: each for what, each in timed(step, seconds).items()}
    return figures


def names(fits: bool) -> list[str]:
    """Return the figures of the columns."""
    return ["newton-cholesky", "sdca"] if fits else [f"2^{exponent}" for exponent in SIZES]


def worker(library: str, fits: bool, seconds: float) -> list[str]:
    options = ["--worker", library, "--seconds", str(seconds), *(["--fits"] if fits else [])]
    return [sys.executable, __file__, *options]


def measured(label: str, library: str, fits: bool, seconds: float, n: int = 1) -> dict[str, Row]:
    """Return the row of the first of several processes that do the same at a time."""
    with programs([worker(library, fits, seconds)] * n) as running:
        figures = json.loads(running[0].communicate()[0])
    cells = [
        f"{1000 * figures[name][1]:.3g}, {1000 * figures[f'{name}, 99 %'][1]:.3g}"
        for name in names(fits)
    ]
    print(f"| {label} | {library} | {' | '.join(cells)} |", flush=True)
    return {f"{label}, {library}": Row(figures, labels={"beside": label, "library": library})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each cell")
    parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--fits", action="store_true", help="of linear models, not steps")
    arguments = parser.parse_args()
    seconds, fits = arguments.seconds, arguments.fits
    if arguments.worker:
        print(json.dumps(times(arguments.worker, fits, seconds)))
        return
    libraries = {k: v for k, v in LIBRARIES.items() if v[0] == "tfopt" or not fits}
    installed = [name for name, (module, _) in libraries.items() if find_spec(module)]
    packages = packages_distributions()
    rivals = [m for m, _ in libraries.values() if m != "tfopt" and m in packages]
    run = new_run(**{module: version(packages[module][0]) for module in rivals})
    rows: dict[str, Row] = {}
    print("| beside | library |", " | ".join(names(fits)), "|")
    print("|---|---|" + "---|" * len(names(fits)))
    for hogs in HOGS_OF_FITS if fits else HOGS:
        with programs([[sys.executable, "-c", "while True: pass"]] * hogs):
            sleep(1)
            for library in installed:
                label = f"{hogs} programs" if hogs else "nothing"
                rows |= measured(label, library, fits, seconds)
    for n in () if fits else PROCESSES:
        for library in installed:
            rows |= measured(f"{n - 1} like it", library, fits, seconds, n)
    record = Record.load("busy.fits" if fits else "busy")
    columns = [name + what for name in names(fits) for what in ("", ", 99 %")]
    record.merge(run, rows, {column: {"unit": "s", "better": None} for column in columns})
    record.save()
    print(f"saved results/{record.name}.json; python asv_bench/page.py writes the page")


if __name__ == "__main__":
    main()
