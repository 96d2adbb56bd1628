"""Files wherever fsspec reaches: checkpoints, and lists of them, replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tfopt.atomic import replacing
from tfopt.checkpoints.files import read, writer
from tfopt.errors import CheckpointError

__all__ = ["Folder"]

_MANIFEST = "manifest.json"


class Folder:
    """A folder of files that a manifest, written last, lists: it has all of them or counts not.

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
        write = writer(name, tree)
        with self._replacing(name) as file:
            write(file)

    def load(self, name: str) -> Any:
        """Return what a file holds, as `tfopt.checkpoints.load` does."""
        path = self._at(name)
        with self._fs.open(path, "rb") as file:
            return read(file, self._fs.size(path), path)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest; then files whose names end as its own do, but that it lacks, go."""
        with self._replacing(_MANIFEST) as file:
            file.write(json.dumps(manifest, indent=1).encode())
        listed = {entry["file"] for entry in manifest["files"]}
        for path in self._fs.ls(self._path, detail=False):
            name = path.rpartition("/")[2]
            if name.startswith("rows-") and name not in listed:
                self._fs.rm_file(path)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest.

        Raises
        ------
        CheckpointError
            If there is none, or it is damaged.
        """
        try:
            manifest = json.loads(self._fs.cat_file(self._at(_MANIFEST)))
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.url} has no {_MANIFEST}: nothing was saved") from error
        except ValueError as error:
            raise CheckpointError(f"{self._at(_MANIFEST)}: it is damaged") from error
        if not isinstance(manifest, dict):
            raise CheckpointError(f"{self._at(_MANIFEST)}: it is damaged")
        return manifest

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[BinaryIO]:
        """Write a file under another name, then rename it."""
        if isinstance(self._fs, LocalFileSystem):
            with replacing(self._at(name)) as file:
                yield file
            return
        temporary = self._at(f"rows-{secrets.token_hex(8)}.tmp")
        try:
            with self._fs.open(temporary, "wb") as file:
                yield file
            self._fs.mv(temporary, self._at(name))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(temporary)
            raise
