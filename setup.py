"""Build the kernels; the rest of the package's configuration is in pyproject.toml."""

import importlib
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
from Cython.Tempita import Template
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import BaseError

HERE = Path("tfopt")
KERNELS = HERE / "kernels"
#: Declares what a processor has.
HEADER = KERNELS / "platform/machine.h"
RULES = Path("tfopt/rules")
CUDA = Path("tfopt/cuda/src")
MODULES = sorted(
    path.relative_to(KERNELS).with_suffix("").as_posix()
    for path in KERNELS.glob("*/*.pyx")
    if not path.name.startswith("steps_")  # rendered, one for each instruction set
)
#: The compiled parts of automatic differentiation: the engine and the backward pass.
GRADIENTS = ("core/engine", "autodiff/backward")
#: The code of Cython's memoryviews, of which each module would otherwise have a copy. Its name in
#: sys.modules lacks the package's name.
SHARED = "kernels._tfopt_cython_memoryviews"
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
#: Modules that take little of a small step's time, compiled for size: a quarter smaller, which is
#: 2 % of a wheel. `checks` and `dense` take a fifth of the time, and would be slower.
SMALLEST = frozenset(
    f"kernels/{name}"
    for name in (
        "arrays/aliasing",
        "arrays/coerce",
        "platform/locking",
        "platform/runtime",
        "linear/blocks",
        "tf_sdca/feature_groups",
        "tf_sdca/fingerprint_table",
        "update/adjustments",
        "update/commit",
        "update/deferred_rows",
        "update/multi_tensor",
        "update/pipeline",
        "update/sparse_checks",
        "update/step_table",
        "update/whole_rows",
        "update/whole_tensors",
    )
)
#: Of the machine to build for, which may be another one.
X86 = sysconfig.get_platform().endswith(("x86_64", "amd64"))
#: Modules in whose loops a step or a fit spends its time, and how far they are optimized. -O3
#: copies loops, for cases that do not occur in those of other modules, which read text, visit a few
#: numbers or take tables apart. Without it `sparse` takes 1.5 times as long for short rows.
LOOPS = {
    "kernels/arrays/csr": "-O2",
    "kernels/arrays/layout": "-O2",
    "kernels/reduce/norms": "-O3",
    "kernels/tf_sdca/fingerprint": "-O2",
    "kernels/linear/interior_point": "-O3",
    "kernels/linear/second_order": "-O3",
    "kernels/update/clip": "-O2",
    "kernels/update/dense": "-O3",
    "kernels/update/row_buckets": "-O3",
    "kernels/update/segment_sum": "-O3",
    "kernels/update/sparse": "-O3",
    # where there is a faster set, the baseline is for old processors
    **{f"kernels/update/steps_{name}": "-O3" for name in (("v3", "v4") if X86 else ("baseline",))},
}
#: All other modules: only loops begin where processors like it best, and blocks of code are not
#: copied to spare jumps. That is one percent of a wheel.
PACKED = ["-falign-functions=1", "-falign-jumps=1", "-freorder-blocks-algorithm=simple"]
#: Modules that take no longer if GCC copies fewer functions into those that call them. They are a
#: tenth smaller, which is a hundredth of a wheel.
FEWER_COPIES = {
    f"kernels/linear/{name}": ["--param=max-inline-insns-single=30"]
    for name in ("coordinate_descent", "hessian_products", "solver", "visits")
}
#: The compiler flags of each instruction set that `steps` is compiled for.
SETS = {"baseline": []}
#: How many numbers of each 16-bit type a set's steps convert at a time. A set without a type uses
#: the steps of the set before it, which are as fast.
WIDTHS = {"baseline": {}}
if X86:
    # GCC would unroll loops over the few numbers of a conversion, and then not vectorize some
    SETS["v3"] = ["-march=x86-64-v3", "--param=max-completely-peel-times=8"]
    SETS["v4"] = ["-march=x86-64-v4", "-mprefer-vector-width=512"]
    WIDTHS["v3"] = {"float16": 16, "bfloat16": 16}
    WIDTHS["v4"] = {"bfloat16": 32}
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
    "auto_pickle": False,  # unused, and a sixtieth of the wheel
    "emit_code_comments": False,  # a third of the text that is written and read again
    "freethreading_compatible": True,
    "warn.maybe_uninitialized": True,
}
# Contraction to FMA would make bits depend on the instruction set; without -fno-math-errno GCC does
# not vectorize square roots. Never -ffast-math. What makes code only faster or smaller is left out
# where the compiler does not know it.
ARITHMETIC = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
FLAGS = ["-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", *ARITHMETIC]
if "-g" not in os.environ.get("CFLAGS", ""):
    # Python's flags request debug symbols, which would be most of the wheel. Tables for unwinding
    # the stack, which only native profilers read, would be a twentieth.
    FLAGS += ["-g0", "-fno-asynchronous-unwind-tables"]

