# Covers: backends/device/winograd.cc backends/device/winograd_text.cc
"""Convolutions of 3x3 windows that devices run by tiles: within their bound of float64, whatever is
left over at the ends of tiles, blocks and shares; what is not finite stays in its windows.
"""

import mithril as ml
import numpy as np
import pytest
from backends.test_device_kernels import backend_of, every_device
from backends.test_opencl_backend import WHY
from convolution_oracle import BOUND, by_definition, drawn, gradient_by_definition
from mithril import _core
from mithril.errors import OutOfMemoryError

pytestmark = pytest.mark.device


@pytest.fixture
def forced():
    """Lets convolutions run by tiles of a size wherever they can, or by none (0)."""
    yield _core.device_force_winograd_tile
    _core.device_force_winograd_tile(None)


# Images, channels, rows, columns, filters, padding. A block has 32 tiles, a block of threads 64.
CASES = {
    "ends of tiles": (1, 5, 9, 11, 3, 1),
    "no padding": (2, 3, 10, 7, 4, 0),
    "wide padding": (1, 3, 6, 5, 2, 2),
    "uneven padding": (2, 2, 8, 9, 3, ((0, 2), (1, 0))),
    "a tiny image": (1, 4, 1, 2, 3, 1),
    "one window": (3, 2, 3, 3, 5, 0),
    "blocks across images": (3, 2, 17, 22, 2, 1),
    "wider than a block": (1, 1, 5, 141, 2, 1),
    "several blocks of places": (1, 300, 4, 5, 3, 1),
}
# Devices that are quick have these, too: shares of filters, tiles of rows that end within them.
LARGE = {
    "shares of filters": (2, 40, 18, 17, 192, 1),
    "one share": (1, 33, 40, 23, 37, 1),
}
every_case = pytest.mark.parametrize("title", CASES)
every_tile = pytest.mark.parametrize("tile", [2, 4])


def convolution(padding=1, **options):
    model = ml.Model()
    model |= ml.Convolution2D(padding=padding, use_bias=False, **options)(
        input="x", weight="w", output="y"
    )
    model.expose_keys("y")
    return model


def compiled(model, backend, x, w, **options):
    shapes = {"x": list(x.shape), "w": list(w.shape)}
    return ml.compile(
        model, backend, data_keys=set(), trainable_keys={"x", "w"}, shapes=shapes, **options
    )


def convolutions(pm):
    """The kernels of forward convolutions, without the names of their devices."""
    kernels = (step.kernel for step in pm.explain().steps)
    return [kernel.partition(".")[2] for kernel in kernels if "conv2d" in kernel]


def assert_near(got, want, magnitude):
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=BOUND * magnitude.max())


def check(case, device, **options):
    """Values and the gradient by the input, each by one step of tiles."""
    x, w = drawn(case)
    padding = case[-1]
    backend, programs = backend_of(device)
    pm = compiled(convolution(padding), backend, x, w, **options)
    y = pm.evaluate({"x": x, "w": w}, {})["y"]
    assert_near(y, by_definition(x, w, padding), by_definition(abs(x), abs(w), padding))
    dy = np.random.default_rng(6).normal(size=y.shape).astype("f4")
    gradients = pm.evaluate({"x": x, "w": w}, {}, output_gradients={"y": dy}, wrt=["x"]).gradients
    want, magnitude = (gradient_by_definition(*of, padding) for of in ((dy, w), (abs(dy), abs(w))))
    assert_near(gradients["x"], want, magnitude)
    texts = [program.source(program.sizes({}))["text"] for program in programs]
    assert any("(8 - tap)" in text for text in texts)  # filters that are read backwards
    assert convolutions(pm) == ["conv2d.winograd"]


@every_device
@every_case
@every_tile
def test_values_lie_within_the_bound(title, tile, device, forced):
    forced(tile)
    check(CASES[title], device)


@pytest.mark.skipif(WHY is not None, reason=WHY or "")
@pytest.mark.parametrize("device", ["opencl", "opencl as a GPU"])
@pytest.mark.parametrize("title", LARGE)
@every_tile
def test_values_of_larger_ones(title, tile, device, forced):
    forced(tile)
    check(LARGE[title], device)


