"""Pickles and deep copies of models, compiled models, backends and literals; other processes."""

# Covers: mithril/logical/pickling.py mithril/physical/pickling.py

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import mithril as ml
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BACKENDS = [
    pytest.param("CpuBackend", marks=pytest.mark.device),
    pytest.param("NumpyBackend", marks=pytest.mark.device),
    pytest.param("TorchBackend", marks=pytest.mark.frameworks),
    pytest.param("JaxBackend", marks=pytest.mark.frameworks),
    pytest.param("MlxBackend", marks=pytest.mark.frameworks),
]
X = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]], "float32")


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


COPIES = [pickled, copy.deepcopy, copy.copy]


def network() -> ml.Model:
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="body")(input="x", output="h")
    model |= ml.Relu()(input="h", output="y")
    model.expose_keys("y")
    return model


def by_hand(params, names=("weight", "bias")):
    weight, bias = (np.asarray(params[name], "float64") for name in names)
    return np.maximum(X.astype("float64") @ weight.T + bias, 0)


class Head(ml.Model):
    """A model with an attribute of its own."""

    def __init__(self, width: int):
        super().__init__("head")
        self.width = width
        self |= ml.Linear(width)(input="x", output="y")


class Offset(ml.NumpyBackend):
    """A backend whose constructor takes what it likes."""

    def __init__(self, offset, *, scale=1.0, **options):
        super().__init__(**options)
        self.offset, self.module, self.scale = offset, np, scale

    def relu(self, input):
        return np.maximum(input, 0) + self.offset


MODELS = [
    network,
    lambda: ml.Linear(3, name="q"),
    lambda: ml.Conv2d(3, 4, padding="same"),
    lambda: ml.CrossEntropy(reduction="mean", robust=True),
    lambda: ml.MLP([ml.Relu(), ml.Softmax()], [4, 3]),
    lambda: ml.LSTM(3, return_sequences=False),
    lambda: ml.Linear(2, weight=ml.Tensor([[1.0], [2.0]]), bias=ml.IOKey("b", shape=[2])),
    lambda: Head(5),
]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("copied", COPIES)
def test_a_model_is_made_of_its_json(make, copied):
    model = make()
    again = copied(model)
    assert type(again) is type(model) and again is not model
    assert again.to_json() == model.to_json()
    assert (again.name, again.is_frozen) == (model.name, model.is_frozen)
    assert again.factory_args.keys() == model.factory_args.keys()
    assert getattr(again, "width", None) == getattr(model, "width", None)


def test_a_submodel_is_pickled_without_its_surroundings():
    model = network()
    part = pickled(model.get_submodel("body"))
    assert part.parent is None and type(part) is ml.Linear
    other = ml.Model()
    other |= part(input="a", output="b")
    assert list(other.submodels) == ["body"]


def test_a_train_model_keeps_its_losses():
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="t")
    again = pickled(train)
    assert type(again) is ml.TrainModel and again.to_json() == train.to_json()
    again.add_loss(ml.AbsoluteError(), [ml.Sum()], input="y", target="t2")
    assert "t2" not in train.input_keys


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("copied", COPIES)
def test_a_backend_goes_on_where_it_was(name, copied):
    backend = getattr(ml, name)(dtype="float32")
    backend.set_seed(3)
    backend.randn(2)
    again = copied(backend)
    assert type(again) is type(backend) and repr(again) == repr(backend)
    numbers = [b.to_numpy(b.randn(3)) for b in (backend, again, backend)]
    np.testing.assert_array_equal(numbers[0], numbers[1])
    assert not np.array_equal(numbers[1], numbers[2])


@pytest.mark.device
def test_backends_of_users_are_made_with_their_arguments():
    ml.register_backend("offset", Offset)
    backend = ml.get_backend("offset", offset=2.0, dtype="float64")
    backend.scale = 3.0
    backend.register_function("twice", twice)
    for copied in COPIES:
        again = copied(backend)
        assert (again.offset, again.scale, again.module) == (2.0, 3.0, np)
        assert again.default_dtype == "float64"
        assert again.call_custom("twice", 4) == 8


def twice(value):
    return 2 * value


@pytest.mark.device
def test_threads_of_the_engine_are_made_again():
    backend = ml.CpuBackend(threads=2)
    assert pickled(backend).threads == 2


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("copied", COPIES)
def test_a_compiled_model_is_compiled_again(name, copied):
    backend = getattr(ml, name)()
    pm = ml.compile(network(), backend, data_keys={"x"}, shapes={"x": [None, 3]})
    params = pm.randomize_params(0)
    again = copied(pm)
    assert again.data_keys == pm.data_keys and again.trainable_keys == pm.trainable_keys
    data = {"x": again.backend.array(X)}
    out = again.backend.to_numpy(again.evaluate(params, data)["y"])
    host = {key: backend.to_numpy(value) for key, value in params.items()}
    np.testing.assert_allclose(out, by_hand(host), rtol=1e-5, atol=1e-6)


