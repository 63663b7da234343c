# Covers: passes/append_optimizer.cc
# Covers: mithril/physical/predicting.py mithril/physical/static_shapes.py
# Covers: mithril/physical/model.py mithril/physical/face.py mithril/physical/evaluation.py
# Covers: mithril/physical/slow_path.py
# Covers: mithril/physical/inputs.py mithril/physical/missing.py mithril/physical/parameters.py
# Covers: mithril/physical/results.py mithril/physical/binding.py mithril/physical/initial.py
# Covers: mithril/physical/shortcuts.py mithril/physical/parting.py
"""Evaluating compiled models: values, gradients, parameters, conversions, errors."""

import concurrent.futures
import pickle
import subprocess
import sys
import warnings

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    DataOverflowError,
    DTypeError,
    DTypeWarning,
    InitialParamsWarning,
    KeyNotFound,
    ShapeError,
    ShapeNotKnown,
    SignatureError,
    UnsupportedError,
    UnusedKeyWarning,
    UnusedParamsWarning,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(5, 3)).astype(np.float32)
W = rng.normal(size=(4, 3)).astype(np.float32)
B = rng.normal(size=4).astype(np.float32)
PARAMS = {"w": W, "b": B}


@pytest.fixture
def backend(backend_name):
    return ml.get_backend(backend_name)


def model():
    m = ml.Model()
    m |= ml.Linear(4)(input="input", weight="w", bias="b", output="h")
    m += ml.Tanh()(output="output")
    return m


def params(backend):
    return {k: backend.array(v) for k, v in PARAMS.items()}


def expected():
    return np.tanh(X.astype(np.float64) @ W.T + B)


def test_values(backend):
    pm = ml.compile(model(), backend, data_keys={"input"})
    out = pm.evaluate(params(backend), {"input": X})
    assert type(out) is dict
    np.testing.assert_allclose(backend.to_numpy(out["output"]), expected(), atol=1e-6)


def test_gradients(backend):
    pm = ml.compile(model(), backend, data_keys={"input"})
    cotangent = np.ones((5, 4))
    result = pm.evaluate(
        params(backend), {"input": X}, output_gradients={"output": cotangent}, wrt=["input"]
    )
    outputs, gradients = result
    assert result.outputs is outputs
    slope = 1 - expected() ** 2
    for key, wanted in {"w": slope.T @ X, "b": slope.sum(0), "input": slope @ W}.items():
        np.testing.assert_allclose(backend.to_numpy(gradients[key]), wanted, atol=1e-5)
    assert list(gradients) == [*pm.trainable_keys, "input"]


def test_cotangents_from_the_outputs(backend):  # K36
    pm = ml.compile(model(), backend)
    given = pm.evaluate(
        params(backend), {"input": X}, output_gradients=lambda out: {"output": out["output"]}
    )
    direct = pm.evaluate(
        params(backend), {"input": X}, output_gradients={"output": given.outputs["output"]}
    )
    for key in pm.trainable_keys:
        np.testing.assert_allclose(
            backend.to_numpy(given.gradients[key]), backend.to_numpy(direct.gradients[key])
        )


def test_a_scalar_output_needs_no_cotangent(backend):
    m = model()
    m += ml.Mean()(output="mean")
    m.set_cout("mean")
    pm = ml.compile(m, backend)
    _, gradients = pm.evaluate(params(backend), {"input": X}, output_gradients=True)
    slope = (1 - expected() ** 2) / 20
    np.testing.assert_allclose(backend.to_numpy(gradients["b"]), slope.sum(0), atol=1e-6)


def test_lists_and_numbers_are_data(backend):
    pm = ml.compile(model(), backend)
    out = pm.evaluate({"w": W.tolist(), "b": B.tolist()}, {"input": X.tolist()})
    np.testing.assert_allclose(backend.to_numpy(out["output"]), expected(), atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[:, ::-1][:, ::-1],
        lambda x: np.asfortranarray(x),
        lambda x: x.astype(">f4"),
        lambda x: x.astype(np.float64),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(5, 3),
        lambda x: np.repeat(x, 2, 0)[::2],
    ],
)
def test_any_layout_is_data(backend, make):
    x = make(X)
    if x.flags.writeable:
        x.flags.writeable = False
    pm = ml.compile(model(), backend)
    out = backend.to_numpy(pm.evaluate(params(backend), {"input": x})["output"])
    assert out.dtype.isnative
    np.testing.assert_allclose(out, expected(), atol=1e-6)