@pytest.mark.skipif(WHY is not None, reason=WHY or "")
@every_tile
def test_bits_depend_on_sizes_alone(tile, forced):
    """Neither on how many threads there are nor on how long items are."""
    forced(tile)
    x, w = drawn(LARGE["shares of filters"])
    short, _ = backend_of("opencl as a GPU")
    values = [
        np.asarray(compiled(convolution(), backend, x, w).evaluate({"x": x, "w": w}, {})["y"])
        for backend in (ml.OpenCLBackend(threads=1), ml.OpenCLBackend(), short)
    ]
    for other in values[1:]:
        np.testing.assert_array_equal(values[0], other)


@every_device
@every_tile
@pytest.mark.parametrize("filters", [4, 48])  # more tiles than filters, and fewer
def test_epilogues(filters, tile, device, forced):
    """A bias of channels, a residual and an activation run on results, and so does what reads the
    convolution as it is; the gradient has the slope of the activation before."""
    forced(tile)
    x, w = drawn((2, 3, 9, 10, filters, 1))
    random = np.random.default_rng(9)
    b = random.normal(size=(1, filters, 1, 1)).astype("f4")
    residual = random.normal(size=(2, filters, 9, 10)).astype("f4")
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="t")
    model |= ml.Convolution2D(padding=1)(input="t", weight="w", bias="b", output="c")
    model |= ml.Add()(left="c", right="r", output="s")
    model |= ml.Relu()(input="s", output="y")
    model.expose_keys("c", "y")
    params = {"x": x, "w": w, "b": b, "r": residual}
    backend, _ = backend_of(device)
    pm = ml.compile(model, backend, trainable_keys=set(params),
                    shapes={key: list(value.shape) for key, value in params.items()})  # fmt: skip
    steps = [step for step in pm.explain().steps if "conv2d" in step.kernel]
    assert [step.kernel.partition(".")[2] for step in steps] == ["conv2d.winograd"]
    assert [op for op, _ in steps[0].members] == ["conv2d", "add", "add", "relu"]
    t = np.tanh(x.astype("f8"))
    c = by_definition(t, w, 1) + b
    magnitude = by_definition(abs(t), abs(w), 1).max() + abs(b).max()
    out = pm.evaluate(params, {})
    np.testing.assert_allclose(out["c"], c, rtol=0, atol=2 * BOUND * magnitude)
    np.testing.assert_allclose(out["y"], np.maximum(c + residual, 0), rtol=0,
                               atol=2 * BOUND * (magnitude + abs(residual).max()))  # fmt: skip
    dy = random.normal(size=c.shape).astype("f4")
    dy[abs(c + residual) < 1e-3] = 0  # whose sign rounding may turn
    dx = pm.evaluate(params, {}, output_gradients={"y": dy, "c": np.zeros_like(dy)},
                     wrt=["x"]).gradients["x"]  # fmt: skip
    ds = dy * (c + residual > 0)
    want = gradient_by_definition(ds, w, 1) * (1 - t**2)
    np.testing.assert_allclose(
        dx, want, rtol=0, atol=2 * BOUND * gradient_by_definition(abs(ds), abs(w), 1).max()
    )


SIZE = 10
PLACES = [(5, 6), (0, 0), (9, 9), (4, 3)]


def near(row, column):
    """The results whose windows hold a place."""
    rows, columns = np.ogrid[:SIZE, :SIZE]
    return (abs(rows - row) <= 1) & (abs(columns - column) <= 1)


@every_device
@every_tile
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, -1e15])
def test_what_is_not_finite_stays_in_its_windows(value, tile, device, forced):
    """Also what is huge; other results are what they are without it."""
    forced(tile)
    x, w = drawn((2, 7, SIZE, SIZE, 40, 1))
    w /= 8
    pm = compiled(convolution(), backend_of(device)[0], x, w)
    for row, column in PLACES:
        bad = x.copy()
        bad[0, 3, row, column] = value
        seen = near(row, column)
        y = np.asarray(pm.evaluate({"x": bad, "w": w}, {})["y"])
        plain = by_definition(x, w, 1)
        np.testing.assert_allclose(y[1], plain[1], atol=2e-5)
        np.testing.assert_allclose(y[0][:, ~seen], plain[0][:, ~seen], atol=2e-5)
        want = by_definition(bad, w, 1).astype("f4")
        np.testing.assert_allclose(y[0][:, seen], want[0][:, seen], rtol=1e-5)


