"""Formulas as MathML, which browsers draw themselves: no script, no font and no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def _converted(formula: str, display: str) -> str:
    """Return a formula's MathML; an unknown command would be shown as it is written."""
    drawn = convert(formula, display=display)
    if "\\" in drawn:
        raise ValueError(f"this formula has a command that is not known: {formula}")
    return drawn


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(_converted(node.astext(), "inline"))
    raise nodes.SkipNode


def _display(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{_converted(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
