"""The tables of docs/performance.md and docs/recipes.md: which rows of results each shows."""

from __future__ import annotations

from page_tables import clipping, dense, linear, recipes, rows, small, storage, surroundings
from page_tables.cells import Cell, Grid, Table

__all__ = ["TABLES", "Cell", "Grid", "Table"]

TABLES: tuple[Table, ...] = (
    *dense.TABLES,
    *storage.TABLES,
    *rows.TABLES,
    *small.TABLES,
    *clipping.TABLES,
    *linear.TABLES,
    *surroundings.TABLES,
    *recipes.TABLES,
)
