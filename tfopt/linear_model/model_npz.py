"""Linear models as ``.npz`` archives: the weights, and a JSON header.

Equal models give equal bytes: times in the archive are fixed (NumPy writes 1980-01-01), and nothing
about the environment is stored. To read a file runs no code, and takes memory in proportion to its
size, whatever is in it.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np

from tfopt.checkpoints.framing import has_too_many
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.losses import classification_losses, regression_losses
from tfopt.linear_model.stored_model import Columns, StoredModel, are_labels

__all__ = ["encode_npz", "parse_npz"]

FORMAT = "tfopt linear model"
#: Version 2 added models of more than two classes, and version 3 labels that are integers or
#: booleans; a model is written as the first version that has it.
FORMAT_VERSION = 3
CLASSIFICATION = tuple(name for name, loss in classification_losses().items() if not loss.is_joint)
_DAMAGED = "its arrays are damaged"
#: How an array begins: version 1.0 of NumPy's format, then two bytes of the description's length.
_PREAMBLE = b"\x93NUMPY\x01\x00"
_DESCRIPTION = re.compile(
    rb"\{(?:(?:'descr': '[<>|=]?[bcfiSuUV]\d+'|'fortran_order': (?:True|False)"
    rb"|'shape': \((?:\d+, ?)*\d*\)),? ?)*\}\s*"
)
LOSSES = (*CLASSIFICATION, *regression_losses())


def encode_npz(model: StoredModel) -> bytes:
    """Return the content of an ``.npz`` model file; raise InvalidArgumentError for other losses."""
    if model.loss not in LOSSES:
        raise InvalidArgumentError(
            f"an .npz model file cannot have the loss '{model.loss}': write a .json file"
        )
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": _version(model.classes),
        "loss": model.loss,
        "classes": model.classes,
        "n_features": model.n_features,
        "zero_based": model.zero_based,
        "optimizer": model.optimizer,
        "settings": model.settings,
        "tfopt": model.tfopt_version,
    }
    names = model.columns.features, model.columns.label, model.columns.classes
    header |= {key: name for key, name in zip(_NAMES, names, strict=True) if name is not None}
    if model.classes is None and model.weights.ndim > 1:
        raise InvalidArgumentError(
            f"an .npz file has one target, and the model {len(model.weights)}: store it as .json"
        )
    archive = io.BytesIO()
    arrays: dict[str, Any] = {"weights": model.weights, "bias": model.bias}
    try:
        np.savez(archive, header=np.array(json.dumps(header)), **arrays)
    except ValueError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # of which zipfile makes one
            raise error.__context__ from None
        raise
    return archive.getvalue()


def parse_npz(file: Any) -> StoredModel:
    """Return the model of an open file; raise InvalidArgumentError if it is not valid."""
    arrays = _read_arrays(file)
    array = arrays["header"]
    if array.shape != () or array.dtype.kind != "U":
        raise InvalidArgumentError("its header is not a string")
    text = str(array)
    if has_too_many(text.encode("utf-8", "surrogatepass"), array.nbytes):
        raise InvalidArgumentError("its header has too many parts")
    header = _loaded(text)
    version = header.get("version")
    if type(version) is int and version > FORMAT_VERSION:
        raise InvalidArgumentError(f"its format version is {version}, newer than {FORMAT_VERSION}")
    if "version" not in header:
        raise InvalidArgumentError("its header lacks 'version'")
    if type(version) is not int or version < 1:
        raise InvalidArgumentError("its header has an invalid 'version'")
    _check_header(header, version)
    return _model(header, arrays["weights"], arrays["bias"])


def _read_arrays(file: Any) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(file):
        raise InvalidArgumentError("not an .npz file, or cut short")
    file.seek(0)
    try:
        with np.load(file, allow_pickle=False) as archive:
            entries = archive.zip.infolist()
            # uncompressed, as written: reading then needs no more memory than the file's size
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise InvalidArgumentError("its arrays are compressed")
            if sorted(archive.files) != ["bias", "header", "weights"]:
                raise InvalidArgumentError("it must hold the arrays header, weights and bias")
            for entry in entries:
                with archive.zip.open(entry) as content:
                    _check_start(content)
            arrays = {key: archive[key] for key in archive.files}
    except (OSError, InvalidArgumentError):
        raise
    except Exception as error:  # any error of NumPy's parsers, or of zipfile
        raise InvalidArgumentError(_DAMAGED) from error
    return arrays


def _check_start(content: IO[bytes]) -> None:
    """Refuse an array whose start NumPy would guess at, with a warning or without."""
    preamble = content.read(len(_PREAMBLE) + 2)
    length = int.from_bytes(preamble[len(_PREAMBLE) :], "little")
    if not preamble.startswith(_PREAMBLE) or not _DESCRIPTION.fullmatch(content.read(length)):
        raise InvalidArgumentError(_DAMAGED)


def _loaded(text: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError("its header is not JSON") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InvalidArgumentError(f"its header does not say '{FORMAT}'")
    return header


def _check_header(header: dict[str, Any], version: int) -> None:
    for key, is_valid in _HEADER.items():
        if key not in header:
            raise InvalidArgumentError(f"its header lacks '{key}'")
        if not is_valid(header[key]):
            raise InvalidArgumentError(f"its header has an invalid '{key}'")
    classes = header["classes"]
    if (header["loss"] in CLASSIFICATION) != (classes is not None) or version != _version(classes):
        raise InvalidArgumentError("its header has an invalid 'classes'")
    lengths = {"feature_names": header["n_features"], "class_names": len(classes or ())}
    for key, is_valid in _NAMES.items():
        value = header.get(key)
        wrong_length = key in lengths and value is not None and len(value) != lengths[key]
        if value is not None and (not is_valid(value) or wrong_length):
            raise InvalidArgumentError(f"its header has an invalid '{key}'")


def _model(header: dict[str, Any], weights: np.ndarray, bias: np.ndarray) -> StoredModel:
    classes, n_features = header["classes"], header["n_features"]
    several = classes is not None and len(classes) > 2
    _check_array("weights", weights, (len(classes), n_features) if several else (n_features,))
    _check_array("bias", bias, (len(classes) if several else 1,))
    features, label, class_names = (header.get(key) for key in _NAMES)
    return StoredModel(
        weights=weights,
        bias=bias,
        loss=header["loss"],
        classes=classes and tuple(classes),
        zero_based=header["zero_based"],
        optimizer=header["optimizer"],
        settings=header["settings"],
        tfopt_version=header["tfopt"],
        columns=Columns(
            None if features is None else tuple(features),
            label,
            None if class_names is None else tuple(class_names),
        ),
    )


def _check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidArgumentError(f"{name} has shape {array.shape} instead of {shape}")
    if array.dtype != np.float64:
        raise InvalidArgumentError(f"{name} has dtype {array.dtype} instead of float64")
    if not np.isfinite(array).all():
        raise InvalidArgumentError(f"{name} has values that are not finite")


def _version(classes: Sequence[float] | None) -> int:
    """Return the first format version that supports these classes."""
    if classes is None:
        return 1
    return 3 if type(classes[0]) is not float else 2 if len(classes) > 2 else 1


def _are_classes(value: Any) -> bool:
    return (
        are_labels(value)
        and {*map(type, value)} in ({bool}, {int}, {float})
        and value == sorted(value)
    )


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(type(name) is str for name in value)


_HEADER: dict[str, Callable[[Any], bool]] = {
    "loss": lambda value: isinstance(value, str) and value in LOSSES,
    "classes": lambda value: value is None or _are_classes(value),
    "n_features": lambda value: type(value) is int and value >= 0,
    "zero_based": lambda value: type(value) is bool,
    "optimizer": lambda value: isinstance(value, dict),
    "settings": lambda value: isinstance(value, dict),
    "tfopt": lambda value: isinstance(value, str),
}
#: What a header may have besides: the fields of `Columns`.
_NAMES: dict[str, Callable[[Any], bool]] = {
    "feature_names": _are_names,
    "label_name": lambda value: type(value) is str,
    "class_names": _are_names,
}