@pytest.mark.device
def test_what_compile_was_told_is_kept():
    model = network()
    model |= ml.Linear(1)(input="y", output="z")
    model.expose_keys("z")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="z", target="t")
    pm = ml.compile(
        train,
        ml.CpuBackend(),
        optimizer=ml.optim.Adam(0.1),
        data_keys=[train["x"], "t"],
        shapes={train["x"]: [None, 3]},
        naming="path",
        frozen_keys=["body.*"],
    )
    again = pickled(pm)
    params = pm.randomize_params(1)
    opt_state = ml.optim.Adam(0.1).init({key: params[key] for key in pm.trainable_keys})
    data = {"x": X, "t": np.ones((2, 1), "float32")}
    first, second = (p.step(params, opt_state, data) for p in (pm, again))
    assert again.trainable_keys == pm.trainable_keys != pm.param_keys
    for key in params:
        np.testing.assert_array_equal(first.params[key], second.params[key])
    assert again.predict(params, {"x": X}).keys() == pm.predict(params, {"x": X}).keys()


@pytest.mark.device
def test_constants_are_kept():
    model = ml.Model.create(y=ml.IOKey("a") * ml.IOKey("b"))
    pm = ml.compile(
        model,
        ml.CpuBackend(),
        constant_keys={"b": np.array([2.0, 3.0])},
        data_keys={"a"},
        shapes={"a": [2]},
    )
    for copied in COPIES:
        out = copied(pm).evaluate({}, {"a": [1.0, -1.0]})["y"]
        np.testing.assert_array_equal(out, [2.0, -3.0])


def crossed() -> tuple[ml.Model, ml.Model]:
    """y = b - a; the model, and its part whose keys are called the other way round."""
    model, part = ml.Model(), ml.Model()
    part |= ml.Subtract()("a", "b", output="y")
    model |= part(a="b", b="a", y="y")
    model.expose_keys("y")
    return model, part


SIZES = {"shapes": {"a": [2], "b": [2]}}
OF_WIRES = [
    lambda part: {"trainable_keys": [part.a], "data_keys": ["a"], **SIZES},
    lambda part: {"data_keys": {part.a}, "shapes": {part.a: [2], part.b: [None]}},
    lambda part: {"constant_keys": {part.a: np.array([5.0, 7.0], "float32")}, "data_keys": ["a"]},
    lambda part: {"types": {part.a: ml.Tensor[int]}, **SIZES},
    lambda part: {"types": {part.a: ml.float64}, "trainable_keys": ["a", "b"], **SIZES},
]


@pytest.mark.parametrize("name", BACKENDS[:3])
@pytest.mark.parametrize("options", OF_WIRES)
@pytest.mark.parametrize("copied", COPIES)
def test_wires_of_options_are_the_same_in_a_copy(name, options, copied):
    model, part = crossed()
    pm = ml.compile(model, getattr(ml, name)(), **options(part))
    again = copied(pm)
    for keys in ("input_keys", "data_keys", "trainable_keys", "param_keys", "shapes"):
        assert getattr(again, keys) == getattr(pm, keys)
    assert str(again.graph) == str(pm.graph)
    dtypes = [{k: v.dtype for k, v in p.randomize_params(0).items()} for p in (pm, again)]
    assert dtypes[0] == dtypes[1]
    values = {"a": np.array([1, 2], "int32"), "b": np.array([5, 7], "int32")}
    for compiled in (pm, again):
        given = [
            {k: compiled.backend.array(values[k]) for k in keys}
            for keys in (compiled.param_keys, compiled.data_keys)
        ]
        out = compiled.backend.to_numpy(compiled.evaluate(*given)["y"])
        np.testing.assert_array_equal(out, [4, 5])


@pytest.mark.device
@pytest.mark.parametrize("copied", COPIES)
def test_outputs_that_wires_discard_stay_discarded(copied):
    model, part = ml.Model(), ml.Model()
    part |= ml.Relu()(input="x", output="p")
    part |= ml.Buffer()(input="x", output="q")
    part.expose_keys("p", "q")
    model |= part(x="x", p="q", q="p")
    model.expose_keys("p", "q")
    pm = ml.compile(model, ml.CpuBackend(), discard_keys={part.p}, data_keys={"x"})
    out = copied(pm).evaluate({}, {"x": np.array([2.0, -3.0], "float32")})
    assert list(out) == ["p"]
    np.testing.assert_array_equal(out["p"], [2.0, -3.0])