DEBUG = os.environ.get("TFOPT_DEBUG", "0") not in ("", "0")
if DEBUG:
    # Not cdivision, for a quotient by 0 is infinite or NaN in the reference, too. -ftrapv aborts if
    # a signed number overflows, and lets the hashes be, which are of unsigned ones.
    DIRECTIVES.update(boundscheck=True, initializedcheck=True, nonecheck=True)
    FLAGS = ["-O1", "-g", "-UNDEBUG", "-ftrapv", *ARITHMETIC, "-includedebug.h"]
#: Flags without which the kernels would compute other bits, or not what a debug build is for.
INDISPENSABLE = frozenset(("-ffp-contract=off", "-ftrapv", "-includedebug.h"))
#: Whether the kernels are for this machine's processor alone: one instruction set less to compile.
NATIVE = os.environ.get("TFOPT_NATIVE", "0") not in ("", "0")


def import_file(name: str, path: Path) -> ModuleType:
    """Import a file by itself; its package cannot be imported before the build."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


building = ModuleType("building")  # whose package cannot be imported before the build
building.__path__ = [str(KERNELS / "building")]
sys.modules["building"] = building
probes, reuse, translation = (
    importlib.import_module(f"building.{name}") for name in ("probes", "reuse", "translation")
)
TRANSLATOR = import_file("translate_rules", CUDA / "translate_rules.py")
FORMULAS = (KERNELS / "update/rules.pxd").read_text("utf-8")
CudaLibrary = import_file("build_library", CUDA / "build_library.py").CudaLibrary


def write(target: Path, source: str) -> str:
    """Write a file unless it already has these contents, and return its path."""
    if not target.exists() or target.read_text("utf-8") != source:
        target.write_text(source, "utf-8")
    return str(target)


def render(template: Path, target: Path, **names: object) -> str:
    """Render a template with the given names to a file, and return the file's path."""
    source = Template.from_filename(str(template), encoding="utf-8").substitute(names)
    return write(target, source)


def write_signatures() -> None:
    """Write what the rules' steps take, for the table."""
    each = (f'    "{step}": {names},\n' for step, names in TRANSLATOR.signatures(FORMULAS).items())
    text = '"""What the functions of kernels/update/rules.pxd take: generated from there."""'
    write(RULES / "signatures.py", f"{text}\n\nSIGNATURES = {{\n{''.join(each)}}}\n")


write_signatures()
TABLE = import_file("tfopt_rules", RULES / "__init__.py")


def passed(step: str, named: Mapping[str, str]) -> list[str]:
    """Return what is passed to a step: of the things with a name, those that it takes."""
    return [named[name] for name in TABLE.taken_by(step) if name in named]


def render_functions() -> None:
    """Write the modules whose functions are generated from the table."""

    def wrapped(text: str) -> str:
        return "\n    ".join(textwrap.wrap(text, 95))

    def tuple_of(names: Sequence[str]) -> str:
        return f"({', '.join(names)}{',' if len(names) == 1 else ''})"

    def flags_of(rule: Any) -> str:
        bits = [f"{1 << k} if {flag} else 0" for k, flag in enumerate(rule.flags)] or ["0"]
        return " | ".join(f"({bit})" for bit in bits) if len(bits) > 1 else bits[0]

    helpers = {"wrapped": wrapped, "tuple_of": tuple_of, "flags_of": flags_of}
    for name in ("training_ops", "raw_ops"):
        template = Path("tfopt", f"{name}.py.tp")
        target = template.with_suffix("")
        render(template, target, TABLE=TABLE.RULES, OPS=TABLE.OPS, FORMS=TABLE.FORMS, **helpers)