def test_zero_rows(backend):
    pm = ml.compile(model(), backend)
    out = pm.evaluate(params(backend), {"input": X[:0]})["output"]
    assert tuple(out.shape) == (0, 4)


def test_outputs_are_fresh(backend):
    pm = ml.compile(model(), backend)
    given = params(backend)
    first = backend.to_numpy(pm.evaluate(given, {"input": X})["output"]).copy()
    kept = pm.evaluate(given, {"input": X})["output"]
    pm.evaluate(given, {"input": X * 2})
    np.testing.assert_array_equal(backend.to_numpy(kept), first)


def test_call(backend):  # K7
    pm = ml.compile(model(), backend)
    out = pm(X, params=params(backend))
    np.testing.assert_allclose(backend.to_numpy(out), expected(), atol=1e-6)
    out = pm(input=X, params=params(backend))
    np.testing.assert_allclose(backend.to_numpy(out), expected(), atol=1e-6)
    for wrong in (lambda: pm(), lambda: pm(X, X), lambda: pm(nope=X)):
        with pytest.raises(TypeError, match=r"\(input\)"):
            wrong()


# --- parameters -------------------------------------------------------------------------------


@pytest.mark.device
def test_initial_parameters_are_a_function_of_seed_and_path():
    pm = ml.compile(model(), ml.NumpyBackend(), shapes={"input": [None, 3]})
    a, b = pm.get_parameters(), pm.randomize_params(0)
    assert type(a) is dict and list(a) == ["w", "b"]
    for key in a:
        np.testing.assert_array_equal(a[key], b[key])
        assert a[key].dtype == np.float32
    assert not np.array_equal(a["w"], pm.randomize_params(1)["w"])
    assert np.abs(a["w"]).max() <= 1 / np.sqrt(3)
    assert np.abs(a["b"]).max() <= 1 / np.sqrt(3)


def test_initial_parameters_are_equal_on_all_backends(backend):
    shapes = {"input": [None, 3]}
    ours = ml.compile(model(), ml.NumpyBackend(), shapes=shapes).randomize_params(7)
    theirs = ml.compile(model(), backend, shapes=shapes).randomize_params(7)
    for key in ours:
        np.testing.assert_array_equal(ours[key], backend.to_numpy(theirs[key]))


@pytest.mark.device
def test_unknown_shapes_wait_for_data():  # K9
    pm = ml.compile(model(), ml.NumpyBackend())
    params = pm.get_parameters()
    assert isinstance(params["w"], ml.Uninitialized)
    assert "shape=[4, None]" in repr(params["w"])
    for use in (
        lambda w: w + 1,
        lambda w: 2 * w,
        lambda w: w.shape,
        lambda w: np.asarray(w),
        lambda w: np.ones(3) - w,
        lambda w: w[0],
        lambda w: w @ w,
    ):
        with pytest.raises(ShapeNotKnown, match="'w'.*\n.*'input'"):
            use(params["w"])
    pm.evaluate(params, {"input": X})
    assert params["w"].shape == (4, 3)
    np.testing.assert_array_equal(params["w"], pm.init({"input": X})["w"])
    pickle.loads(pickle.dumps(params))


def test_no_params_means_the_initial_ones(backend):  # K10
    pm = ml.compile(model(), backend)
    with pytest.warns(InitialParamsWarning):
        first = pm.evaluate({}, {"input": X})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = pm.evaluate(None, {"input": X}, output_gradients={"output": np.ones((5, 4))})
    np.testing.assert_array_equal(
        backend.to_numpy(first["output"]), backend.to_numpy(second.outputs["output"])
    )
    assert set(second.gradients) == {"w", "b"}


