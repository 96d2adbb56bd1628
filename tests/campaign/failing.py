"""A shared object, to be loaded first, in which the n-th call of a function of libc fails.

A process that is started with it counts calls once it is armed; see `Arms`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["CALLS", "Arms", "build"]

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <fcntl.h>

long tfopt_fail_at = -1;        /* how many calls are left before the one that fails */
long tfopt_fail_kind = -1;      /* which function's calls count */
long tfopt_fail_errno = ENOSPC;
long tfopt_fail_size = 0;       /* smaller allocations are not counted */
long tfopt_failed = 0;

static int fails(long kind) {
    if (kind != tfopt_fail_kind || tfopt_fail_at < 0) return 0;
    if (__sync_fetch_and_sub(&tfopt_fail_at, 1) != 0) return 0;
    tfopt_failed = 1;
    errno = (int)tfopt_fail_errno;
    return 1;
}
#define REAL(type, name) \
    static type real; \
    if (!real) real = (type)dlsym(RTLD_NEXT, name)

typedef ssize_t (*write_t)(int, const void *, size_t);
ssize_t write(int fd, const void *data, size_t n) {
    REAL(write_t, "write");
    return fd > 2 && fails(0) ? -1 : real(fd, data, n);
}
typedef ssize_t (*pwrite_t)(int, const void *, size_t, off_t);
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) {
    REAL(pwrite_t, "pwrite64");
    return fails(1) ? -1 : real(fd, data, n, at);
}
typedef int (*fd_t)(int);
int fsync(int fd) { REAL(fd_t, "fsync"); return fails(2) ? -1 : real(fd); }
int fdatasync(int fd) { REAL(fd_t, "fdatasync"); return fails(2) ? -1 : real(fd); }
typedef int (*rename_t)(const char *, const char *);
int rename(const char *from, const char *to) {
    REAL(rename_t, "rename");
    return fails(3) ? -1 : real(from, to);
}
typedef int (*open_t)(const char *, int, ...);
int open64(const char *path, int flags, ...) {
    REAL(open_t, "open64");
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return fails(4) ? -1 : real(path, flags, mode);
}
typedef int (*truncate_t)(int, off_t);
int ftruncate64(int fd, off_t n) {
    REAL(truncate_t, "ftruncate64");
    return fails(5) ? -1 : real(fd, n);
}

/* The loader's own, since dlsym allocates. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static int lacks(size_t n) { return (long)n >= tfopt_fail_size && fails(6); }
void *malloc(size_t n) { return lacks(n) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return lacks(n * size) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return lacks(n) ? NULL : __libc_realloc(p, n); }
int posix_memalign(void **p, size_t line, size_t n) {
    if (lacks(n)) return ENOMEM;
    *p = __libc_memalign(line, n);
    return *p ? 0 : ENOMEM;
}
"""

#: The functions whose calls can fail, and their numbers in the shared object.
CALLS = {"write": 0, "pwrite": 1, "fsync": 2, "rename": 3, "open": 4, "ftruncate": 5, "malloc": 6}


def build(folder: Path) -> Path | None:
    """Compile the shared object; None if there is no C compiler."""
    compiler = os.environ.get("CC", "cc").split()
    if shutil.which(compiler[0]) is None:
        return None
    source, library = folder / "failing.c", folder / "failing.so"
    source.write_text(_SOURCE)
    flags = ["-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run([*compiler, *flags], check=True)
    return library


class Arms:
    """Arms the shared object in a process that was started with it."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        names = ("at", "kind", "errno", "size")
        self._numbers = {n: ctypes.c_long.in_dll(library, f"tfopt_fail_{n}") for n in names}
        self._failed = ctypes.c_long.in_dll(library, "tfopt_failed")

    def arm(self, call: str, at: int, errno: int = 0, size: int = 0) -> None:
        """Let a call of a function fail: the first one if `at` is 0."""
        self._failed.value = 0
        self._numbers["errno"].value = errno
        self._numbers["size"].value = size
        self._numbers["kind"].value = CALLS[call]
        self._numbers["at"].value = at

    def disarm(self) -> bool:
        """Let no call fail; return whether one has."""
        self._numbers["at"].value = -1
        return bool(self._failed.value)
