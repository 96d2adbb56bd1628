"""Encodings of tables as nodes of an ONNX graph, whose inputs are then the table's columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.imports import imported

__all__ = ["put_before"]


def put_before(model: Any, encoding: Any) -> None:
    """Give an ONNX model of encoded features the columns of a table as inputs.

    Parameters
    ----------
    model : onnx.ModelProto
        Its only input, a matrix of float32, is replaced by an input of shape (rows, 1) for each
        column, by its name: strings for text, of which an empty one is missing, else float32, of
        which NaN is missing; times are days since 1970.
    encoding : tfopt.linear_model.encoding.Encoding
    """
    helper = imported("onnx.helper")
    graph, nodes = model.graph, _Nodes()
    features = graph.input[0].name
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    inputs = []
    for column in encoding.columns:
        name = column.name
        while name in taken:
            name += "'"
        taken.add(name)
        kind = "STRING" if column.kind == "text" else "FLOAT"
        proto = getattr(imported("onnx").TensorProto, kind)
        inputs.append(helper.make_tensor_value_info(name, proto, [None, 1]))
        nodes.encode(column, name)
    nodes.add("Concat", nodes.features, output=features, axis=1)
    kept = [*graph.node]
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend([*nodes.made, *kept])
    graph.initializer.extend(nodes.constants)
    if "ai.onnx.ml" not in {each.domain for each in model.opset_import}:
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))


class _Nodes:
    """Nodes that encode columns, the constants that they need, and the names of the features."""

    def __init__(self) -> None:
        self._helper = imported("onnx.helper")
        self.made: list[Any] = []
        self.constants: list[Any] = []
        self.features: list[str] = []

    def add(self, kind: str, inputs: Sequence[str], output: str = "", **more: Any) -> str:
        """Add a node, and return the name of its output."""
        name = output or f"tfopt encoding {len(self.made)}"
        self.made.append(self._helper.make_node(kind, inputs, [name], **more))
        return name

    def constant(self, values: Any, dtype: type) -> str:
        """Add a constant."""
        name = f"tfopt constant {len(self.constants)}"
        array: np.ndarray = np.array(values, dtype)
        self.constants.append(imported("onnx.numpy_helper").from_array(array, name))
        return name

    def encode(self, column: Any, name: str) -> None:
        """Add the features of a column, given the name of its input."""
        if column.kind == "text":
            levels = [*column.levels, ""]
            *places, missing = column.places(column.levels)
            rare = len(places) if column.has_rare else -1
            place = self.add(
                "LabelEncoder",
                [name],
                keys_strings=levels,
                values_int64s=[int(place) for place in (*places, missing)],
                default_int64=rare,
                domain="ai.onnx.ml",
            )
            known = self.constant([range(len(column.features))], np.int64)
            self._add_flags(self.add("Equal", [place, known]))
            return
        absent, x = self.add("IsNaN", [name]), name
        if column.median is not None:
            x = self.add("Where", [absent, self.constant(column.median, np.float32), x])
        x = self.add("Sub", [x, self.constant(column.center, np.float32)])
        self.features.append(self.add("Div", [x, self.constant(column.spread, np.float32)]))
        if column.has_missing:
            self._add_flags(absent)

    def _add_flags(self, flags: str) -> None:
        self.features.append(self.add("Cast", [flags], to=imported("onnx").TensorProto.FLOAT))
