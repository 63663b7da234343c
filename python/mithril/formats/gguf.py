"""GGUF files: tensors and metadata as ggml's programs read and write them.

The reader checks every count, size and offset against the file before it uses it; the package
`gguf` only turns blocks of bytes to floats.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mithril.base.checks import MOST_ELEMENTS
from mithril.base.files import opened, replacing
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    DeviceNotAvailable,
    ParseError,
    ShapeError,
    SignatureError,
    shown,
)
from mithril.formats._files import damaged
from mithril.formats.safetensors import arrays_of
from mithril.types import as_dtype

ALIGNMENT = 32
MOST_AXES = 4  # that ggml has
LONGEST_NAME = 63  # bytes
_MAGIC = b"GGUF"
_VERSION = 3
_READ_VERSIONS = (2, 3)
# What files begin with that are taken for GGUF.
_FIRST = 16
_OLD = "a file of ggml before GGUF: llama.cpp converts it"
_OTHERS = {
    b"lmgg": _OLD, b"fmgg": _OLD, b"tjgg": _OLD,
    b"PK": "a zip file, as mithril, PyTorch and NumPy write? ml.load, torch.load, numpy.load",
    b"version https": "a pointer of Git LFS: git lfs pull brings the file",
    b"<": "a web page: was it downloaded from the address of the file itself?",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_DEEPEST = 4  # arrays in arrays
# Numbers of metadata: the type's number, and its letter in `struct`.
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
# Element types of tensors that are no blocks.
_PLAIN = {
    0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64",
    30: "bfloat16",
}  # fmt: skip


class GGUFTensors(dict[str, Any]):
    """Arrays by name, as a file has them; `metadata` holds its other entries."""

    metadata: dict[str, Any]


@dataclass
class _Entry:
    """A tensor in the table of a file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    size: int


# --- writing -------------------------------------------------------------------------------------


