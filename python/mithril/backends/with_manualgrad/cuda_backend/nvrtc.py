"""Finds NVRTC, which compiles CUDA C."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mithril import _core

__all__ = ["nvrtc_libraries"]

_OF_PACKAGES = ("cu*/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*")  # CUDA 13; CUDA 12
_OF_SYSTEM = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
              "/usr/local/cuda/lib64/libnvrtc.so")  # fmt: skip


def nvrtc_libraries() -> list[str]:
    """MITHRIL_NVRTC_LIB alone, or those of installed packages, the newest first, then the system's.

    No package is imported.
    """
    chosen = _core.nvrtc_library()
    if chosen:
        return [chosen]
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for pattern in _OF_PACKAGES:
            found += sorted((str(path) for path in Path(folder).glob(pattern)), reverse=True)
    return [*found, *_OF_SYSTEM]
