"""Blocks of samples in the actors of a Ray cluster, for `tfopt.linear_model.fit_blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfopt.imports import imported
from tfopt.linear_model._blocks.execution import BlockHolder, RemoteExecutor

__all__ = ["RayExecutor"]


class RayExecutor(RemoteExecutor):
    """An executor whose blocks are held by actors of a Ray cluster.

    Blocks may be ``ObjectRef`` of a tuple (X, y) or (X, y, sample_weight): what a remote function
    returns stays on the cluster.

    Parameters
    ----------
    n_workers : int, optional
        The number of actors; by default one for each CPU of the cluster.
    **options
        Those of ``ray.remote`` for each actor, such as ``num_cpus`` or ``resources``.

    Raises
    ------
    ImportError
        If Ray is not installed.

    Notes
    -----
    Without ``ray.init``, a cluster is started on this machine. If an actor dies, a fit ends with
    Ray's RayActorError, and the model is as before: make another executor then.

    Examples
    --------
    >>> import numpy as np
    >>> import ray
    >>> from tfopt.linear_model import LinearClassifier, fit_blocks
    >>> from tfopt.ray import RayExecutor
    >>> @ray.remote
    ... def load(day):
    ...     X = np.random.default_rng(day).standard_normal((1000, 5))
    ...     return X, X[:, 0] > 0
    >>> with ray.init(num_cpus=2, log_to_driver=False), RayExecutor() as executor:
    ...     model = fit_blocks(LinearClassifier(), [load.remote(day) for day in range(4)], executor)
    >>> bool(model.dual_gap_[0] <= 1e-4 * model.objective_[0])
    True
    """

    def __init__(self, n_workers: int | None = None, **options: Any) -> None:
        try:
            self._ray = imported("ray")
        except ModuleNotFoundError as error:
            raise ImportError("tfopt.ray needs Ray: pip install ray scikit-learn") from error
        if not self._ray.is_initialized():
            self._ray.init()
        if n_workers is None:
            n_workers = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._set_workers(n_workers)
        actor = self._ray.remote(_Actor)
        if options:
            actor = actor.options(**options)
        self._actors = [actor.remote() for _ in range(n_workers)]

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []

    def ask(self, method: str, shares: Sequence[Any], arguments: tuple[Any, ...]) -> list[bytes]:
        common = self._ray.put(arguments)  # once for each machine
        answers: list[bytes] = self._ray.get(
            [
                actor.answer.remote(method, share, common)
                for actor, share in zip(self._actors, shares, strict=True)
            ]
        )
        return answers


class _Actor:
    """A holder, of whose sources those that are references are what they refer to."""

    def __init__(self) -> None:
        self._holder = BlockHolder()

    def answer(self, method: str, share: Any, arguments: tuple[Any, ...]) -> bytes:
        if method == "load":
            share = {number: tuple(map(_value, source)) for number, source in share.items()}
        return self._holder.answer(method, share, *arguments)


def _value(source: Any) -> Any:
    ray = imported("ray")
    return ray.get(source) if isinstance(source, ray.ObjectRef) else source


def __dir__() -> list[str]:
    return __all__
