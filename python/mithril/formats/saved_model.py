"""Saved models: one zip of the model's JSON, its parameters as safetensors, and checksums.

Nothing in such a file is ever executed; there is no pickle in it.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zipfile
import zlib
from typing import IO, Any, NamedTuple

from mithril.base.files import opened, replacing
from mithril.base.public import public
from mithril.base.version import PACKAGE_VERSION
from mithril.errors import MithrilError, MithrilWarning, ParseError, SignatureError, shown, warn
from mithril.formats._files import Hashed, damaged
from mithril.formats.safetensors import arrays_of, read_tensors, write_tensors
from mithril.logical.model import Model

MODEL, PARAMS, METADATA = "model.json", "params.safetensors", "metadata.json"
FORMAT, MAJOR, VERSION = "mithril-saved-model", 1, "1.0"
_MOST_MEMBERS = 64
_MOST_DIRECTORY = 64 << 10
_MOST_METADATA = 64 << 10
_MOST_INFLATED = 16 << 20  # of compressed text; longer text is stored as it is
# What `zipfile` raises when a file is not what it says; NotImplementedError for other methods of
# compression, RuntimeError for passwords.
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, OverflowError),
    *(NotImplementedError, RuntimeError),
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal models make equal files


class Saved(NamedTuple):
    """The contents of a file: `model, params = ml.load(path)`."""

    model: Model
    params: dict[str, Any]


@public
def save(model: Model, path: Any, params: dict[str, Any] | None = None) -> None:
    """Writes a model, and the arrays of `params` if they are given, as one file.

    The file takes the place of an older one at once when it is complete.

    Parameters
    ----------
    model : an outermost model
    path : where to; `.mithril` is the usual ending
    params : name -> array, of NumPy or any framework

    Raises
    ------
    UnsupportedError : the model holds a function that is not registered by name.

    >>> import mithril as ml, os, tempfile
    >>> model = ml.Model()
    >>> model |= ml.Linear(2)(input="x", output="y")
    >>> path = os.path.join(tempfile.mkdtemp(), "net.mithril")
    >>> ml.formats.save(model, path, {"$1": [[1.0], [2.0]]})
    >>> ml.load(path).model.input_keys
    ['$1', 'x', '$2']
    """
    if not isinstance(model, Model):
        raise SignatureError(f"save: requires a model, got {shown(model)}")
    text = model.to_json(history=True).encode()
    arrays = None if params is None else arrays_of(params, "save: params")
    with replacing("save", path) as file, zipfile.ZipFile(file, "w") as archive:
        sums = {}
        with _new_member(archive, MODEL, len(text)) as stream:
            sums[MODEL] = _written(stream, lambda out: out.write(text))
        if arrays is not None:
            size = sum(array.nbytes for array in arrays.values()) + (64 << 20)
            with _new_member(archive, PARAMS, size, stored=True) as stream:
                sums[PARAMS] = _written(stream, lambda out: write_tensors(out, arrays))
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "made_by": f"mithril {PACKAGE_VERSION}",
            "members": sums,
        }
        with _new_member(archive, METADATA, _MOST_METADATA) as stream:
            stream.write(json.dumps(metadata, indent=2).encode())


def _new_member(archive: zipfile.ZipFile, name: str, size: int, stored: bool = False) -> Any:
    info = zipfile.ZipInfo(name, _EPOCH)
    is_stored = stored or size > _MOST_INFLATED
    info.compress_type = zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return archive.open(info, "w", force_zip64=size >= 1 << 31)


def _written(stream: IO[bytes], write: Any) -> dict[str, Any]:
    out = Hashed(stream)
    write(out)
    return {"size": out.size, "sha256": out.digest}


@public
def load(path: Any) -> Saved:
    """The model of a file that `model.save` wrote, and its parameters ({} if it has none).

    Raises
    ------
    ParseError : not such a file, of another major version, cut off, changed (`MTH603`), or
        larger than its size allows (`MTH604`).
    """
    with opened("load", path) as file:
        text, params = _contents(file, f"saved model {shown(file.name)}")
    return Saved(Model.from_json(text), params)


def _contents(file: IO[bytes], what: str) -> tuple[bytes, dict[str, Any]]:
    """Text of the model, and parameters; whatever `zipfile` raises as `ParseError`."""
    try:
        _check_directory(file, what)
        with zipfile.ZipFile(file) as archive:
            return _read(archive, what)
    except MithrilError:
        raise
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the beginning
            raise
        raise damaged(what, "the file is damaged: a place outside of it") from None
    except _BROKEN as error:
        raise damaged(what, f"the file is damaged: {error}") from None


def _read(archive: zipfile.ZipFile, what: str) -> tuple[bytes, dict[str, Any]]:
    members = _members(archive, what)
    sums = _metadata(archive, members, what)
    gone = set(sums) - set(members)
    if gone:
        raise damaged(what, f"the member {shown(min(gone))} is not there")
    text = _text(archive, members, sums, what)
    params = {}
    if PARAMS in members:
        with archive.open(members[PARAMS]) as stream:
            hashed = Hashed(stream)
            params = read_tensors(hashed, members[PARAMS].file_size, f"{what}, {PARAMS}")
            _check_sum(PARAMS, hashed, sums, what)
    return text, params


def _check_directory(file: IO[bytes], what: str) -> None:
    """The directory is short, before `zipfile` makes objects of its entries."""
    size = file.seek(0, os.SEEK_END)
    if size < 22:
        raise damaged(what, "the file is too short")
    file.seek(size - 22)
    fields = struct.unpack("<4s4H2LH", file.read(22))
    if fields[0] != b"PK\5\6":
        raise damaged(what, "the file is no zip, or it is cut off")
    directory = fields[5]
    if size >= 42:
        file.seek(size - 42)
        locator = struct.unpack("<4sLQL", file.read(20))
        if locator[0] == b"PK\6\7":
            directory = _long_directory(file, locator[2], size, what)
    if directory > _MOST_DIRECTORY:
        raise ParseError(f"{what}: too many members", code="MTH604")


def _long_directory(file: IO[bytes], at: int, size: int, what: str) -> int:
    """The size that the record of a large zip states; `zipfile` reads it just before the end."""
    if at + 56 > size:
        raise damaged(what, "the file is cut off")
    largest = 0
    for place in (at, size - 42 - 56):
        file.seek(max(place, 0))
        record = file.read(56)
        if record[:4] == b"PK\6\6":
            largest = max(largest, struct.unpack("<4sQ2H2L4Q", record)[8])
    return largest


def _members(archive: zipfile.ZipFile, what: str) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    members = {info.filename: info for info in infos}
    if len(infos) > _MOST_MEMBERS:
        raise ParseError(f"{what}: too many members", code="MTH604")
    if len(members) != len(infos):
        raise damaged(what, "a member stands twice")
    missing = {MODEL, METADATA} - set(members)
    if missing:
        raise ParseError(f"{what}: has no member {min(missing)!r}")
    for info in (members[key] for key in (MODEL, PARAMS, METADATA) if key in members):
        is_deflated = info.compress_type == zipfile.ZIP_DEFLATED
        if not is_deflated and info.compress_type != zipfile.ZIP_STORED:
            raise ParseError(f"{what}: {info.filename} is compressed in an unknown way")
        most = info.compress_size + (_MOST_INFLATED if is_deflated else 0)
        if info.file_size > most:
            raise ParseError(f"{what}: {info.filename} is compressed too much", code="MTH604")
    unknown = sorted(set(members) - {MODEL, PARAMS, METADATA})
    if unknown:
        warn(f"{what}: the member {shown(unknown[0])} is ignored", MithrilWarning)
    return members


def _metadata(archive: zipfile.ZipFile, members: dict, what: str) -> dict[str, Any]:
    """Returns the checksum of each member of the zip."""
    if members[METADATA].file_size > _MOST_METADATA:
        raise ParseError(f"{what}: {METADATA} is too long", code="MTH604")
    try:
        found = json.loads(archive.read(members[METADATA]))
        form, version, sums = found["format"], found["version"], found["members"]
        major, _ = map(int, version.split("."))
        sums = {name: (entry["size"], entry["sha256"]) for name, entry in sums.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ParseError(f"{what}: {METADATA} is malformed") from None
    if form != FORMAT:
        raise ParseError(f"{what}: requires the format {FORMAT!r}, got {shown(form)}")
    if major != MAJOR:
        raise ParseError(
            f"{what}: version {shown(version)} is not known, this release reads version {MAJOR}",
            code="MTH602",
        )
    return sums


def _text(archive: zipfile.ZipFile, members: dict, sums: dict, what: str) -> bytes:
    with archive.open(members[MODEL]) as stream:
        hashed = Hashed(stream)
        text = hashed.read(members[MODEL].file_size)
    _check_sum(MODEL, hashed, sums, what)
    return text


def _check_sum(name: str, read: Hashed, sums: dict, what: str) -> None:
    if sums.get(name) != (read.size, read.digest):
        raise damaged(what, f"the checksum of {name} does not hold")


__all__ = ["Saved", "load", "save"]
