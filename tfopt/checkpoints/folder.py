"""Folders of checkpoint files, local or through fsspec; a manifest lists the valid files."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from typing import Any

from tfopt import checkpoints
from tfopt.core.atomic_write import make_folder
from tfopt.errors import CheckpointError
from tfopt.imports import imported

__all__ = ["MANIFEST", "Folder"]

#: The file that lists the others of a checkpoint; it is written last.
MANIFEST = "manifest.npz"


class Folder:
    """A folder of checkpoint files, each replaced atomically.

    Parameters
    ----------
    url : str
        A path or an fsspec URL such as ``s3://bucket/folder``.
    """

    def __init__(self, url: str) -> None:
        self.url = str(url)
        #: None: that of this machine.
        self._fs: Any = None
        self._path = os.path.abspath(os.path.expanduser(self.url.removeprefix("file://")))
        if "://" in self.url.removeprefix("file://"):
            self._fs, self._path = imported("fsspec").url_to_fs(self.url)

    def make(self) -> None:
        """Create the folder if it does not exist."""
        if self._fs is None:
            make_folder(self._path)
        else:
            self._fs.makedirs(self._path, exist_ok=True)

    def save(self, name: str, tree: Any) -> None:
        """Write one file, as `tfopt.checkpoints.save` does."""
        path = self._path_of(name)
        if self._fs is None:
            checkpoints.save(path, tree)
            return
        temporary = self._path_of(f".{secrets.token_hex(8)}.tmp")
        with tempfile.TemporaryDirectory() as here:
            copy = os.path.join(here, name)
            checkpoints.save(copy, tree)
            try:
                # A move is atomic where writing is not, over SFTP for example. On an object store
                # it is a copy, which is atomic, too.
                self._fs.put_file(copy, temporary)
                self._fs.mv(temporary, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(temporary)
                raise

    def load(self, name: str) -> Any:
        """Return the content of a file, as `tfopt.checkpoints.load` does.

        Raises
        ------
        CheckpointError
            If the file does not exist or is damaged.
        """
        path = self._path_of(name)
        try:
            if self._fs is None:
                return checkpoints.load(path)
            with tempfile.TemporaryDirectory() as here:
                copy = os.path.join(here, name)
                self._fs.get_file(path, copy)
                return checkpoints.load(copy)
        except FileNotFoundError:
            raise CheckpointError(f"{self.url}: there is no {name}") from None

    def manifest(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the manifest, which must have this identity.

        Raises
        ------
        CheckpointError
            If there is none, or its identity differs.
        """
        manifest: dict[str, Any] = self.load(MANIFEST)
        for name, value in identity.items():
            saved = manifest["about"].get(name)
            if saved != value:
                raise CheckpointError(f"{self.url}: its {name} is {saved!r}, not {value!r}")
        return manifest

    def has(self, name: str) -> bool:
        """Return whether a file exists."""
        path = self._path_of(name)
        return os.path.exists(path) if self._fs is None else bool(self._fs.exists(path))

    def remove_if_empty(self) -> None:
        """Remove the folder if it is empty."""
        with contextlib.suppress(OSError):
            (os if self._fs is None else self._fs).rmdir(self._path)

    def keep_only(self, names: set[str], prefix: str) -> None:
        """Remove the files with a prefix, except these."""
        local = self._fs is None
        there = os.listdir(self._path) if local else self._fs.ls(self._path, detail=False)
        for path in there:
            name = path.rpartition("/")[2]
            if name.startswith(prefix) and name not in names:
                (os.remove if local else self._fs.rm_file)(self._path_of(name))

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{name}"