def render_steps(instruction_set: str) -> str:
    """Write the loops around the table's rules and return the file's path.

    There is one copy per instruction set, because each is a separate extension module.
    """

    def typed(expression: str, number: str) -> str:
        # with a bare literal C would compute in double precision
        return re.sub(r"(?<![\w.])(\d+)(?![\w.])", rf"<{number}><double>\1", expression)

    folder = KERNELS / "update"
    widths = WIDTHS[instruction_set]
    if widths:
        loops = folder / f"half_steps_{instruction_set}.pxi"
        names = {"TABLE": TABLE.RULES, "passed": passed}
        render(folder / "half_steps.pxi.tp", loops, WIDTHS=widths, **names)
        loops = folder / "block_steps.pxi"
        render(folder / "block_steps.pxi.tp", loops, **names)
    target = folder / f"steps_{instruction_set}.pyx"
    if instruction_set != "v4":  # whose other loops are those of v3
        names = {"TABLE": TABLE.RULES, "SET": instruction_set, "HALVES": bool(widths)}
        render(folder / "steps.pyx.tp", target, typed=typed, passed=passed, **names)
    return str(target)


def extension(name: str, source: str, flags: list[str]) -> Extension:
    if name in SMALLEST and not DEBUG:
        flags = ["-Os", *flags]
    elif not DEBUG:
        own = [LOOPS[name]] if name in LOOPS else PACKED
        flags = [*own, *FEWER_COPIES.get(name, []), *flags]
    return Extension(
        f"tfopt.{name.replace('/', '.')}",
        [source],
        include_dirs=[numpy.get_include(), str(KERNELS / "platform")],
        extra_compile_args=FLAGS + flags,
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
    )


def uses_openmp(module: Extension) -> bool:
    """Return whether a module's C code has parallel regions or asks about threads."""
    sources = [Path(source) for source in module.sources if source.endswith(".c")]
    return any(re.search(r"\bomp_|#pragma omp", source.read_text("utf-8")) for source in sources)


class Sources(sdist):
    """The source archive: all files of a clone, with which it is built, tested and documented."""

    FOLDERS = (".ci", ".github", "asv_bench", "docs", "tests", "tfopt", "tfopt_ref")
    #: What builds, tests and tools leave there.
    GENERATED = (
        *("tfopt/**/*.c", "tfopt/**/*.so*", "tfopt/kernels/update/half_steps_*.pxi"),
        *("tfopt/kernels/update/steps_baseline.pyx", "tfopt/kernels/update/steps_v3.pyx"),
        "tfopt/kernels/update/block_steps.pxi",
        *("tfopt/cuda/src/rules.h", "tfopt/cuda/src/table.h"),
        *("tfopt/training_ops.py", "tfopt/raw_ops.py", "tfopt/rules/signatures.py"),
        *("docs/_build/**", "docs/_table.inc", "docs/api/_*.inc", "docs/api/generated/**"),
        *("docs/gallery/**", "docs/sg_execution_times.rst", "asv_bench/.asv/**"),
    )
    #: The same, in any folder.
    LEFT = ("*.py[cod]", "**/.*_cache/**", "**/.hypothesis/**")

    def make_distribution(self) -> None:
        for folder in self.FOLDERS:
            self.filelist.graft(folder)
        self.filelist.extend(["CONTRIBUTING.md", ".pre-commit-config.yaml"])
        for pattern in self.GENERATED:
            self.filelist.exclude(pattern)
        for pattern in self.LEFT:
            self.filelist.global_exclude(pattern)
        super().make_distribution()


