"""float16 and bfloat16 as a backend's element type: whole models store halves, and lose few units.

The reference is NumPy in float64 on the same halves.
"""

import math

import mithril as ml
import numpy as np
import pytest
from mithril.testing.distances import TOLERANCE, distance

HALVES = ("float16", "bfloat16")
every_half = pytest.mark.parametrize("dtype", HALVES)


def mlp():
    model = ml.Model()
    model |= ml.Linear(16)(input="input", output="hidden")
    model |= ml.LayerNorm()(input="hidden", output="normed")
    model |= ml.Gelu()(input="normed", output="active")
    model |= ml.Linear(4)(input="active", output="output")
    return model


def convolutions():
    model = ml.Model()
    model |= ml.Convolution2D(3, 4, padding=1)(input="input", output="features")
    model |= ml.Relu()(input="features", output="active")
    model |= ml.MaxPool2D(2)(input="active", output="pooled")
    model |= ml.Flatten(start_dim=1)(input="pooled", output="flat")
    model |= ml.Linear(3)(input="flat", output="output")
    return model


def attention():
    model = ml.Model()
    for name in ("query", "key", "value"):
        model |= ml.Linear(8)(input="input", output=name)
    model |= ml.ScaledDotProduct(is_causal=True)(
        query="query", key="key", value="value", output="attended"
    )
    model |= ml.Linear(4)(input="attended", output="output")
    return model


def recurrent():
    model = ml.Model()
    model |= ml.CumSum(axis=1)(input="input", output="sums")
    model |= ml.Softmax()(input="sums", output="shares")
    model |= ml.Linear(4)(input="shares", output="output")
    return model


MODELS = {
    "mlp": (mlp, (5, 8)),
    "convolutions": (convolutions, (2, 2, 8, 8)),
    "attention": (attention, (2, 6, 8)),
    "sums": (recurrent, (3, 7)),
}


def plain(backend, arrays):
    return {name: np.asarray(backend.to_numpy(x)) for name, x in arrays.items()}


@every_half
@pytest.mark.parametrize("name", MODELS)
def test_models(name, dtype, backend_name):
    make, shape = MODELS[name]
    backend = ml.get_backend(backend_name, dtype=dtype)
    pm = ml.compile(make(), backend, data_keys={"input"}, shapes={"input": list(shape)})
    params = pm.randomize_params(1)
    x = backend.array(np.random.default_rng(0).standard_normal(shape))
    ones = {"output": backend.ones(pm.shapes["output"])}
    got = pm.evaluate(params, {"input": x}, output_gradients=ones)
    outputs, gradients = plain(backend, got.outputs), plain(backend, got.gradients)
    found = {**plain(backend, params), **outputs, **gradients}
    assert {str(array.dtype) for array in found.values()} == {dtype}

    exact = ml.compile(
        make(), ml.NumpyBackend(dtype="float64"), data_keys={"input"}, shapes={"input": list(shape)}
    )
    wide = {key: value.astype("float64") for key, value in plain(backend, params).items()}
    given = np.asarray(backend.to_numpy(x)).astype("float64")
    want = exact.evaluate(
        wide, {"input": given}, output_gradients={"output": np.ones(exact.shapes["output"])}
    )
    for key, value in want.outputs.items():
        assert not distance(outputs[key], value, TOLERANCE[dtype]).problem, key
    for key, value in want.gradients.items():
        assert not distance(gradients[key], value, TOLERANCE[dtype]).problem, key


@every_half
def test_a_training_step(dtype, backend_name):
    """Parameters stay halves, their moments are float32; the loss falls."""
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.TrainModel(mlp())
    model.add_loss(ml.SquaredError(), [ml.Mean()], input="output", target="target")
    optimizer = ml.optim.Momentum(lr=0.0625, momentum=0.5)
    pm = ml.compile(
        model,
        backend,
        data_keys={"input", "target"},
        shapes={"input": [16, 8]},
        optimizer=optimizer,
    )
    random = np.random.default_rng(0)
    data = {"input": random.standard_normal((16, 8)), "target": random.standard_normal((16, 4))}
    params = pm.randomize_params(1)
    slots = optimizer.init(params)
    losses = []
    for _ in range(20):
        params, slots, _, outputs = pm.step(params, slots, data)
        losses.append(float(np.asarray(backend.to_numpy(outputs["final_cost"]))))
    assert losses[-1] < 0.9 * losses[0]
    assert {str(x.dtype) for x in plain(backend, params).values()} == {dtype}
    assert {str(backend.dtype(x)) for x in slots["v"].values()} == {"float32"}


