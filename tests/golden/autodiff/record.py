"""Write what TensorFlow answers to the behaviours and the conventions.

    cd tests && TF_CPP_MIN_LOG_LEVEL=3 python -m golden.autodiff.record

needs tensorflow-cpu 2.21.0; nothing of ours is asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from golden.autodiff.conventions import CONVENTIONS
from golden.autodiff.facades import TensorFlow, plain
from golden.autodiff.more_behaviours import BEHAVIOURS

__all__ = ["FILE", "answers"]

FILE = Path(__file__).parent.parent / "data" / "autodiff.json"
PROGRAMS = {**BEHAVIOURS, **CONVENTIONS}


def answers(facade: Any) -> dict[str, Any]:
    """Return the answers to all programs, as the file holds them."""
    found = {name: plain(program(facade)) for name, program in PROGRAMS.items()}
    return dict(json.loads(json.dumps(found)))


def main() -> None:
    import tensorflow

    FILE.write_text(json.dumps(answers(TensorFlow(tensorflow)), indent=1) + "\n")


if __name__ == "__main__":
    main()
