"""A shared object, to be loaded first, that records what a process does to files of a folder."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Operation", "build", "operations", "recorded"]

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* One operation at a time, so that the record has the order in which they took effect. */
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;
static const char *under = "/nowhere";

__attribute__((constructor)) static void begin(void) {
    const char *log = getenv("TFOPT_RECORD");
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    if (log) out = (int)syscall(SYS_openat, AT_FDCWD, log, flags, 0600);
    if (getenv("TFOPT_RECORD_UNDER")) under = getenv("TFOPT_RECORD_UNDER");
}
struct head { long kind, inode, at, a, b, n; };
static void put(long kind, const char *a, const char *b, long inode, long at, const void *data,
                size_t n) {
    struct head h = {kind, inode, at, (long)strlen(a), (long)strlen(b), (long)n};
    struct iovec parts[4] = {{&h, sizeof h}, {(void *)a, h.a}, {(void *)b, h.b}, {(void *)data, n}};
    int before = errno;
    if (syscall(SYS_writev, out, parts, 4) != (long)sizeof h + h.a + h.b + h.n) abort();
    errno = before;
}
static int inside(const char *path) {
    size_t n = strlen(under);
    return out >= 0 && !strncmp(path, under, n) && (path[n] == '/' || path[n] == 0);
}
static long inode_of(const char *path) {
    struct stat s;
    int before = errno;
    int failed = fstatat(AT_FDCWD, path, &s, AT_SYMLINK_NOFOLLOW);
    errno = before;
    return failed ? -1 : (long)s.st_ino;
}
/* Where a descriptor leads; its inode tells files apart whatever their names are. */
static int leads(int fd, char *path, struct stat *s) {
    char link[64];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 4095);
    int found = 0;
    if (n > 0) {
        path[n] = 0;
        found = inside(path) && !fstat(fd, s);
    }
    errno = before;
    return found;
}
#define REAL(type, name) \
    static type real; \
    if (!real) real = (type)dlsym(RTLD_NEXT, name)
#define LOCKED(result, call, then) \
    pthread_mutex_lock(&one); \
    result = call; \
    then; \
    pthread_mutex_unlock(&one)

typedef ssize_t (*write_t)(int, const void *, size_t);
ssize_t write(int fd, const void *data, size_t n) {
    REAL(write_t, "write");
    char path[4096];
    struct stat s;
    if (!leads(fd, path, &s)) return real(fd, data, n);
    ssize_t done;
    LOCKED(done, real(fd, data, n),
           if (done > 0)
               put('w', path, "", (long)s.st_ino, lseek(fd, 0, SEEK_CUR) - done, data, done));
    return done;
}
typedef ssize_t (*pwrite_t)(int, const void *, size_t, off_t);
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) {
    REAL(pwrite_t, "pwrite64");
    char path[4096];
    struct stat s;
    if (!leads(fd, path, &s)) return real(fd, data, n, at);
    ssize_t done;
    LOCKED(done, real(fd, data, n, at),
           if (done > 0) put('w', path, "", (long)s.st_ino, at, data, done));
    return done;
}
typedef int (*fd_t)(int);
static int synced(fd_t real, int fd) {
    char path[4096];
    struct stat s;
    if (!leads(fd, path, &s)) return real(fd);
    int failed;
    LOCKED(failed, real(fd),
           if (!failed) put(S_ISDIR(s.st_mode) ? 'd' : 's', path, "", (long)s.st_ino, 0, "", 0));
    return failed;
}
int fsync(int fd) { REAL(fd_t, "fsync"); return synced(real, fd); }
int fdatasync(int fd) { REAL(fd_t, "fdatasync"); return synced(real, fd); }
typedef int (*truncate_t)(int, off_t);
int ftruncate64(int fd, off_t n) {
    REAL(truncate_t, "ftruncate64");
    char path[4096];
    struct stat s;
    if (!leads(fd, path, &s)) return real(fd, n);
    int failed;
    LOCKED(failed, real(fd, n), if (!failed) put('t', path, "", (long)s.st_ino, n, "", 0));
    return failed;
}
typedef int (*rename_t)(const char *, const char *);
int rename(const char *from, const char *to) {
    REAL(rename_t, "rename");
    int failed;
    LOCKED(failed, real(from, to),
           if (!failed && inside(to)) put('r', from, to, inode_of(to), 0, "", 0));
    return failed;
}
typedef int (*path_t)(const char *);
int unlink(const char *path) {
    REAL(path_t, "unlink");
    int failed;
    LOCKED(failed, real(path), if (!failed && inside(path)) put('u', path, "", 0, 0, "", 0));
    return failed;
}
int rmdir(const char *path) {
    REAL(path_t, "rmdir");
    int failed;
    LOCKED(failed, real(path), if (!failed && inside(path)) put('u', path, "", 0, 0, "", 0));
    return failed;
}
typedef int (*mkdir_t)(const char *, mode_t);
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir_t, "mkdir");
    int failed;
    LOCKED(failed, real(path, mode),
           if (!failed && inside(path)) put('m', path, "", inode_of(path), 0, "", 0));
    return failed;
}
typedef int (*open_t)(const char *, int, ...);
static int opened(open_t real, const char *path, int flags, int mode) {
    if (!inside(path) || !(flags & (O_CREAT | O_TRUNC))) return real(path, flags, mode);
    int fd;
    pthread_mutex_lock(&one);
    long before = inode_of(path);
    fd = real(path, flags, mode);
    if (fd >= 0 && before < 0) put('c', path, "", inode_of(path), 0, "", 0);
    if (fd >= 0 && before >= 0 && flags & O_TRUNC) put('t', path, "", before, 0, "", 0);
    pthread_mutex_unlock(&one);
    return fd;
}
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(open_t, #name); \
        va_list more; \
        va_start(more, flags); \
        int mode = va_arg(more, int); \
        va_end(more); \
        return opened(real, path, flags, mode); \
    }
OPEN(open64)
OPEN(open)

/* What a process says of itself, between two operations. */
void tfopt_say(long number) { if (out >= 0) put('!', "", "", 0, number, "", 0); }
"""
_HEAD = struct.Struct("6q")


