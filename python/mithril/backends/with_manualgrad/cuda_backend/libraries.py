"""Finds NVIDIA's libraries: NVRTC compiles CUDA C, cuBLASLt does products, cuDNN convolutions."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mithril import _core

__all__ = ["cublaslt_libraries", "cudnn_libraries", "nvrtc_libraries"]

_TOOLKIT = "/usr/local/cuda/lib64"
_CONVOLUTIONS = "libcudnn_cnn.so"


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


def cudnn_libraries() -> list[str]:
    """MITHRIL_CUDNN_LIB alone ("0": none), or those of packages and the system, as for NVRTC.

    Of cuDNN's libraries the one with the convolutions: libcudnn.so.9 stands for all of them, but
    ends the process where it does not find one.
    """
    chosen = _core.cudnn_library()
    if chosen:
        folder, _, name = chosen.rpartition("/")
        name = name.replace("libcudnn.so", _CONVOLUTIONS)
        return [] if chosen == "0" else [f"{folder}/{name}" if folder else name]
    return [
        *_of_packages("cudnn", f"{_CONVOLUTIONS}.9"),
        f"{_CONVOLUTIONS}.9",
        f"{_TOOLKIT}/{_CONVOLUTIONS}.9",
    ]


def _of_packages(of_cuda_12: str, library: str) -> list[str]:
    """Libraries in packages of CUDA 13, which share a folder, and in the one of CUDA 12."""
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for package in ("cu[0-9]*", of_cuda_12):
            paths = Path(folder).glob(f"{package}/lib/{library}")
            found += sorted((str(path) for path in paths), reverse=True)
    return found
