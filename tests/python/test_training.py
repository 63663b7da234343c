"""What stands around training: predictions, frozen parameters, clipped gradients, the loop."""

# Covers: mithril/training/loop.py mithril/training/batches.py

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, KeyNotFound, SignatureError, UnsupportedError
from mithril.training import train_model

RNG = np.random.default_rng(3)
X, T = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 2))
DATA = {"x": X, "t": T}


def network():
    body = ml.Model(name="body")
    body |= ml.Linear(4)(input="x", output="h")
    body |= ml.BatchNorm1D()(input="h", output="n")
    model = ml.Model()
    model |= body(x="x", n="n")
    model |= ml.Dropout(0.5)(input="n", output="d")
    model |= ml.Linear(2, name="head")(input="d", output="y")
    return model


def training(model=None):
    train = ml.TrainModel(model or network())
    train.add_loss(ml.SquaredError(), input="y", target="t", key_name="loss_of_y")
    train.add_metric(ml.AbsoluteError(), input="y", target="t")
    train.add_regularization(ml.L2(), coef=0.1, input="w") if model else None
    return train


def plain():
    model = ml.Model()
    model |= ml.Linear(4)(input="x", weight="w", bias="b", output="h")
    model |= ml.Tanh()(input="h", output="z")
    model |= ml.Linear(2)(input="z", weight="v", bias="c", output="y")
    return model


def compiled(train, backend=None, **options):
    backend = backend or ml.NumpyBackend(dtype="float64")
    options = {"data_keys": {"x", "t"}, "shapes": {"x": [None, 3]}} | options
    return ml.compile(train, backend, **options)


@pytest.fixture
def backend(backend_name):
    return ml.get_backend(backend_name)


# --- predictions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("naming", [{}, {"naming": "path"}, {"use_short_namings": False}])
def test_predictions_are_those_of_the_model_alone(backend, naming):
    optimizer = ml.optim.Adam(0.01)
    train = training()
    pm = compiled(train, backend, optimizer=optimizer, **naming)
    params, state = pm.randomize_params(0), pm.initial_state()
    opt_state = optimizer.init(params)
    for _ in range(3):
        params, opt_state, state, _ = pm.step(params, opt_state, DATA, state)
    got = pm.predict(params, {"x": X}, state=state)
    assert list(got) == ["y"]
    alone = ml.compile(train.model, backend, data_keys={"x"}, shapes={"x": [None, 3]}, **naming)
    statistics = {key: state[key] for key in pm.state_keys if key != "rng_key"}
    assert set(alone.param_keys) == {*params, *statistics}
    wanted = alone.evaluate({**params, **statistics}, {"x": X})["y"]
    np.testing.assert_allclose(backend.to_numpy(got["y"]), backend.to_numpy(wanted), rtol=1e-5)
    again = pm.predict(params, DATA, state=state)["y"]  # targets may be there
    np.testing.assert_array_equal(backend.to_numpy(got["y"]), backend.to_numpy(again))
    assert pm.predict(params, {"x": X[:2]}, state=state)["y"].shape == (2, 2)


def test_predictions_by_hand():
    pm = compiled(training(plain()))
    params = pm.randomize_params(1)
    hidden = np.tanh(X @ params["w"].T + params["b"])
    wanted = hidden @ params["v"].T + params["c"]
    np.testing.assert_allclose(pm.predict(params, {"x": X})["y"], wanted, rtol=1e-12)


def test_predictions_of_any_compiled_model():
    pm = ml.compile(network(), ml.NumpyBackend(), data_keys={"x"}, mode="train")
    params, state = pm.init({"x": X}), pm.initial_state(sample={"x": X})
    assert pm.predict(params, {"x": X}, state=state)["y"].shape == (6, 2)
    with pytest.raises(KeyNotFound, match="running_mean"):
        pm.predict(params, {"x": X})
    with pytest.raises(KeyNotFound, match="data must have 'x'"):
        pm.predict(params, {}, state=state)


