"""Let NumPy for Windows be imported under Wine: wine.py SITE PYTHON CC.

NumPy asks the C library for the parts of complex numbers, for which Wine 8 has no function that
works. They come into a library beside Python, whose folder is PYTHON, compiled by CC; and NumPy's
modules in the folder SITE take from it all that they took from the system's library of mathematics.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lief

SYSTEMS = b"api-ms-win-crt-math-l1-1-0.dll"
OURS = b"complexmath.dll"
SOURCE = """
typedef struct { double re, im; } pair; /* as Microsoft's compiler passes complex numbers */
typedef struct { float re, im; } single;
double our_creal(pair x) { return x.re; }
double our_cimag(pair x) { return x.im; }
float our_crealf(single x) { return x.re; }
float our_cimagf(single x) { return x.im; }
"""
#: What of it is under which name; Microsoft's long double is double.
NAMES = {
    f"c{part}{end}": f"our_c{part}{end.removesuffix('l')}"
    for part in ("real", "imag")
    for end in ("", "f", "l")
}


def main(site: Path, python: Path, compiler: str) -> None:
    modules = [path for path in site.rglob("*") if path.suffix in (".pyd", ".dll")]
    modules = [path for path in modules if SYSTEMS + b"\0" in path.read_bytes()]
    parsed = [lief.parse(path) for path in modules]  # which own all that is found in them
    imported = {
        entry.name
        for module in parsed
        for library in module.imports
        if library.name.encode() == SYSTEMS
        for entry in library.entries
    }
    exports = [f"    {name}={NAMES.get(name, f'ucrtbase.{name}')}" for name in sorted(imported)]
    code, definitions = python / "complexmath.c", python / "complexmath.def"
    code.write_text(SOURCE)
    definitions.write_text("\n".join([f"LIBRARY {OURS.decode()}", "EXPORTS", *exports, ""]))
    library = python / OURS.decode()
    subprocess.run([compiler, "-shared", code, definitions, "-o", library], check=True)
    for path in modules:
        path.write_bytes(path.read_bytes().replace(SYSTEMS, OURS.ljust(len(SYSTEMS), b"\0")))


main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
