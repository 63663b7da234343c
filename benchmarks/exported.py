"""Rows: exported C beside the C of emx-onnx-cgen, from the same model and by the same compiler."""

from __future__ import annotations

import contextlib
import ctypes
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import nets
from benchmarks.harness import (
    OURS,
    Contender,
    Settings,
    compare,
    print_comparison,
    print_ratio_targets,
    print_target,
)
from benchmarks.models import mlp

EMX = "emx-onnx-cgen"
FLAGS = ["-std=c99", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno"]
TEMPORARY = re.compile(r"float \(\*(\w+)\)((?:\[\d+\])*) = malloc\(sizeof\(\*\1\) \* (\d+)\)")
SIZES, BATCH = (64, 128, 128, 10), 32
MOST_MEMORY = 0.7
Memory = dict[str, int]  # bytes of temporaries, by contender


class Case:
    """A model on both sides: composed with its parameters, and in PyTorch."""

    def __init__(self, title: str, model: Any, params: Any, data: Any, module: Any, output: str):
        self.title, self.model, self.params = title, model, params
        self.data, self.module, self.output = data, module, output


@contextlib.contextmanager
def folders() -> Iterator[Callable[[str], Path]]:
    with tempfile.TemporaryDirectory() as root:

        def made(name: str) -> Path:
            path = Path(root) / name
            path.mkdir()
            return path

        yield made


def library(folder: Path, sources: list[str]) -> ctypes.CDLL:
    command = ["cc", *FLAGS, "-fPIC", "-shared", *sources, "-o", "model.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "model.so"))


def aligned(size: int) -> np.ndarray:
    """Bytes at a multiple of 64."""
    block = np.zeros(size + 64, np.uint8)
    first = -block.ctypes.data % 64
    return block[first : first + size]


def ours(case: Case, folder: Path, memory: Memory, settings: Settings) -> Contender:
    import mithril as ml

    shapes = {name: list(value.shape) for name, value in case.data.items()}
    pm = ml.compile(
        case.model, ml.CpuBackend(), data_keys=set(shapes), shapes=shapes, inference=True
    )
    layout = pm.export_c(folder, params=case.params)
    memory[OURS] = layout["arena_bytes"]
    program = library(folder, ["model.c", "model_api.c"])
    weights, arena = aligned(layout["weight_bytes"]), aligned(layout["arena_bytes"])
    weights[:] = np.fromfile(folder / "model_weights.bin", np.uint8)
    model = aligned(1 << 16)
    program.model_init(*(ctypes.c_void_p(x.ctypes.data) for x in (model, weights, arena)))
    y = np.empty(layout["outputs"][0]["shape"], np.float32)
    given = [case.data[one["name"]] for one in layout["inputs"]]
    inputs = (ctypes.c_void_p * len(given))(*(x.ctypes.data for x in given))
    outputs = (ctypes.c_void_p * 1)(y.ctypes.data)
    call = partial(program.model_evaluate, ctypes.c_void_p(model.ctypes.data), inputs, outputs)
    kept = (weights, arena, model, given)
    return Contender(call, lambda: {"y": y.copy()} if call() == 0 and kept else {})


def emx(case: Case, folder: Path, memory: Memory, settings: Settings) -> Contender:
    import emx_onnx_cgen  # noqa: F401
    import torch

    x = next(iter(case.data.values()))
    inputs, path = (torch.from_numpy(x),), folder / "model.onnx"
    torch.onnx.export(case.module, inputs, path, dynamo=True, verbose=False, external_data=False)
    command = [sys.executable, "-m", "emx_onnx_cgen", "compile", "model.onnx", "model.c"]
    options = ["--large-weight-threshold", "1"]  # weights in a file, as ours
    subprocess.run([*command, *options], cwd=folder, check=True, capture_output=True)
    text = (folder / "model.c").read_text()
    memory[EMX] = 4 * sum(
        int(count) * math.prod(map(int, re.findall(r"\d+", sizes)))
        for _, sizes, count in TEMPORARY.findall(text)
    )
    program = library(folder, ["model.c"])
    assert program.model_load(str(folder / "model.bin").encode())
    with torch.inference_mode():
        y = np.empty(case.module(*inputs).shape, np.float32)
    call = partial(program.model, ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))

    def result() -> dict[str, np.ndarray]:
        call()
        return {"y": y.copy()}

    return Contender(call, result)


def row(make: Callable[[], Case], target: float, settings: Settings) -> None:
    case, memory = make(), {}
    with folders() as folder:
        factories = {
            EMX: partial(emx, case, folder("emx"), memory),
            OURS: partial(ours, case, folder("ours"), memory),
        }
        comparison = compare(factories, settings, tolerance=1e-4)
    print_comparison(f"{case.title}: exported C, one thread", comparison)
    print_ratio_targets(comparison, {EMX: target})
    share = memory[OURS] / memory[EMX] if EMX in memory else None
    print_target(f"temporaries against {EMX}", share, MOST_MEMORY, True, "x")


def of_mlp() -> Case:
    import torch

    model = mlp.Mlp(SIZES, BATCH)
    module = mlp.torch_module(model, Settings()).eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    torch.set_num_threads(1)
    title = f"MLP {'-'.join(map(str, SIZES))}, batch {BATCH}"
    return Case(title, mlp.model(model), model.copy(), {"x": model.x}, module, "output")


def of_resnet() -> Case:
    net = nets.Resnet(18)
    return Case(net.title, net.model(), net.params, net.data, net.module, net.output)


ROWS = {
    "c-export-mlp": partial(row, of_mlp, 8),
    "c-export-resnet18": partial(row, of_resnet, 15),
}
