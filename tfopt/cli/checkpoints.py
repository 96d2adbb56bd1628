"""What a run of `tfopt train` that is taken up must have in common with the saved one."""

from __future__ import annotations

import json
from typing import Any

from tfopt.cli.files import CommandError
from tfopt.cli.settings import Settings

__all__ = ["check_origin", "run_origin"]


def run_origin(settings: Settings, fingerprints: dict[str, str]) -> dict[str, Any]:
    """Return what a resumed run must have in common with the saved one: settings and data."""
    return {"settings": json.loads(json.dumps(settings.as_dict())), "data": fingerprints}


def check_origin(name: str, saved: dict[str, Any], origin: dict[str, Any]) -> None:
    """Refuse a checkpoint, of this name, of a run with other settings or data."""
    for key in {**saved["settings"], **origin["settings"]}:
        before, now = saved["settings"].get(key), origin["settings"].get(key)
        if before != now:
            raise CommandError(
                f"{name}: belongs to a run with other settings: {key} was {before} and is {now} now"
            )
    for part in ("train", "test"):
        if saved["data"].get(part) != origin["data"].get(part):
            raise CommandError(f"{name}: belongs to a run on other {part} data")
