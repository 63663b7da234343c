"""The safetensors format: a JSON header, then the bytes of the tensors one after the other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from mithril import _core
from mithril.base.checks import checked_bool
from mithril.base.files import opened, replacing
from mithril.base.public import public
from mithril.errors import ArgumentError, DTypeError, ParseError, SignatureError, shown
from mithril.formats._files import CHUNK, Hashed, damaged
from mithril.physical.conversion import as_numpy
from mithril.types import Dtype, as_dtype

MOST_HEADER = 64 << 20  # bytes
_ALIGNMENT = 8
_SEPARATOR = "/"  # between names of nested dictionaries
_DEEPEST = 100
_DTYPES = tuple(map(str, Dtype))


def arrays_of(params: Any, what: str, dtypes: Iterable[str] = _DTYPES) -> dict[str, Any]:
    """The arrays of a dictionary, as NumPy holds them, each in one block of memory.

    Raises
    ------
    DTypeError : elements of another type than the format has
    """
    if not isinstance(params, dict):
        raise SignatureError(f"{what}: requires a dictionary of arrays, got {shown(params)}")
    arrays = {}
    for name, value in params.items():
        if not isinstance(name, str):
            raise SignatureError(f"{what}: names are strings, got {shown(name)}")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ArgumentError(
                f"{what}: a name must be valid unicode, got {shown(name)}"
            ) from None
        arrays[name] = _array(value, name, what, dtypes)
    return arrays


def _array(value: Any, name: str, what: str, dtypes: Iterable[str]) -> Any:
    import numpy as np

    try:
        array = as_numpy(value, name)
        dtype = as_dtype(array.dtype)
        if str(dtype) in dtypes:
            return np.asarray(array, dtype.numpy(), order="C")
    except DTypeError:
        pass
    kind = getattr(value, "dtype", None) or np.asarray(value).dtype
    raise DTypeError(
        f"{what}: {shown(name)}: the format has no elements of type {kind}",
        hint=f"it has {', '.join(dtypes)}",
    )


def write_tensors(stream: Any, arrays: dict[str, Any]) -> None:
    """Large elements first, so that each tensor is aligned; then by name."""
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    if "__metadata__" in arrays:
        raise ArgumentError("safetensors: no tensor may be named '__metadata__'")
    header, at = {}, 0
    for name in order:
        array = arrays[name]
        dtype = _core.safetensors_name(str(as_dtype(array.dtype)))
        places = [at, at + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": places}
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > MOST_HEADER:
        raise ArgumentError("safetensors: too many tensors, or names that are too long")
    stream.write(len(text).to_bytes(8, "little"))
    stream.write(text)
    for name in order:
        _write_bytes(stream, arrays[name])


def _write_bytes(stream: Any, array: Any) -> None:
    from mithril.base.numpy import np

    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, CHUNK):
        stream.write(flat[start : start + CHUNK].data)


def read_tensors(stream: Any, size: int, what: str) -> dict[str, Any]:
    """The arrays of a stream of `size` bytes. Raises `ParseError` before it reads any array if
    the header is not what the format asks for."""
    from mithril.base.numpy import np

    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > size - 8:
        raise damaged(what, "the header is longer than the file")
    if length > MOST_HEADER:
        raise ParseError(f"{what}: a header of {length} bytes", code="MTH604")
    header = stream.read(length)
    if len(header) != length:
        raise damaged(what, "the file ends too early")
    out: dict[str, Any] = {}
    for name, dtype, shape, begin, end in _core.read_safetensors(header, size - 8 - length):
        array = np.empty(shape, dtype.numpy())
        if end > begin:
            view = memoryview(array.reshape(-1).view(np.uint8).data)
            if stream.readinto(view) != end - begin:
                raise damaged(what, "the file ends too early")
            if array.dtype == bool:  # files may hold other bytes than 0 and 1
                array = np.asarray(array.view(np.uint8) != 0)
        out[name] = array
    return out


def _flat(arrays: Any, what: str) -> Any:
    """The arrays of a nest by their paths; a dictionary without others in it stays as it is."""
    if not isinstance(arrays, dict) or not any(isinstance(x, dict) for x in arrays.values()):
        return arrays
    return dict(_leaves(arrays, "", what))


def _leaves(nest: dict[Any, Any], path: str, what: str) -> Iterator[tuple[str, Any]]:
    from mithril.base.numpy import np

    if path.count(_SEPARATOR) > _DEEPEST:
        raise ArgumentError(f"{what}: dictionaries lie at most {_DEEPEST} deep in each other")
    if path and not nest:
        yield path, np.zeros(0, np.uint8)  # its name ends in "/": an empty dictionary
    for name, value in nest.items():
        if not isinstance(name, str) or not name or _SEPARATOR in name:
            raise ArgumentError(
                f"{what}: in dictionaries of dictionaries a name requires text without"
                f" '{_SEPARATOR}', got {shown(name)}"
            )
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}{_SEPARATOR}", what)
        else:
            yield path + name, value


def _nested(arrays: dict[str, Any], what: str) -> dict[str, Any]:
    """The nest whose arrays have these paths."""
    out: dict[str, Any] = {}
    for path, array in arrays.items():
        *names, last = path.split(_SEPARATOR)
        if len(names) > _DEEPEST:
            raise ParseError(f"{what}: {shown(path)} lies deeper than {_DEEPEST} dictionaries")
        inner: Any = out
        for name in names:
            inner = inner.setdefault(name, {}) if isinstance(inner, dict) else inner
        if not isinstance(inner, dict) or last in inner or (not last and array.size):
            raise ParseError(f"{what}: {shown(path)} is no name of an array in a dictionary")
        if last:
            inner[last] = array
    return out


@public
def write_safetensors(path: Any, arrays: dict[str, Any]) -> None:
    """Writes a dictionary of arrays (of NumPy or any framework) as a safetensors file.

    The file is there completely, or the one that was there before. Dictionaries in the dictionary,
    such as the state of an optimizer, become one: "m/w" is what ``{"m": {"w": …}}`` has.

    >>> import numpy as np, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> write_safetensors(path, {"w": np.ones((2, 3), "float32")})
    >>> read_safetensors(path)["w"].shape
    (2, 3)
    >>> write_safetensors(path, {"step": 5, "m": {"w": np.ones(2, "float32")}})
    >>> sorted(read_safetensors(path))
    ['m/w', 'step']
    >>> read_safetensors(path, nested=True)["m"]
    {'w': array([1., 1.], dtype=float32)}
    """
    found = arrays_of(_flat(arrays, "write_safetensors"), "write_safetensors")
    with replacing("write_safetensors", path) as file:
        write_tensors(file, found)


@public
def read_safetensors(path: Any, *, nested: bool = False) -> dict[str, Any]:
    """The NumPy arrays of a safetensors file, by name.

    Parameters
    ----------
    nested : True: names with "/" are paths into dictionaries of dictionaries, which are returned
        as `write_safetensors` was given them; numbers come back as arrays without axes

    Raises
    ------
    ParseError : the header lies about the data, or the file is cut off; with `nested`, a name is
        that of an array and of a dictionary.
    """
    is_nest = checked_bool("read_safetensors: nested", nested)
    with opened("read_safetensors", path) as file:
        size = os.fstat(file.fileno()).st_size
        what = f"safetensors file {shown(file.name)}"
        arrays = read_tensors(Hashed(file), size, what)
    return _nested(arrays, what) if is_nest else arrays


__all__ = ["read_safetensors", "write_safetensors"]
