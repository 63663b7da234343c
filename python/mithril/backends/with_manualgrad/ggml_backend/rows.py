"""Rows of a matrix in blocks as floats, read by ggml itself."""

from __future__ import annotations

import numpy as np

from . import library
from .graph import struct
from .library import Library


def all_rows(lib: Library, address: int, kind: int, shape: tuple[int, int]) -> np.ndarray:
    """Dequantizes the blocks at an address to a float32 array [rows, columns]."""
    rows, columns = shape
    context = lib.init(library.InitParams(1 << 20, None, True))
    backend = lib.backend_cpu_init()
    try:
        weight = lib.new_tensor_4d(context, kind, columns, rows, 1, 1)
        numbers = lib.new_tensor_4d(context, library.I32, rows, 1, 1, 1)
        found = lib.get_rows(context, weight, numbers)
        graph = lib.new_graph_custom(context, 16, False)
        lib.build_forward_expand(graph, found)
        places = np.arange(rows, dtype=np.int32)
        values = np.empty(shape, np.float32)
        struct(weight).data, struct(numbers).data = address, places.ctypes.data
        struct(found).data = values.ctypes.data
        lib.backend_graph_compute(backend, graph)
        return values
    finally:
        lib.backend_free(backend)
        lib.free(context)
