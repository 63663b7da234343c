"""Mixed precision: products in halves, parameters, gradients and results in float32."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import DTypeError, UnsupportedError

OPTION = {"jax": "precision", "torch": "precision"}
every_half = pytest.mark.parametrize("half", ["bfloat16", "float16"])


def mixed(name, half, **options):
    return type(ml.get_backend(name))(**{OPTION.get(name, "compute_precision"): half}, **options)


def net():
    model = ml.Model()
    model |= ml.Linear(16, name="a")(input="x", weight="w_a", bias="b_a", output="h")
    model |= ml.Gelu()(input="h", output="g")
    model |= ml.LayerNorm(name="n")(input="g", weight="w_n", bias="b_n", output="n")
    model |= ml.Linear(4, name="b")(input="n", weight="w_b", bias="b_b", output="y")
    model |= ml.Softmax()(input="y", output="p")
    model.expose_keys("y", "p")
    return model


def arrays(pm):
    random = np.random.default_rng(0)
    keys = (*pm.param_keys, *pm.data_keys)
    return {key: np.asarray(random.standard_normal(pm.shapes[key]), "f4") for key in sorted(keys)}


def run(backend):
    pm = ml.compile(net(), backend, shapes={"x": [8, 12]}, data_keys={"x"})
    values = arrays(pm)
    params = {key: backend.array(values[key]) for key in pm.param_keys}
    ones = {"y": backend.array(np.ones((8, 4), "f4")), "p": backend.array(np.ones((8, 4), "f4"))}
    out, gradients = pm.evaluate(params, {"x": backend.array(values["x"])}, output_gradients=ones)
    return {key: backend.to_numpy(x) for key, x in (out | gradients).items()}, pm


def by_torch(half):
    """The same net by `torch.autocast`."""
    torch = pytest.importorskip("torch")
    _, pm = run(ml.NumpyBackend())
    values = {key: torch.tensor(x) for key, x in arrays(pm).items()}
    params = {key: values[key].requires_grad_() for key in pm.param_keys}
    with torch.autocast("cpu", dtype=getattr(torch, half)):
        h = torch.nn.functional.linear(values["x"], params["w_a"], params["b_a"].reshape(-1))
        g = torch.nn.functional.gelu(h)
        n = torch.nn.functional.layer_norm(
            g, (16,), params["w_n"].reshape(-1), params["b_n"].reshape(-1)
        )
        y = torch.nn.functional.linear(n, params["w_b"], params["b_b"].reshape(-1))
        p = torch.softmax(y, -1)
    (y.float().sum() + p.sum()).backward()
    found = {"y": y.float(), "p": p} | {key: x.grad for key, x in params.items()}
    return {key: x.detach().float().numpy() for key, x in found.items()}


OPTIONS = [
    ("CpuBackend", {"compute_precision": "float16"}),
    ("CpuBackend", {"dtype": "float16", "compute_precision": "float32"}),
    ("NumpyBackend", {"compute_precision": "bfloat16"}),
    ("CBackend", {"compute_precision": "float16"}),
    ("OpenCLBackend", {"compute_precision": "float16"}),
    ("CudaBackend", {"compute_precision": "float16"}),
    ("MlxBackend", {"compute_precision": "bfloat16"}),
    ("JaxBackend", {"precision": "bfloat16"}),
    ("TorchBackend", {"precision": "float16"}),
    ("TorchBackend", {"use_amp": True}),
    ("GGMLBackend", {"quantize": "int8"}),
]
SHOWN = {"use_amp=True": "precision='bfloat16'", "quantize='int8'": "quantize='q8_0'"}


@pytest.mark.frameworks
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_repr_shows_it(name, options):
    try:
        backend, plain = (getattr(ml, name)(**given) for given in (options, {}))
    except (ml.errors.DeviceNotAvailable, ImportError) as error:
        pytest.skip(str(error))
    for option, value in options.items():
        said = f"{option}={value!r}"
        assert SHOWN.get(said, said) in repr(backend)
    assert "precision" not in repr(plain) and "quantize" not in repr(plain)


@every_half
def test_values_and_gradients_are_near_those_of_autocast(half, backend_name):
    found, _ = run(mixed(backend_name, half))
    exact, _ = run(ml.NumpyBackend(dtype="float64"))
    ours = by_torch(half)
    for key, value in found.items():
        assert value.dtype == np.float32, key
        scale = np.abs(exact[key]).max()
        error = np.abs(value - exact[key].astype("f8")).max() / scale
        of_torch = np.abs(ours[key].reshape(value.shape) - exact[key]).max() / scale
        unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[half]
        assert error <= max(2 * of_torch, unit), (key, error, of_torch)


@every_half
def test_products_are_rounded(half, backend_name):
    """1 + 2^-12 is 1 in either half: the engine does not compute in float32 after all."""
    backend = mixed(backend_name, half)
    model = ml.Model()
    model |= ml.MatMul()(left="x", right="w", output="y")
    pm = ml.compile(model, backend, data_keys={"x", "w"}, inference=True)
    data = {"x": np.full((1, 1), 1 + 2.0**-12, "f4"), "w": np.ones((1, 1), "f4")}
    found = pm.evaluate({}, {key: backend.array(x) for key, x in data.items()})["y"]
    assert backend.to_numpy(found).dtype == np.float32
    assert backend.to_numpy(found)[0, 0] == 1.0


def test_halves_computed_in_float32(backend_name):
    """x * 2^-20 * 2^20 is 0 where float16 rounds what is between."""
    if backend_name == "torch":
        pytest.skip("its `precision` of float32 is about products: no TF32")
    backend = mixed(backend_name, "float32", dtype="float16")
    model = ml.Model()
    model |= ml.Multiply()(left="x", right="small", output="between")
    model |= ml.Multiply()(left="between", right="large", output="y")
    model.expose_keys("y")
    pm = ml.compile(model, backend, data_keys={"x", "small", "large"}, inference=True)
    data = {"x": [2.0**-10], "small": [2.0**-16], "large": [2.0**15]}
    found = pm.evaluate({}, {key: backend.array(x) for key, x in data.items()})["y"]
    assert str(backend.dtype(found)) == "float16"
    assert float(backend.to_numpy(found)[0]) == 2.0**-11


def test_a_training_step_keeps_parameters_in_float32(backend_name):
    backend = mixed(backend_name, "bfloat16")
    train = ml.TrainModel(net())
    train.add_loss(ml.SquaredError(), input="y", target="t", reduce_steps=[ml.Mean()])
    optimizer = ml.optim.Adam(lr=0.01)
    pm = ml.compile(train, backend, shapes={"x": [8, 12], "t": [8, 4]}, data_keys={"x", "t"},
                    optimizer=optimizer)  # fmt: skip
    values = arrays(pm)
    data = {key: backend.array(values[key]) for key in ("x", "t")}
    params = {key: backend.array(values[key]) for key in pm.param_keys}
    state, costs = optimizer.init(params), []
    for _ in range(30):
        params, state, _, outputs = pm.step(params, state, data)[:4]
        costs.append(float(backend.to_numpy(outputs["final_cost"])))
    assert costs[-1] < costs[0] / 2
    assert all(backend.to_numpy(x).dtype == np.float32 for x in params.values())


def test_the_source_shows_the_halves():
    pm = ml.compile(net(), ml.NumpyBackend(compute_precision="bfloat16"), shapes={"x": [8, 12]})
    assert pm.source.count("bfloat16") >= 4
    assert "bfloat16" not in ml.compile(net(), ml.NumpyBackend(), shapes={"x": [8, 12]}).source


def test_loops_and_branches(backend_name):
    """Their bodies compute in halves inside, and hand float32 on."""
    backend = mixed(backend_name, "bfloat16")
    step = ml.Model()
    step |= ml.MatMul()(left="s", right="w", output="product")
    step |= ml.Tanh()(input="product", output="next")
    step.expose_keys("next")
    model = ml.Model()
    model |= ml.Scan(step, carry={"s": "next"}, length=3)(s="start", w="w", next="y")
    model.expose_keys("y")
    pm = ml.compile(model, backend, data_keys={"start", "w"}, shapes={"start": [2, 2], "w": [2, 2]},
                    inference=True)  # fmt: skip
    start, w = np.array([[0.3, -0.2], [0.5, 1.0]], "f4"), np.array([[0.5, 0.25], [-1.0, 0.7]], "f4")
    found = pm.evaluate({}, {"start": backend.array(start), "w": backend.array(w)})["y"]
    want = start.astype("f8")
    for _ in range(3):
        want = np.tanh(want @ w)
    assert backend.to_numpy(found).dtype == np.float32
    np.testing.assert_allclose(backend.to_numpy(found), want, atol=0.01)
    assert not np.allclose(backend.to_numpy(found), want, atol=1e-6)


def test_what_is_no_mixed_precision_is_refused():
    for options in ({"dtype": "float64", "compute_precision": "bfloat16"},
                    {"dtype": "float16", "compute_precision": "bfloat16"},
                    {"compute_precision": "float64"}):  # fmt: skip
        with pytest.raises(UnsupportedError, match="mixed precision is of float32 and a half"):
            ml.NumpyBackend(**options)
    with pytest.raises(UnsupportedError, match="compute_precision='int32'"):
        ml.CpuBackend(compute_precision="int32")
    with pytest.raises(DTypeError):
        ml.CpuBackend(compute_precision="float31")
    assert ml.CpuBackend(compute_precision="float32").compute_dtype is None
