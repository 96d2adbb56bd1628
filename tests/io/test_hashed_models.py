"""Files of models of hashed features: what is loaded predicts as what was saved."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from tfopt.errors import FileFormatError, InvalidArgumentError
from tfopt.io import iter_hashed
from tfopt.io.hashed_model import read_hashed_model
from tfopt.linear_model import (
    FTRLClassifier,
    FTRLRegressor,
    LinearClassifier,
    from_json,
    load_model,
    save_model,
    to_json,
)
from tfopt.linear_model.model_file import read_model

DICTS = [{"s": f"a{k % 5}", "t": f"b{k % 7}", "x": k % 3 - 0.7} for k in range(60)]
LABELS: dict[str, Any] = {
    "numbers": np.arange(60) % 2,
    "three": np.arange(60) % 3 * 2.0,
    "text": np.array(["no", "yes"])[np.arange(60) % 2],
    "bool": np.arange(60) % 2 > 0,
}
#: Each loss of both estimators, with labels of each kind.
MODELS = [
    *((FTRLClassifier, loss, y) for loss in FTRLClassifier._LOSSES for y in LABELS),
    *((FTRLRegressor, loss, "positive") for loss in FTRLRegressor._LOSSES),
]


def fitted(kind: Any, loss: str, labels: str = "numbers", **options: Any) -> Any:
    y = LABELS.get(labels, 0.5 + np.arange(60) % 4)
    with np.errstate(all="ignore"):
        return kind(loss, n_hashes=64, max_iter=2, l1=0.01, learning_rate=0.1, **options).fit(
            DICTS, y
        )


def scores(model: Any, X: Any) -> np.ndarray:
    found: np.ndarray = getattr(model, "decision_function", model.predict)(X)
    return found


@pytest.mark.parametrize("form", [".npz", ".json"])
@pytest.mark.parametrize(("kind", "loss", "labels"), MODELS)
def test_a_loaded_model_predicts_the_same(
    tmp_path: Path, kind: Any, loss: str, labels: str, form: str
) -> None:
    model, path = fitted(kind, loss, labels), tmp_path / f"m{form}"
    save_model(path, model)
    loaded: Any = load_model(path)
    assert type(loaded) is kind and loaded.n_hashes == 64 and loaded.loss == loss
    np.testing.assert_array_equal(loaded.coef_.toarray(), np.atleast_2d(model.coef_))
    np.testing.assert_array_equal(loaded.predict(DICTS), model.predict(DICTS))
    np.testing.assert_array_equal(scores(loaded, DICTS), scores(model, DICTS))
    assert loaded.l1 == 0.01 and loaded.max_iter == 2
    save_model(tmp_path / f"again{form}", loaded)
    assert (tmp_path / f"again{form}").read_bytes() == path.read_bytes()
    assert to_json(from_json(to_json(model))) == to_json(model)
    (light,) = (read_hashed_model(path),)
    assert light is not None and light.indices.size < 64
    with pytest.raises(InvalidArgumentError, match="loaded from a file"):
        loaded.partial_fit(DICTS[:2], LABELS["numbers"][:2])


@pytest.mark.parametrize("average", [False, True])
def test_margins_without_an_estimator(tmp_path: Path, average: bool) -> None:
    text = b"".join(b"%d\ta%d\t%d\n" % (k % 3, k % 5, k % 7) for k in range(50))
    (block,) = iter_hashed(io.BytesIO(text), 64, numeric=[2])
    for classes in ([0, 1], [0, 1, 2]):
        model = FTRLClassifier(n_hashes=64, average=average)
        rows = np.flatnonzero(np.isin(block.y, classes))
        model.partial_fit(block.X[rows], np.asarray(block.y)[rows], classes=classes)
        save_model(tmp_path / "m.npz", model)
        light = read_hashed_model(tmp_path / "m.npz")
        assert light is not None and light.reading == block.X.reading == model.reading_
        np.testing.assert_array_equal(light.margins(block.X), model.decision_function(block.X))
        assert light.margins(block.X[:0]).shape[0] == 0
        (again,) = iter_hashed(io.BytesIO(text), **light.document()["reading"])
        np.testing.assert_array_equal(again.X.toarray(), block.X.toarray())
    empty = FTRLClassifier(n_hashes=64, l1=1e9).partial_fit(block.X, block.y, classes=classes)
    save_model(tmp_path / "m.npz", empty)
    light = read_hashed_model(tmp_path / "m.npz")
    assert light is not None and light.indices.size == 0
    np.testing.assert_array_equal(light.margins(block.X), empty.decision_function(block.X))


def test_single_precision_takes_less_and_moves_margins_by_what_is_said(tmp_path: Path) -> None:
    model = fitted(FTRLClassifier, "logistic")
    sizes = {}
    for dtype in (None, "float64", np.float32):
        save_model(tmp_path / "m.npz", model, dtype=dtype)
        sizes[dtype] = (tmp_path / "m.npz").stat().st_size
        loaded: Any = load_model(tmp_path / "m.npz")
        kept = np.float32 if dtype is np.float32 else np.float64
        np.testing.assert_array_equal(loaded.coef_.toarray(), model.coef_.astype(kept))
    assert sizes[np.float32] < sizes[None] == sizes["float64"]
    moved = scores(loaded, DICTS) - scores(model, DICTS)
    assert 0 < np.abs(moved).max() <= 4 * 2.0**-24 * np.abs(model.coef_).max()


def test_files_of_rows_that_are_read_again(tmp_path: Path) -> None:
    model: Any = fitted(FTRLClassifier, "logistic")
    assert model.reading_ is None
    save_model(tmp_path / "m.json", model)
    assert json.loads((tmp_path / "m.json").read_text())["reading"] is None
    with pytest.raises(InvalidArgumentError, match="hashed features"):
        save_model(tmp_path / "m.onnx", model)
    model.coef_[0, 0] = np.inf
    for dtype in (None, np.float32):
        with pytest.raises(InvalidArgumentError, match="must be finite"):
            save_model(tmp_path / "new.npz", model, dtype=dtype)
    model.coef_[0, 0] = 1e300
    with pytest.raises(InvalidArgumentError, match="float32 does not have"):
        save_model(tmp_path / "new.npz", model, dtype=np.float32)
    with pytest.raises(InvalidArgumentError, match="dtype must be float32 or float64"):
        save_model(tmp_path / "new.npz", model, dtype=np.int32)
    plain = LinearClassifier().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(InvalidArgumentError, match="dtype is for models of hashed features"):
        save_model(tmp_path / "new.npz", plain, dtype=np.float32)
    assert not (tmp_path / "new.npz").exists()


CHANGES: dict[str, Any] = {
    "schema": "tfopt.linear_model", "version": 2, "tfopt": 1, "n_hashes": 0, "dtype": "float16",
    "loss": None, "link": "softmax", "loss_parameters": [], "classes": [1, 1],
    "label_type": "str", "reading": {"n_hashes": 64}, "optimizer": None, "settings": 3,
    "indices": [0.5], "coefficients": [[1, 2, 3]], "intercepts": [[0]],
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_changed_documents_are_refused(tmp_path: Path, name: str) -> None:
    document = json.loads(to_json(fitted(FTRLClassifier, "logistic")))
    for changed in (
        {**document, name: CHANGES[name]},
        {key: value for key, value in document.items() if key != name},
    ):
        with pytest.raises(InvalidArgumentError):
            from_json(json.dumps(changed))
        path = tmp_path / "m.json"
        path.write_text(json.dumps(changed))
        with pytest.raises(FileFormatError):
            read_model(path)
        assert read_hashed_model(path) is None


@pytest.mark.parametrize(
    "indices", [[3, 2], [2, 2], [-1, 5], [5, 64], [2**31, 2**31 + 1], [True, 2], [[1], [2]]]
)
def test_indices_that_are_none(indices: Any) -> None:
    document = json.loads(to_json(fitted(FTRLClassifier, "logistic")))
    document |= {"indices": indices, "coefficients": [[1.0, 2.0]]}
    with pytest.raises(InvalidArgumentError, match="indices"):
        from_json(json.dumps(document))


def test_stacked_and_chosen_rows() -> None:
    text = b"".join(b"%d\ta%d\n" % (k % 2, k % 5) for k in range(30))
    (block,) = iter_hashed(io.BytesIO(text), 16)
    for rows in (slice(3, 9), [4, 1, 1], np.arange(30) % 2 == 0):
        some = block.X[rows]
        assert type(some) is type(block.X) and some.reading is block.X.reading
        model = FTRLClassifier(n_hashes=16).fit(
            some, [0, 1] * (some.shape[0] // 2) + [0] * (some.shape[0] % 2)
        )
        assert model.reading_ == block.X.reading
    assert type(block.X[:, :4]) is sparse.csr_matrix
    for size in itertools.chain(range(1, 30, 9)):
        parts = [*iter_hashed(io.BytesIO(text), 16, block_size=size)]
        model = FTRLClassifier(n_hashes=16)
        for part in parts:
            model.partial_fit(part.X, part.y, classes=[0, 1])
        assert model.t_ == 30
