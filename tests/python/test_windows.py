"""Layers of windows as users make them: primitives with wired arguments, and what is refused."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import MithrilError

X = np.arange(24.0, dtype=np.float32).reshape(1, 2, 12) % 7


def evaluated(model, **data):
    pm = ml.compile(model, ml.CpuBackend(), data_keys=set(data), inference=True)
    return np.asarray(pm.evaluate({}, data)["output"])


def converted(primitive, padding_converter, **given):
    """A pooling layer as the original builds it: converters wired to the primitive."""
    model = ml.Model()
    size = ml.IOKey("size", value=given["kernel_size"])
    model |= ml.models.StrideConverter()(
        input=given["stride"], kernel_size=size, output=ml.IOKey("step")
    )
    model |= padding_converter()(
        input=given["padding"], kernel_size="size", output=ml.IOKey("sides")
    )
    model |= primitive(dilation=given["dilation"])(
        input="input", kernel_size="size", stride="step", padding="sides", output="output"
    )
    model.set_cout("output")
    return model


@pytest.mark.device
@pytest.mark.parametrize("stride", [None, 2])
@pytest.mark.parametrize("padding", [1, (0, 2), ml.PaddingType.SAME, ml.PaddingType.VALID])
def test_primitives_take_what_converters_give(stride, padding):
    given = {"kernel_size": 3, "stride": stride, "padding": padding, "dilation": 1}
    primitive = converted(ml.models.PrimitiveMaxPool1D, ml.models.PaddingConverter1D, **given)
    primitive.set_shapes(input=X.shape)
    layer = ml.Model()
    layer |= ml.models.MaxPool1D(**given)(input="input", output="output")
    layer.set_shapes(input=X.shape)
    np.testing.assert_array_equal(evaluated(primitive, input=X), evaluated(layer, input=X))


@pytest.mark.device
@pytest.mark.parametrize("padding", [1, (1, 0), ((0, 2), (1, 1)), ml.PaddingType.SAME])
def test_primitives_take_pairs(padding):
    given = {"kernel_size": (3, 3), "stride": None, "padding": padding, "dilation": 1}
    primitive = converted(ml.models.PrimitiveAvgPool2D, ml.models.PaddingConverter2D, **given)
    image = X.reshape(1, 1, 4, 6)
    primitive.set_shapes(input=image.shape)
    layer = ml.Model()
    layer |= ml.AvgPool2D(**given)(input="input", output="output")
    layer.set_shapes(input=image.shape)
    np.testing.assert_array_equal(evaluated(primitive, input=image), evaluated(layer, input=image))


def test_a_number_becomes_a_pair():
    model = ml.Model()
    model |= ml.models.TupleConverter()(input=ml.IOKey("n", value=3), output="pair")
    assert model["pair"].metadata.value == (3, 3)


@pytest.mark.device
def test_integers_stay_integers():
    x = np.array([[[-5, 3, -7, 2]]])
    for layer, expected in [("MaxPool1D", [[[3, 2]]]), ("MinPool1D", [[[-5, -7]]])]:
        model = ml.Model()
        pool = getattr(ml.models, layer)(2)
        model |= pool(input=ml.IOKey("input", type=ml.Tensor[int]), output="output")
        model.set_shapes(input=x.shape)
        found = evaluated(model, input=x)
        assert found.dtype.kind == "i" and found.tolist() == expected


M = ml.models
REFUSED = {
    "a window of nothing": lambda: M.MaxPool1D(0),
    "one beyond the input": lambda: M.MaxPool3D(5),
    "no step": lambda: M.AvgPool3D(2, stride=0),
    "no dilation": lambda: M.MinPool2D(2, dilation=0),
    "negative padding": lambda: M.MaxPool2D(2, padding=-1),
    "filters of nothing": lambda: M.Convolution1D(0, 3),
    "filters beyond the input": lambda: M.Convolution3D(kernel_size=9, out_channels=3),
    "groups that do not divide": lambda: M.Convolution2D(3, 4, groups=3, input=ml.TBD),
    "an output of no size": lambda: M.ConvTranspose1D(1, 2, padding=9),
    "padding beyond the stride": lambda: M.ConvTranspose2D(3, 2, output_padding=1),
    "no groups": lambda: M.ConvTranspose3D(3, 2, groups=0),
    "numbers beyond 32 bits": lambda: M.ConvTranspose2D(3, 2, stride=2**62),
    "windows of no elements": lambda: M.AdaptiveMaxPool2D((2, 0)),
    "windows of other axes": lambda: M.AdaptiveAvgPool1D((2, 2)),
    "channels that no group takes": lambda: M.GroupNorm(3),
    "a mirror beyond the border": lambda: M.ReflectionPad(((0, 0), (0, 0), (8, 0))),
    "more than one round": lambda: M.CircularPad((9, 9)),
    "no number": lambda: M.Interpolate(scale_factor=float("nan")),
    "a number of no size": lambda: M.Interpolate(scale_factor=1e300),
    "two sizes": lambda: M.Interpolate(2, 2.0),
}
SHAPES = {1: [2, 4, 8], 2: [2, 4, 4, 4], 3: [2, 4, 4, 4, 4]}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_result_is_refused(what):
    with pytest.raises(MithrilError) as caught:
        child = REFUSED[what]()
        axes = next((n for n in SHAPES if type(child).__name__.endswith(f"{n}D")), 1)
        model = ml.Model()
        model |= child(input="input", output="output")
        model.set_shapes(input=SHAPES[axes])
    assert "bug" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("cls", "given", "told"),
    [
        ("PaddingConverter1D", {"input": (1, 2, 3), "kernel_size": 3}, "padding must be"),
        ("PaddingConverter2D", {"input": (1, 2, 3), "kernel_size": (3, 2)}, "padding must be"),
    ],
)
def test_converters_refuse(cls, given, told):
    with pytest.raises(MithrilError) as failure:
        model = ml.Model()
        model |= getattr(ml.models, cls)(**given)(output="y")
        ml.compile(model, ml.NumpyBackend(), inference=True)
    assert told in str(failure.value)
