"""Modes of `Pad`, and 'same' of transposed convolutions, beside PyTorch and JAX."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, ShapeError

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(5).normal(size=(2, 3, 4, 5))
WIDTHS = ((0, 0), (0, 0), (1, 3), (2, 4))
FLAT = (2, 4, 1, 3)  # the same as PyTorch writes it
MODES = {
    "constant": ("constant", {"value": 1.5}),
    "reflect": ("reflect", {}),
    "edge": ("replicate", {}),
    "replicate": ("replicate", {}),
    "wrap": ("circular", {}),
    "circular": ("circular", {}),
}


def backend_of(name):
    return ml.get_backend(name, dtype="float32" if name == "mlx" else "float64")


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode, backend_name):
    other, options = MODES[mode]
    backend = backend_of(backend_name)
    pad = ml.Pad(pad_width=WIDTHS, mode=mode, **options)
    model = ml.Model.create(y=pad(ml.IOKey("x", shape=[2, 3, 4, 5])))
    pm = ml.compile(model, backend, data_keys={"x"})
    given = torch.tensor(X, requires_grad=True)
    want = F.pad(given, FLAT, mode=other, **options)
    cotangent = np.linspace(1.0, 2.0, want.numel()).reshape(want.shape)
    want.backward(torch.tensor(cotangent))
    found = pm.evaluate(
        {},
        {"x": backend.array(X)},
        output_gradients={"y": backend.array(cotangent)},
        wrt=["x"],
    )
    y = np.asarray(backend.to_numpy(found.outputs["y"]))
    np.testing.assert_array_equal(y, want.detach().numpy().astype(y.dtype))
    slopes = np.asarray(backend.to_numpy(found.gradients["x"]))
    np.testing.assert_allclose(slopes, given.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("value", [7, -3])
def test_numbers_around_integers_are_exact(value, backend_name):
    backend = ml.get_backend(backend_name)
    x = ml.IOKey("x", shape=[2], type=ml.Tensor[int])
    pm = ml.compile(
        ml.Model.create(y=ml.Pad(pad_width=((1, 2),), value=value)(x)), backend, data_keys={"x"}
    )
    found = np.asarray(backend.to_numpy(pm.evaluate({}, {"x": np.array([1, 2])})["y"]))
    assert found.tolist() == [value, 1, 2, value, value] and found.dtype.kind == "i"


def test_it_is_saved_and_loaded():
    model = ml.Model.create(y=ml.Pad(pad_width=((1, 1),), mode="wrap")(ml.IOKey("x", shape=[3])))
    again = ml.Model.from_json(model.to_json())
    assert again.to_json() == model.to_json()
    pm = ml.compile(again, ml.NumpyBackend(), data_keys={"x"})
    assert pm.evaluate({}, {"x": np.arange(3.0)})["y"].tolist() == [2, 0, 1, 2, 0]


def test_what_is_refused():
    x = ml.IOKey("x", shape=[3])
    with pytest.raises(ShapeError, match="must add at most 2 elements"):
        ml.Model.create(y=ml.Pad(pad_width=((3, 0),), mode="reflect")(x))
    with pytest.raises(ArgumentError, match="'value' must be 0 in this mode"):
        ml.Model.create(y=ml.Pad(pad_width=((1, 0),), mode="edge", value=1.0)(x))
    with pytest.raises(ArgumentError, match="mode"):
        ml.Pad(pad_width=((1, 0),), mode="mirror")


SAME = {  # axes: kernel, stride
    "even": ((4,), (2,)),
    "odd": ((3, 5), (2, 3)),
    "one": ((3, 3), (1, 1)),
    "apart": ((2, 1), (3, 2)),
    "three axes": ((3, 2, 4), (2, 2, 1)),
}


@pytest.mark.parametrize("what", SAME)
def test_transposed_convolutions_of_the_same_size(what, backend_name):
    """Times the stride; beside JAX, whose kernels of transposed convolutions are turned."""
    lax = pytest.importorskip("jax.lax")
    kernel, stride = SAME[what]
    axes = len(kernel)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 4, *(5, 4, 3)[:axes])).astype("f4")
    w = rng.normal(size=(4, 3, *kernel)).astype("f4")
    spatial = "DHW"[3 - axes :]
    turned = np.flip(w, tuple(range(2, 2 + axes)))
    want = lax.conv_transpose(
        x,
        turned,
        stride,
        "SAME",
        dimension_numbers=(f"NC{spatial}", f"IO{spatial}", f"NC{spatial}"),
    )
    layer = (ml.ConvTranspose1D, ml.ConvTranspose2D, ml.ConvTranspose3D)[axes - 1]
    backend = ml.get_backend(backend_name)
    model = ml.Model.create(
        y=layer(stride=stride, padding="same", use_bias=False)(
            ml.IOKey("x", shape=list(x.shape)), weight=ml.IOKey("w", shape=list(w.shape))
        )
    )
    pm = ml.compile(model, backend, data_keys={"x", "w"})
    assert pm.shapes["y"] == [2, 3, *(n * s for n, s in zip(x.shape[2:], stride, strict=True))]
    found = pm.evaluate({}, {"x": backend.array(x), "w": backend.array(w)})["y"]
    np.testing.assert_allclose(
        np.asarray(backend.to_numpy(found)), np.asarray(want), rtol=1e-4, atol=1e-5
    )


def test_output_padding_beside_same_is_refused():
    with pytest.raises(ArgumentError, match="'output_padding' must be 0 beside padding 'same'"):
        layer = ml.ConvTranspose1D(padding="same", output_padding=1, stride=2)
        ml.Model.create(y=layer(ml.IOKey("x", shape=[1, 2, 3])))


@pytest.mark.parametrize(
    ("layer", "mode"),
    [
        (ml.ConstantPad, {"constant_values": 0.0}),
        (ml.ReflectionPad, {"mode": "reflect"}),
        (ml.ReplicationPad, {"mode": "edge"}),
        (ml.CircularPad, {"mode": "wrap"}),
    ],
)
def test_one_pair_is_that_of_the_last_axis(layer, mode, backend_name):
    backend = ml.get_backend(backend_name)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = ml.Model()
    model |= layer((1, 2))(input="x", output="y")
    for shapes in ({"x": [2, 3]}, {"x": [None, 3]}, None)[: 3 if layer is ml.ConstantPad else 2]:
        pm = ml.compile(model, backend, shapes=shapes)
        got = backend.to_numpy(pm.evaluate({}, {"x": x})["y"])
        np.testing.assert_array_equal(got, np.pad(x, ((0, 0), (1, 2)), **mode))
    every = ml.compile(ml.Model.create(y=ml.Pad(pad_width=(1, 1))(ml.IOKey("x"))), backend)
    got = backend.to_numpy(every.evaluate({}, {"x": x})["y"])
    np.testing.assert_array_equal(got, np.pad(x, 1))
