"""Blocks of samples in the processes of an MPI program, for `tfopt.linear_model.fit_blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tfopt.imports import imported
from tfopt.linear_model._blocks.execution import BlockHolder, RemoteExecutor

__all__ = ["MPIExecutor"]


class MPIExecutor(RemoteExecutor):
    """An executor whose blocks are held by the processes of an MPI communicator, by mpi4py.

    All processes enter its ``with`` block. It gives the process of rank 0 the executor; the others
    serve that one until it leaves the block, and then get None.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        ``MPI.COMM_WORLD`` by default. It is duplicated.

    Raises
    ------
    ImportError
        If mpi4py, or an MPI library, is not installed.

    Notes
    -----
    Blocks that are functions are called by the processes that will hold them. Process k of n gets
    the k-th of n equal parts of the list. If a process dies, MPI ends the others.

    Examples
    --------
    To be run by ``mpiexec -n 4 python -m mpi4py fit.py``, which ends all processes if one fails:

    >>> import numpy as np
    >>> from tfopt.linear_model import LinearClassifier, fit_blocks
    >>> from tfopt.mpi import MPIExecutor
    >>> with MPIExecutor() as executor:
    ...     if executor is not None:
    ...         X = np.random.default_rng(0).standard_normal((1000, 5))
    ...         y = X[:, 0] > 0
    ...         blocks = [(X[k::4], y[k::4]) for k in range(4)]
    ...         model = fit_blocks(LinearClassifier(), blocks, executor)
    ...         bool(model.dual_gap_[0] <= 1e-4 * model.objective_[0])
    True
    """

    def __init__(self, comm: Any = None) -> None:
        try:
            mpi = imported("mpi4py.MPI")
        except (ImportError, RuntimeError) as error:  # the latter without an MPI library
            raise ImportError(
                "tfopt.mpi needs mpi4py and an MPI library: pip install mpi4py mpich scikit-learn"
            ) from error
        # messages of the program must not be taken for those of the executor
        self._comm = (mpi.COMM_WORLD if comm is None else comm).Dup()
        self._holder = BlockHolder()
        self._set_workers(self._comm.Get_size())

    def __enter__(self) -> Self | None:  # type: ignore[override]
        if self._comm.Get_rank() == 0:
            return self
        while (message := self._comm.bcast(None)) is not None:
            self._answers_to(message, None)
        self._leave()
        return None

    def __exit__(self, *error: object) -> None:
        if self._comm is not None:  # that of rank 0
            self._comm.bcast(None)
            self._leave()

    def ask(self, method: str, shares: Sequence[Any], arguments: tuple[Any, ...]) -> list[bytes]:
        message = self._comm.bcast((method, arguments))
        answers: list[bytes] = self._answers_to(message, shares)
        return answers

    def _answers_to(self, message: tuple[str, Any], shares: Sequence[Any] | None) -> Any:
        """Take part in a request; return all answers at rank 0."""
        method, arguments = message
        share = self._comm.scatter(shares)
        return self._comm.gather(self._holder.answer(method, share, *arguments))

    def _leave(self) -> None:
        """Forget the blocks."""
        super().__exit__()
        self._holder = BlockHolder()
        self._comm.Free()
        self._comm = None


def __dir__() -> list[str]:
    return __all__
