"""Checks of the campaign on kernels built with a sanitizer of GCC.

``python -m campaign.sanitized {address,undefined,thread} [--seconds N] [--only NAME ...]`` builds a
copy of this checkout, first shows that the sanitizer sees a fault planted in a kernel, then runs
checks. With threads, OpenMP's regions are run by POSIX threads: what GCC's own runtime does between
threads, the sanitizer cannot see. There are no suppressions.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = {
    "address": "-fsanitize=address -fno-omit-frame-pointer",
    "undefined": "-fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all -fno-wrapv",
    "thread": "-fsanitize=thread",
}
OPTIONS = {
    "address": {
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",
    },
    "undefined": {"UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"},
    "thread": {"TSAN_OPTIONS": "exitcode=66:halt_on_error=1", "OPENBLAS_NUM_THREADS": "1"},
}
RUNTIME = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}
CHECKS = ("updates", "refusals", "steps", "libsvm_text", "certificates")
#: Those in which threads meet, too.
WITH_THREADS = (*CHECKS, "digests", "crowds")
#: A fault of each kind, which shows that the sanitizer sees faults.
PLANTED = r"""
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

volatile int number = INT_MAX;
void plant_address(void) { volatile char *p = malloc(10); p[number - INT_MAX + 10] = 1; }
void plant_undefined(void) { number = number + 1; }
static void *write_it(void *unused) { number = 1; return unused; }
void plant_thread(void) {
    pthread_t other;
    pthread_create(&other, NULL, write_it, NULL);
    number = 2;
    pthread_join(other, NULL);
}
"""
THREADS = r"""
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>

/* OpenMP's parallel regions by POSIX threads, as far as the kernels use it. */
static __thread int number, team = 1, most = 0;
typedef struct { void (*run)(void *); void *data; int number, team; } share;

static void *carry_out(void *given) {
    share *own = given;
    number = own->number;
    team = own->team;
    own->run(own->data);
    return NULL;
}
void GOMP_parallel(void (*run)(void *), void *data, unsigned n, unsigned flags) {
    (void)flags;
    if (n == 0) n = (unsigned)omp_get_max_threads();
    pthread_t *others = malloc(n * sizeof *others);
    share *shares = malloc(n * sizeof *shares);
    for (unsigned k = 0; k < n; k++) {
        shares[k] = (share){run, data, (int)k, (int)n};
        if (k) pthread_create(&others[k], NULL, carry_out, &shares[k]);
    }
    int before = number, size = team;
    carry_out(&shares[0]);
    number = before;
    team = size;
    for (unsigned k = 1; k < n; k++) pthread_join(others[k], NULL);
    free(others);
    free(shares);
}
int omp_get_thread_num(void) { return number; }
int omp_get_num_threads(void) { return team; }
int omp_get_max_threads(void) { return most ? most : 2; }
void omp_set_num_threads(int n) { most = n; }
/* The kernels would leave threads out that are slow, as these are. */
double omp_get_wtime(void) { return 0; }
"""


def _library(name: str) -> str:
    """Return the path of a library of the compiler."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True)
    return found.stdout.strip()


def _built(kind: str, folder: Path) -> dict[str, str]:
    """Build a copy of the checkout, and return the environment in which its kernels run."""
    copy = folder / "tfopt"
    if not copy.exists():
        ignored = shutil.ignore_patterns("*.so", "*.c", "build", ".git", "_build", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored)
    compiler = folder / "cc"
    compiler.write_text(f'#!/bin/sh\nexec gcc "$@" -O1 -g1 {FLAGS[kind]}\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "CC": str(compiler), "LDSHARED": f"{compiler} -shared"}
    environment |= {"PYTHONPATH": str(copy)}
    environment.pop("TFOPT_CI_CACHE", None)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=copy,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    preloaded = [_library(RUNTIME[kind]), _library("libstdc++.so")]
    if kind == "thread":
        (folder / "threads.c").write_text(THREADS)
        library = folder / "libthreads.so"
        flags = ["-O1", "-g", "-fsanitize=thread", "-shared", "-fPIC", "-pthread"]
        subprocess.run(["gcc", *flags, folder / "threads.c", "-o", library], check=True)
        preloaded.append(str(library))
    return {**environment, **OPTIONS[kind], "LD_PRELOAD": ":".join(preloaded)}


def _sees_faults(kind: str, folder: Path, environment: dict[str, str]) -> bool:
    """Return whether a process dies of a planted fault."""
    (folder / "planted.c").write_text(PLANTED)
    library = folder / "planted.so"
    command = [folder / "cc", "-shared", "-fPIC", "-pthread", folder / "planted.c", "-o", library]
    subprocess.run(command, check=True)
    program = f"import ctypes; ctypes.CDLL({str(library)!r}).plant_{kind}()"
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    return run.returncode != 0


def main(arguments: list[str] | None = None) -> int:
    """Build and run; return the exit code of the campaign."""
    parser = argparse.ArgumentParser(prog="python -m campaign.sanitized")
    parser.add_argument("kind", choices=FLAGS)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    options = parser.parse_args(arguments)
    chosen = options.only or (WITH_THREADS if options.kind == "thread" else CHECKS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = _built(options.kind, folder)
        if not _sees_faults(options.kind, folder, environment):
            print(f"the sanitizer ({options.kind}) does not see a planted fault")
            return 2
        print(f"the sanitizer ({options.kind}) sees a planted fault", flush=True)
        command = [sys.executable, "-m", "campaign", "--only", *chosen]
        command += [f"--seconds={options.seconds}"]
        command += [] if options.seed is None else [f"--seed={options.seed}"]
        run = subprocess.run(command, cwd=folder / "tfopt/tests", env=environment, check=False)
        return run.returncode


if __name__ == "__main__":
    sys.exit(main())
