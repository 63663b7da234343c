"""Loops behind convolutions run on finished blocks of them, and change no bit."""

import mithril as ml
import numpy as np
import pytest

pytestmark = pytest.mark.device

# The input's shape, how many filters, the window.
LAYERS = {
    "gathered taps": ((2, 5, 17, 19), 7, {"kernel_size": 3, "stride": 2, "padding": 1}),
    "several products": ((1, 64, 70, 66), 8, {"kernel_size": 5, "padding": 2}),
    "pointwise": ((3, 40, 6, 7), 33, {"kernel_size": 1}),
    "tiles": ((2, 32, 13, 12), 40, {"kernel_size": 3, "padding": 1}),
    "groups": ((2, 6, 9, 8), 10, {"kernel_size": 3, "groups": 2}),
    "one column": ((2, 4, 11, 3), 20, {"kernel_size": 3}),
}
# What broadcasts to a result of such sizes.
OTHERS = {
    "of filters": lambda n, o, h, w: (o, 1, 1),
    "as large": lambda n, o, h, w: (n, o, h, w),
    "of images": lambda n, o, h, w: (n, 1, 1, 1),
    "a plane": lambda n, o, h, w: (h, w),
    "a row": lambda n, o, h, w: (w,),
    "a column": lambda n, o, h, w: (h, 1),
    "turned planes": lambda n, o, h, w: (n, o, w, h),
}


def convolution(filters, window):
    return ml.Convolution2D(out_channels=filters, **window)(input="x", output="c")


def network(filters, window, other):
    model = ml.Model()
    model |= convolution(filters, window)
    key = "other"
    if other == "turned planes":
        model |= ml.Transpose(axes=(0, 1, 3, 2))(input="other", output="turned")
        key = "turned"
    model |= ml.Multiply()(left="c", right=key, output="m")
    model |= ml.Tanh()(input="m", output="t")
    model |= ml.Add()(left="t", right=key, output="y")
    model.expose_keys("y")
    return model


def compiled(model, shapes, passes, dtype="float32", threads=1):
    backend = ml.CpuBackend(dtype=dtype, threads=threads)
    return ml.compile(model, backend, shapes=shapes, data_keys=set(shapes), passes=passes)


def drawn(shapes, keys, dtype):
    random = np.random.default_rng(2)
    return {key: random.standard_normal(shapes[key]).astype(dtype) for key in sorted(keys)}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("layer", LAYERS)
def test_results_have_the_bits_of_separate_loops(layer, other):
    shape, filters, window = LAYERS[layer]
    alone = ml.Model()
    alone |= convolution(filters, window)
    alone.set_shapes(x=shape)
    shapes = {"x": shape, "other": OTHERS[other](*alone.shapes["c"])}
    for dtype, threads in (("float32", 1), ("float32", 3), ("float64", 2)):
        made = []
        for passes in ([], ["-epilogues"]):
            model = network(filters, window, other)
            pm = compiled(model, shapes, passes, dtype, threads)
            values = drawn(pm.shapes, pm.param_keys, dtype)
            data = drawn(pm.shapes, shapes, dtype)
            bound = pm.bind(values).evaluate({}, data)["y"]
            made.append((len(pm.explain().steps), pm.evaluate(values, data)["y"], bound))
        assert made[0][0] < made[1][0]
        np.testing.assert_array_equal(made[0][1], made[1][1])
        np.testing.assert_array_equal(made[0][2], made[1][2])


def test_gradients_of_inputs_have_them_too():
    """Finished by the slope of the activation before. They have a third operand, the input's sizes,
    that no plan knows."""
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="h")
    model |= ml.Convolution2D(3, 64, padding=1)(input="h", output="y")
    model.expose_keys("y")
    slopes, kernels = [], []
    for passes in ([], ["-epilogues"]):
        pm = ml.compile(
            model, ml.CpuBackend(), shapes={"x": [2, 64, 28, 28]}, trainable_keys={"x"},
            passes=passes,
        )  # fmt: skip
        values = drawn(pm.shapes, pm.param_keys, "float32")
        given = {"y": drawn(pm.shapes, {"y"}, "float32")["y"]}
        with pm.profile() as profile:
            slopes.append(pm.evaluate(values, {}, output_gradients=given)[1])
        kernels.append({row.kernel for row in profile.rows})
    for key, slope in slopes[0].items():
        np.testing.assert_array_equal(slope, slopes[1][key])
    apart = {kernel for kernel in kernels[1] if "conv2d_dx" in kernel}
    assert len(apart) == 1 and not apart & kernels[0]
