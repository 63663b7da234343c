"""Sessions of ONNX Runtime, and requests of OpenVINO, for what PyTorch exports."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Settings


@contextlib.contextmanager
def exported(module: Any, example: np.ndarray) -> Iterator[Path]:
    """The file of an ONNX model."""
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells what isn't installed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        inputs = (torch.from_numpy(example),)
        torch.onnx.export(module, inputs, path, dynamo=True, verbose=False)
        yield path


def session_of(module: Any, example: np.ndarray, settings: Settings) -> tuple[Any, str]:
    """With default optimisations, and the name of its input."""
    settings.check_time()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    with exported(module, example) as path:
        session = onnxruntime.InferenceSession(path, options)
    return session, session.get_inputs()[0].name


def request_of(module: Any, example: np.ndarray, settings: Settings) -> Any:
    """A request of OpenVINO for one call at a time in float32; it computes where halves would be
    faster in bfloat16 unless it is told."""
    settings.check_time()
    import openvino

    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": settings.threads,
        "NUM_STREAMS": 1,
    }
    with exported(module, example) as path:
        model = openvino.Core().read_model(path)
        return openvino.compile_model(model, "CPU", options).create_infer_request()
