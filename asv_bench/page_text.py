"""Numbers, tables and marked parts of pages in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["between", "number", "table"]


def number(value: float) -> str:
    """Return a number to three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table without a newline at its end."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def between(page: str, name: str, text: str) -> str:
    """Return a page with a text between the markers of a name, if the page has them."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.partition(opening)
    return f"{before}{opening}\n{text}\n\n{closing}{rest.partition(closing)[2]}" if found else page
