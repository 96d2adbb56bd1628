"""A law that some programs break, to test the machinery of laws."""

from __future__ import annotations

from laws.law import Draw, Law

__all__ = ["LAW"]


def _toy(draw: Draw) -> str:
    broken = draw.levels["color"] == "red" and "fall" in draw.events
    return f"assert not {broken}, 'a planted fault'"


LAW = Law(
    "toy",
    {"color": ("blue", "red"), "size": ("small", "large", "huge")},
    _toy,
    possible=lambda levels: levels.get("color") != "blue" or levels.get("size") != "huge",
    events=("rise", "fall"),
    length=4,
)
