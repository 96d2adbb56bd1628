"""Checkpoints in sets, wherever fsspec reaches: a manifest, written last, says which set counts."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tfopt import checkpoints
from tfopt.errors import CheckpointError

__all__ = ["MANIFEST", "Folder"]

#: The checkpoint that names all others of its set.
MANIFEST = "manifest.npz"


class Folder:
    """A folder of checkpoints; each is replaced as a whole.

    Parameters
    ----------
    url : str
        A path, or what fsspec takes: ``s3://bucket/folder``, say.
    """

    def __init__(self, url: str) -> None:
        self.url = str(url)
        self._fs, self._path = fsspec.url_to_fs(self.url)

    def make(self) -> None:
        """Make the folder, if it is not there."""
        self._fs.makedirs(self._path, exist_ok=True)

    def save(self, name: str, tree: Any) -> None:
        """Write one file, as `tfopt.checkpoints.save` does."""
        path = self._at(name)
        if isinstance(self._fs, LocalFileSystem):
            checkpoints.save(path, tree)
            return
        temporary = self._at(f".{secrets.token_hex(8)}.tmp")
        with tempfile.TemporaryDirectory() as here:
            copy = os.path.join(here, name)
            checkpoints.save(copy, tree)
            try:
                # Where files are written piece by piece, over SFTP, say, a move happens at once. On
                # an object store it is a copy, but a copy appears as a whole, too.
                self._fs.put_file(copy, temporary)
                self._fs.mv(temporary, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(temporary)
                raise

    def load(self, name: str) -> Any:
        """Return what a file holds, as `tfopt.checkpoints.load` does.

        Raises
        ------
        CheckpointError
            If there is no such file, or it is damaged.
        """
        path = self._at(name)
        try:
            if isinstance(self._fs, LocalFileSystem):
                return checkpoints.load(path)
            with tempfile.TemporaryDirectory() as here:
                copy = os.path.join(here, name)
                self._fs.get_file(path, copy)
                return checkpoints.load(copy)
        except FileNotFoundError:
            raise CheckpointError(f"{self.url}: there is no {name}") from None

    def manifest(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return the manifest of a fit of what is said.

        Raises
        ------
        CheckpointError
            If there is none, or it is of something else.
        """
        manifest: dict[str, Any] = self.load(MANIFEST)
        for name, value in about.items():
            saved = manifest["about"].get(name)
            if saved != value:
                raise CheckpointError(f"{self.url}: its {name} is {saved!r}, not {value!r}")
        return manifest

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return bool(self._fs.exists(self._at(name)))

    def remove_if_empty(self) -> None:
        """Remove the folder, unless there is something in it."""
        with contextlib.suppress(OSError):
            self._fs.rmdir(self._path)

    def keep_only(self, names: set[str], prefix: str) -> None:
        """Remove files whose names begin so, but for those that are named."""
        for path in self._fs.ls(self._path, detail=False):
            name = path.rpartition("/")[2]
            if name.startswith(prefix) and name not in names:
                self._fs.rm_file(path)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"
