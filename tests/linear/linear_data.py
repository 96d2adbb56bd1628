"""Real data for the linear models: those shipped here, and more from a folder one may have."""

from __future__ import annotations

import bz2
import csv
import io
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

import tfopt

HERE = Path(__file__).parents[1] / "data"
DATASETS = Path(tfopt.__file__).parent / "cli" / "datasets"

__all__ = ["beMTPL97", "bike_hour", "cal_housing", "libsvm", "rcv1_small", "training_part"]


def elsewhere(name: str) -> Path:
    """Return the path of a data set that is not shipped; skip the test if it is not at hand."""
    folder = os.environ.get("TFOPT_DATA")
    if not folder:
        pytest.skip(f"TFOPT_DATA does not name a folder with {name}, which is not shipped")
    return Path(folder, name)


def libsvm(name: str) -> tuple[Any, np.ndarray]:
    for folder in (HERE, DATASETS):
        if (folder / f"{name}.bz2").exists():
            return load_svmlight_file(str(folder / f"{name}.bz2"))
    return load_svmlight_file(str(elsewhere(f"{name}.bz2")))


def training_part(X: Any, y: np.ndarray) -> tuple[Any, np.ndarray]:
    """Leave out every fifth row, which is what tests of accuracy would have."""
    kept = np.arange(len(y)) % 5 != 4
    return X[kept], y[kept]


def rcv1_small() -> tuple[Any, np.ndarray]:
    with bz2.open(elsewhere("rcv1_small.dat.bz2"), "rt") as lines:
        text = lines.read().replace("|f ", "")
    return load_svmlight_file(io.BytesIO(text.encode()), n_features=60_000, zero_based=True)


def cal_housing() -> tuple[np.ndarray, np.ndarray]:
    with lzma.open(elsewhere("cal_housing.data.xz"), "rt") as lines:
        table = np.loadtxt(lines, delimiter=",")
    X, y = training_part(table[:, :8], table[:, 8] / 1e5)
    return standardized(X), y


def standardized(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def _training_rows(path: Path) -> list[dict[str, str]]:
    with lzma.open(path, "rt") as lines:
        return [row for k, row in enumerate(csv.DictReader(lines)) if k % 5 != 4]


def _one_hot(values: np.ndarray) -> list[np.ndarray]:
    return [(values == level).astype(float) for level in np.unique(values)]


def bike_hour() -> tuple[np.ndarray, np.ndarray]:
    rows = _training_rows(HERE / "bike_hour.csv.xz")
    columns = []
    for name in ("season", "yr", "mnth", "hr", "holiday", "weekday", "workingday", "weathersit"):
        columns += _one_hot(np.array([row[name] for row in rows]))
    for name in ("temp", "atemp", "hum", "windspeed"):
        columns.append(standardized(np.array([float(row[name]) for row in rows])))
    return np.column_stack(columns), np.array([float(row["cnt"]) for row in rows])


def beMTPL97() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, claims per year and the years of each policy."""
    rows = _training_rows(elsewhere("beMTPL97.csv.xz"))
    columns = []
    for name in ("coverage", "sex", "fuel", "use", "fleet", "bm"):
        columns += _one_hot(np.array([row[name] for row in rows]))
    columns += _one_hot(np.minimum(np.array([float(row["ageph"]) for row in rows]) // 5, 16))
    for name in ("power", "agec", "long", "lat"):
        columns.append(standardized(np.array([float(row[name]) for row in rows])))
    years = np.array([float(row["expo"]) for row in rows])
    claims = np.array([float(row["nclaims"]) for row in rows])
    return np.column_stack(columns), claims / years, years
