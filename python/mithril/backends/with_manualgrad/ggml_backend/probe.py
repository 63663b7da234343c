"""Tests a ggml library in a process of its own before it is opened here.

An ABI that is not the one declared in library.py, or a function that calls abort(), ends that
process and not this one. What passed is remembered by the file's path, size and time of change.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

from mithril.errors import DeviceNotAvailable

from .library import HINT

_SECONDS = 300  # much more than it takes on a machine that is busy
_PASSED = "ggml passed"


def tested(path: Path) -> Path:
    """Tests the library at a path and returns the path.

    Raises
    ------
    DeviceNotAvailable : the library does not do what the backend asks of it
    """
    found = path.stat()
    said = _said(path, found.st_size, found.st_mtime_ns)
    if said:
        raise DeviceNotAvailable(f"GGMLBackend: {path} fails the self-test: {said}", hint=HINT)
    return path


@functools.cache
def _said(path: Path, _size: int, _time: int) -> str:
    """Returns the reason why a library fails the self-test, or ""."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main({str(path)!r})"
    )
    command = [sys.executable, "-c", code]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if run.returncode == 0 and run.stdout.strip().endswith(_PASSED):
        return ""
    lines = run.stderr.strip().splitlines()
    whole = [line for line in lines if not line.startswith(" ")]  # not the hints of errors
    ended = whole[-1] if whole else f"exit status {run.returncode}"
    return next((line for line in lines if "GGML_ASSERT" in line), ended)


def main(path: str) -> None:
    """Runs a graph of every kind of node and compares the results with NumPy's."""
    import numpy as np

    from . import ops as table
    from .built import BuiltGraph
    from .graph import Trace
    from .library import Library

    ops: Any = table

    class Settings:
        mem_size, threads = 1 << 24, 1

    def program(x, w):
        h = ops.relu(ops.linear(w, x))
        h = ops.layer_norm(ops.where(ops.greater(h, 1.0), h, ops.silu(h)), 1e-5)
        return (
            ops.softmax(h),
            ops.sum(ops.swapaxes(h, 0, 1), 0),
            ops.matmul(ops.swapaxes(h, 0, 1), h),
        )

    random = np.random.default_rng(0)
    inputs = [random.standard_normal(s).astype("f4") for s in ((3, 8), (5, 8))]
    inputs[0][0, 0] = np.nan
    trace = Trace(Library(Path(path)))
    nodes = [trace.leaf(x.shape, x.dtype) for x in inputs]
    for i, node in enumerate(nodes):
        node.source = i
    graph = BuiltGraph(trace, nodes, list(program(*nodes)), Settings)
    for _ in range(2):
        for got, want in zip(graph(inputs), program(*inputs), strict=True):
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    print(_PASSED)
