"""`tfopt info`: versions, and the state of the kernels."""

from __future__ import annotations

import argparse

from tfopt.cli.files import print_json
from tfopt.core.versions import show_versions, versions


def run(arguments: argparse.Namespace) -> int:
    """Run `tfopt info`."""
    if arguments.json:
        print_json(versions())
    else:
        show_versions()
    return 0
