"""Compares models of mithril with modules of PyTorch: outputs and gradients of all parameters.

The module is the oracle: it computes in float64, with weights that float32 holds exactly.
"""

from __future__ import annotations

from fnmatch import fnmatch
from functools import partial

import mithril as ml
import numpy as np
import torch

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
CASES = [("cpu", "float32"), ("cpu", "float64"), ("numpy", "float64"), ("torch", "float32")]
OF_FRAMEWORKS = [("jax", "float32"), ("mlx", "float32")]  # one small case of each model
# What `check` found since somebody took it: backend, dtype, the largest errors of outputs and of
# gradients (None: not asked for), relative to the largest value of each.
MEASURED = []


def draw(module, seed=0, scale=1.0):
    """Gives a module weights that keep values about 1, so that outputs tell inputs apart; language
    models say more than one word with weights that are larger by `scale`."""
    rng = np.random.default_rng(seed)
    module = module.double().eval()
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                array = rng.standard_normal(value.shape)
                if value.ndim < 2:
                    array = 0.1 * array + ("weight" in name or "running_var" in name)
                else:
                    array *= scale / np.sqrt(value[0].numel())
                value.copy_(torch.from_numpy(np.asarray(array, np.float32)))
    return module


def widen_norms(module, cls):
    """Norms of transformers by root mean squares compute in float32; PyTorch's own does not."""
    for norm in module.modules():
        if isinstance(norm, cls):
            norm.forward = partial(_rms_norm, norm)
    return module


def _rms_norm(norm, x):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)


def backend_of(name, dtype):
    return ml.get_backend(name, dtype=dtype)


def compiled(model, data, backend_name="cpu", dtype="float32", **options):
    shapes = {key: list(np.shape(value)) for key, value in data.items()}
    options = {"naming": "path", **options}
    backend = backend_of(backend_name, dtype)
    return ml.compile(model, backend, data_keys=set(data), shapes=shapes, **options)


def wanted(module, run, cotangent_seed=1):
    """Outputs of a module as a list, cotangents for them, and its gradients by name."""
    outputs = run(module)
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    rng = np.random.default_rng(cotangent_seed)
    cotangents = [np.float32(rng.standard_normal(o.shape)) for o in outputs]
    module.zero_grad()
    torch.autograd.backward(outputs, [torch.from_numpy(c).double() for c in cotangents])
    gradients = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    return [o.detach().numpy() for o in outputs], cotangents, gradients


def assert_close(got, want, tolerance, what, least_scale=1.0):
    """Returns the largest error, relative to the largest value, which counts as `least_scale` where
    it is smaller."""
    want = np.asarray(want, np.float64)
    got = np.asarray(got, np.float64).reshape(want.shape)
    scale = max(least_scale, np.abs(want).max(initial=0.0))
    error = np.abs(got - want).max(initial=0.0) / scale
    assert error <= tolerance, what
    return float(error)


def check(
    model, module, data, run, case,
    outputs=("output",), renamed=dict, gradients=None, **options,
):  # fmt: skip
    """Asserts equal outputs and equal gradients of every parameter of the model.

    `run(module)` gives the module's outputs; `renamed` makes of a dictionary by the module's names
    one by the model's. JAX takes seconds to compile gradients, so they are asked for there only by
    `gradients=True`.
    """
    backend_name, dtype = case
    gradients = backend_name != "jax" if gradients is None else gradients
    pm = compiled(model, data, backend_name, dtype)
    params = ml.formats.load_state_dict(pm, renamed(module.state_dict()), **options)
    want, cotangents, slopes = wanted(module, run)
    sent = {
        key: pm.backend.tensor(value, dtype) for key, value in zip(outputs, cotangents, strict=True)
    }
    got = pm.evaluate(params, data, output_gradients=sent if gradients else False)
    got, made = got if gradients else (got, {})
    errors = []
    for key, value in zip(outputs, want, strict=True):
        array = pm.backend.to_numpy(got[key])
        assert array.dtype == dtype
        errors.append(assert_close(array, value, TOLERANCE[dtype], key))
    of_gradients = None
    if gradients:
        of_gradients = compare_gradients(
            pm, made, renamed(slopes), TOLERANCE[dtype], options.get("transposed", ())
        )
    MEASURED.append((backend_name, dtype, max(errors), of_gradients))


def compare_gradients(pm, gradients, slopes, tolerance, transposed):
    """Returns the largest error, relative to the largest gradient of all."""
    scale = max(1.0, *(np.abs(slope).max() for slope in slopes.values()))
    assert pm.trainable_keys
    errors = []
    for name in pm.trainable_keys:
        turned = any(fnmatch(name, pattern) for pattern in transposed)
        slope = slopes[name].T if turned else slopes[name]
        got = pm.backend.to_numpy(gradients[name])
        errors.append(assert_close(got, slope, tolerance, f"gradient of {name}", scale))
    return max(errors)
