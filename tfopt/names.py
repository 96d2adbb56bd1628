"""Suggestions for misspelt names."""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Iterable
from contextlib import suppress

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.imports import imported

__all__ = ["hint", "no_attribute", "unknown_argument", "unknown_class"]


def hint(name: str, names: Iterable[str]) -> str:
    """Return "did you mean 'Adam'?" for a name close to one of some names; else nothing.

    A plural is close to numbered names: `betas` to `beta_1` and `beta_2`.
    """
    names = [*names]
    numbered = re.compile(re.escape(name.removesuffix("s")) + r"_\d+")
    close = [each for each in names if numbered.fullmatch(each)]
    if not close:
        lower = {each.lower(): each for each in names}
        found = imported("difflib").get_close_matches(name.lower(), lower, 1)
        close = [lower[each] for each in found]
    return f"did you mean {' and '.join(map(repr, close))}?" if close else ""


def unknown_argument(cls: type, name: str, names: Iterable[str]) -> InvalidTypeError:
    """Return the error for a keyword that a class does not take."""
    names = [*names]
    says = hint(name, names) or f"it takes {', '.join(names)}"
    return InvalidTypeError(f"{cls.__name__} got an unexpected keyword argument {name!r}; {says}")


def unknown_class(kind: str, name: str, names: Iterable[str]) -> InvalidArgumentError:
    """Return the error for a class that a configuration names and that is not known."""
    meant = hint(name, names)
    says = meant and f"D{meant[1:]} "
    return InvalidArgumentError(
        f"Unknown {kind}: {name}. {says}Please ensure this object is passed to the "
        "`custom_objects` argument."
    )


def no_attribute(
    module: str, name: str, names: Iterable[str], homes: Iterable[str] = ()
) -> Exception:
    """Return the error for a name that a module does not have.

    Parameters
    ----------
    module, name : str
    names : iterable of str
        The module's names.
    homes : iterable of str
        Modules where the name may be meant to be, which are imported.
    """
    says = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_"):
        says += _where(name, homes) or f"; {hint(name, names)}".removesuffix("; ")
    # Python replaces an AttributeError of `from module import name` by an error without these words
    caller = sys._getframe(2)
    instruction = caller.f_code.co_code[caller.f_lasti] if caller.f_lasti >= 0 else 0
    if dis.opname[instruction] == "IMPORT_FROM":
        return ImportError(says, name=module)
    return AttributeError(says, name=name)


def _where(name: str, homes: Iterable[str]) -> str:
    for home in homes:
        with suppress(ImportError):
            if name in imported(home).__all__:
                return f": it is in {home}"
    return ""