@every_device
@pytest.mark.parametrize("value", [np.inf, 3e38])
def test_cotangents_that_are_not_finite(value, device, forced):
    forced(4)
    x, w = drawn((1, 4, SIZE, SIZE, 5, 1))
    w /= 8
    dy = np.random.default_rng(3).normal(size=(1, 5, SIZE, SIZE)).astype("f4")
    plain = gradient_by_definition(dy, w, 1)
    dy[0, 2, 5, 6] = value
    pm = compiled(convolution(), backend_of(device)[0], x, w)
    dx = pm.evaluate({"x": x, "w": w}, {}, output_gradients={"y": dy}, wrt=["x"]).gradients["x"]
    seen = near(5, 6)
    np.testing.assert_allclose(np.asarray(dx)[0][:, ~seen], plain[0][:, ~seen], atol=2e-5)
    assert not (abs(np.asarray(dx)[0][:, seen]) < 1e30).any()


@every_device
def test_what_is_computed_again_is_canonical(device, forced):
    """A tile with a result that is not finite has the engine's bits, over 256 places too."""
    forced(4)
    x, w = drawn((1, 40, 4, 4, 3, 1))
    x[0, 0, 0, 0] = np.inf
    backend, _ = backend_of(device)
    got, want = (
        compiled(convolution(), on, x, w, **options).evaluate({"x": x, "w": w}, {})["y"]
        for on, options in ((backend, {}), (ml.CpuBackend(), {"exact_conv": True}))
    )
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@every_device
def test_filters_that_are_not_finite(device, forced):
    """All results of such a filter are computed by the definition; those of others are as they
    were."""
    forced(4)
    x, w = drawn((1, 3, 6, 6, 4, 1))
    w[2, 1, 0, 0] = np.inf
    y = np.asarray(
        compiled(convolution(), backend_of(device)[0], x, w).evaluate({"x": x, "w": w}, {})["y"]
    )
    want = by_definition(x, w, 1)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    np.testing.assert_allclose(y, want, atol=2e-5)


NOT_BY_TILES = {
    "groups": ({"groups": 2}, (1, 4, 8, 8), (6, 2, 3, 3)),
    "strides": ({"stride": 2}, (1, 4, 8, 8), (6, 4, 3, 3)),
    "dilations": ({"dilation": 2}, (1, 4, 8, 8), (6, 4, 3, 3)),
    "larger windows": ({}, (1, 4, 8, 8), (6, 4, 5, 5)),
    "oblong windows": ({}, (1, 4, 8, 8), (6, 4, 3, 1)),
}


@every_device
@pytest.mark.parametrize("title", NOT_BY_TILES)
def test_others_are_products(title, device, forced):
    forced(4)
    options, *shapes = NOT_BY_TILES[title]
    x, w = (np.random.default_rng(2).normal(size=shape).astype("f4") for shape in shapes)
    model = ml.Model()
    kernel = tuple(w.shape[2:])
    model |= ml.Conv2d(filters=6, kernel_size=kernel, padding=1, use_bias=False, **options)(
        input="x", weight="w", output="y"
    )
    model.expose_keys("y")
    got, want = (
        compiled(model, on, x, w, **exact)
        for on, exact in ((backend_of(device)[0], {}), (ml.CpuBackend(), {"exact_conv": True}))
    )
    assert convolutions(got) == ["conv2d"]
    values = [np.asarray(pm.evaluate({"x": x, "w": w}, {})["y"]) for pm in (got, want)]
    np.testing.assert_array_equal(*values)


@every_device
@pytest.mark.parametrize("options", [{"exact_conv": True}, {"deterministic": "portable"}], ids=str)
def test_canonical_convolutions_are_asked_for(options, device, forced):
    forced(4)
    x, w = drawn(CASES["ends of tiles"])
    pair = [compiled(convolution(), on, x, w, **options)
            for on in (backend_of(device)[0], ml.CpuBackend())]  # fmt: skip
    assert convolutions(pair[0]) == ["conv2d"]
    values = [np.asarray(pm.evaluate({"x": x, "w": w}, {})["y"]) for pm in pair]
    np.testing.assert_array_equal(*values)