@every_half
@pytest.mark.parametrize("compiled", [True, False])
def test_adam_has_its_eps(dtype, backend_name, compiled):
    """The first step of Adam is lr · g / (|g| + eps), by hand: eps = 1e-8 is 0 in float16, and
    g² of 1e-4 is below its numbers."""
    backend = ml.get_backend(backend_name, dtype=dtype)
    optimizer = ml.optim.Adam(lr=0.5)
    params = {"w": backend.array([1.0, 2.0, 3.0, 4.0])}
    slots = optimizer.init(params)
    slope = np.array([0.0, 1e-4, 1e-3, 1.0])
    if compiled:
        model = ml.Model.create(cost=ml.Sum()(ml.IOKey("w") * ml.IOKey("x")))
        shapes = {"x": [4], "w": [4]}
        pm = ml.compile(
            model,
            backend,
            data_keys={"x"},
            shapes=shapes,
            trainable_keys={"w"},
            optimizer=optimizer,
        )
        params, slots, *_ = pm.step(params, slots, {"x": slope})
    else:
        params, slots = optimizer.update(params, {"w": backend.array(slope)}, slots)
    assert str(backend.dtype(params["w"])) == dtype
    assert str(backend.dtype(slots["v"]["w"])) == "float32"
    np.testing.assert_array_equal(plain(backend, params)["w"], [1.0, 1.5, 2.5, 3.5])
    v = np.asarray(backend.to_numpy(slots["v"]["w"]))
    np.testing.assert_allclose(v, 1e-3 * slope**2, rtol=2e-2, atol=1e-30)


@every_half
def test_state_of_layers(dtype, backend_name):
    """Running statistics and dropped elements, in train mode."""
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.Model()
    model |= ml.BatchNorm2d()(input="input", output="normed")
    model |= ml.Dropout(0.5)(input="normed", output="output")
    pm = ml.compile(
        model, backend, data_keys={"input"}, shapes={"input": [4, 3, 5, 5]}, mode="train"
    )
    x = np.random.default_rng(0).standard_normal((4, 3, 5, 5))
    state = pm.initial_state()
    result = pm.evaluate(pm.randomize_params(), {"input": x}, state=state)
    out = np.asarray(backend.to_numpy(result.outputs["output"]))
    assert str(out.dtype) == dtype
    assert 0.3 < np.mean(out.astype("float64") == 0) < 0.7
    mean = next(v for k, v in plain(backend, result.state).items() if "mean" in k)
    assert str(mean.dtype) == dtype
    want = 0.1 * x.mean((0, 2, 3))
    np.testing.assert_allclose(mean.astype("float64").ravel(), want, atol=2e-2)


@every_half
def test_initial_parameters_are_equal(dtype, backend_name):
    """Bit by bit those of NumPy, as float32's are."""
    shapes = {"input": [2, 8]}
    models = [
        ml.compile(mlp(), ml.get_backend(name, dtype=dtype), data_keys={"input"}, shapes=shapes)
        for name in (backend_name, "numpy")
    ]
    here, there = (plain(pm.backend, pm.randomize_params(3)) for pm in models)
    for key, value in there.items():
        np.testing.assert_array_equal(here[key], value, key)


@every_half
def test_arrays(dtype, backend_name):
    backend = ml.get_backend(backend_name, dtype=dtype)
    random = backend.rand(50)
    for array in (backend.array([1, 2.5]), backend.zeros(3), random, backend.randn(4)):
        assert backend.dtype(array) == dtype
    values = np.asarray(backend.to_numpy(random)).astype("float64")
    assert ((values >= 0) & (values < 1)).all() and len(set(values)) > 20
    total = np.asarray(backend.to_numpy(backend.array([1, 2.5]) + backend.ones(2)))
    np.testing.assert_array_equal(total.astype("float64"), [2, 3.5])
    assert str(total.dtype) == dtype


# --- sums: float32 counts what a half cannot (256 ones in bfloat16, 2048 in float16)

COUNT = 5000


def gradient(pm, params, data, shape, wrt):
    backend = pm.backend
    ones = {"output": backend.ones(shape)}
    options = {} if wrt in params else {"wrt": [wrt]}
    found = pm.evaluate(params, data, output_gradients=ones, **options).gradients[wrt]
    return np.asarray(backend.to_numpy(found))


def counted(found, dtype):
    """5000, as the type holds it, in that type."""
    assert str(found.dtype) == dtype
    assert {float(x) for x in found.ravel()} <= {0.0, float(np.array(COUNT).astype(found.dtype))}
    assert float(found.ravel()[0]) != 0