def test_transfer(backend):
    pm = ml.compile(model(), ml.NumpyBackend(), shapes={"input": [None, 3]})
    params = pm.get_parameters()
    there = ml.transfer(params, to=backend)
    back = ml.transfer(there, to=ml.NumpyBackend())
    for key in params:
        np.testing.assert_array_equal(params[key], back[key])


# --- errors -----------------------------------------------------------------------------------


def test_missing_keys_are_named_beside_near_misses(backend):
    pm = ml.compile(model(), backend)
    with pytest.raises(KeyNotFound, match="(?s)'w'.*'W' is given, did you mean 'w'") as caught:
        pm.evaluate({"W": W, "b": B}, {"input": X})
    assert caught.value.code == "MTH402"
    with pytest.raises(KeyNotFound, match="'input'"):
        pm.evaluate(PARAMS, {})


@pytest.mark.device
def test_extra_keys_warn_once():
    pm = ml.compile(model(), ml.NumpyBackend())
    with pytest.warns(UnusedParamsWarning, match="'extra'") as caught:
        pm.evaluate({**PARAMS, "extra": B}, {"input": X})
    assert caught[0].filename == __file__
    with pytest.warns(UnusedKeyWarning, match="'inputs'.*'input'"):
        pm.evaluate(PARAMS, {"input": X, "inputs": X})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.evaluate({**PARAMS, "extra": B}, {"input": X, "inputs": X})
    strict = ml.compile(model(), ml.NumpyBackend(), strict=True)
    with pytest.raises(KeyNotFound, match="'extra'"):
        strict.evaluate({**PARAMS, "extra": B}, {"input": X})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"input": X[:, :2]}, ShapeError),
        ({"input": X[0, 0]}, ShapeError),
        ({"w": W[:, :2]}, ShapeError),
        ({"w": W[:3]}, ShapeError),
        ({"input": "text"}, DTypeError),
        ({"input": [[1, 2], [3]]}, ArgumentError),
        ({"input": X.astype(complex)}, DTypeError),
        ({"input": None}, DTypeError),
        ({"input": object()}, DTypeError),
    ],
)
def test_bad_data(backend, change, error):
    pm = ml.compile(model(), backend)
    given = {"w": W, "b": B, "input": X} | change
    named = next(iter(change))
    with pytest.raises(error, match=named):
        pm.evaluate({"w": given["w"], "b": given["b"]}, {"input": given["input"]})


@pytest.mark.device
def test_casts():  # K37
    pm = ml.compile(model(), ml.NumpyBackend(), shapes={"input": [None, 3]})
    with pytest.warns(DTypeWarning, match="'w' was float64"):
        out = pm.evaluate({"w": W.astype(np.float64), "b": B}, {"input": X.astype(np.int64)})
    assert out["output"].dtype == np.float32
    strict = ml.compile(model(), ml.NumpyBackend(), strict_dtypes=True)
    with pytest.raises(DTypeError, match="'input': requires float32, got float64"):
        strict.evaluate(PARAMS, {"input": X.astype(np.float64)})


@pytest.mark.device
def test_integers_must_fit():  # K37, K57
    m = ml.Model()
    m |= ml.Embedding(10, 4)(input="tokens", weight="w", output="output")
    pm = ml.compile(m, ml.NumpyBackend(), data_keys={"tokens"})
    params = {"w": np.ones((10, 4), np.float32)}
    assert pm.evaluate(params, {"tokens": np.uint8([1, 2])})["output"].shape == (2, 4)
    with pytest.raises(DTypeError, match="'tokens': requires integers, got float32"):
        pm.evaluate(params, {"tokens": np.ones(2, np.float32)})
    with pytest.raises((DataOverflowError, DTypeError), match="tokens"):
        pm.evaluate(params, {"tokens": np.array([2**64 - 1], np.uint64)})


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (True, ArgumentError),
        (3, SignatureError),
        ({"nope": 1.0}, KeyNotFound),
        ({"output": np.ones((5, 3))}, ArgumentError),
        (lambda out: 3, SignatureError),
    ],
)
def test_bad_cotangents(backend, request_, error):
    pm = ml.compile(model(), backend)
    with pytest.raises(error):
        pm.evaluate(params(backend), {"input": X}, output_gradients=request_)