@public
def save_gguf(path: Any, params: dict[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
    """Writes arrays (of NumPy or any framework) as a GGUF file, in their own element types.

    Parameters
    ----------
    path : the file; it is there completely, or the one that was there before
    params : arrays of at most four axes by names of at most 63 bytes
    metadata : text, numbers, bools, and lists of one of them, by name

    Raises
    ------
    DTypeError : elements that GGUF does not have: bool, uint8, complex numbers …
    ShapeError : more than four axes
    ArgumentError : names and metadata that GGUF cannot hold

    >>> import numpy as np, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "w.gguf")
    >>> save_gguf(path, {"w": np.ones((2, 3), "float32")}, metadata={"epochs": 3})
    >>> found = load_gguf(path)
    >>> found["w"].shape, found.metadata["epochs"]
    ((2, 3), 3)
    """
    arrays = arrays_of(params, "save_gguf", _PLAIN.values())
    kinds = {name: _kind(name, array) for name, array in arrays.items()}
    entries = _encoded_metadata(metadata)
    head = [_MAGIC, struct.pack("<IQQ", _VERSION, len(arrays), len(entries)), *entries]
    offset = 0
    for name, array in arrays.items():
        sizes = struct.pack(f"<I{array.ndim}Q", array.ndim, *array.shape[::-1])
        head += [_encoded(name), sizes, struct.pack("<IQ", kinds[name], offset)]
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    with replacing("save_gguf", path) as file:
        _write_padded(file, b"".join(head))
        for array in arrays.values():
            _write_padded(file, array.reshape(-1).view("uint8").data)


def _write_padded(file: Any, data: Any) -> None:
    file.write(data)
    file.write(b"\0" * (-len(data) % ALIGNMENT))


def _kind(name: str, array: Any) -> int:
    size = len(name.encode())
    if not 0 < size <= LONGEST_NAME:
        raise ArgumentError(
            f"save_gguf: names have 1 to {LONGEST_NAME} bytes, got {size}: {shown(name)}"
        )
    if array.ndim > MOST_AXES:
        raise ShapeError(
            f"save_gguf: '{name}': ggml has {MOST_AXES} axes, got shape {list(array.shape)}"
        )
    return next(number for number, text in _PLAIN.items() if text == array.dtype.name)


def _encoded(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _encoded_metadata(metadata: Any) -> list[bytes]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise SignatureError(f"save_gguf: metadata: requires a dictionary, got {shown(metadata)}")
    entries = {"general.architecture": "mithril", **(metadata or {})}
    if "general.alignment" in entries:
        raise ArgumentError("save_gguf: metadata: general.alignment is the file's own")
    return [_encoded_entry(key, value) for key, value in entries.items()]


def _encoded_entry(key: Any, value: Any) -> bytes:
    try:
        kind, data = _encoded_value(value)
        return _encoded(key) + struct.pack("<I", kind) + data
    except (TypeError, AttributeError, UnicodeEncodeError, struct.error):
        raise ArgumentError(
            f"save_gguf: metadata: requires text, 64-bit integers, floats, bools or lists of one of"
            f" them by name, got {shown(key)}: {shown(value)}"
        ) from None


def _encoded_value(value: Any, in_list: bool = False) -> tuple[int, bytes]:
    if isinstance(value, str):
        return _STRING, _encoded(value)
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        kind = 10 if value >= 2**63 else 11
        return kind, struct.pack(f"<{_NUMBERS[kind]}", value)
    if isinstance(value, float):
        return 12, struct.pack("<d", value)
    if in_list:
        raise TypeError
    items = [_encoded_value(item, in_list=True) for item in _items(value)]
    kinds = {kind for kind, _ in items}
    if len(kinds) > 1:
        raise TypeError
    kind = kinds.pop() if kinds else _STRING
    return _ARRAY, struct.pack("<IQ", kind, len(items)) + b"".join(data for _, data in items)


def _items(value: Any) -> list[Any]:
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise TypeError
    return list(value)


# --- reading -------------------------------------------------------------------------------------


@public
def load_gguf(path: Any) -> GGUFTensors:
    """The arrays of a GGUF file by name; its metadata is their attribute `metadata`.

    Plain element types stay as they are; blocks become float32, which takes the package `gguf`.

    Raises
    ------
    ParseError : the file is of another kind, is cut off, or says of itself what is not so
    ArgumentError : a folder, a pipe or a device
    DeviceNotAvailable : blocks, and no package `gguf`
    """
    with opened("load_gguf", path) as file:
        return _read(file, os.fstat(file.fileno()).st_size, f"GGUF file {shown(file.name)}")


class _Reader:
    """Reads the bytes of a file in order; raises ParseError beyond its end."""

    def __init__(self, file: Any, size: int, what: str) -> None:
        self._file, self.size, self.what, self.at = file, size, what, 0

    def fail(self, problem: str) -> ParseError:
        return damaged(self.what, problem)

    def take(self, count: int) -> bytes:
        if count > self.size - self.at:
            raise self.fail("the file ends too early")
        data = self._file.read(count)
        if len(data) != count:
            raise self.fail("the file ends too early")
        self.at += count
        return data

    def number(self, letter: str) -> Any:
        (value,) = struct.unpack(f"<{letter}", self.take(struct.calcsize(f"<{letter}")))
        return value

    def count(self, of: str, least: int) -> int:
        """Reads a count of items of at least `least` bytes, which must fit the file."""
        count = self.number("Q")
        if count > (self.size - self.at) // least:
            raise self.fail(f"{count} {of} do not fit the file")
        return count

    def text(self) -> str:
        data = self.take(self.count("bytes of text", 1))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.fail("text that is not UTF-8") from None

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _ARRAY or depth >= _DEEPEST:
            raise self.fail(f"metadata of an unknown type {kind}")
        return self._array(depth)

    def _array(self, depth: int) -> Any:
        """Numbers as a NumPy array, which takes no more memory than the file."""
        from mithril.base.numpy import np

        kind = self.number("I")
        if kind not in _NUMBERS:
            least = 8 if kind == _STRING else 12
            return [self.value(kind, depth + 1) for _ in range(self.count("entries", least))]
        dtype = np.dtype("<" + _NUMBERS[kind])
        return np.frombuffer(
            self.take(self.count("numbers", dtype.itemsize) * dtype.itemsize), dtype
        )


def _read(file: Any, size: int, what: str) -> GGUFTensors:
    reader = _Reader(file, size, what)
    if size == 0:
        raise reader.fail("it is empty")
    first = file.read(_FIRST)
    if not first.startswith(_MAGIC):
        raise damaged(what, f"it does not begin with GGUF but with {first[:8]!r}", _kind_of(first))
    file.seek(0)
    reader.take(len(_MAGIC))
    version = reader.number("I")
    if version not in _READ_VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        is_swapped = swapped in _READ_VERSIONS
        raise ParseError(
            f"{what}: version {swapped if is_swapped else version}"
            f"{', big-endian' * is_swapped}, where 2 and 3 are known, little-endian",
            code="MTH604",
            hint="llama.cpp and the package gguf convert files",
        )
    tensors = reader.count("tensors", 24)
    entries = reader.count("entries of metadata", 12)
    found = GGUFTensors()
    found.metadata = _metadata(reader, entries)
    table = [_entry(reader) for _ in range(tensors)]
    start = _start(reader, found.metadata.pop("general.alignment", ALIGNMENT))
    _check_places(reader, table, start)
    for entry in table:
        if entry.size:  # the place of an empty one is anywhere
            file.seek(start + entry.offset)
        found[entry.name] = _array(reader, entry, file.read(entry.size))
    return found


def _kind_of(first: bytes) -> str:
    """Guesses the format of a file that is no GGUF from its first bytes, and names its reader."""
    if first[8:9] == b"{":
        return "a safetensors file? mithril.formats.read_safetensors reads those"
    return next((hint for magic, hint in _OTHERS.items() if first.startswith(magic)), "")


def _metadata(reader: _Reader, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        key = reader.text()
        if key in found:
            raise reader.fail(f"two entries of metadata are called {shown(key)}")
        found[key] = reader.value(reader.number("I"))
    return found


def _entry(reader: _Reader) -> _Entry:
    name = reader.text()
    rank = reader.number("I")
    if rank > MOST_AXES:
        raise reader.fail(f"tensor {shown(name)} has {rank} axes, where ggml has {MOST_AXES}")
    shape = tuple(reader.number("Q") for _ in range(rank))[::-1]
    kind, offset = reader.number("I"), reader.number("Q")
    block, bytes_ = _block(reader, name, kind)
    if shape and shape[-1] % block:
        raise reader.fail(f"tensor {shown(name)}: rows of {shape[-1]} are no blocks of {block}")
    if block > 1 and not shape:
        raise reader.fail(f"tensor {shown(name)}: one number is no block of {block}")
    if math.prod(n for n in shape if n) >= MOST_ELEMENTS:
        raise reader.fail(f"tensor {shown(name)} has the shape {list(shape)}")
    return _Entry(name, shape, kind, offset, math.prod(shape) // block * bytes_)


def _block(reader: _Reader, name: str, kind: int) -> tuple[int, int]:
    """Returns the number of elements and of bytes in a block of that type."""
    if kind in _PLAIN:
        return 1, as_dtype(_PLAIN[kind]).numpy().itemsize
    package = _gguf(reader.what)
    try:
        return package.GGML_QUANT_SIZES[package.GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise reader.fail(f"tensor {shown(name)} has an unknown type {kind}") from None


def _gguf(what: str) -> Any:
    try:
        import gguf
    except ImportError:
        raise DeviceNotAvailable(
            f"{what}: its tensors are in blocks, which the package gguf reads",
            hint="pip install gguf",
        ) from None
    return gguf


def _start(reader: _Reader, alignment: Any) -> int:
    """Returns the offset in the file at which the data begin."""
    is_power = type(alignment) is int and alignment > 0 and alignment & (alignment - 1) == 0
    if not is_power or alignment > 1 << 20:
        raise reader.fail(f"an alignment of {shown(alignment)}")
    start = -(-reader.at // alignment) * alignment
    return min(start, reader.size)


def _check_places(reader: _Reader, table: list[_Entry], start: int) -> None:
    """Checks that every tensor lies in the file, and none overlaps another one."""
    names: set[str] = set()
    end = 0
    for entry in sorted(table, key=lambda e: (e.offset, e.size)):
        if entry.name in names:
            raise reader.fail(f"two tensors are called {shown(entry.name)}")
        names.add(entry.name)
        if entry.size == 0:
            continue
        if entry.offset < end:
            raise reader.fail(f"tensor {shown(entry.name)} lies over another one")
        end = entry.offset + entry.size
        if end > reader.size - start:
            raise reader.fail(f"the file ends before the data of tensor {shown(entry.name)}")


def _array(reader: _Reader, entry: _Entry, data: bytes) -> Any:
    from mithril.base.numpy import np

    if len(data) != entry.size:
        raise reader.fail("the file ends too early")
    if entry.kind in _PLAIN:
        return np.frombuffer(data, as_dtype(_PLAIN[entry.kind]).numpy()).reshape(entry.shape).copy()
    package = _gguf(reader.what)
    kind = package.GGMLQuantizationType(entry.kind)
    block, size = package.GGML_QUANT_SIZES[kind]
    if not entry.size:
        return np.zeros(entry.shape, np.float32)
    rows = np.frombuffer(data, np.uint8).reshape(*entry.shape[:-1], entry.shape[-1] // block * size)
    try:
        values = package.quants.dequantize(rows, kind)
    except NotImplementedError:
        raise ParseError(
            f"{reader.what}: the package gguf does not read type {kind.name}", code="MTH604"
        ) from None
    return np.ascontiguousarray(values, np.float32).reshape(entry.shape)


__all__ = ["GGUFTensors", "load_gguf", "save_gguf"]
