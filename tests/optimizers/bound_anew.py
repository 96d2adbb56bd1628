"""Optimizers that bind every step anew, for comparison with those that repeat one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def sides(make: Callable[[], Any]) -> list[Any]:
    """Return an optimizer, and one that binds every step anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFOPT_REPEAT", "0")
        fresh = make()
    return [make(), fresh]