@every_half
@pytest.mark.parametrize("autodiff", ["engine", "framework"])
def test_gradients_of_look_ups_count(autodiff, dtype, backend_name):
    backend = ml.get_backend(backend_name, dtype=dtype)
    if autodiff == "framework" and backend_name in ("cpu", "numpy", "c"):
        pytest.skip("it has no framework that differentiates")
    model = ml.Model()
    model |= ml.Embedding(4, 1)(input="i", weight="w", output="output")
    options = {"shapes": {"i": [COUNT]}, "types": {"i": "int32"}, "autodiff": autodiff}
    pm = ml.compile(model, backend, data_keys={"i"}, **options)
    data, params = {"i": np.zeros(COUNT, "int32")}, {"w": backend.ones((4, 1))}
    counted(gradient(pm, params, data, (COUNT, 1), "w"), dtype)

    places = ml.Model()
    x, i = ml.IOKey("x", shape=[3]), ml.IOKey("i", shape=[COUNT], type=ml.Tensor[int])
    places |= ml.Buffer()(input=x[i], output="output")
    pm = ml.compile(places, backend, data_keys={"i", "x"}, types={"i": "int32"}, autodiff=autodiff)
    data |= {"x": backend.ones(3)}
    counted(gradient(pm, {}, data, (COUNT,), "x"), dtype)


@every_half
def test_scatters_count(dtype, backend_name):
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.Model()
    model |= ml.ScatterAdd(axis=0)(input="x", indices="i", value="v", output="output")
    keys = {"x": [3], "i": [COUNT], "v": [COUNT]}
    pm = ml.compile(model, backend, data_keys=set(keys), shapes=keys, types={"i": "int32"})
    data = {"x": np.zeros(3, "f4"), "i": np.zeros(COUNT, "i4"), "v": np.ones(COUNT, "f4")}
    counted(np.asarray(backend.to_numpy(pm.evaluate({}, data)["output"])), dtype)


SUMS = {  # of ones: what reads COUNT of them, and the shape of its operand
    "Sum": (lambda: ml.Sum(axis=1), (1, COUNT)),
    "CumSum": (lambda: ml.CumSum(axis=1), (1, COUNT)),
    "MatMul": (lambda: ml.MatMul(), (1, COUNT)),
    "AvgPool2D": (lambda: ml.AvgPool2D(18), (1, 1, 18, 36)),
}


@every_half
@pytest.mark.parametrize("name", SUMS)
def test_sums_count(name, dtype, backend_name):
    make, shape = SUMS[name]
    backend = ml.get_backend(backend_name, dtype=dtype)
    shapes = {"x": shape, "w": (COUNT, 1)} if name == "MatMul" else {"x": shape}
    keys = (ml.IOKey(key, shape=list(size)) for key, size in shapes.items())
    pm = ml.compile(ml.Model.create(y=make()(*keys)), backend, data_keys=set(shapes))
    found = pm.evaluate({}, {key: np.ones(size, "f4") for key, size in shapes.items()})["y"]
    found = np.asarray(backend.to_numpy(found)).astype("float64").ravel()
    want = 1.0 if name == "AvgPool2D" else float(np.array(COUNT).astype(ml.Dtype(dtype).numpy()))
    assert found[-1] == want


@every_half
@pytest.mark.parametrize("make", [ml.Add, ml.Multiply, ml.Divide, ml.Maximum, ml.Minimum])
def test_gradients_of_what_is_repeated_count(make, dtype, backend_name):
    """A row that 5000 rows take part with: they add up, or share what is equal."""
    backend = ml.get_backend(backend_name, dtype=dtype)
    rows, row = ml.IOKey("rows", shape=[COUNT, 2]), ml.IOKey("row", shape=[2])
    model = ml.Model.create(output=make()(row, rows))
    pm = ml.compile(model, backend, data_keys={"rows", "row"})
    data = {"rows": np.ones((COUNT, 2), "f4"), "row": np.ones(2, "f4")}
    found = gradient(pm, {}, data, (COUNT, 2), "row").astype("float64")
    count = COUNT / 2 if make in (ml.Maximum, ml.Minimum) else COUNT
    assert set(found) == {float(np.array(count).astype(ml.Dtype(dtype).numpy()))}


@every_half
def test_overlapping_windows_count(dtype, backend_name):
    """Each of 300 windows has the same maximum, whose gradient is their number."""
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.Model.create(
        output=ml.MaxPool2D((1, 300), stride=1)(ml.IOKey("x", shape=[1, 1, 1, 599]))
    )
    x = np.zeros((1, 1, 1, 599), "f4")
    x[..., 299] = 1
    pm = ml.compile(model, backend, data_keys={"x"}, autodiff="engine")
    found = gradient(pm, {}, {"x": x}, (1, 1, 1, 300), "x").astype("float64")
    assert found[0, 0, 0, 299] == float(np.array(300).astype(ml.Dtype(dtype).numpy()))


# --- constants have the type of the backend

