"""`tfopt info`: versions, instruction set, threads."""

from __future__ import annotations

import argparse
import json

from tfopt.core.versions import show_versions, versions


def run(arguments: argparse.Namespace) -> None:
    """Run the command.

    Parameters
    ----------
    arguments : argparse.Namespace
        As parsed by `tfopt.cli.arguments`.
    """
    if arguments.json:
        print(json.dumps(versions()))
    else:
        show_versions()
