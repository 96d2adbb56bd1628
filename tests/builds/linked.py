"""Check that another system's Python could load a wheel's modules: linked.py WHEEL [LIBRARY].

Each module exports its function of initialization, and is linked with no library but those that
every such system has. What it takes from Python, that has: the one that runs this script, or
the library of a Python for Windows.
"""

from __future__ import annotations

import ctypes
import re
import sys
import zipfile
from pathlib import PurePath

import lief

#: Libraries of the system, by the format of a module.
STOCK = {
    "PE": re.compile(r"kernel32\.dll|api-ms-win-crt-\w+-l1-1-0\.dll|python3\d+\.dll", re.I),
    "MACHO": re.compile(r"/usr/lib/libSystem\.B\.dylib"),
    "ELF": re.compile(r"libc\.so(\.6)?|libm\.so\.6|libgomp\.so\.1|ld-linux-[\w-]+\.so\.\d"),
}


def linked(binary: lief.Binary) -> tuple[set[str], set[str], set[str]]:
    """Return what a module exports, and the libraries and the symbols that it imports."""
    if isinstance(binary, lief.PE.Binary):
        exported = {entry.name for entry in binary.get_export().entries}
        imports = [*binary.imports]
        symbols = {entry.name for one in imports for entry in one.entries}
        return exported, {one.name for one in imports}, symbols
    exported = {str(symbol.name) for symbol in binary.exported_symbols}
    symbols = {str(symbol.name) for symbol in binary.imported_symbols}
    if isinstance(binary, lief.MachO.Binary):  # which puts a line before each name
        bare = [{name.removeprefix("_") for name in names} for names in (exported, symbols)]
        itself = lief.MachO.LoadCommand.TYPE.ID_DYLIB
        libraries = {one.name for one in binary.libraries if one.command != itself}
        return bare[0], libraries, bare[1]
    return exported, {str(name) for name in binary.libraries}, symbols


def main(wheel: str, library: str | None = None) -> None:
    known = linked(lief.parse(library))[0] if library else None
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for path in archive.namelist():
            if not path.endswith((".pyd", ".so")):
                continue
            binary = lief.parse(archive.read(path))
            exported, libraries, symbols = linked(binary)
            name = PurePath(path).name.split(".")[0]
            assert f"PyInit_{name}" in exported, (path, exported)
            stock = STOCK[binary.format.name]
            assert all(map(stock.fullmatch, libraries)), (path, libraries)
            of_python = {one for one in symbols if one.startswith(("Py", "_Py"))}
            assert of_python, path
            for one in of_python:
                assert one in known if known else hasattr(ctypes.pythonapi, one), (path, one)
            count += 1
    assert count > 40, count
    print(f"{wheel}: {count} modules, linked with what every such system has")


main(*sys.argv[1:])
