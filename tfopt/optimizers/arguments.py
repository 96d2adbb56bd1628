"""The arguments of constructors: their names, and the calls that make objects."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["call_of", "constructors_of", "parameters_of"]


def constructors_of(cls: type) -> Iterator[dict[str, inspect.Parameter]]:
    """Yield the parameters of the constructors of a class and of its bases, by name."""
    for base in cls.__mro__:
        made = vars(base).get("__init__")
        if inspect.isfunction(made):  # the signature of `object.__init__` copies sys.modules
            yield dict([*inspect.signature(made).parameters.items()][1:])


def parameters_of(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a class and, if it passes keywords on, of its bases."""
    found: dict[str, inspect.Parameter] = {}
    for own in constructors_of(cls):
        for name, each in own.items():
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                found.setdefault(name, each)
        if all(each.kind is not each.VAR_KEYWORD for each in own.values()):
            break
    return found


def call_of(value: Any, given: Mapping[str, Any]) -> str:
    """Return the text of a call that makes an object.

    It has the arguments that are required, the learning rate, and what differs from the defaults.

    Parameters
    ----------
    value : object
        Its attributes have the names of its arguments.
    given : mapping
        Values of arguments that are no attributes.
    """
    cls, texts, in_order = type(value), [], True
    for name, parameter in parameters_of(cls).items():
        is_known = name in given or hasattr(value, name)
        needed = parameter.default is parameter.empty
        if needed and not is_known:
            return f"<{cls.__name__} {value.name!r}>"
        argument = given.get(name, getattr(value, name, parameter.default))
        usual = (None, cls.__name__) if name == "name" else (parameter.default,)
        if needed or (in_order and name == "learning_rate"):
            texts.append(repr(argument) if in_order else f"{name}={argument!r}")
            continue
        in_order = False
        if not any(argument is each or argument == each for each in usual):
            texts.append(f"{name}={argument!r}")
    return f"{cls.__name__}({', '.join(texts)})"
