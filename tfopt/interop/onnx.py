"""Export linear models to ONNX through skl2onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from tfopt.errors import InvalidArgumentError
from tfopt.imports import imported
from tfopt.interop.onnx_tables import put_before

__all__ = ["encoded", "register"]

#: The options of skl2onnx that converted classifiers have.
_CLASSIFIER_OPTIONS = {
    "nocl": [True, False],
    "zipmap": [True, False, "columns"],
    "raw_scores": [True, False],
}


def register() -> None:
    """Tell skl2onnx how to convert the estimators of `tfopt.linear_model`.

    Afterwards ``skl2onnx.to_onnx`` converts them, and scikit-learn's pipelines with them. The graph
    computes in the dtype of its input. Its second output are the probabilities of a classifier, or
    the scores of one that has no probabilities; for two classes these are ``[-score, score]``.

    Raises
    ------
    ImportError
        Without skl2onnx and scikit-learn: ``pip install skl2onnx``.

    Notes
    -----
    FTRL models with hashed features take dicts, and cannot be converted.

    Examples
    --------
    >>> import numpy as np
    >>> import skl2onnx
    >>> from tfopt.interop import onnx
    >>> from tfopt.linear_model import SDCARegressor
    >>> onnx.register()
    >>> X = np.eye(3)
    >>> graph = skl2onnx.to_onnx(SDCARegressor().fit(X, [1.0, 2.0, 3.0]), X)
    >>> [node.op_type for node in graph.graph.node]
    ['Gemm']
    """
    try:
        update_registered_converter = imported("skl2onnx").update_registered_converter
        shape_calculator = imported("skl2onnx.common.shape_calculator")
    except ImportError as error:
        raise ImportError("tfopt.interop.onnx needs skl2onnx: pip install skl2onnx") from error
    linear_model = imported("tfopt.linear_model")
    for name in ("SDCAClassifier", "SDCAClassifierCV", "FTRLClassifier"):
        update_registered_converter(
            getattr(linear_model, name),
            f"Tfopt{name}",
            shape_calculator.calculate_linear_classifier_output_shapes,
            _convert_classifier,
            options=_CLASSIFIER_OPTIONS,
        )
    for name in ("SDCARegressor", "SDCARegressorCV", "FTRLRegressor"):
        update_registered_converter(
            getattr(linear_model, name),
            f"Tfopt{name}",
            shape_calculator.calculate_linear_regressor_output_shapes,
            _convert_regressor,
        )


def encoded(model: Any, encoding: Any = None) -> bytes:
    """Return a fitted estimator of `tfopt.linear_model` as the content of an ONNX file.

    Its input is float32 or, with the encoding of a table, the columns of that. Probabilities, or
    scores, of a classifier are a matrix.
    """
    register()

    X = np.zeros((1, model.n_features_in_), np.float32)
    options = {id(model): {"zipmap": False}} if hasattr(model, "classes_") else None
    graph = imported("skl2onnx").to_onnx(model, X, options=options)
    if encoding is not None:
        put_before(graph, encoding)
    content: bytes = graph.SerializeToString()
    return content


class _Graph:
    """The nodes that a converter adds."""

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        types = imported("skl2onnx.common.data_types")
        self.scope, self.container = scope, container
        kind = operator.inputs[0].type
        self.dtype, self.proto = types.guess_numpy_type(kind), types.guess_proto_type(kind)
        self.input = operator.inputs[0].full_name
        if self.dtype not in (np.float32, np.float64):
            self.dtype, self.proto = np.float32, imported("onnx").TensorProto.FLOAT
            self.input = self.node("Cast", [self.input], to=self.proto)

    def node(self, kind: str, inputs: list[str], output: str | None = None, **more: Any) -> str:
        """Add a node, and return the name of its output."""
        name = self.scope.get_unique_variable_name(kind) if output is None else output
        more["name"] = self.scope.get_unique_operator_name(kind)
        self.container.add_node(kind, inputs, [name], op_version=13, **more)
        return name

    def numbers(self, values: Any) -> str:
        """Add a constant of the input's dtype."""
        array = np.asarray(values, self.dtype)
        return self.constant(self.proto, list(array.shape), array.ravel().tolist())

    def constant(self, proto: int, shape: list[int], values: list[Any]) -> str:
        """Add a constant."""
        name: str = self.scope.get_unique_variable_name("constant")
        self.container.add_initializer(name, proto, shape, values)
        return name

    def scores(self, model: Any, output: str | None = None) -> str:
        """Add x . w + b, a column for each row of `coef_`."""
        if getattr(model, "n_hashes", None) is not None:
            raise InvalidArgumentError("a model of hashed features takes dicts, which ONNX lacks")
        coef = model.coef_.toarray() if sparse.issparse(model.coef_) else model.coef_
        inputs = [self.numbers(np.atleast_2d(coef).T), self.numbers(np.ravel(model.intercept_))]
        return self.node("Gemm", [self.input, *inputs], output)


def _loss_of(model: Any) -> Any:
    return imported("tfopt.linear_model.losses").LOSSES[model.loss]


def _convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a regressor."""
    graph, model = _Graph(scope, operator, container), operator.raw_operator
    output = operator.outputs[0].full_name
    if _loss_of(model).link == "log":
        graph.node("Exp", [graph.scores(model)], output)
    else:
        graph.scores(model, output)


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a classifier."""
    onnx = imported("onnx")
    graph, model = _Graph(scope, operator, container), operator.raw_operator
    options = scope.get_options(model, dict.fromkeys(_CLASSIFIER_OPTIONS, False))
    label, second = (output.full_name for output in operator.outputs)
    scores = graph.scores(model)
    n_classes = len(model.classes_)
    if n_classes == 2:
        both = graph.node("Mul", [scores, graph.numbers([[-1.0, 1.0]])])
        zero = graph.node("Mul", [scores, graph.numbers([[0.0, 1.0]])])
        best = graph.node("ArgMax", [zero], axis=1, keepdims=0)
    else:
        both = scores
        best = graph.node("ArgMax", [scores], axis=1, keepdims=0)
    if options["raw_scores"] or not hasattr(model, "predict_proba"):
        graph.node("Identity", [both], second)
    elif n_classes == 2:
        graph.node("Sigmoid", [both], second)
    elif _loss_of(model).is_joint:
        graph.node("Softmax", [both], second, axis=1)
    else:
        shares = graph.node("Sigmoid", [both])
        axis = graph.constant(onnx.TensorProto.INT64, [1], [1])
        total = graph.node("ReduceSum", [shares, axis], keepdims=1)
        none = graph.node("Equal", [total, graph.numbers([0.0])])
        # all underflowed: each class is as likely
        even = graph.node("Where", [none, graph.numbers([1.0]), shares])
        total = graph.node("Where", [none, graph.numbers([float(n_classes)]), total])
        graph.node("Div", [even, total], second)
    if options["nocl"]:
        graph.node("Identity", [best], label)
        return
    classes = model.classes_
    if classes.dtype.kind in "biu" or (
        classes.dtype.kind == "f" and (classes == classes.astype(np.int64)).all()
    ):
        proto, values = onnx.TensorProto.INT64, classes.astype(np.int64).tolist()
    elif all(isinstance(each, str) for each in classes.tolist()):
        proto, values = onnx.TensorProto.STRING, [each.encode() for each in classes.tolist()]
    else:
        raise InvalidArgumentError(
            f"ONNX has labels that are integers or strings, not {classes.tolist()[:5]}"
        )
    graph.node("Gather", [graph.constant(proto, [n_classes], values), best], label)
