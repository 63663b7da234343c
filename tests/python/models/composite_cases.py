"""Runs composite models against functions written by hand: values, and gradients by central
differences of these functions, both in float64."""

import mithril as ml
import numpy as np
import pytest


def on_native(test):
    """Runs a test with many cases on the engine's own backends; a few cases run on every one."""
    return pytest.mark.device(pytest.mark.parametrize("native", ["cpu", "numpy"])(test))


BACKENDS = {
    "numpy": "NumpyBackend",
    "cpu": "CpuBackend",
    "c": "CBackend",
    "torch": "TorchBackend",
    "jax": "JaxBackend",
    "mlx": "MlxBackend",
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


def run(model, inputs, backend_name, cotangents=None, wrt=None, fixed=False):
    """The outputs of a model, and the gradients of some inputs; `fixed`: compiled for the shapes
    of these inputs, which slices as long as another input's first axis need."""
    backend = getattr(ml, BACKENDS[backend_name])(dtype="float64")
    options = {"shapes": {k: v.shape for k, v in inputs.items()}} if fixed else {}
    options |= {"data_keys": set(inputs), "jit": False, "inference": cotangents is None}
    pm = ml.compile(model, backend, **options)
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


def check(model, by_hand, inputs, backend_name, wrt=None, smooth=None, fixed=False):
    """Values of all outputs; gradients of `wrt` (all floats) through the outputs `smooth` (all)."""
    wanted = by_hand(**inputs)
    smooth = list(wanted) if smooth is None else smooth
    wrt = [k for k, v in inputs.items() if v.dtype.kind == "f"] if wrt is None else wrt
    rng = np.random.default_rng(9)
    cotangents = {k: rng.standard_normal(np.shape(wanted[k])) for k in smooth}
    outputs, gradients = run(model, inputs, backend_name, cotangents, wrt, fixed)
    assert set(outputs) == set(wanted)
    for key, value in wanted.items():
        assert far(outputs[key], value, VALUES) is None, key
    for key in wrt:
        problem = far(gradients[key], slopes(by_hand, inputs, cotangents, key), SLOPES)
        assert problem is None, f"gradient of {key}: {problem}"


# --- recurrent networks, one sequence at a time --------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rnn_step(p, x, state):
    """Output and state of one sequence after one step of an RNNCell: vectors."""
    hidden = np.tanh(p["w_ih"] @ x + p["w_hh"] @ state["hidden"] + p["bias_h"])
    return p["w_ho"] @ hidden + p["bias_o"], {"hidden": hidden}


def lstm_step(p, x, state):
    both = np.concatenate([x, state["hidden"]])
    f, i, o = (sigmoid(p[f"w_{g}"] @ both + p[f"bias_{g}"]) for g in "fio")
    cell = f * state["cell"] + i * np.tanh(p["w_c"] @ both + p["bias_c"])
    hidden = o * np.tanh(cell)
    return p["w_out"] @ hidden + p["bias_out"], {"hidden": hidden, "cell": cell}


def gru_step(p, x, state):
    h = state["hidden"]
    both = np.concatenate([x, h])
    reset, update = (sigmoid(p[f"w_{g}"] @ both + p[f"bias_{g}"]) for g in "ru")
    new = np.tanh(p["w_n"] @ x + p["bias_n"] + reset * (p["w_hn"] @ h + p["bias_hn"]))
    hidden = (1 - update) * new + update * h
    return p["w_out"] @ hidden + p["bias_out"], {"hidden": hidden}


def rnn_sizes(d, h, o):
    return {"w_ih": (h, d), "w_hh": (h, h), "w_ho": (o, h), "bias_h": (h,), "bias_o": (o,)}


def lstm_sizes(d, h, o):
    gates = {f"w_{g}": (h, d + h) for g in "fico"} | {f"bias_{g}": (h,) for g in "fico"}
    return gates | {"w_out": (o, h), "bias_out": (o,)}


def gru_sizes(d, h, o):
    gates = {f"w_{g}": (h, d + h) for g in "ru"} | {"w_n": (h, d), "w_hn": (h, h)}
    biases = {f"bias_{g}": (h,) for g in ("r", "u", "n", "hn")}
    return gates | biases | {"w_out": (o, h), "bias_out": (o,)}