class Operation(NamedTuple):
    """Something done to a file or folder.

    Attributes
    ----------
    kind : str
        ``c`` created, ``w`` written, ``t`` truncated, ``s`` a file synced, ``d`` a folder synced,
        ``r`` renamed, ``u`` removed, ``m`` a folder made; ``!`` what the process says, in `at`.
    path, other : str
        Relative to the folder; of a renamed file its old and its new name.
    file : int
        The number of the file, whatever its name is.
    at : int
        Where it was written, or its new length.
    """

    kind: str
    path: str
    other: str
    file: int
    at: int
    data: bytes


def build(folder: Path) -> Path | None:
    """Compile the shared object; None if there is no C compiler."""
    compiler = os.environ.get("CC", "cc").split()
    if shutil.which(compiler[0]) is None:
        return None
    source, library = folder / "recording.c", folder / "recording.so"
    source.write_text(_SOURCE)
    flags = ["-O1", "-shared", "-fPIC", "-pthread", "-o", str(library), str(source), "-ldl"]
    subprocess.run([*compiler, *flags], check=True)
    return library


def recorded(library: Path, command: list[str], folder: Path, log: Path) -> list[Operation]:
    """Run a command, and return what it has done to files in a folder."""
    around = {"LD_PRELOAD": library, "TFOPT_RECORD": log, "TFOPT_RECORD_UNDER": folder}
    done = subprocess.run(
        command,
        env={**os.environ, **{name: str(value) for name, value in around.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [*operations(log.read_bytes(), folder)]


def operations(log: bytes, folder: Path) -> Iterator[Operation]:
    """Yield the operations of a record; each file has a number of its own, unlike inodes."""
    at, files = 0, 0
    number: dict[int, int] = {}  # by inode
    while at < len(log):
        kind, inode, where, *lengths = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        parts = []
        for length in lengths:
            parts.append(log[at : at + length])
            at += length
        path, other = (os.path.relpath(os.fsdecode(p), folder) if p else "" for p in parts[:2])
        if chr(kind) in "cm":
            files += 1
            number[inode] = files
        yield Operation(chr(kind), path, other, number.get(inode, 0), where, parts[2])
