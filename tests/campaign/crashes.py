"""The possible contents of a disk after a power failure, given its writes and syncs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from campaign.recording import Operation

__all__ = ["WAYS", "image", "write"]

#: What becomes of what was not synced: all or nothing of it; the lengths of files alone; any pages
#: and names; all but the end of what was written last.
WAYS = ("all", "none", "lengths", "any", "torn")
_PAGE = 4096
Image = dict[str, bytes | None]


def image(done: Sequence[Operation], way: str, random: np.random.Generator) -> Image:
    """Return files' contents by their paths, None for a folder, after a crash.

    What was written to a file is there if the file was synced afterwards, and a name if its folder
    was. Names that were not are there or not, each for itself, but a rename is one thing.
    """
    synced = _last_syncs(done)
    names = _names(done, way, random, synced)
    contents = _contents(done, way, random, synced)
    found: Image = {}
    for path, number in sorted(names.items()):
        parent = os.path.dirname(path)
        if parent and parent not in found:
            continue  # a folder that has no name
        found[path] = bytes(contents[number]) if number in contents else None
    return found


def _last_syncs(done: Sequence[Operation]) -> dict[tuple[str, object], int]:
    """Return when files, by their numbers, and folders, by their paths, were synced last."""
    synced: dict[tuple[str, object], int] = {}
    for k, each in enumerate(done):
        if each.kind == "s":
            synced["file", each.file] = k
        elif each.kind == "d":
            synced["folder", "" if each.path == "." else each.path] = k
    return synced


def _names(
    done: Sequence[Operation], way: str, random: np.random.Generator, synced: dict
) -> dict[str, int]:
    names: dict[str, int] = {}
    for k, each in enumerate(done):
        if each.kind not in "crum":
            continue
        folder = os.path.dirname(each.other or each.path)
        may_be_lost = synced.get(("folder", folder), -1) < k
        if may_be_lost and (way in ("none", "lengths") or (way == "any" and random.integers(2))):
            continue
        if each.kind in "cm":
            names[each.path] = each.file
        else:
            names.pop(each.path, None)
            if each.kind == "r":
                names[each.other] = each.file
    return names


def _contents(
    done: Sequence[Operation], way: str, random: np.random.Generator, synced: dict
) -> dict[int, bytearray]:
    contents: dict[int, bytearray] = {}
    last = max((k for k, each in enumerate(done) if each.kind == "w"), default=-1)
    for k, each in enumerate(done):
        if each.kind == "c":
            contents[each.file] = bytearray()
        if each.kind not in "wt":
            continue
        content = contents.setdefault(each.file, bytearray())
        kept = "all" if synced.get(("file", each.file), -1) > k else way
        if each.kind == "t":
            if kept in ("all", "torn", "lengths") or (kept == "any" and random.integers(2)):
                del content[each.at :]
                content.extend(bytes(each.at - len(content)))
            continue
        data = each.data
        if kept == "none":
            continue
        if kept == "torn" and k == last:
            data = data[: int(random.integers(len(data)))]
        end = each.at + len(data)
        content.extend(bytes(max(0, end - len(content))))
        if kept == "any":
            for page in range(0, len(data), _PAGE):
                if random.integers(2):
                    part = data[page : page + _PAGE]
                    content[each.at + page : each.at + page + len(part)] = part
        elif kept != "lengths":
            content[each.at : end] = data
    return contents


def write(found: Image, folder: Path) -> None:
    """Write an image into an empty folder."""
    for path, content in found.items():
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