CONSTANTS = {
    "rank 0": lambda: ml.Tensor(0.3),
    "one element": lambda: ml.Tensor([7.0]),
    "a matrix": lambda: ml.Tensor([[1.0, 2.0]]),
    "integers": lambda: ml.Tensor([[1, 2]]),
    "a number": lambda: 0.3,
}


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32", "float64"))
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_take_the_type_of_the_backend(name, dtype, backend_name):
    backend = ml.get_backend(backend_name, dtype=dtype)
    constant, x = CONSTANTS[name], ml.IOKey("x", shape=[1, 2])
    made = {"sum": ml.Add()(x, constant()), "product": ml.Multiply()(constant(), x)}
    if name == "rank 0":
        made["leaky"] = ml.LeakyRelu(slope=constant())(x)
    if name not in ("integers", "a number"):
        made["alone"] = ml.Exp2()(constant())
    pm = ml.compile(ml.Model.create(**made), backend, data_keys={"x"})
    ones = {key: np.ones(pm.shapes[key]) for key in made if key != "alone"}
    found = pm.evaluate({}, {"x": np.ones((1, 2))}, output_gradients=ones, wrt=["x"])
    arrays = {**plain(backend, found.outputs), **plain(backend, found.gradients)}
    assert {key: str(array.dtype) for key, array in arrays.items()} == dict.fromkeys(arrays, dtype)
    assert {str(pm._compilation.program.output_types[key][0]) for key in made} == {dtype}


# --- functions of one operand, over every float16 that is finite


FUNCTIONS = {
    "Exp2": (ml.Exp2, np.exp2),
    "Log2": (ml.Log2, np.log2),
    "Log": (ml.Log, np.log),
    "Sine": (ml.Sine, np.sin),
    "Cosine": (ml.Cosine, np.cos),
    "Tanh": (ml.Tanh, np.tanh),
    "Sigmoid": (ml.Sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "SiLU": (ml.SiLU, lambda x: x / (1 + np.exp(-x))),
    "Softplus": (ml.Softplus, lambda x: np.logaddexp(x, 0)),
    "Rsqrt": (ml.Rsqrt, lambda x: 1 / np.sqrt(x)),
    "Asin": (ml.Asin, np.arcsin),
    "Acos": (ml.Acos, np.arccos),
    "Atan": (ml.Atan, np.arctan),
    "Erf": (ml.Erf, np.vectorize(math.erf)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_a_unit(name, backend_name):
    op, exact = FUNCTIONS[name]
    every = np.arange(2**16, dtype="uint16").view("float16")
    x = every[np.isfinite(every)]
    backend = ml.get_backend(backend_name, dtype="float16")
    pm = ml.compile(
        ml.Model.create(y=op()(ml.IOKey("x", shape=[x.size]))), backend, data_keys={"x"}
    )
    found = np.asarray(backend.to_numpy(pm.evaluate({}, {"x": x})["y"])).astype("float64")
    with np.errstate(all="ignore"):
        want = exact(x.astype("float64"))
        rounded = want.astype("float16").astype("float64")
    inside = np.isfinite(rounded)
    np.testing.assert_array_equal(found[~inside], rounded[~inside])
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(want[inside]), 2.0**-14))) - 10)
    assert (np.abs(found[inside] - want[inside]) / unit).max() <= 1


@pytest.mark.frameworks
def test_composites_are_no_further_off_than_those_of_torch():
    """The table of docs/low_precision.md; half a unit is one rounding."""
    half_errors = pytest.importorskip("benchmarks.half_errors")
    rows = half_errors.rows()
    assert len(rows) == 40
    for name, row in rows.items():
        for dtype in HALVES:
            ours, theirs, gradient_ours, gradient_theirs = half_errors.errors(row, dtype)
            assert ours <= max(0.51, theirs), f"{name} {dtype}"
            assert gradient_ours <= max(0.51, gradient_theirs), f"{name} {dtype}, gradient"


LONG = (  # over 70,000 elements, more than float16 counts
    *("Sum", "Mean", "Variance", "LogSumExp", "Softmax", "LogSoftmax", "LayerNorm", "RMSNorm"),
    *("SquaredError, mean", "AbsoluteError, mean", "HuberLoss, mean", "GaussianNLLLoss, mean"),
)


@pytest.mark.frameworks
@every_half
@pytest.mark.parametrize("name", LONG)
def test_sums_over_more_elements_than_halves_count(name, dtype, backend_name):
    half_errors = pytest.importorskip("benchmarks.half_errors")
    row = half_errors.rows()[name]
    assert any(70_000 in shape for shape in row.shapes)
    errors = half_errors.errors(row, dtype, backend_name)
    ours, theirs, gradient_ours, gradient_theirs = errors
    assert ours <= max(0.75, theirs) and gradient_ours <= max(0.75, gradient_theirs), errors
