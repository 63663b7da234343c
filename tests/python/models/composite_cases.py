"""Runs composite models against functions written by hand: values, and gradients by central
differences of these functions, both in float64."""

import mithril as ml
import numpy as np

BACKENDS = {
    "numpy": "NumpyBackend",
    "cpu": "CpuBackend",
    "torch": "TorchBackend",
    "jax": "JaxBackend",
}
VALUES = 1e-12  # relative to the largest element
SLOPES = 1e-7  # what central differences are good for


def numbers(seed, **shapes):
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1.0, 1.0, shape) for name, shape in shapes.items()}


def far(found, wanted, bound):
    """Why two arrays differ, or None."""
    wanted = np.asarray(wanted)
    if found.shape != wanted.shape:
        return f"shape {found.shape}, wanted {wanted.shape}"
    error = np.max(np.abs(found - wanted), initial=0.0)
    limit = bound * max(1.0, np.max(np.abs(wanted), initial=0.0))
    return None if error <= limit else f"off by {error:.3g}, at most {limit:.3g}"


def run(model, inputs, backend_name, cotangents=None, wrt=None):
    """The outputs of a model, and the gradients of some inputs."""
    backend = getattr(ml, BACKENDS[backend_name])(dtype="float64")
    pm = ml.compile(model, backend, data_keys=set(inputs), jit=False, inference=cotangents is None)
    if cotangents is None:
        return {k: backend.to_numpy(v) for k, v in pm.evaluate({}, inputs).items()}, {}
    found = pm.evaluate({}, inputs, output_gradients=cotangents, wrt=wrt)
    return tuple({k: backend.to_numpy(v) for k, v in part.items()} for part in found)


def slopes(by_hand, inputs, cotangents, key, step=1e-6):
    """The gradient of Σ cotangent · output by central differences."""
    out = np.zeros_like(inputs[key])
    for at in np.ndindex(out.shape):
        sums = []
        for sign in (1, -1):
            moved = {**inputs, key: inputs[key].copy()}
            moved[key][at] += sign * step
            found = by_hand(**moved)
            sums.append(sum(np.sum(found[k] * c) for k, c in cotangents.items()))
        out[at] = (sums[0] - sums[1]) / (2 * step)
    return out


def check(model, by_hand, inputs, backend_name, wrt=None, smooth=None):
    """Values of all outputs; gradients of `wrt` (all floats) through the outputs `smooth` (all)."""
    wanted = by_hand(**inputs)
    smooth = list(wanted) if smooth is None else smooth
    wrt = list(inputs) if wrt is None else wrt
    rng = np.random.default_rng(9)
    cotangents = {k: rng.standard_normal(np.shape(wanted[k])) for k in smooth}
    outputs, gradients = run(model, inputs, backend_name, cotangents, wrt)
    assert set(outputs) == set(wanted)
    for key, value in wanted.items():
        assert far(outputs[key], value, VALUES) is None, key
    for key in wrt:
        problem = far(gradients[key], slopes(by_hand, inputs, cotangents, key), SLOPES)
        assert problem is None, f"gradient of {key}: {problem}"
