"""Runs small models on OpenCL, each with its gradients, and prints their names: for a process of
its own, whose loader has Oclgrind for its only driver (test_oclgrind.py).

python -m backends.oclgrind_cases LOG cpu|gpu [TITLE…]: ends at the first model after which LOG is
not empty. "gpu": memory is not the host's, and items are short.
"""

import os
import sys
from pathlib import Path

import mithril as ml
import numpy as np
from backends import test_device_attention, test_device_kernels
from backends.device_cases import alone
from backends.test_device_kernels import of
from formats.c_cases import MODELS, drawn
from mithril import _core

# Each of the emulator's operations takes a microsecond: these are for devices alone.
LARGE = {"rows that several items share", "argsort of a long row", "concat of 59", "argsort",
         "pad of one axis", "product of integers", "argsort of a middle axis"}  # fmt: skip


def product(m, k, n, dtype="float32"):
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="y")
    model.expose_keys("y")
    return model, {"a": drawn([m, k]).astype(dtype), "b": drawn([k, n], 1).astype(dtype)}, {}


def row(part, shape):
    return lambda: (alone(part), {"x": drawn(shape)}, {})


def of_model(title):
    make, shape = MODELS[title]
    model = make()
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": shape})
    return model, pm.get_parameters(), {"x": drawn(shape)}


def attention(title):
    params, data, options, _ = test_device_attention.drawn_case(title)
    return test_device_attention.made(options, [*params, *data]), params, data


def by_tiles(value):
    """With an element of that value; a huge one has its tile computed by the definition."""
    model = ml.Model()
    model |= ml.Convolution2D(3, 4, padding=1)(input="x", weight="w", bias="b", output="c")
    model |= ml.Relu()(input="c", output="y")
    model.expose_keys("y")
    x = drawn([2, 3, 6, 7])
    x[1, 2, 3, 4] = value
    return model, {"x": x, "w": drawn([4, 3, 3, 3], 1), "b": drawn([1, 4, 1, 1], 2)}, {}


def pool(part, title):
    shape, options = test_device_kernels.POOLS[title]
    return of(getattr(ml, part)(**options)), {"input": drawn(shape)}, {}


TILES = {
    "convolution by tiles of 4": (4, 1.0),
    "convolution by tiles of 2": (2, 1.0),
    "convolution by tiles, huge": (4, 2.0**45),
}
CASES = {
    **{title: lambda value=value: by_tiles(value) for title, (_, value) in TILES.items()},
    **{title: make for title, make in test_device_kernels.CASES.items() if title not in LARGE},
    **{f"{part}: {title}": lambda part=part, title=title: pool(part, title)
       for part in ("MaxPool2d", "AvgPool2d") for title in ("overlapping", "dilated")},
    **{f"convolution: {title}": lambda title=title: test_device_kernels.strided(title)
       for title in ("strides apart", "some places meet no tap", "groups")},
    **{f"attention: {title}": lambda title=title: attention(title)
       for title in ("shared heads", "a mask of bools", "a mask of numbers and a bias")},
    **{f"model: {title}": lambda title=title: of_model(title) for title in ("mlp", "cnn", "lstm")},
    "product": lambda: product(7, 70, 33),
    "product of doubles": lambda: product(65, 20, 9, "float64"),
    "product of nothing": lambda: product(3, 0, 5),
    "product of groups": lambda: product(66, 270, 5),
    "softmax": row(ml.Softmax(), [3, 137]),
    "softmax of blocks": row(ml.Softmax(), [2, 4103]),
    "layer norm": row(ml.LayerNorm(use_scale=False, use_bias=False), [2, 300]),
    "columns": row(ml.Sum(axis=0), [70, 9]),
    "running sum": row(ml.CumSum(axis=-1), [3, 70]),
    "argsort": lambda: (of(ml.ArgSort(axis=1)), {}, {"input": drawn([2, 33, 2])}),
    "gelu": row(ml.Gelu(), [3, 63]),
}  # fmt: skip


def run(title, as_gpu):
    model, params, data = CASES[title]()
    dtype = "float64" if any(p.dtype == np.float64 for p in params.values()) else "float32"
    backend = ml.OpenCLBackend(dtype=dtype)
    assert backend.device_info["platform"] == "Oclgrind", backend
    if as_gpu:
        backend._device = _core.OpenClDevice(as_gpu=True)
    shapes = {key: list(value.shape) for key, value in (params | data).items()}
    options = {} if title.startswith("model: ") else {"trainable_keys": set(params)}
    tile = TILES.get(title, (0,))[0]
    _core.device_force_winograd_tile(tile)
    wanted, got = (
        evaluated(ml.compile(model, one, data_keys=set(data), shapes=shapes, exact_conv=exact,
                             **options), params, data)
        for one, exact in ((ml.CpuBackend(dtype=dtype), True), (backend, tile == 0))
    )  # fmt: skip
    for key, want in wanted.items():
        bound = 2e-5 * np.abs(want).max(initial=1)
        np.testing.assert_allclose(got[key], want, rtol=0, atol=bound, err_msg=f"{title}: {key}")


def evaluated(pm, params, data):
    given = {**params, **pm.initial_state()}
    values = {key: np.array(value) for key, value in pm.evaluate(given, data).items()}
    if not params:
        return values
    cotangents = {key: drawn(value.shape, 7) for key, value in values.items()}
    gradients = pm.evaluate(given, data, output_gradients=cotangents).gradients
    return values | {f"gradient of {key}": np.array(value) for key, value in gradients.items()}


def main(log, device, *titles):
    for title in titles or CASES:
        print(title, flush=True)
        run(title, as_gpu=device == "gpu")
        if os.path.exists(log) and os.path.getsize(log):
            sys.exit(f"{title}: {Path(log).read_text()[:4000]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