class BuildKernels(build_ext):
    """build_ext that works without OpenMP and explains what a build needs."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or PROCESSORS
        # `build_extension` decides what is made anew: setuptools would compare times alone
        self.anew, self.force = bool(self.force), True

    def get_ext_filename(self, name: str) -> str:
        if name.endswith("libtfopt_cuda"):
            return name.replace(".", os.sep) + ".so.1"  # .so alone would be an extension module
        return super().get_ext_filename(name)

    def build_extension(self, extension: Extension) -> None:
        target = Path(self.get_ext_fullpath(extension.name))
        made_of = self.made_of(extension)
        if not self.anew and reuse.restored(extension.name, made_of, target):
            return
        if isinstance(extension, CudaLibrary):
            target.parent.mkdir(parents=True, exist_ok=True)
            extension.build(Path(self.build_temp, "cuda"), str(target), PROCESSORS)
        else:
            super().build_extension(extension)
        reuse.keep(extension.name, made_of, target)

    def made_of(self, extension: Extension) -> str:
        """Return the digest of all that a module is compiled from, and how."""
        versions = numpy.__version__, sysconfig.get_config_var("SOABI")
        if isinstance(extension, CudaLibrary):
            asked = {k: v for k, v in os.environ.items() if k.startswith(("TFOPT_CUDA", "NVCC"))}
            return reuse.digest([*extension.sources, *extension.depends], sorted(asked.items()))
        commands = [getattr(self.compiler, name, None) for name in ("compiler_so", "linker_so")]
        flags = extension.extra_compile_args, extension.extra_link_args, extension.define_macros
        files = [*extension.sources, *sorted(KERNELS.glob("platform/*.h"))]
        return reuse.digest(files, commands, flags, versions)

    def build_extensions(self) -> None:
        if not probes.compiles(self.compiler, ""):
            raise BaseError(
                "tfopt needs a C compiler, and none works here: install one "
                "(Debian, Ubuntu: apt install build-essential; Fedora: dnf install gcc; "
                "macOS: xcode-select --install) and run pip again"
            )
        kernels = [module for module in self.extensions if not isinstance(module, CudaLibrary)]
        without = probes.left_out(self.compiler, kernels, INDISPENSABLE) + self.others(kernels)
        self.extensions = [module for module in self.extensions if module not in without]
        kernels = [module for module in kernels if module not in without]
        translation.translate(kernels, HERE, DIRECTIVES, f"tfopt.{SHARED}", self.anew)
        if probes.compiles(self.compiler, probes.OPENMP, "-fopenmp", run=True):
            for module in filter(uses_openmp, self.extensions):
                module.extra_compile_args.append("-fopenmp")
                module.extra_link_args.append("-fopenmp")
        else:
            print(
                "tfopt: the compiler has no OpenMP, so the kernels will run on one thread "
                "(Debian, Ubuntu: apt install libgomp1 gcc; macOS: brew install gcc, CC=gcc-14)",
                file=sys.stderr,
            )
        # Python binds all functions of a module when it loads it, so that tables for binding them
        # later, a fiftieth of a wheel, are of no use.
        if probes.compiles(self.compiler, "", "-fno-plt", "-Wl,-z,now"):
            for module in self.extensions:
                if not isinstance(module, CudaLibrary):
                    module.extra_compile_args.append("-fno-plt")
                    module.extra_link_args.append("-Wl,-z,now")
        # Names of static functions are a twelfth of a wheel; debuggers and the tests need them.
        is_wheel = "-g0" in FLAGS and "bdist_wheel" in self.distribution.commands
        if is_wheel and probes.compiles(self.compiler, "", "-Wl,--strip-all"):
            for module in self.extensions:
                module.extra_link_args.append("-Wl,--strip-all")
        super().build_extensions()

    def others(self, kernels: list[Extension]) -> list[Extension]:
        """Return the modules of instruction sets that this machine does not use, if it counts."""
        if not (NATIVE and X86):
            return []
        has = {set_: probes.processor_has(self.compiler, set_, HEADER) for set_ in ("v3", "v4")}
        unused = {"baseline"} if has["v3"] else set()  # v4 needs v3, whose loops it takes
        unused |= {set_ for set_, there in has.items() if not there}
        return [module for module in kernels if module.name.rpartition("steps_")[2] in unused]


render_functions()
# the tests need no nvcc
render(
    CUDA / "table.h.tp",
    CUDA / "table.h",
    TABLE=TABLE.RULES,
    passed=passed,
    reduced=TRANSLATOR.reduced,
)
write(CUDA / "rules.h", TRANSLATOR.cuda_rules(FORMULAS))
# Built only on request, so that an installed toolkit, perhaps an old one, does not slow the build.
libraries = []
if os.environ.get("TFOPT_CUDA") == "1":
    rules = [rule.name for rule in TABLE.RULES]
    libraries.append(CudaLibrary(rules, [str(path) for path in RULES.glob("*.py")]))
modules = [
    *(
        extension(f"kernels/update/steps_{name}", render_steps(name), flags)
        for name, flags in SETS.items()
    ),
    *(extension(f"kernels/{name}", str(KERNELS / f"{name}.pyx"), []) for name in MODULES),
    *(extension(name, f"tfopt/{name}.pyx", []) for name in GRADIENTS),
    # its code runs once a call, not once an element: half the size matters more than its speed
    extension(SHARED, f"tfopt/{SHARED.replace('.', '/')}.c", ["-Os"]),
]
# A wheel would have the modules of earlier commits, too, which setuptools leaves there.
for stale in Path("build").glob("lib*"):
    shutil.rmtree(stale)
setup(
    ext_modules=modules + libraries,
    cmdclass={"build_ext": BuildKernels, "sdist": Sources},
)
