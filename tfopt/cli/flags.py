"""Flags that several commands have, and converters of their values."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import Any

from tfopt.cli.settings import Settings

DATA_FORMAT = """\
Data are LIBSVM text, one row per line: label index:value index:value ...
Indices ascend within a row; comments (#), blank lines and qid are ignored. Names that end in .csv,
.tsv or .parquet are tables with named columns: --label says which one has the labels, all others
are features and must be numbers. Files may be compressed with gzip, bzip2, xz or Zstandard; - is
standard input. URLs are read with fsspec."""
DEFAULT = "default: %(default)s"


def count(smallest: int, largest: float = math.inf) -> Callable[[str], int]:
    """Return a converter to integers within bounds."""

    def parse_count(text: str) -> int:
        value = int(text)
        if not smallest <= value <= largest:
            limits = f"at least {smallest}" if largest == math.inf else f"{smallest} to {largest}"
            raise argparse.ArgumentTypeError(f"must be {limits}, not {text}")
        return value

    parse_count.__name__ = "integer"  # argparse's word for it: "invalid integer value: 'x'"
    return parse_count


def number(text: str) -> float:
    """Return a finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be finite, not {text}")
    return value


def positive(text: str) -> float:
    """Return a positive finite number."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value


def non_negative(text: str) -> float:
    """Return a non-negative finite number."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, not {text}")
    return value


def size(text: str) -> int:
    """Return a number of bytes, of which KB, MB and GB are powers of 1000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be a size such as 256MB, not {text}")
    n_bytes = float(match[1]) * 1000 ** " KMG".index(match[2].upper() or " ")
    if n_bytes < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 byte, not {text}")
    return int(n_bytes)


def positives(text: str) -> list[float]:
    """Return distinct positive numbers, separated by commas, in ascending order."""
    return sorted({positive(part) for part in text.split(",")})


def name_of(names: dict[str, Any]) -> Callable[[str], str]:
    """Return a converter that ignores case, hyphens and underscores in names."""

    def normalized(text: str) -> str:
        return text.replace("-", "").replace("_", "").lower()

    by_normalized_name = {normalized(name): name for name in names}
    return lambda text: by_normalized_name.get(normalized(text), text)


positive.__name__ = non_negative.__name__ = "number"
positives.__name__ = "list of numbers"


def add_reading(parser: argparse.ArgumentParser, *, trains: bool = True) -> None:
    """Add the flags that say how data are read, to train on them or to predict them."""
    add = parser.add_argument_group("data").add_argument
    add(
        "--format",
        choices=("auto", "libsvm", "csv", "parquet"),
        default="auto",
        help=f"of the data files; auto: by their suffix, else libsvm ({DEFAULT})",
    )
    add("--label", metavar="COLUMN", help="the labels' column of a table (default: the model's)")
    if trains:
        add("--weight", metavar="COLUMN", help="the column of a table with weights (default: none)")
        add(
            "--zero-based",
            choices=("auto", "yes", "no"),
            default="auto",
            help="whether features of LIBSVM files are counted from 0; auto: only if index 0 "
            f"occurs in DATA. The answer holds for the test data and is kept in the model "
            f"({DEFAULT})",
        )
    add(
        "--on-bad-line",
        choices=("error", "skip"),
        default="error",
        help=f"whether a malformed line is an error, or left out and counted ({DEFAULT})",
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add the flags --seed and --threads."""
    parser.add_argument(
        "--seed",
        metavar="N",
        type=count(0),
        default=Settings.seed,
        help="of the order of the rows; the same seed gives the same result, byte for byte, "
        f"for any number of threads ({DEFAULT})",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=count(1, 4096),
        help="threads of the kernels (default: the CPUs this process may use)",
    )


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the flags --json, which prints `what`, and --quiet."""
    parser.add_argument(
        "--json",
        action="store_true",
        help=f"print one JSON object instead of text: {what} (default: off)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress (default: off)")
