"""Steps in every wrapper, taken in every way, leave nothing in memory."""

from __future__ import annotations

import sys

import pytest
from campaign.leaks import WAYS, around
from common.wrapper_cases import USERS, WRAPPERS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrapper", [*WRAPPERS, *USERS])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_steps_keep_nothing(name: str, wrapper: str, way: str) -> None:
    around(name, wrapper, way)
