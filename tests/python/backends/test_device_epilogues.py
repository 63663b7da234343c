# Covers: backends/opencl/gemm_text.cc backends/device/block_products.cc
"""Loops behind products and convolutions of devices run on finished blocks of them, and change no
bit: the engine's are those of loops of their own."""

import mithril as ml
import numpy as np
import pytest
from backends.test_device_kernels import backend_of, check, every_device
from formats.c_cases import drawn
from test_convolution_epilogues import LAYERS, OTHERS, convolution, network

pytestmark = pytest.mark.device

# Rows, places and columns of a product, and what is added to it.
PRODUCTS = {
    "a panel and an edge": ((37, 300, 70), lambda m, n: (n,)),
    "one panel, whole": ((300, 64, 32), lambda m, n: (n,)),
    "one narrow panel": ((300, 64, 10), lambda m, n: (n,)),
    "of rows": ((41, 5, 70), lambda m, n: (m, 1)),
    "one number": ((9, 600, 33), lambda m, n: (1,)),
    "as large": ((70, 3, 129), lambda m, n: (m, n)),
    "of batches": ((11, 7, 13), lambda m, n: (3, 1, 1)),
    "batches of rows": ((11, 7, 40), lambda m, n: (3, m, 1)),
    "no places": ((5, 0, 7), lambda m, n: (n,)),
}


def product(m, k, n, other, act):
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="c")
    model |= ml.Add()(left="c", right="other", output="s")
    model |= act(input="s", output="y")
    model.expose_keys("y")
    batch = [3] if len(other) == 3 else []
    return model, {"a": drawn([*batch, m, k]), "b": drawn([*batch, k, n], 1), "other": drawn(other)}


@every_device
@pytest.mark.parametrize("title", PRODUCTS)
def test_products(title, device):
    (m, k, n), other = PRODUCTS[title]
    for dtype, act in (("float32", ml.Gelu()), ("float64", ml.Sigmoid())):
        model, params = product(m, k, n, other(m, n), act)
        check(model, device, dtype, params, {})


@every_device
def test_products_that_are_seen_too_and_results_of_other_types(device):
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="c")
    model |= ml.Greater()(left="c", right=0.0, output="is_positive")
    model |= ml.Cast(ml.float16)(input="c", output="half")
    model |= ml.Transpose()(input="other", output="turned")
    model |= ml.Multiply()(left="c", right="turned", output="y")
    model.expose_keys("c", "is_positive", "half", "y")
    data = {"a": drawn([40, 9]), "b": drawn([9, 35], 1), "other": drawn([35, 40], 2)}
    check(model, device, "float32", {}, data)


@every_device
@pytest.mark.parametrize("layer", LAYERS)
def test_convolutions(layer, device):
    shape, filters, window = LAYERS[layer]
    alone = ml.Model()
    alone |= convolution(filters, window)
    alone.set_shapes(x=shape)
    others = list(OTHERS.items())
    if device != "opencl":  # the same text but for its dialect: two forms in turn
        at = 2 * list(LAYERS).index(layer)
        others = [others[at % len(others)], others[(at + 1) % len(others)]]
    for other, shape_of in others:
        shapes = {"x": list(shape), "other": list(shape_of(*alone.shapes["c"]))}
        model = network(filters, window, other)
        pm = ml.compile(model, ml.CpuBackend(), data_keys=set(shapes), shapes=shapes)
        weights = {key: drawn(pm.shapes[key], 5) for key in pm.param_keys}
        data = {key: drawn(value, 6) for key, value in shapes.items()}
        check(model, device, "float32", weights, data, gradients=False)


@every_device
def test_gradients_of_inputs_and_weights(device):
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="h")
    model |= ml.Convolution2D(3, 5, padding=1, use_bias=False)(input="h", weight="w", output="y")
    model.expose_keys("y")
    check(model, device, "float32", {"x": drawn([2, 4, 9, 8]), "w": drawn([5, 4, 3, 3])}, {})


@every_device
def test_they_are_one_step(device):
    model = ml.Model(name="net")
    model |= ml.Linear(7, name="head")(input="x", output="h")
    model |= ml.Relu(name="act")(input="h", output="y")
    model.expose_keys("y")
    backend, programs = backend_of(device)
    name = "cuda" if device == "cuda" else "opencl"
    for passes, kernels in (([], 1), (["-epilogues"], 2)):
        pm = ml.compile(
            model, backend, shapes={"x": [3, 4]}, data_keys={"x"}, passes=passes,
            deterministic="portable",
        )  # fmt: skip
        steps = [step for step in pm.explain().steps if step.kernel != "view"]
        assert len(steps) == kernels and steps[0].kernel == f"{name}.matmul"
        assert ("act: relu" in steps[0].nodes) == (kernels == 1)
        pm.evaluate(pm.get_parameters(), {"x": np.ones([3, 4], np.float32)})
        text = programs[0].source(programs[0].sizes({}))["text"]
        programs.clear()
        assert ("M_FINISH" in text) == (kernels == 1)