def test_the_trained_model_is_the_one_that_was_given():
    model = network()
    train = training()
    assert ml.TrainModel(model).model is model
    compiled(train)
    copy = train.clone() if hasattr(train, "clone") else train
    ml.compile(copy.model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2, 3]})
    inner = ml.Relu()
    outer = ml.Model()
    outer |= inner(input="x", output="y")
    with pytest.raises(ArgumentError, match="part of another model"):
        ml.compile(inner, ml.NumpyBackend())


# --- frozen parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("naming", "body", "head"),
    [
        ({}, {"weight_0", "bias_0", "weight_1", "bias_1"}, {"weight_2", "bias_2"}),
        (
            {"naming": "path"},
            {"body.linear_0.weight", "body.linear_0.bias"}
            | {"body.batchnorm1d_0.weight", "body.batchnorm1d_0.bias"},
            {"head.weight", "head.bias"},
        ),
    ],
)
def test_frozen_parameters_stay(backend, naming, body, head):
    optimizer = ml.optim.AdamW(0.1)
    options = {"optimizer": optimizer, "frozen_keys": {"body.*"}, **naming}
    pm = compiled(training(), backend, **options)
    assert set(pm.param_keys) == body | head
    assert set(pm.trainable_keys) == head
    params, state = pm.randomize_params(0), pm.initial_state()
    _, gradients, _ = pm.evaluate(params, DATA, output_gradients=True, state=state)
    assert set(gradients) == head
    opt_state = optimizer.init({key: params[key] for key in pm.trainable_keys})
    before = {key: np.array(backend.to_numpy(value)) for key, value in params.items()}
    for _ in range(2):
        params, opt_state, state, _ = pm.step(params, opt_state, DATA, state)
    assert set(opt_state["m"]) == head
    for key, value in params.items():
        assert np.array_equal(backend.to_numpy(value), before[key]) == (key in body), key
    free = compiled(training(), backend, **naming)
    every = free.evaluate(pm.randomize_params(0), DATA, output_gradients=True,
                          state=free.initial_state()).gradients  # fmt: skip
    for key in head:
        np.testing.assert_allclose(
            backend.to_numpy(gradients[key]), backend.to_numpy(every[key]), rtol=1e-4, atol=1e-6
        )


def test_frozen_keys_are_names_and_patterns():
    for given, left in (("w", {"b", "v", "c"}), (["w", "b"], {"v", "c"}), ("*", set())):
        pm = compiled(training(plain()), frozen_keys=given)
        assert set(pm.trainable_keys) == left
    with pytest.raises(KeyNotFound, match="frozen_keys: no parameter is named 'body.w'"):
        compiled(training(plain()), frozen_keys="body.w")
    with pytest.raises(KeyNotFound, match="frozen_keys: no parameter is named 'x'"):
        compiled(training(plain()), frozen_keys="x")


# --- clipped gradients ----------------------------------------------------------------------------

CLIPS = [{"clip_norm": 0.5}, {"clip_norm": 1e6}, {"clip_value": 0.1},
         {"clip_norm": 0.2, "clip_value": 0.1}]  # fmt: skip
OPTIMIZERS = [ml.optim.SGD, ml.optim.Momentum, ml.optim.Adam, ml.optim.AdamW]


