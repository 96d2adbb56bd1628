"""No module needs one that needs it, however late it is imported, and no folder one above it.

Modules are the nodes of a graph, imports its edges: those inside functions too, but not those for
type checkers alone. To import ``a.b.c`` also runs the packages ``a`` and ``a.b``, so they count as
imported, but for those that the importing module is in itself: they have begun to run before it.
So ``tfopt`` itself, whose ``__init__`` imports most modules and which all of them are in, counts
only where a name that it defines is taken from it. Modules that are found by a name in data do not
count: the backends that ``tfopt.core.backends`` lists, which import what they serve, and the
attributes of ``tfopt`` that are loaded when they are first asked for.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tfopt
import tfopt_ref

Graph = dict[str, set[str]]

#: The rooms of each floor, the lowest floor first. A module may import, for annotations too, what
#: is in its own room or on a lower floor. Its room is the longest of these names that its own
#: begins with.
FLOORS = (
    "imports printable rules",
    "errors",
    "names",
    "kernels",
    "denormals storage threads",
    "core",
    "indexed_slices",
    "bags sparse_conversion sparse_rows variable",
    "clip_ops",
    "checkpoints clip_grads io linalg means sdca_ops",
    "autodiff sdca_model",
    "scipy",
    "updates",
    "raw_ops training_ops",
    "optimizers.arguments",
    "optimizers.settings",
    "optimizers.schedules",
    "optimizers.options",
    "optimizers.state",
    "optimizers.step",
    "optimizers.base",
    "optimizers.algorithms optimizers.wrappers",
    "optimizers",
    "linear_model",
    "cuda interop",  # cuda is found by name: tfopt.core.backends
    "dask mpi ray",
    "",  # tfopt itself
    "selftest",
    "cli",
    "__main__",
)


def modules_of(folder: Path) -> dict[str, Path]:
    """Return the files of all modules of a package by their dotted names."""
    found = {}
    for path in sorted(folder.rglob("*.py*")):
        if path.suffix not in (".py", ".pyx") or path.name.startswith("steps_"):
            continue
        parts = path.relative_to(folder.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports_in(source: str, annotations: bool = False) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import of Python's, the name empty in ``import module``.

    Those for type checkers alone count only with `annotations`.
    """
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse + (node.body if annotations else [])
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield from (("." * node.level + node.module, alias.name) for alias in node.names)
        else:
            if isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
                yield from ((x.value, "") for x in node.args if isinstance(x, ast.Constant))
            todo += ast.iter_child_nodes(node)


_FROM = re.compile(r"^\s*from ([\w.]+) c?import (\([^)]*\)|.*)", re.MULTILINE)
_IMPORT = re.compile(r"^\s*c?import ([\w.]+)", re.MULTILINE)


