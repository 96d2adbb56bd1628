"""The programs of docs/recipes.md beside their rivals."""

from __future__ import annotations

from collections.abc import Callable

from records import Record

from page_tables.cells import MEASURE, Cell, Grid, Table

__all__ = ["TABLES"]

#: For each program: the rows of its table, by what is measured and who the rival is.
RIVALS: dict[str, dict[str, tuple[str, str]]] = {
    "federated server": {
        "federated server, messages": ("a round, from messages to messages", "Flower's FedAdam"),
        "federated server, arrays": ("the mean, its check, and the step", "Flower's arithmetic"),
    },
    "offloading trainer": {
        "offloading trainer, clipped": ("a step, clipped", "torch's fused `AdamW`"),
        "offloading trainer, not clipped": ("a step, not clipped", "torch's fused `AdamW`"),
    },
    "two towers": {"two towers": ("a step", "torch's `EmbeddingBag`, `Adagrad`, `Adam`")},
    "click stream": {
        "click stream, Vowpal Wabbit": ("50 000 rows", "`vw --ftrl`, from its own format"),
        "click stream, scikit-learn": ("50 000 rows", "`FeatureHasher`, `SGDClassifier`"),
    },
    "estimator": {"estimator": ("a fit", "`MLPRegressor`")},
}
#: What captions name.
LIBRARIES = ("flwr", "scikit-learn", "torch", "vowpalwabbit")


def _grid(program: str) -> Callable[[Record], Grid]:
    def grid(record: Record) -> Grid:
        return Grid(
            ["CPU ms", "this program", "the rival", "times as fast", "the rival is"],
            [
                [
                    what,
                    Cell(row, "track_milliseconds"),
                    Cell(row, "track_rivals_milliseconds"),
                    Cell(row, "track_speed_relative_to_rival"),
                    rival,
                ]
                for row, (what, rival) in RIVALS[program].items()
            ],
        )

    return grid


TABLES = tuple(
    Table(
        f"recipe: {program}",
        "recipes.Recipes",
        f'{MEASURE} recipes --only "{program}*"',
        "Medians of CPU times, in turns in one process",
        _grid(program),
        LIBRARIES,
    )
    for program in RIVALS
)