@pytest.mark.device
@pytest.mark.parametrize("copied", COPIES)
def test_wires_without_a_name_are_the_same_in_a_copy(copied):
    model, first, second = ml.Model(), ml.Linear(3), ml.Linear(2)
    model |= first(input="x", output="h")
    model |= second(input="h", output="y")
    model.expose_keys("y")
    pm = ml.compile(
        model,
        ml.CpuBackend(),
        data_keys={"x", second.bias},
        constant_keys={first.bias: np.array([1.0, 2.0, 3.0], "float32")},
        shapes={first.input: [2, 3], second.weight: [2, 3]},
        safe_names=False,
    )
    again = copied(pm)
    assert again.data_keys == pm.data_keys and set(pm.data_keys) == {"x", "bias_1"}
    assert again.input_keys == {"x", "weight_0", "bias_0", "weight_1", "bias_1"}
    weights = {"weight_0": 2 * np.eye(3, dtype="f4"), "weight_1": np.ones((2, 3), "f4")}
    out = again.evaluate(weights, {"x": X, "bias_1": np.array([0.5, -0.5], "f4")})["y"]
    want = (2 * X.astype("f8") + [1, 2, 3]).sum(1, keepdims=True) + [0.5, -0.5]
    np.testing.assert_allclose(out, want, rtol=1e-6)


@pytest.mark.parametrize("name", BACKENDS[:3])
@pytest.mark.parametrize("options", [{}, {"naming": "path"}, {"use_short_namings": False}])
@pytest.mark.parametrize("copied", COPIES)
def test_bound_parameters_without_a_name_are_kept(name, options, copied):
    backend = getattr(ml, name)()
    pm = ml.compile(network(), backend, data_keys={"x"}, shapes={"x": [None, 3]}, **options)
    params = pm.randomize_params(0)
    host = {key: backend.to_numpy(value) for key, value in params.items()}
    names = sorted(params, reverse=True)
    for bound in (pm.bind(params), pm.bind({names[0]: params[names[0]]})):
        again = copied(bound)
        assert again.input_keys == bound.input_keys == {"x", *names}
        rest = {key: again.backend.array(host[key]) for key in again.param_keys}
        out = again.backend.to_numpy(again.evaluate(rest, {"x": again.backend.array(X)})["y"])
        np.testing.assert_allclose(out, by_hand(host, names), rtol=1e-5, atol=1e-6)


def products() -> ml.Model:
    """y = x @ v @ w.T, z = x @ s + sum(s), so that not only a product reads s."""
    model = ml.Model()
    model |= ml.MatMul()(left="x", right="v", output="h")
    model |= ml.Linear(48, use_bias=False)(input="h", weight="w", output="y")
    model |= ml.MatMul()(left="x", right="s", output="p")
    model |= ml.Add()(left="p", right=ml.IOKey("s").sum(), output="z")
    model.expose_keys("y", "z")
    return model


@pytest.mark.parametrize("name", BACKENDS[:3])
@pytest.mark.parametrize("weights", ["int4", "int8", "int16", "bfloat16"])
@pytest.mark.parametrize("by_option", [False, True])
@pytest.mark.parametrize("copied", COPIES)
def test_weights_in_few_bits_have_the_same_bits_in_a_copy(name, weights, by_option, copied):
    rng = np.random.default_rng(3)
    sizes = {"v": (256, 96), "w": (48, 96), "s": (256, 64)}
    shapes = {"x": [5, 256], **{key: list(size) for key, size in sizes.items()}}
    backend = getattr(ml, name)()
    options = {"quantize": weights} if by_option else {}
    pm = ml.compile(
        products(), backend, data_keys={"x"}, trainable_keys=set(sizes), shapes=shapes, **options
    )
    params = {key: rng.normal(size=size).astype("float32") for key, size in sizes.items()}
    data = {"x": backend.array(rng.normal(size=(5, 256)).astype("float32"))}
    given = {key: backend.array(value) for key, value in params.items()}
    bound = pm.bind(given) if by_option else pm.bind(given, weights=weights)
    again = copied(bound)
    for compiled in (again, copied(again)):
        for out in ("y", "z"):
            want, got = (backend.to_numpy(p.evaluate({}, data)[out]) for p in (bound, compiled))
            np.testing.assert_array_equal(got, want)


