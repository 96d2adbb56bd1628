"""What a build takes over from the last one: all that would come out the same.

Contents decide, not times: pip builds in a new environment each time, and then NumPy's declarations
are newer than what was made of them the last time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

__all__ = ["digest", "is_noted", "keep", "note", "restored"]

#: What has been made: files by the digest of what they are made of, and the notes of steps.
KEPT = Path("build/made")
#: How many files of one name are kept: with and without names of static functions, and one more.
MOST = 3


def digest(files: Iterable[str | Path], *settings: object) -> str:
    """Return a digest of the contents of files, in their order, and of settings."""
    total = hashlib.sha256(repr(settings).encode())
    for file in files:
        total.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return total.hexdigest()[:32]


def restored(name: str, made_of: str, target: Path) -> bool:
    """Return whether a file was made of the same before; then the target has its contents."""
    kept = KEPT / f"{name}-{made_of}"
    if not kept.exists():
        return False
    if not target.exists() or target.read_bytes() != kept.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kept, target)
    os.utime(kept)
    return True


def keep(name: str, made_of: str, target: Path) -> None:
    """Keep a file that has been made."""
    KEPT.mkdir(parents=True, exist_ok=True)
    partial = KEPT / f"{name}.partial"
    shutil.copy(target, partial)
    partial.replace(KEPT / f"{name}-{made_of}")
    newest_first = sorted(KEPT.glob(f"{name}-*"), key=lambda path: -path.stat().st_mtime)
    for old in newest_first[MOST:]:
        old.unlink()


def is_noted(step: str, made_of: str) -> bool:
    """Return whether a step has been completed for the same files and settings."""
    noted = KEPT / step
    return noted.exists() and noted.read_text("utf-8") == made_of


def note(step: str, made_of: str | None) -> None:
    """Note that a step has been completed for some files and settings, or that it begins."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / step).write_text(made_of or "", "utf-8")