def imports_in_cython(source: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import of Cython's, where ``cimport`` runs modules, too."""
    for module, names in _FROM.findall(source):
        for name in re.sub(r"#.*|[()]", "", names).split(","):
            if name.strip():
                yield module, name.split()[0]
    yield from ((module, "") for module in _IMPORT.findall(source))


def graph_of(modules: dict[str, Path], annotations: bool = False) -> Graph:
    """Return which modules each one imports, and which packages that runs.

    With annotations, what only these need counts too, but not the packages.
    """
    graph: Graph = {}
    for importer, path in modules.items():
        edges = graph[importer] = set()
        package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        for given, name in all_imports_in(path, annotations):
            module = importlib.util.resolve_name(given, package)
            imported = f"{module}.{name}"
            if imported not in modules:
                # declarations for Cython alone are no module; of a package, its own name is taken
                declared = module in modules and modules[module].with_name(f"{name}.pxd").exists()
                imported = module
                if declared and path.suffix == ".pyx":
                    continue
            if imported in modules:
                run = () if annotations else packages_run(importer, imported)
                edges |= {imported, *run} - {importer}
    return graph


def all_imports_in(path: Path, annotations: bool) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import of a module."""
    if path.suffix == ".py":
        yield from imports_in(path.read_text(), annotations)
        return
    yield from imports_in_cython(path.read_text())
    declared, stub = path.with_suffix(".pxd"), path.with_suffix(".pyi")
    if declared.exists():
        yield from imports_in_cython(declared.read_text())
    if annotations and stub.exists():
        yield from imports_in(stub.read_text(), annotations)


def packages_run(importer: str, imported: str) -> Iterator[str]:
    """Yield the packages that an import runs."""
    package = imported.rpartition(".")[0]
    while package and not f"{importer}.".startswith(f"{package}."):
        yield package
        package = package.rpartition(".")[0]


def circles_in(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components of more than one module, by Tarjan's algorithm."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in graph:
        if module not in numbers:
            visit(module)
    return found


def test_circles_are_found() -> None:
    graph = {
        "a": {"b"},
        "b": {"c"},
        "c": {"b", "d"},
        "d": {"e"},
        "e": {"f"},
        "f": {"d"},
        "g": {"a"},
    }
    assert sorted(circles_in(graph)) == [["b", "c"], ["d", "e", "f"]]
    assert circles_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_imports_are_seen(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "from p.a import x",
        "p/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.q.d\n",
        "p/b.py": "def f():\n    from p import a, x\n",
        "p/q/__init__.py": "from p.q import c",
        "p/q/c.pyx": "from p.b cimport (  # for all\n    f, g,\n)\nfrom p.q cimport declared\n",
        "p/q/c.pxd": "from p.q.d cimport h\n",
        "p/q/declared.pxd": "from p.e cimport i\n",
        "p/q/d.py": "import p.q.c as c, numpy\n",
        "p/e.py": "import p.q.d\n",
        "p/f.py": "from importlib import import_module\nimport_module('p.q.d').run()\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert graph_of(modules_of(tmp_path / "p")) == {
        "p": {"p.a"}, "p.a": set(), "p.b": {"p", "p.a"}, "p.e": {"p.q", "p.q.d"},
        "p.f": {"p.q", "p.q.d"}, "p.q": {"p.q.c"}, "p.q.c": {"p.b", "p.q.d"}, "p.q.d": {"p.q.c"},
    }  # fmt: skip


def is_read(graph: dict[str, set[str]]) -> bool:
    """Whether most modules import others, as they do if their imports have been found."""
    return sum(map(bool, graph.values())) > len(graph) / 2 > 0


@pytest.mark.parametrize("package", [tfopt, tfopt_ref])
def test_nothing_imports_itself_by_way_of_others(package: ModuleType) -> None:
    graph = graph_of(modules_of(Path(str(package.__file__)).parent))
    assert is_read(graph)
    assert circles_in(graph) == []


def floor_of(module: str) -> tuple[int, str]:
    """Return a module's floor and room."""
    rooms = {room: k for k, floor in enumerate(FLOORS) for room in floor.split(" ")}
    name = module.partition(".")[2]
    while name not in rooms:
        name = name.rpartition(".")[0]
        assert name, f"{module} is on no floor"
    return rooms[name], name


def upward(graph: Graph) -> list[str]:
    """Return the imports of other rooms on the same floor or above."""
    found = []
    for module, imported in graph.items():
        floor, room = floor_of(module)
        for other in sorted(imported):
            its_floor, its_room = floor_of(other)
            if its_floor >= floor and its_room != room:
                found.append(f"{module} imports {other}")
    return found


def test_upward_imports_are_found() -> None:
    graph = {
        "tfopt.core.nest": {"tfopt.kernels.x", "tfopt.core.engine", "tfopt.variable"},
        "tfopt.optimizers.state.slots": {"tfopt.optimizers.step.plan", "tfopt.optimizers"},
        "tfopt.optimizers.base": {"tfopt.optimizers.step.plan"},
        "tfopt.optimizers": {"tfopt.optimizers.base", "tfopt"},
        "tfopt.threads": {"tfopt.denormals"},
        "tfopt": {"tfopt.dask.cluster"},
    }
    assert upward(graph) == [
        "tfopt.core.nest imports tfopt.variable",
        "tfopt.optimizers.state.slots imports tfopt.optimizers",
        "tfopt.optimizers.state.slots imports tfopt.optimizers.step.plan",
        "tfopt.optimizers imports tfopt",
        "tfopt.threads imports tfopt.denormals",
    ]
    with pytest.raises(AssertionError, match=r"tfopt\.new is on no floor"):
        floor_of("tfopt.new")


def test_no_folder_imports_from_above() -> None:
    graph = graph_of(modules_of(Path(str(tfopt.__file__)).parent), annotations=True)
    assert is_read(graph)
    assert upward(graph) == []


def importers(package: ModuleType, other: str) -> set[str]:
    """Return the modules of a package that import another package or a module of it."""
    return {
        module
        for module, path in modules_of(Path(str(package.__file__)).parent).items()
        if any(f"{name}.".startswith(f"{other}.") for name, _ in all_imports_in(path, True))
    }


def test_the_specification_stands_apart() -> None:
    """It imports nothing of tfopt; one file of tfopt runs it, and that in its mode alone."""
    assert importers(tfopt_ref, "tfopt") == set()
    assert importers(tfopt, "tfopt_ref") == {"tfopt.kernels.reference"}
    assert importers(tfopt, "tfopt.kernels.reference") == {"tfopt.kernels"}
    tree = ast.parse(Path(str(tfopt.kernels.__file__)).read_text())
    (mode,) = (node for node in tree.body if "tfopt.kernels.reference" in ast.unparse(node))
    assert isinstance(mode, ast.If) and ast.unparse(mode.test) == "backend == 'reference'"
