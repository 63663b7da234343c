"""Sessions of ONNX Runtime for what PyTorch exports."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Settings


def session_of(module: Any, example: np.ndarray, settings: Settings) -> tuple[Any, str]:
    """With default optimisations, and the name of its input."""
    settings.check_time()
    import onnxruntime
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells what isn't installed
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        inputs = (torch.from_numpy(example),)
        torch.onnx.export(module, inputs, path, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path, options)
    return session, session.get_inputs()[0].name
