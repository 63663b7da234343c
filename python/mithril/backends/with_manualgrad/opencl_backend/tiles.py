"""Register tiles of products that `ml.tune` found, by device, in a file that processes share."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mithril.backends.with_manualgrad.object_cache import folder_of_user
from mithril.base.files import opened, replacing
from mithril.errors import MithrilError

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
        kept = _kept()
    except (OSError, ValueError, TypeError, MithrilError):
        kept = {}
    kept[_name(info)] = tile
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing("tiles", file) as to:
            to.write(json.dumps(kept, indent=1, sort_keys=True).encode())
    except (OSError, MithrilError) as error:
        _logger.warning("the tile of %s is not kept on disk: %s", info["name"], error)
        return None
    return str(file)