@pytest.mark.device
def test_a_copy_keeps_weights_in_few_bits_only():
    shapes = {"x": [1, 512], "v": [512, 512]}
    model = ml.Model()
    model |= ml.MatMul()(left="x", right="v", output="y")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, trainable_keys={"v"}, shapes=shapes)
    bound = pm.bind(pm.randomize_params(0), weights="int8")
    for copied in COPIES:
        again = copied(bound)
        assert str(again.graph) == str(bound.graph)
        assert again.memory_plan().constants == bound.memory_plan().constants


@pytest.mark.parametrize(
    "value", [[1.0, 2.5], [[1, 2], [3, 4]], [True, False], np.ones(3, "float16"), 3.0]
)
@pytest.mark.parametrize("copied", COPIES)
def test_tensors_and_literals(value, copied):
    tensor = ml.Tensor(value)
    again = copied(tensor)
    assert again.shape == tensor.shape and again.type == tensor.type
    assert again.value.bytes == tensor.value.bytes and again.value.dtype == tensor.value.dtype
    model = ml.Model()
    model |= ml.Buffer()(input=tensor, output="a")
    model |= ml.Buffer()(input=copied(tensor), output="b")  # another one, which is not used


def test_constants_and_keys_that_no_model_has():
    constant = ml.models.Tensor(ml.Constant.EPSILON).value
    assert pickled(constant).constant == copy.deepcopy(constant).constant == "EPSILON"
    key = pickled(ml.IOKey("k", shape=[2, ("v", ...)], type=ml.Tensor[float], interval=None))
    model = ml.Model()
    model |= ml.Relu()(input=key, output="y")
    assert model.shapes["k"] == [2, "(v, ...)"]


def test_wires_are_refused():
    model = network()
    with pytest.raises(ml.errors.UnsupportedError, match="'h'> is a wire of a model"):
        pickle.dumps(model["h"])


FLOATS = {"shape": [("V", ...)], "type": ml.Tensor[float]}


def opaque():
    model = ml.Model()
    model |= ml.Lambda(
        lambda x: np.sin(x),
        opaque=True,
        input=ml.IOKey(**FLOATS),
        output=ml.IOKey(**FLOATS),
        name="wave",
    )(input="x", output="y")
    return model


@pytest.mark.device
def test_opaque_functions_are_named():
    model = opaque()
    with pytest.raises(ml.errors.UnsupportedError, match="OpaqueLambda .wave. calls a function"):
        pickle.dumps(model)
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2]})
    with pytest.raises(ml.errors.UnsupportedError, match="OpaqueLambda .wave. calls a function"):
        pickle.dumps(pm)


SCRIPT = """
import multiprocessing
import mithril as ml
import numpy as np

def main():
    model = ml.Model()
    model |= ml.Linear(1, name="fc")(input="x", output="y")
    params = {"fc.weight": np.array([[2.0, 3.0]], "f4"), "fc.bias": np.array([1.0], "f4")}
    data = {"x": np.array([[1.0, 1.0], [0.0, -1.0]], "f4")}
    for backend in (ml.CpuBackend(), ml.NumpyBackend()):
        pm = ml.compile(model, backend, data_keys={"x"}, naming="path")
        pm.evaluate(params, data)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(pm.evaluate, (params, data))["y"].ravel().tolist())
            print(type(pool.apply(type(model).to_json, (model,))).__name__)
        from joblib import Parallel, delayed
        out = Parallel(n_jobs=2)(delayed(pm.evaluate)(params, {"x": x}) for x in (data["x"],) * 2)
        print([o["y"].ravel().tolist() for o in out])

if __name__ == "__main__":
    main()
"""


@pytest.mark.device
@pytest.mark.slow
def test_other_processes(tmp_path):
    pytest.importorskip("joblib")
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    once = "[6.0, -2.0]\nstr\n[[6.0, -2.0], [6.0, -2.0]]\n"
    assert run.stdout == 2 * once


@pytest.mark.device
def test_clones_of_scikit_learn():
    base = pytest.importorskip("sklearn.base")

    class Regressor(base.BaseEstimator):
        def __init__(self, model=None, backend=None, compiled=None):
            self.model, self.backend, self.compiled = model, backend, compiled

    pm = ml.compile(network(), ml.CpuBackend(), data_keys={"x"})
    estimator = Regressor(network(), ml.NumpyBackend(), pm)
    again = base.clone(estimator)
    assert again.model is not estimator.model and again.model.to_json() == network().to_json()
    assert repr(again.backend) == repr(estimator.backend)
    params = {"weight": np.ones((4, 3), "f4"), "bias": np.zeros(4, "f4")}
    out = again.compiled.evaluate(params, {"x": X})["y"]
    np.testing.assert_allclose(out, by_hand(params))
