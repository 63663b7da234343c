"""Finds NVIDIA's libraries: NVRTC compiles CUDA C, cuBLASLt multiplies matrices."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mithril import _core

__all__ = ["cublaslt_libraries", "nvrtc_libraries"]

_TOOLKIT = "/usr/local/cuda/lib64"


def nvrtc_libraries() -> list[str]:
    """MITHRIL_NVRTC_LIB alone, or those of installed packages, the newest first, then the system's.

    No package is imported.
    """
    chosen = _core.nvrtc_library()
    if chosen:
        return [chosen]
    names = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")
    return [*_of_packages("cuda_nvrtc", "libnvrtc.so.*"), *names, f"{_TOOLKIT}/libnvrtc.so"]


def cublaslt_libraries() -> list[str]:
    """MITHRIL_CUBLASLT_LIB alone ("0": none), or those of packages and the system, as for NVRTC."""
    chosen = _core.cublaslt_library()
    if chosen:
        return [] if chosen == "0" else [chosen]
    names = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so")
    return [*_of_packages("cublas", "libcublasLt.so.*"), *names, f"{_TOOLKIT}/libcublasLt.so"]


def _of_packages(of_cuda_12: str, library: str) -> list[str]:
    """Libraries in packages of CUDA 13, which share a folder, and in the one of CUDA 12."""
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for package in ("cu[0-9]*", of_cuda_12):
            paths = Path(folder).glob(f"{package}/lib/{library}")
            found += sorted((str(path) for path in paths), reverse=True)
    return found