@every_device
def test_other_types_are_products(device, forced):
    forced(4)
    x, w = (value.astype("f8") for value in drawn(CASES["ends of tiles"]))
    pm = compiled(convolution(), backend_of(device, "float64")[0], x, w)
    assert convolutions(pm) == ["conv2d"]
    y = pm.evaluate({"x": x, "w": w}, {})["y"]
    np.testing.assert_allclose(np.asarray(y), by_definition(x, w, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@every_device
def test_halves_are_wide_inside(dtype, device, forced):
    forced(4)
    case = CASES["ends of tiles"]
    backend, _ = backend_of(device, dtype)
    x, w = (backend.array(value) for value in drawn(case))
    pm = compiled(convolution(), backend, x, w)
    assert convolutions(pm) == ["conv2d.winograd"]
    y = np.asarray(pm.evaluate({"x": x, "w": w}, {})["y"]).astype("f8")
    wide = [np.asarray(value).astype("f8") for value in (x, w)]
    want, magnitude = (by_definition(*of, 1) for of in (wide, map(abs, wide)))
    step = 2.0**-11 if dtype == "float16" else 2.0**-8
    assert (abs(y - want) <= 1.01 * step * abs(want) + BOUND * magnitude.max()).all()


@every_device
def test_memory_limits_count_the_workspace(device, forced):
    """Filters are four times as large as such, at least: 36 numbers each instead of 9."""
    forced(4)
    case = (1, 16, 6, 6, 16, 1)
    x, w = drawn(case)
    params = {"x": x, "w": w}
    backend, _ = backend_of(device)
    own = 16 * 6 * 6 * 4  # of the result
    transformed = 36 * 16 * 16 * 4
    plan = compiled(convolution(), backend, x, w).memory_plan()["evaluate"]
    with pytest.raises(OutOfMemoryError, match=r"memory_limit(.|\n)*conv2d\.winograd"):
        compiled(convolution(), backend, x, w, memory_limit=own + transformed).evaluate(params, {})
    forced(0)
    by_taps = compiled(convolution(), backend, x, w).memory_plan()["evaluate"]
    assert plan.total >= by_taps.total + transformed
    compiled(convolution(), backend, x, w, memory_limit=own + transformed).evaluate(params, {})
    forced(4)
    y = compiled(convolution(), backend, x, w, memory_limit=own + 8 * transformed).evaluate(
        params, {}
    )
    assert_near(y["y"], by_definition(x, w, 1), by_definition(abs(x), abs(w), 1))


@every_device
def test_sizes_beyond_any_memory(device, forced):
    """Which somebody asks about: what they would take does not overflow, as there are no tiles."""
    forced(4)
    shapes = {"x": [None, 16, 8, 8], "w": [16, 16, 3, 3]}
    pm = ml.compile(convolution(), backend_of(device)[0], data_keys={"x"}, shapes=shapes)
    for images, is_by_tiles in ((1, True), (2**20, True), (2**40, False), (2**49, False)):
        plan = pm.memory_plan({"x": [images, 16, 8, 8]})["evaluate"]
        assert (plan.peak > 0) == is_by_tiles
        assert plan.total >= 2 * images * 16 * 8 * 8 * 4


@every_device
def test_training_by_tiles_is_that_by_products(device, forced):
    """Two convolutions with an activation between, some steps: losses agree."""
    model = ml.Model()
    model |= ml.Convolution2D(3, 4, padding=1)(input="x", output="h")
    model |= ml.Relu()(input="h", output="a")
    model |= ml.Convolution2D(3, 2, padding=1)(input="a", output="y")
    model.expose_keys("y")
    x = np.random.default_rng(1).normal(size=(2, 3, 6, 5)).astype("f4")
    target = np.random.default_rng(2).normal(size=(2, 2, 6, 5)).astype("f4")
    losses = []
    for tile, on in ((4, backend_of(device)[0]), (0, ml.CpuBackend())):
        forced(tile)
        train = ml.TrainModel(model)
        train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="target")
        optimizer = ml.optim.Adam(lr=0.05)
        pm = ml.compile(train, on, data_keys={"x", "target"}, optimizer=optimizer,
                        shapes={"x": list(x.shape), "target": list(target.shape)})  # fmt: skip
        params = pm.randomize_params(seed=3)
        state, own = optimizer.init(params), []
        for _ in range(4):
            params, state, _, outputs = pm.step(params, state, {"x": x, "target": target})
            own.append(float(outputs["final_cost"]))
        losses.append(own)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]
