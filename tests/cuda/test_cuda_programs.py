"""The programs of users that need no GPU, on tensors of torch in host memory."""

from __future__ import annotations

import pytest
from devices import DEVICE

pytest.importorskip("torch")
if DEVICE.name == "cupy":
    pytest.skip("the programs are torch's", allow_module_level=True)

from programs import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    run, needs = PROGRAMS[name]
    if needs is not None and DEVICE.on_host:
        pytest.skip(f"it needs a GPU: {needs}")
    run()