@pytest.mark.frameworks
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_clipped_steps_are_torchs(kind, clip):
    torch = pytest.importorskip("torch")
    theirs = {"SGD": "SGD", "Momentum": "SGD", "Adam": "Adam", "AdamW": "AdamW"}[kind.__name__]
    momentum = {"momentum": 0.9} if kind is ml.optim.Momentum else {}
    start = {"w": RNG.normal(size=(3, 2)), "b": RNG.normal(size=4)}
    tensors = {key: torch.tensor(value, requires_grad=True) for key, value in start.items()}
    reference = getattr(torch.optim, theirs)(tensors.values(), lr=0.1, **momentum)
    optimizer = kind(0.1, **clip)
    params, state = start, optimizer.init(start)
    for scale in (1.0, 1e-3, 100.0):
        gradients = {key: scale * RNG.normal(size=value.shape) for key, value in start.items()}
        for key, tensor in tensors.items():
            tensor.grad = torch.tensor(gradients[key])
        if "clip_value" in clip:
            torch.nn.utils.clip_grad_value_(tensors.values(), clip["clip_value"])
        if "clip_norm" in clip:
            torch.nn.utils.clip_grad_norm_(tensors.values(), clip["clip_norm"])
        reference.step()
        params, state = optimizer.update(params, gradients, state)
    for key, tensor in tensors.items():
        np.testing.assert_allclose(params[key], tensor.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_compiled_steps_clip(backend, kind, clip):
    optimizer = kind(0.1, **clip)
    pm = compiled(training(plain()), backend, optimizer=optimizer)
    exact = compiled(training(plain()))
    params, wanted = pm.randomize_params(0), exact.randomize_params(0)
    state, theirs = optimizer.init(params), optimizer.init(wanted)
    for _ in range(3):
        params, state, *_ = pm.step(params, state, DATA)
        gradients = exact.evaluate(wanted, DATA, output_gradients=True).gradients
        wanted, theirs = optimizer.update(wanted, gradients, theirs)
    for key, value in wanted.items():
        np.testing.assert_allclose(
            backend.to_numpy(params[key]), value, rtol=2e-3, atol=2e-4, err_msg=key
        )


def test_clipping_that_is_switched_on_counts(backend):
    optimizer = ml.optim.SGD(1.0)
    pm = compiled(training(plain()), backend, optimizer=optimizer)
    params = pm.randomize_params(0)
    state = optimizer.init(params)
    for _ in range(3):
        pm.step(params, state, DATA)
    optimizer.clip_norm = 1e-3
    moved = pm.step(params, state, DATA).params
    length = sum(np.sum((backend.to_numpy(moved[k]) - backend.to_numpy(params[k])) ** 2.0)
                 for k in params) ** 0.5  # fmt: skip
    np.testing.assert_allclose(length, 1e-3, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_norms_of_halves_do_not_overflow(dtype):
    optimizer = ml.optim.SGD(1.0, clip_norm=1.0)
    params = {"w": np.zeros(4, dtype)}
    new, _ = optimizer.update(params, {"w": np.full(4, 1000, dtype)}, optimizer.init(params))
    np.testing.assert_allclose(new["w"], -0.5, rtol=1e-3)
    assert new["w"].dtype == dtype


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_what_is_no_bound_is_refused(kind):
    for name in ("clip_norm", "clip_value"):
        for value in (0, -1.0, "much"):
            with pytest.raises(ArgumentError, match=f"{name}: requires a number"):
                kind(0.1, **{name: value})


@pytest.mark.device
def test_streams_of_gradients_are_not_clipped():
    optimizer = ml.optim.SGD(0.1, clip_norm=1.0)
    pm = compiled(training(plain()), ml.CpuBackend(), optimizer=optimizer, stream_gradients=True)
    params = pm.randomize_params(0)
    with pytest.raises(UnsupportedError, match="stream_gradients"):
        pm.step(params, optimizer.init(params), DATA)


# --- train_model ---------------------------------------------------------------------------------

BATCHES = [(X[i : i + 2], T[i : i + 2]) for i in (0, 2, 4)]


def torch_trained(batches, cost, epochs, start):
    """(parameters, the mean loss of each epoch) of the plain model, by PyTorch's loop."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    net.double()
    names = {"w": net[0].weight, "b": net[0].bias, "v": net[2].weight, "c": net[2].bias}
    for name, tensor in names.items():
        tensor.data = torch.tensor(start[name])
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.1), []
    for _ in range(epochs):
        seen = []
        for x, t in batches:
            optimizer.zero_grad()
            loss = cost(net(torch.tensor(x)), torch.tensor(t))
            loss.backward()
            optimizer.step()
            seen.append(float(loss.detach()))
        losses.append(np.mean(seen))
    return {name: tensor.detach().numpy() for name, tensor in names.items()}, losses


def start():
    rng = np.random.default_rng(8)
    shapes = {"w": (4, 3), "b": 4, "v": (2, 4), "c": 2}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("classes", [False, True])
def test_train_model_is_the_loop_of_pytorch(backend, classes):
    torch = pytest.importorskip("torch")
    batches = [(x, t.argmax(1)) for x, t in BATCHES] if classes else BATCHES
    cost = torch.nn.functional.cross_entropy if classes else torch.nn.functional.mse_loss
    want, losses = torch_trained(batches, cost, 3, start())
    pm = ml.compile(plain(), backend, data_keys={"x"}, shapes={"x": [None, 3]})
    seen, begin = [], {name: value.astype(np.float32) for name, value in start().items()}
    got = train_model(pm, backend, batches, optimizer=ml.optim.SGD(0.1), epochs=3,
                      callbacks=[seen.append], params=begin)  # fmt: skip
    for name, value in want.items():
        np.testing.assert_allclose(backend.to_numpy(got[name]), value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([epoch.loss for epoch in seen], losses, rtol=1e-5)
    assert [epoch.number for epoch in seen] == [1, 2, 3]


def test_train_model_minimises_the_cost_of_a_train_model():
    train, backend = training(), ml.NumpyBackend(dtype="float64")
    options = {"data_keys": {"x", "t"}, "shapes": {"x": [None, 3]}}
    pm = ml.compile(train, backend, optimizer=ml.optim.SGD(0.05), **options)
    batch = {"x": X, "t": T}
    params, state = pm.init(batch), pm.initial_state(seed=0)
    opt_state = ml.optim.SGD(0.05).init(params)
    for _ in range(2):
        params, opt_state, state, _ = pm.step(params, opt_state, batch, state)
    got = train_model(pm, backend, [batch], epochs=2)
    assert set(got) == {*params, *state} - {"rng_key"}
    for name, value in got.items():
        np.testing.assert_allclose(value, {**params, **state}[name], rtol=1e-12, err_msg=name)


def test_losses_in_float16_are_scaled():
    """Gradients of 1e-9, which float16 does not hold, move parameters by SGD with a large rate."""
    x, w = np.ones((4, 1), np.float32), np.full((1, 1), 0.5, np.float32)
    model = ml.Model()
    model |= ml.Linear(1, use_bias=False)(input="x", weight="w", output="y")
    model.expose_keys("y")
    backend = ml.CpuBackend(compute_precision="float16")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [None, 1]})
    tiny = ml.Model()  # 1e-9 times the mean difference: its slope is 1e-9
    tiny |= ml.Subtract()(left="input", right="target", output="difference")
    tiny |= ml.Mean()(input="difference", output="mean")
    tiny |= ml.Multiply()(left="mean", right=1e-9, output="output")
    tiny.expose_keys("output")
    scales = []
    trained = train_model(
        pm, backend, [(x, x)], params={"w": w}, optimizer=ml.optim.SGD(lr=1e6), loss=tiny,
        callbacks=[lambda epoch: scales.append(epoch.opt_state["loss_scale"]["scale"])],
    )  # fmt: skip
    assert scales == [65536.0]
    np.testing.assert_allclose(trained["w"], 0.5 - 1e-3, rtol=1e-3)


def test_callbacks_see_metrics_and_end_the_training():
    backend, seen = ml.NumpyBackend(), []
    pm = ml.compile(plain(), backend, data_keys={"x"}, shapes={"x": [None, 3]})

    def ends_at_two(epoch):
        seen.append(epoch)
        return epoch.number == 2

    metrics = {"rows": lambda outputs, batch: len(outputs["y"]) + batch["target"].sum() * 0}
    uneven = [(X[:4], T[:4]), (X[4:], T[4:])]
    train_model(pm, backend, uneven, epochs=5, metrics=metrics, callbacks=[ends_at_two])
    assert len(seen) == 2
    np.testing.assert_allclose(seen[0].metrics["rows"], (4 * 4 + 2 * 2) / 6)


@pytest.mark.parametrize("as_files_give", [False, True])
def test_train_model_goes_on(backend, as_files_give):
    """Two epochs at once are one and one more, to the bit, with statistics and dropout."""
    optimizer = ml.optim.Adam(0.05)

    def trained(epochs, **known):
        pm, seen = compiled(training(), backend, optimizer=optimizer), []
        calls = [seen.append]
        return train_model(pm, backend, BATCHES, epochs=epochs, callbacks=calls, **known), seen[-1]

    def of_numpy(nest):
        if isinstance(nest, dict):
            return {key: of_numpy(value) for key, value in nest.items()}
        return np.array(nest if isinstance(nest, int) else backend.to_numpy(nest))

    want, _ = trained(2)
    params, epoch = trained(1)
    known = {"params": epoch.params, "opt_state": epoch.opt_state, "state": epoch.state}
    known = of_numpy(known) if as_files_give else known
    got, last = trained(1, **known)
    assert int(last.opt_state["step"]) == 2 * len(BATCHES)
    for name, value in want.items():
        np.testing.assert_array_equal(backend.to_numpy(got[name]), backend.to_numpy(value))
    # What it returned has the statistics, and a training goes on from them.
    pm = compiled(training(), backend, optimizer=optimizer)
    after = train_model(pm, backend, [(X, T)], params=params)["running_mean"]
    first = {name: backend.to_numpy(value) for name, value in params.items()}
    means = (X @ first["weight_0"].T + first["bias_0"]).mean(0)
    want = 0.9 * first["running_mean"] + 0.1 * means
    np.testing.assert_allclose(backend.to_numpy(after), want, rtol=1e-4, atol=1e-6)
    with pytest.raises(ArgumentError, match="'running_mean' is in params and in state"):
        trained(1, params=params, state=pm.initial_state())
    with pytest.raises(KeyNotFound, match="state must have 'running_var'"):
        trained(1, params=epoch.params, state={"running_mean": params["running_mean"]})


def test_pairs_of_a_train_model_are_its_input_and_what_its_cost_reads():
    backend = ml.NumpyBackend(dtype="float64")
    pm = compiled(training(plain()), backend, optimizer=ml.optim.SGD(0.1))
    pairs = train_model(pm, backend, [(X, T)], params=start())
    named = train_model(pm, backend, [(X, T)], params=start(), target="t")
    want = train_model(pm, backend, [DATA], params=start())
    for key, value in want.items():
        np.testing.assert_array_equal(pairs[key], value)
        np.testing.assert_array_equal(named[key], value)


def test_a_backend_like_the_models_is_taken():
    pm = ml.compile(plain(), ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [None, 3]})
    sgd, same = ml.optim.SGD(0.1), ml.NumpyBackend("cpu", ml.float32)
    want = train_model(pm, pm.backend, BATCHES, optimizer=sgd)
    got = train_model(pm, same, BATCHES, optimizer=sgd)
    assert all(np.array_equal(got[key], want[key]) for key in want)


def test_what_train_model_refuses():
    backend = ml.NumpyBackend()
    pm = ml.compile(plain(), backend, data_keys={"x"}, shapes={"x": [None, 3]})
    costs = compiled(training(plain()), backend)
    for arguments, options, kind, text in (
        ((plain(), backend, BATCHES), {}, SignatureError, "a compiled model"),
        ((pm, ml.CpuBackend(), BATCHES), {}, ArgumentError, "compiled for NumpyBackend.*got CpuB"),
        ((pm, 3, BATCHES), {}, ArgumentError, "was compiled for NumpyBackend.*, got 3"),
        (
            (pm, ml.NumpyBackend(seed=5), BATCHES),
            {},
            ArgumentError,
            "model's has seed=0, this one seed=5",
        ),
        ((costs, backend, [(X, T, T)]), {}, ArgumentError, "for a model with one input a pair"),
        ((pm, backend, BATCHES), {"params": {"w": X}}, KeyNotFound, "params must have 'b'"),
        ((pm, backend, BATCHES), {"opt_state": {"step": 1}}, KeyNotFound, "no 'm' of 'w'"),
        ((pm, backend, BATCHES), {"opt_state": 3}, ArgumentError, "opt_state must be what"),
        ((pm, backend, BATCHES), {"state": {"mean": X}}, KeyNotFound, "no state named 'mean'"),
        ((pm, backend, BATCHES), {"state": 3}, SignatureError, "state: requires a dictionary"),
        ((pm, backend, []), {}, ArgumentError, "no batches"),
        ((pm, backend, iter(BATCHES)), {}, ArgumentError, "only once"),
        ((pm, backend, 3), {}, SignatureError, "requires batches"),
        ((pm, backend, [X]), {}, ArgumentError, "a pair of it and the target"),
        ((pm, backend, [{"x": X}]), {}, KeyNotFound, "no 'target'"),
        ((pm, backend, BATCHES), {"epochs": 0}, ArgumentError, "at least 1"),
        ((pm, backend, BATCHES), {"loss": abs}, SignatureError, "loss requires a model"),
        ((pm, backend, BATCHES), {"optimizer": "adam"}, SignatureError, "requires one of ml.optim"),
        ((costs, backend, [DATA]), {"loss": ml.SquaredError()}, ArgumentError, "cost of its own"),
        ((pm, backend, [{"target": T}]), {}, KeyNotFound, "no 'x'"),
    ):
        with pytest.raises(kind, match=text):
            train_model(*arguments, **options)


def test_a_state_with_entries_that_nobody_reads_is_refused(backend):  # of evaluate, step, predict
    train = ml.compile(
        training(), backend, data_keys={"x", "t"}, shapes={"x": [None, 3]},
        optimizer=ml.optim.SGD(0.1),
    )  # fmt: skip
    params, state = train.randomize_params(0), train.initial_state()
    opt_state = ml.optim.SGD(0.1).init(params)
    alone = ml.compile(network(), backend, data_keys={"x"}, shapes={"x": [None, 3]})
    (statistic, *_) = (key for key in train.state_keys if key != "rng_key")
    calls = {
        "evaluate": lambda s: train.evaluate(params, DATA, state=s),
        "step": lambda s: train.step(params, opt_state, DATA, s),
        "predict": lambda s: train.predict(params, {"x": X}, state=s),
    }
    calls["evaluate "] = lambda s: train.evaluate(params, DATA, state=s, output_gradients=True)
    for _ in range(2):  # the fast paths, too
        for call, run in calls.items():
            run(state)
            said = f"{call.strip()}: state has 'zz', which the model has not\n  help: its state is"
            with pytest.raises(KeyNotFound) as e:
                run({**state, "zz": 1})
            assert str(e.value).startswith(said)
            with pytest.raises(KeyNotFound, match=f"did you mean '{statistic}'"):
                run({**state, statistic[:-1]: 1})
    # A model in inference has the statistics among its parameters, and draws nothing.
    own = {**params, **{key: state[key] for key in state if key != "rng_key"}}
    with pytest.raises(KeyNotFound, match=f"state has '{statistic}', which the model reads from"):
        alone.evaluate(own, {"x": X}, state=state)
    with pytest.raises(KeyNotFound, match="state has 'zz', .*\n  help: it has no state"):
        alone.evaluate(own, {"x": X}, state={"zz": 1})
    outputs = alone.evaluate(own, {"x": X})
    for kept in ({}, {"rng_key": state["rng_key"]}):
        again = alone.evaluate(own, {"x": X}, state=kept)
        np.testing.assert_array_equal(backend.to_numpy(again["y"]), backend.to_numpy(outputs["y"]))
    found = backend.to_numpy(alone.predict(own, {"x": X}, state=state)["y"])
    np.testing.assert_allclose(found, backend.to_numpy(outputs["y"]), rtol=1e-6)


def test_train_model_looks_at_states_and_seeds():
    batches, options = [(X, T)], {"optimizer": ml.optim.Momentum(0.1)}
    pm = compiled(plain(), data_keys={"x"})
    params = pm.randomize_params(0)
    state = {"step": 0, "v": {name: np.zeros(1) for name in params}}
    with pytest.raises(ml.errors.ShapeError, match="train_model: opt_state: 'v' of '.*' requires"):
        train_model(pm, pm.backend, batches, params=params, opt_state=state, **options)
    for seed in (1.5, True, "a", None):
        with pytest.raises(SignatureError, match="train_model: seed requires an integer, got"):
            train_model(pm, pm.backend, batches, params=params, seed=seed, **options)
