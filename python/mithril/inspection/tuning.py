"""`ml.tune`: measures the best tile of matrix products on a device of OpenCL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mithril.backends import Backend, OpenCLBackend
from mithril.backends.with_manualgrad.opencl_backend.tiles import Tile, keep_tile
from mithril.base.public import public
from mithril.errors import ArgumentError, SignatureError, UnsupportedError, shown
from mithril.logical.model import Model
from mithril.models import MatrixMultiply
from mithril.physical.compile import compile

__all__ = ["Tuning", "tune"]

# What compilers keep in 16 or 32 registers of 16, 32 or 64 bytes, and a little more.
TILES: tuple[Tile, ...] = (
    *((rows, 2, 64) for rows in (4, 8, 12)),
    *((rows, 2, 32) for rows in (4, 6, 8)),
    (4, 4, 32),
    *((rows, 2, 16) for rows in (4, 6)),
    (4, 4, 16),
)
# What each of 64 or 256 items of a work group keeps, on a GPU: its registers hold more.
GROUP_TILES: tuple[Tile, ...] = (
    *((rows, columns, 64) for rows, columns in ((4, 4), (8, 4), (8, 8))),
    *((rows, columns, 256) for rows, columns in ((2, 4), (4, 4), (4, 8), (8, 4), (8, 8))),
)
SIZE = 512  # rows, places and columns of the product that is measured
SECONDS = 0.2  # for each tile, once it is compiled
_FEWEST = 3  # runs


@dataclass(frozen=True)
class Tuning:
    """The result of `ml.tune`.

    device : its name, as `backend.device_info` has it
    tile : the fastest, as `OpenCLBackend.product_tile` has it
    gflops : 10⁹ operations per second by tile, of a product of 512 by 512 by 512
    file : where later processes find the tile; None where nothing could be written
    """

    device: str
    tile: Tile
    gflops: Mapping[Tile, float]
    file: str | None


@public
def tune(backend: Any) -> Tuning:
    """Measures which part of a product a device of OpenCL had best keep in its registers.

    Each tile of a list computes a product of 512 by 512 by 512 in the backend's dtype for 0.2
    seconds; the driver has to compile it before. The fastest is `backend.product_tile` for what is
    compiled on the device from then on, also by later processes: it is kept beside the compiled
    objects (``~/.cache/mithril/opencl/tiles.json`` or that folder in MITHRIL_CACHE_DIR), by the
    names of platform, device and driver. Results have the same bits in all tiles. Without it the
    tile follows from the size of the device's registers, or of a GPU's work groups, whose memory
    some tiles may not fit: those are passed over.

    Parameters
    ----------
    backend : an `OpenCLBackend`; other backends have no such choice

    Raises
    ------
    SignatureError : no backend is given
    UnsupportedError : the backend is another one
    DeviceNotAvailable : the driver fails

    >>> import mithril as ml
    >>> ml.tune(ml.NumpyBackend())
    Traceback (most recent call last):
    mithril.errors.UnsupportedError[MTH801]: tune: NumpyBackend has nothing to tune
      help: OpenCLBackend has tiles to choose from
    """
    if not isinstance(backend, Backend):
        raise SignatureError(f"tune: requires a backend, got {shown(backend)}")
    if not isinstance(backend, OpenCLBackend):
        name = type(backend).__name__
        raise UnsupportedError(
            f"tune: {name} has nothing to tune", hint="OpenCLBackend has tiles to choose from"
        )
    before, gflops = backend.product_tile, {}
    try:
        for tile in GROUP_TILES if backend.multiplies_in_groups else TILES:
            if _takes(backend, tile):
                gflops[tile] = _gflops(backend)
    except BaseException:
        backend.product_tile = before
        raise
    best = max(gflops, key=gflops.__getitem__)
    backend.product_tile = best
    return Tuning(backend.device_info["name"], best, gflops, keep_tile(backend.device_info, best))


def _takes(backend: Any, tile: Tile) -> bool:
    """Sets the tile, unless it does not fit the device."""
    try:
        backend.product_tile = tile
    except ArgumentError:
        return False
    return True


def _gflops(backend: Any) -> float:
    """Measures one product, in 10⁹ operations per second: the fastest of some runs."""
    model = Model()
    model |= MatrixMultiply()(left="a", right="b", output="y")
    shapes = {"a": [SIZE, SIZE], "b": [SIZE, SIZE]}
    pm = compile(model, backend, data_keys=set(shapes), shapes=shapes, inference=True)
    ones = np.ones([SIZE, SIZE], backend.default_dtype.name)
    data = {key: backend.to_device(ones) for key in shapes}
    best, count, end = float("inf"), 0, 0.0
    while count < _FEWEST or time.perf_counter() < end:
        start = time.perf_counter()
        backend.block_until_ready(pm.evaluate({}, data))
        if count > 0:  # the first one compiles
            best = min(best, time.perf_counter() - start)
        else:
            end = time.perf_counter() + SECONDS
        count += 1
    return 2 * SIZE**3 / best / 1e9
