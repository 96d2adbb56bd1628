"""How rows of text become hashed features: the options, and the columns that they name."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tfopt.errors import InvalidArgumentError

__all__ = ["MAX_HASHES", "Columns", "HashedText", "fields_of"]

#: As many as scikit-learn's FeatureHasher takes.
MAX_HASHES = 2**31 - 1
#: What a column is; `tfopt.kernels.text.hashed_text` has the same numbers.
LEFT_OUT, CATEGORY, NUMBER, LABEL, WEIGHT = range(5)
_QUOTED = re.compile(rb'"((?:[^"]|"")*)"')
#: A column, by its name or its number.
_Column = int | str


class Columns(NamedTuple):
    """The columns, or the crossed namespaces, as the kernel takes them."""

    names: list[bytes]
    roles: bytes | None
    crosses: list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class HashedText:
    """How rows of text become rows of hashed features: the options of `iter_hashed`."""

    n_hashes: int
    format: Literal["delimited", "vw"] = "delimited"
    sep: str = "\t"
    label: _Column | None = 0
    names: Literal["header"] | tuple[str, ...] | None = None
    numeric: tuple[_Column, ...] = ()
    skip: tuple[_Column, ...] = ()
    weight: _Column | None = None
    crosses: tuple[tuple[_Column, _Column], ...] = ()
    quotes: bool = True

    def __post_init__(self) -> None:
        n_hashes = operator.index(self.n_hashes)
        if not 1 <= n_hashes <= MAX_HASHES:
            raise InvalidArgumentError(f"n_hashes must be from 1 to {MAX_HASHES}, not {n_hashes}")
        if self.format not in ("delimited", "vw"):
            raise InvalidArgumentError(f'format must be "delimited" or "vw", not {self.format!r}')
        is_byte = isinstance(self.sep, str) and len(self.sep.encode()) == 1
        if not is_byte or self.sep in '\r\n"':
            raise InvalidArgumentError(
                f"sep must be one ASCII character other than a quote and a line end: {self.sep!r}"
            )
        if not isinstance(self.quotes, bool):
            raise InvalidArgumentError(f"quotes must be True or False, not {self.quotes!r}")
        self._set("n_hashes", n_hashes)
        if self.names is not None and self.names != "header":
            self._set("names", _names(self.names))
        for name in ("numeric", "skip"):
            self._set(name, tuple(_column(name, each) for each in _several(name, self)))
        for name in ("label", "weight"):
            if getattr(self, name) is not None:
                self._set(name, _column(name, getattr(self, name)))
        pairs = [(*_pair(each),) for each in _several("crosses", self)]
        self._set("crosses", tuple(pairs))
        if self.format == "vw":
            for field in dataclasses.fields(self)[2:]:
                if field.name != "crosses" and getattr(self, field.name) != field.default:
                    raise InvalidArgumentError(
                        f'{field.name} is for delimited text, and not for format="vw", whose '
                        "lines say what they hold"
                    )
            if any(isinstance(each, int) for pair in pairs for each in pair):
                raise InvalidArgumentError(f"crosses must name namespaces: {self.crosses}")

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> HashedText:
        """Return the options that a document has, by their names."""
        if sorted(entries) != sorted(field.name for field in dataclasses.fields(cls)):
            raise InvalidArgumentError('the document has no valid "reading"')
        try:
            return cls(**entries)
        except TypeError as error:
            raise InvalidArgumentError(f'the document has no valid "reading": {error}') from error

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def shown(self) -> dict[str, Any]:
        """Return the options that are not what they are by default."""
        fields = dataclasses.fields(self)[1:]
        entries = {field.name: (getattr(self, field.name), field.default) for field in fields}
        return {name: given for name, (given, default) in entries.items() if given != default}

    def of_file(self, first: Sequence[bytes], needs_labels: bool = True) -> HashedText:
        """Return the options with the names of columns that have none.

        Without `needs_labels`, the columns of labels and weights need not be there: by name, or
        where the rows have one field less than there are names.
        """
        if self.format == "vw" or not first:
            return self
        names = self.names or tuple(map(str, range(len(first))))
        if needs_labels:
            return dataclasses.replace(self, names=names)
        if names == "header":
            shown = [field.decode("utf-8", "replace") for field in first]

            def there(each: _Column | None) -> _Column | None:
                return None if isinstance(each, str) and each not in shown else each

            return dataclasses.replace(self, label=there(self.label), weight=there(self.weight))
        if self.label is None or len(first) != len(names) - 1:
            return dataclasses.replace(self, names=names)

        def named(each: _Column) -> str:
            return names[_position(each, names)]

        return dataclasses.replace(
            self,
            label=None,
            names=tuple(name for name in names if name != named(self.label)),
            numeric=tuple(map(named, self.numeric)),
            skip=tuple(map(named, self.skip)),
            weight=None if self.weight is None else named(self.weight),
            crosses=tuple((named(a), named(b)) for a, b in self.crosses),
        )

    def columns_of(self, first: Sequence[bytes]) -> Columns:
        """Return the columns of a file.

        Parameters
        ----------
        first : sequence of bytes
            The fields of its first row: the names, or as many as there are columns.

        Raises
        ------
        InvalidArgumentError
            If a column is not there, or has two roles.
        """
        if self.format == "vw":
            spaces = [*dict.fromkeys(str(each) for pair in self.crosses for each in pair)]
            pairs = [(spaces.index(str(a)), spaces.index(str(b))) for a, b in self.crosses]
            return Columns([space.encode() for space in spaces], None, pairs)
        if self.names == "header":
            try:
                names = _names([field.decode() for field in first])
            except UnicodeDecodeError as error:
                raise InvalidArgumentError("the names of the columns are not UTF-8") from error
        else:
            names = self.names or tuple(map(str, range(len(first))))
        given = [
            *((LABEL, each) for each in (self.label,) if each is not None),
            *((WEIGHT, each) for each in (self.weight,) if each is not None),
            *((NUMBER, each) for each in self.numeric),
            *((LEFT_OUT, each) for each in self.skip),
        ]
        roles = [CATEGORY] * len(names)
        taken = set[int]()
        for role, each in given:
            at = _position(each, names)
            if at in taken:
                raise InvalidArgumentError(f"the column {names[at]!r} has two roles")
            taken.add(at)
            roles[at] = role
        crosses = [(_position(a, names), _position(b, names)) for a, b in self.crosses]
        for each in {at for pair in crosses for at in pair}:
            if roles[each] not in (CATEGORY, NUMBER):
                raise InvalidArgumentError(f"the column {names[each]!r} is crossed and no feature")
        return Columns([name.encode() for name in names], bytes(roles), crosses)


def _several(name: str, options: HashedText) -> Iterable[Any]:
    given = getattr(options, name)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"{name} must be a list or a tuple, not {given!r}")
    return given


def _names(given: Any) -> tuple[str, ...]:
    names = tuple(given) if not isinstance(given, str) else (given,)
    if isinstance(given, str) or not names or any(not isinstance(each, str) for each in names):
        raise InvalidArgumentError(f'names must be None, "header" or a list of text: {given!r}')
    for each in names:
        if names.count(each) > 1:
            raise InvalidArgumentError(f"two columns have the name {each!r}")
    return names


def _column(name: str, given: Any) -> _Column:
    if isinstance(given, str):
        return given
    try:
        number = operator.index(given)
    except TypeError:
        number = -1
    if isinstance(given, bool) or number < 0:
        raise InvalidArgumentError(
            f"{name} must be the name of a column or its number, from 0, not {given!r}"
        )
    return number


def _pair(given: Any) -> tuple[_Column, _Column]:
    both = [*given] if isinstance(given, (list, tuple)) else []
    if len(both) != 2:
        raise InvalidArgumentError(f"crosses must have pairs of columns, not {given!r}")
    one, other = (_column("crosses", each) for each in both)
    if one == other:
        raise InvalidArgumentError(f"crosses must not pair {one!r} with itself")
    return one, other


def _position(given: _Column, names: Sequence[str]) -> int:
    if isinstance(given, int):
        if given >= len(names):
            raise InvalidArgumentError(f"there is no column {given}: there are {len(names)}")
        return given
    if given not in names:
        shown = ", ".join(map(repr, names[:20]))
        raise InvalidArgumentError(f"there is no column {given!r}: there are {shown}")
    return names.index(given)


def fields_of(row: bytes, sep: bytes, quotes: bool) -> list[bytes] | None:
    """Return the fields of a row; None if a quote is not closed, or something follows it."""
    fields, at = [], 0
    while True:
        if quotes and row[at : at + 1] == b'"':
            quoted = _QUOTED.match(row, at)
            if quoted is None:
                return None
            fields.append(quoted[1].replace(b'""', b'"'))
            at = quoted.end()
        else:
            stop = row.find(sep, at)
            stop = len(row) if stop < 0 else stop
            fields.append(row[at:stop])
            at = stop
        if at == len(row):
            return fields
        if row[at : at + 1] != sep:
            return None
        at += 1