@pytest.mark.parametrize("shapes", [{"input": [5, 3]}, None])
def test_wrt_without_gradients_is_refused(backend, shapes):
    pm = ml.compile(model(), backend, data_keys={"input"}, shapes=shapes)
    own, data = params(backend), {"input": X}
    for more in ({}, {"output_gradients": False}, {"lazy": True}, {"fetch": ["h"]}):
        for wrt in (["nope"], ["input"], "input"):
            with pytest.raises(ArgumentError, match="and no gradients are wanted") as caught:
                pm.evaluate(own, data, wrt=wrt, **more)
            assert "output_gradients=" in caught.value.hint
        assert "output" in pm.evaluate(own, data, wrt=[], **more)
        assert "output" in pm.evaluate(own, data, **more)


def test_inference_has_no_gradients(backend):  # K56
    pm = ml.compile(model(), backend, inference=True)
    with pytest.raises(UnsupportedError, match="inference=True"):
        pm.evaluate(params(backend), {"input": X}, output_gradients={"output": np.ones((5, 4))})


@pytest.mark.device
def test_bad_dictionaries():
    pm = ml.compile(model(), ml.NumpyBackend())
    with pytest.raises(SignatureError, match="params: requires a dictionary"):
        pm.evaluate([1], {"input": X})
    with pytest.raises(SignatureError, match="data: requires a dictionary"):
        pm.evaluate(PARAMS, X)


@pytest.mark.device
def test_shapes_and_summary(capsys):
    pm = ml.compile(model(), ml.NumpyBackend(), shapes={"input": [None, 3]})
    assert pm.shapes["w"] == [4, 3]
    assert pm.shapes["input"] == [None, 3]
    assert pm.shapes["output"] == [None, 4]
    pm.summary()
    assert "parameters: 16" in capsys.readouterr().out


# --- threads, signals, state ---------------------------------------------------------------------


@pytest.mark.device
def test_many_threads_may_evaluate_one_model():
    pm = ml.compile(model(), ml.CpuBackend(), data_keys={"input"})
    inputs = [rng.normal(size=(n, 3)).astype(np.float32) for n in (1, 5, 700, 3000)]
    wanted = [pm.evaluate(PARAMS, {"input": x})["output"] for x in inputs]

    def work(i):
        for _ in range(20):
            out = pm.evaluate(PARAMS, {"input": inputs[i % 4]})["output"]
            np.testing.assert_array_equal(out, wanted[i % 4])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))


