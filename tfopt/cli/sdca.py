"""`tfopt train --solver sdca`: in this process, or on a Dask cluster."""

from __future__ import annotations

import argparse
import dataclasses

from tfopt.cli.console import printable
from tfopt.cli.errors import CommandError
from tfopt.cli.folders import is_folder
from tfopt.cli.report import Result
from tfopt.cli.rows import Here, Place, read_rows
from tfopt.cli.sdca_fit import fit
from tfopt.cli.settings import SdcaSettings

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> Result:
    """Read data and fit a model, on the current cluster if there is to be one.

    Parameters
    ----------
    arguments : argparse.Namespace
        As parsed by `tfopt.cli.arguments`.
    """
    settings: SdcaSettings = arguments.settings
    place: Place = Here()
    if arguments.cluster:
        from tfopt.cli import cluster, workers  # loaded if needed only

        place = workers.Workers()
    if is_folder(arguments.data) and arguments.blocks is not None:
        raise CommandError(
            f"{printable(arguments.data)}: is a folder, whose files are the blocks: leave out "
            "--blocks"
        )
    train = read_rows(arguments.data, arguments.zero_based, place)
    test = read_rows(arguments.test, train.zero_based, place) if arguments.test else None
    if train.of_folder:
        settings = dataclasses.replace(settings, blocks=len(train.lengths))
    if not arguments.cluster:
        return fit(train, test, settings, arguments.quiet)
    return cluster.fit(train, test, settings, arguments.quiet, arguments.checkpoints)
