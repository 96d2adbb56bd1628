"""The order of the gallery: from the first optimizer to large tables and linear models."""

from __future__ import annotations

__all__ = ["GalleryOrder"]

ORDER = (
    *("ravine", "schedules", "clipping", "schedule_free", "resume", "custom_gradient"),
    *("embeddings", "sparse_modes", "eight_bits", "stochastic_rounding", "threads"),
    *("certificates", "path", "partitions"),
)


class GalleryOrder:
    """The key by which sphinx-gallery sorts programs; each has to be in `ORDER`."""

    def __init__(self, source: str) -> None:
        pass

    def __call__(self, name: str) -> int:
        return ORDER.index(name.removeprefix("plot_").removesuffix(".py"))
