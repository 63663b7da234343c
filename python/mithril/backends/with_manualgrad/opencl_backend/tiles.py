"""Register tiles of products that `ml.tune` found, by device, in a file that processes share."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mithril.backends.with_manualgrad.object_cache import folder_of_user
from mithril.base.files import opened, replacing
from mithril.errors import MithrilError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Tile", "keep_tile", "use_kept_tile"]

Tile = tuple[int, int, int]  # rows, vectors, bytes of a vector

_MOST_BYTES = 1 << 20
_logger = logging.getLogger("mithril.codegen")


def use_kept_tile(backend: Any) -> None:
    """Sets the tile that `tune` found for the backend's device, if it did."""
    try:
        tile = _kept().get(_name(backend.device_info))
        if tile is not None:
            backend.product_tile = tile
    except (OSError, ValueError, TypeError, AttributeError, MithrilError) as error:
        _logger.warning("%s is damaged and not used: %s", _file(), error)


def _file() -> Path:
    return folder_of_user("opencl") / "tiles.json"


def _name(info: Mapping[str, Any]) -> str:
    return " / ".join(str(info[key]) for key in ("platform", "name", "driver"))


def _kept() -> dict[str, Any]:
    """Tile by the name of a device."""
    if not _file().exists():
        return {}
    with opened("tiles", _file()) as file:
        return dict(json.loads(file.read(_MOST_BYTES)))


def keep_tile(info: Mapping[str, Any], tile: Tile) -> str | None:
    """Keeps the tile of a device; returns the path of the file, or None if it cannot be written."""
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(file.with_suffix(".lock")):
            _write({**_kept_or_none(), _name(info): tile})
    except (OSError, MithrilError) as error:
        _logger.warning("the tile of %s is not kept on disk: %s", info["name"], error)
        return None
    return str(file)


def _kept_or_none() -> dict[str, Any]:
    try:
        return _kept()
    except (OSError, ValueError, TypeError, MithrilError):
        return {}


def _write(kept: Mapping[str, Any]) -> None:
    with replacing("tiles", _file()) as to:
        to.write(json.dumps(kept, indent=1, sort_keys=True).encode())


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Lets one process at a time read the tiles and write them with one more. The lock goes with
    the process that has it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
