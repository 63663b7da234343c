"""One backend of `mithril doctor`, in a process of its own: prints a line of JSON."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

from mithril.backends.registry import backend_class
from mithril.base.numpy import np
from mithril.errors import DeviceNotAvailable
from mithril.logical.model import Model
from mithril.models import Linear, Tanh
from mithril.physical.compile import compile

_DISTRIBUTIONS = {
    "numpy": ["numpy"],
    "torch": ["torch"],
    "jax": ["jax", "jaxlib"],
    "mlx": ["mlx", "mlx-cpu", "mlx-cuda-12", "mlx-cuda-13", "mlx-metal"],
    "ggml": ["ggml-python", "gguf"],
    "cuda": ["nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"],
}
_SHOWN = ("name", "platform", "version", "driver", "compute_units", "multiprocessors",
          "architecture", "memory")  # fmt: skip

# Between 1 and the next number.
_STEPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def main(name: str) -> None:
    print(json.dumps(examined(name)))


def examined(name: str) -> dict[str, Any]:
    """Returns the facts of a backend, and whether a model's values and gradients are right."""
    found: dict[str, Any] = {"versions": _versions(name)}
    try:
        backend = backend_class(name)()
    except (ImportError, DeviceNotAvailable) as error:
        return {**found, "state": "absent", **_told(error)}
    except Exception as error:
        return {**found, "state": "broken", **_told(error)}
    found |= {"backend": repr(backend), "devices": _devices(backend), "facts": _facts(backend)}
    try:
        return found | _compared(backend)
    except Exception as error:
        return {**found, "state": "broken", **_told(error)}


def _told(error: BaseException) -> dict[str, str]:
    hint = getattr(error, "hint", "")
    message = str(error).removesuffix(f"\n  help: {hint}") if hint else str(error)
    lines = [line for line in message.splitlines() if not line.startswith("  at ")]
    return {"error": "\n".join(lines) or type(error).__name__, "help": hint}


def _versions(name: str) -> dict[str, str]:
    found = {}
    for distribution in _DISTRIBUTIONS.get(name, []):
        try:
            found[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return found


def _devices(backend: Any) -> list[str]:
    try:
        return [str(device) for device in backend.get_available_devices()]
    except Exception as error:
        return [f"not listed: {error}"]


def _facts(backend: Any) -> dict[str, str]:
    """Returns the facts of the device or the compiler that the backend uses."""
    info = getattr(backend, "device_info", None) or {}
    found = {key.replace("_", " "): str(info[key]) for key in _SHOWN if key in info}
    if "memory" in found:
        found["memory"] = f"{int(found['memory']) / 2**30:.1f} GiB"
    if isinstance(getattr(backend, "compiler", None), str):
        found["compiler"] = backend.compiler
    for what in ("product", "convolution"):
        if hasattr(backend, f"{what}_library"):
            library = getattr(backend, f"{what}_library")
            found[f"{what}s"] = library or "kernels of this package"
    return found


# --- the model -----------------------------------------------------------------------------------


def _compared(backend: Any) -> dict[str, Any]:
    """Evaluates tanh(x W^T + b) V^T + c with gradients, and compares with NumPy in float64."""
    expected, arrays, slope = _expected()
    results = _results(backend, arrays, slope)
    allowed = _allowed(backend)
    errors = {name: _error(results[name], right) for name, right in expected.items()}
    wrong = {name: error for name, error in errors.items() if not error <= allowed}
    out = {"state": "wrong" if wrong else "right", "largest_error": max(errors.values())}
    if wrong:
        told = ", ".join(f"{name} by {error:.2g}" for name, error in wrong.items())
        out["error"] = f"differs from NumPy: {told}; {allowed:.2g} is allowed"
    return out


def _expected() -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Values and gradients by the chain rule, written out; what they are of; the cotangent."""
    draw = np.random.default_rng(0).standard_normal
    shapes = {"x": (5, 4), "W": (3, 4), "b": (3,), "V": (2, 3), "c": (2,)}
    a = {name: draw(shape).astype(np.float16).astype(np.float64) for name, shape in shapes.items()}
    slope = draw((5, 2)).astype(np.float16).astype(np.float64)
    hidden = np.tanh(a["x"] @ a["W"].T + a["b"])
    back = (slope @ a["V"]) * (1 - hidden**2)
    expected = {
        "output": hidden @ a["V"].T + a["c"],
        "gradient of W": back.T @ a["x"],
        "gradient of b": back.sum(0),
        "gradient of V": slope.T @ hidden,
        "gradient of c": slope.sum(0),
    }
    return expected, a, slope


def _results(backend: Any, arrays: dict[str, Any], slope: Any) -> dict[str, Any]:
    model = Model()
    model |= Linear(3)(input="x", weight="W", bias="b", output="h")
    model |= Tanh()(input="h", output="t")
    model |= Linear(2)(input="t", weight="V", bias="c", output="output")
    pm = compile(model, backend, data_keys={"x"}, shapes={"x": [5, 4]})
    own = {name: backend.array(array) for name, array in arrays.items()}
    params = {name: own[name] for name in pm.trainable_keys}
    cotangents = {"output": backend.array(slope)}
    outputs, gradients = pm.evaluate(params, {"x": own["x"]}, output_gradients=cotangents)
    made = {f"gradient of {name}": gradient for name, gradient in gradients.items()}
    return {name: backend.to_numpy(value) for name, value in {**outputs, **made}.items()}


def _allowed(backend: Any) -> float:
    """Returns the tolerance of results, by the coarsest float type that the backend computes in."""
    kinds = {str(backend.default_dtype), str(backend.compute_dtype or backend.default_dtype)}
    return 64 * max(_STEPS.get(kind, 0.0) for kind in kinds)


def _error(result: Any, expected: Any) -> float:
    """The largest difference, relative to the largest of what is expected; inf where shapes are."""
    found = np.asarray(result, dtype=np.float64)
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    return float(abs(found - expected).max() / abs(expected).max())


if __name__ == "__main__":
    main(sys.argv[1])