@pytest.mark.device
def test_an_interrupt_ends_a_long_call_and_leaves_the_model_usable():
    code = """
import os, signal, threading, time
import numpy as np, mithril as ml
m = ml.Model()
m |= ml.MatrixMultiply()(left="a", right="b", output="c")
for _ in range(60):
    m += ml.MatrixMultiply()(right="b")
pm = ml.compile(m, ml.CpuBackend(), inference=True, data_keys={"a", "b"})
big = {k: np.ones((1500, 1500), np.float32) for k in "ab"}
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.perf_counter()
try:
    for _ in range(100):
        pm.evaluate({}, big)
    print("never")
except KeyboardInterrupt:
    print("interrupted" if time.perf_counter() - start < 2.5 else "late")
small = {k: np.ones((2, 2), np.float32) for k in "ab"}
print(len(pm.evaluate({}, small)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.stdout.split() == ["interrupted", "1"], out.stdout + out.stderr


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_statistics_and_state(backend, mode):  # K60
    m = ml.Model()
    m |= ml.BatchNorm2D(3)(input="x", output="h")
    m += ml.Dropout(0.5)(output="y")
    pm = ml.compile(m, backend, data_keys={"x"}, shapes={"x": [None, 3, 4, 4]}, mode=mode)
    x = rng.normal(size=(6, 3, 4, 4)).astype(np.float32)
    params = pm.get_parameters()
    assert set(pm.trainable_keys) == {"weight", "bias"}
    cotangent = {"y": np.ones((6, 3, 4, 4), np.float32)}
    if mode == "eval":
        assert set(params) == {"weight", "bias", "running_mean", "running_var"}
        out = backend.to_numpy(pm.evaluate(params, {"x": x})["y"])
        np.testing.assert_allclose(out, x / np.sqrt(1 + 1e-5), rtol=1e-5)
        with pytest.warns(ml.errors.ModeWarning, match='mode="train"'):
            _, gradients = pm.evaluate(params, {"x": x}, output_gradients=cotangent)
        assert set(gradients) == {"weight", "bias"}
        return
    assert set(params) == {"weight", "bias"}
    state = pm.initial_state()
    result = pm.evaluate(params, {"x": x}, output_gradients=cotangent, state=state)
    outputs, gradients, new_state = result
    assert set(new_state) == set(state) == {"running_mean", "running_var", "rng_key"}
    np.testing.assert_allclose(
        backend.to_numpy(new_state["running_mean"]), 0.1 * x.mean((0, 2, 3)), atol=1e-6
    )
    y = backend.to_numpy(outputs["y"])
    assert 0.3 < (y == 0).mean() < 0.7
    again = pm.evaluate(params, {"x": x}, state=new_state)
    assert not np.array_equal(y == 0, backend.to_numpy(again.outputs["y"]) == 0)
    same = pm.evaluate(params, {"x": x}, state=state)
    np.testing.assert_array_equal(y, backend.to_numpy(same.outputs["y"]))
    with pytest.raises(KeyNotFound, match="initial_state"):
        pm.evaluate(params, {"x": x})


def with_statistics(mode, backend=None):
    m = ml.Model()
    m |= ml.Linear(3)(input="x", weight="w", bias="b", output="h")
    m |= ml.BatchNorm1D(name="bn")(input="h", output="n")
    m |= ml.Dropout(0.5)(input="n", output="y")
    options = {"data_keys": {"x"}, "shapes": {"x": [None, 2]}, "naming": "path", "mode": mode}
    return ml.compile(m, backend or ml.NumpyBackend(), **options)


def test_parameters_and_state_of_one_dictionary_are_parted(tmp_path):
    trained, served = with_statistics("train"), with_statistics("eval")
    params, state = trained.randomize_params(0), trained.initial_state(3)
    state = trained.evaluate(params, {"x": rng.normal(size=(8, 2))}, state=state).state
    ml.formats.write_safetensors(tmp_path / "net", {**params, **state})
    arrays = ml.formats.read_safetensors(tmp_path / "net")
    again, kept = trained.split_state(arrays)
    assert set(again) == {"w", "b", "bn.weight", "bn.bias"}
    assert set(kept) == {"bn.running_mean", "bn.running_var", "rng_key"}
    assert all(np.array_equal(kept[name], state[name]) for name in kept)
    everything, nothing = served.split_state(arrays)  # the key of random numbers is of no use
    assert set(everything) == {*params, "bn.running_mean", "bn.running_var"} and nothing == {}
    served.evaluate(everything, {"x": np.ones((1, 2))})
    with pytest.raises(KeyNotFound, match="no parameter named '(bn.run|rng_key)") as error:
        trained.export_c(tmp_path / "c", params=arrays, shapes={"x": [1, 2]})
    assert "pm.split_state" in error.value.hint
    served.export_c(tmp_path / "c", params=everything, shapes={"x": [1, 2]})
    del arrays["rng_key"]
    np.testing.assert_array_equal(
        trained.split_state(arrays)[1]["rng_key"], trained.initial_state(0)["rng_key"]
    )


def test_what_cannot_be_parted_is_named():
    pm = with_statistics("train")
    arrays = {**pm.randomize_params(0), **pm.initial_state()}
    with pytest.raises(KeyNotFound, match=r"no 'bn.weights', did you mean 'bn.weight'\?"):
        pm.split_state({**arrays, "bn.weights": np.ones(3)})
    for name in ("bn.running_var", "w"):
        with pytest.raises(KeyNotFound, match=f"split_state: arrays must have '{name}'"):
            pm.split_state({key: value for key, value in arrays.items() if key != name})
    with pytest.raises(ml.errors.SignatureError, match="requires a dictionary"):
        pm.split_state([1])


def test_a_state_among_parameters_beside_another_one_warns():
    pm = with_statistics("train")
    params, state = pm.randomize_params(0), pm.initial_state()
    both = {**params, "bn.running_mean": np.ones(3)}
    with pytest.warns(ml.errors.UnusedParamsWarning, match="'bn.running_mean', which is read from"):
        pm.evaluate(both, {"x": np.ones((4, 2))}, state=state)
    pm = with_statistics("train")
    with pytest.warns(ml.errors.UnusedParamsWarning, match="'bn.running_mean', which is read from"):
        pm.predict(both, {"x": np.ones((4, 2))}, state=state)


def dropped(p=0.5, mode=None, layer=None):
    m = ml.Model()
    m |= ml.Linear(2)(input="x", output="h")
    m |= (layer or ml.Dropout(p, mode=mode))(input="h", output="y")
    return m


@pytest.mark.parametrize("layer", [None, "attention"])
def test_gradients_with_dropout_that_is_off_warn_once(backend, layer):  # K60
    layer = layer and ml.DropoutAttention(p=0.1)
    if layer is None:
        m = dropped()
    else:
        m = ml.Model()
        m |= ml.Linear(3)(input="x", output="h")
        m |= layer(query="h", key="h", value="h", output="y")
    pm = ml.compile(m, backend, data_keys={"x"}, shapes={"x": [2, 3]})
    params, data = pm.get_parameters(), {"x": np.ones((2, 3), np.float32)}
    wanted = {"y": np.ones(pm.shapes["y"], np.float32)}
    pm.evaluate(params, data)
    with pytest.warns(ml.errors.ModeWarning, match='dropout is off; compile with mode="train"'):
        pm.evaluate(params, data, output_gradients=wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.evaluate(params, data, output_gradients=wanted)


@pytest.mark.parametrize(
    ("p", "layer", "mode"), [(0.0, None, "eval"), (0.5, "train", "eval"), (0.5, "eval", "train")]
)
def test_dropout_that_is_as_the_user_said_does_not_warn(p, layer, mode):
    pm = ml.compile(
        dropped(p, layer), ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2, 3]}, mode=mode
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.evaluate(
            pm.get_parameters(),
            {"x": np.ones((2, 3))},
            output_gradients={"y": np.ones((2, 2))},
            state=pm.initial_state(),
        )


def test_strict_models_take_no_initial_parameters(backend):  # K10
    m = ml.Model()
    m |= ml.Linear(2)(input="x", output="y")
    pm = ml.compile(m, backend, data_keys={"x"}, shapes={"x": [2, 3]}, strict=True)
    for params in ({}, None):
        with pytest.raises(KeyNotFound, match="no params were given.*initial"):
            pm.evaluate(params, {"x": np.ones((2, 3))})
    pm.evaluate(pm.get_parameters(), {"x": np.ones((2, 3))})
    ml.compile(ml.Relu(), backend, strict=True).evaluate({}, {"input": np.ones(2)})


# --- training ---------------------------------------------------------------------------------


def test_steps_lower_the_cost(backend):
    m = model()
    train = ml.TrainModel(m)
    train.add_loss(ml.SquaredError(), input="output", target="target")
    pm = ml.compile(train, backend, data_keys={"input", "target"}, optimizer=ml.optim.Adam(lr=0.05))
    opt = ml.optim.Adam(lr=0.05)
    given = params(backend)
    opt_state = opt.init(given)
    data = {"input": X, "target": np.zeros((5, 4), np.float32)}
    costs = []
    for _ in range(5):
        given, opt_state, _, outputs = pm.step(given, opt_state, data)
        costs.append(float(outputs["final_cost"]))
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == pytest.approx((expected() ** 2).mean(), rel=1e-5)


@pytest.mark.device
@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "AdamW"])
def test_the_engines_step_is_the_dictionaries(name):
    train = ml.TrainModel(model())
    train.add_loss(ml.SquaredError(), input="output", target="target")
    data = {"input": X, "target": np.zeros((5, 4), np.float32)}
    results = []
    for backend in (ml.CpuBackend(dtype="float64"), ml.NumpyBackend(dtype="float64")):
        opt = getattr(ml.optim, name)(lr=0.05)
        pm = ml.compile(train, backend, optimizer=opt, data_keys={"input", "target"})
        given = {k: backend.array(v) for k, v in PARAMS.items()}
        opt_state = opt.init(given)
        for _ in range(5):
            given, opt_state, state, outputs = pm.step(given, opt_state, data)
        assert (opt_state["step"], state) == (5, {})
        results.append((given, outputs))
    (ours, our_outputs), (theirs, their_outputs) = results
    assert ours.keys() == theirs.keys() and our_outputs.keys() == their_outputs.keys()
    for key in ours:
        np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-12)


@pytest.mark.device
def test_a_step_that_cannot_be_taken():
    train = ml.TrainModel(model())
    train.add_loss(ml.SquaredError(), input="output", target="target")
    opt = ml.optim.Adam(lr=0.05)
    data = {"input": X, "target": np.zeros((5, 4), np.float32)}
    without = ml.compile(train, ml.CpuBackend(), data_keys={"input", "target"})
    with pytest.raises(ArgumentError, match="optimizer="):
        without.step(PARAMS, opt.init(PARAMS), data)
    shapes = {"input": [None, 3]}
    pm = ml.compile(train, ml.CpuBackend(), data_keys=set(data), optimizer=opt, shapes=shapes)
    for _ in range(2):  # the second time the step is known
        with pytest.raises(ArgumentError, match="opt_state must be"):
            pm.step(PARAMS, {}, data)
        with pytest.raises(KeyNotFound, match="no 'v' of 'w'"):
            pm.step(PARAMS, {**opt.init(PARAMS), "v": {}}, data)
        with pytest.raises(KeyNotFound, match="'target'"):
            pm.step(PARAMS, opt.init(PARAMS), {"input": X})
        with pytest.raises(ShapeError):
            pm.step({**PARAMS, "w": W[:, :2]}, opt.init(PARAMS), data)
        pm.step(PARAMS, opt.init(PARAMS), data)
    opt.lr = 0.0001  # a schedule is heard
    small = pm.step(PARAMS, opt.init(PARAMS), data).params["w"] - W
    assert np.abs(small).max() < 0.001
    other = pm.step({**PARAMS, "more": B}, opt.init(PARAMS), data).params
    assert list(other) == ["w", "b", "more"]


@pytest.mark.frameworks
def test_parameters_are_pytrees():
    jax = pytest.importorskip("jax")
    optax = pytest.importorskip("optax")
    pm = ml.compile(model(), ml.JaxBackend(), shapes={"input": [None, 3]})
    params = pm.get_parameters()
    assert set(jax.tree.map(lambda p: p * 2, params)) == {"w", "b"}
    optimizer = optax.adam(1e-3)
    state = optimizer.init(params)
    run = jax.jit(pm.as_function())
    np.testing.assert_allclose(
        run(params, {"input": X})["output"],
        pm.evaluate(params, {"input": X})["output"],
        atol=1e-6,
    )
    _, gradients = pm.evaluate(params, {"input": X}, output_gradients={"output": np.ones((5, 4))})
    updates, _ = optimizer.update(gradients, state, params)
    assert set(optax.apply_updates(params, updates)) == {"w", "b"}


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
def test_params_and_data_that_are_swapped(backend):
    model = ml.Model()
    model |= ml.Linear(3)(input="x", weight="w", bias="b", output="y")
    pm = ml.compile(model, backend(), data_keys={"x"}, shapes={"x": [2, 3]})
    data = {"x": np.ones((2, 3), "float32")}
    with pytest.raises(ml.errors.KeyNotFound) as caught:
        pm.evaluate(data, pm.randomize_params(seed=0))
    assert "swapped: evaluate(params, data)" in caught.value.hint
