import numpy as np

from tfopt.kernels.update.step_table import Kernel

def catch_up(
    kernel: Kernel,
    flags: int,
    arrays: tuple[np.ndarray, ...],
    scalars: np.ndarray,
    n_steps: int,
    fading: np.ndarray,
    rows: np.ndarray,
    since: np.ndarray,
    decays: tuple[float, ...],
) -> None: ...
