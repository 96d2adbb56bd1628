"""Models in ONNX, by skl2onnx, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tfopt.errors import InvalidArgumentError
from tfopt.interop import onnx
from tfopt.linear_model import (
    FTRLClassifier,
    FTRLRegressor,
    SDCAClassifier,
    SDCAClassifierCV,
    SDCARegressor,
    SDCARegressorCV,
)

skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

random = np.random.default_rng(0)
X = random.standard_normal((50, 4)).astype(np.float32)
Z = X[:, 0] + 0.3 * random.standard_normal(50)
CODES = np.digitize(Z, [-0.5, 0.5])
NAMES = np.array(["high", "low", "mid"])[CODES]


@pytest.fixture(autouse=True)
def _registered() -> None:
    onnx.register()


def run(model: Any, dtype: Any, **options: Any) -> list[np.ndarray]:
    given = X.astype(dtype)
    if hasattr(model, "classes_"):
        options = {"options": {id(model): {"zipmap": False, **options}}}
    graph = skl2onnx.to_onnx(model, given[:1], **options)
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: given})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "y", [CODES, CODES > 0, NAMES, np.where(CODES > 1, "yes", "no"), CODES + 0.0]
)
@pytest.mark.parametrize("kind", [SDCAClassifier, FTRLClassifier, SDCAClassifierCV])
def test_classifiers(kind: Any, y: np.ndarray, dtype: Any) -> None:
    model = kind().fit(X, y)
    label, p = run(model, dtype)
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(p, model.predict_proba(X), atol=1e-6)
    label, scores = run(model, dtype, raw_scores=True)
    expected = model.decision_function(X)
    np.testing.assert_array_equal(label, model.predict(X))
    last = expected if expected.ndim == 1 else expected[:, -1]
    np.testing.assert_allclose(scores[:, -1], last, atol=1e-6)
    codes, _ = run(model, dtype, nocl=True)
    np.testing.assert_array_equal(codes, np.searchsorted(model.classes_, label))


@pytest.mark.parametrize("y", [CODES, CODES > 0])
def test_classifiers_without_probabilities_have_scores(y: np.ndarray) -> None:
    model = SDCAClassifier("hinge", l2=10.0).fit(X, y).sparsify()
    label, scores = run(model, np.float64)
    z = model.decision_function(X)
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(scores, z if z.ndim == 2 else np.stack([-z, z], axis=1), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model", [SDCARegressor(), SDCARegressor("poisson"), SDCARegressorCV(l2s=2), FTRLRegressor()]
)
def test_regressors(model: Any, dtype: Any) -> None:
    model.fit(X, CODES)
    (predicted,) = run(model, dtype)
    np.testing.assert_allclose(predicted[:, 0], model.predict(X), atol=1e-6)
    assert predicted.dtype == dtype


def test_the_multinomial_loss() -> None:
    for y in (CODES, CODES > 0):
        model = SDCAClassifier("multinomial").fit(X, y)
        np.testing.assert_allclose(run(model, np.float64)[1], model.predict_proba(X), atol=1e-12)


def test_probabilities_that_underflow_are_even() -> None:
    model = SDCAClassifier().fit(X, CODES)
    model.intercept_[:] = -1e4
    np.testing.assert_array_equal(run(model, np.float32)[1], np.full((50, 3), np.float32(1 / 3)))


def test_a_pipeline_and_integers() -> None:
    model = make_pipeline(StandardScaler(), SDCAClassifier()).fit(X, NAMES)
    graph = skl2onnx.to_onnx(model, X[:1], options={"zipmap": False})
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    label, p = session.run(None, {"X": X})
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(p, model.predict_proba(X), atol=1e-6)
    counts = np.arange(12).reshape(4, 3)
    whole = SDCARegressor().fit(counts, [1.0, 2.0, 4.0, 3.0])
    graph = skl2onnx.to_onnx(whole, counts[:1])
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    np.testing.assert_allclose(
        session.run(None, {"X": counts})[0][:, 0], whole.predict(counts), atol=1e-5
    )


def test_what_onnx_has_not() -> None:
    hashed = FTRLClassifier(n_hashes=4).partial_fit([{"a": 1}, {"b": 1}], [0, 1], classes=[0, 1])
    with pytest.raises(InvalidArgumentError, match="hashed features"):
        run(hashed, np.float32)
    with pytest.raises(InvalidArgumentError, match="labels that are integers or strings"):
        halves = SDCAClassifier().fit(X, CODES > 0)
        halves.classes_ = np.array([0.5, 1.5])
        run(halves, np.float32)
