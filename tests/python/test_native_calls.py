"""Calls that the engine takes by itself skip what the method checks, and do the same otherwise."""

# Covers: mithril/physical/step_layout.py

import warnings

import mithril as ml
import numpy as np
import pytest
from mithril.physical import PhysicalModel
from mithril.physical.compilation import Compilation

BATCH = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)}
BATCH["target"] = BATCH["x"][:, :2].copy()


def compiled(optimizer, backend=None):
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="target")
    shapes = {"x": [None, 3], "target": [None, 2]}
    return ml.compile(
        train,
        backend or ml.CpuBackend(),
        data_keys=set(shapes),
        shapes=shapes,
        optimizer=optimizer,
    )


def steps(pm, optimizer, count=4, data=BATCH):
    params = pm.randomize_params(3)
    state = optimizer.init(params)
    for _ in range(count):
        params, state, _, outputs = pm.step(params, state, data)
    return params, state, outputs


@pytest.fixture
def long_way(monkeypatch):
    monkeypatch.setattr("mithril.physical.training.step_call", lambda *_: None)


@pytest.fixture
def long_steps(monkeypatch):
    """Counts the steps that the engine did not take by itself."""
    counted, original = [], PhysicalModel._step_of_engine

    def step(self, *arguments):
        counted.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(PhysicalModel, "_step_of_engine", step)
    return counted


OPTIMIZERS = [
    ml.optim.SGD(lr=0.1),
    ml.optim.Momentum(lr=0.1),
    ml.optim.Adam(lr=0.1),
    ml.optim.AdamW(lr=0.1),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
def test_it_is_taken_and_gives_the_same_bits(optimizer, long_steps, request):
    got = steps(compiled(optimizer), optimizer)
    assert len(long_steps) == 1  # of four
    request.getfixturevalue("long_way")
    wanted = steps(compiled(optimizer), optimizer)
    for name in ("w", "b"):
        np.testing.assert_array_equal(got[0][name], wanted[0][name])
        for slot in optimizer.slots:
            np.testing.assert_array_equal(got[1][slot][name], wanted[1][slot][name])
    assert got[1]["step"] == wanted[1]["step"] == 4
    assert got[2].keys() == wanted[2].keys()
    np.testing.assert_array_equal(got[2]["final_cost"], wanted[2]["final_cost"])


def test_nothing_given_is_changed():
    optimizer = ml.optim.Adam(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    kept = {name: value.copy() for name, value in params.items()}
    moments = {name: value.copy() for name, value in state["m"].items()}
    pm.step(params, state, BATCH)
    assert state["step"] == 4
    for name, value in kept.items():
        np.testing.assert_array_equal(params[name], value)
        np.testing.assert_array_equal(state["m"][name], moments[name])


def test_changed_numbers_of_the_optimizer_count():
    optimizer = ml.optim.Momentum(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    optimizer.lr, optimizer.momentum = 0.0001, 0.0
    moved, _, _, _ = pm.step(params, state, BATCH)
    gradients = pm.evaluate(params, BATCH, output_gradients=True).gradients
    np.testing.assert_allclose(moved["w"], params["w"] - 0.0001 * gradients["w"], rtol=1e-6)


def test_what_is_not_ready_is_converted():
    optimizer = ml.optim.SGD(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    wanted = pm.step(params, state, BATCH).params
    odd = {"x": BATCH["x"].tolist(), "target": np.asfortranarray(BATCH["target"])}
    np.testing.assert_array_equal(pm.step(params, state, odd).params["w"], wanted["w"])


def test_other_batch_sizes():
    optimizer = ml.optim.SGD(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    small = {name: value[:2].copy() for name, value in BATCH.items()}
    assert pm.step(params, state, small).outputs["y"].shape == (2, 2)


@pytest.mark.parametrize(
    "change, error",
    [
        (lambda p, d: d.pop("x"), ml.KeyNotFound),
        (lambda p, d: p.pop("w"), ml.KeyNotFound),
        (lambda p, d: d.update(x=d["x"][:, :2].copy()), ml.ShapeError),
        (lambda p, d: d.update(x=d["x"][:3].copy()), ml.MithrilError),
        (lambda p, d: p.update(w=p["w"][:1].copy()), ml.ShapeError),
        (lambda p, d: d.update(x="text"), ml.MithrilError),
    ],
)
def test_errors_stay(change, error):
    optimizer = ml.optim.SGD(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    params, data = dict(params), dict(BATCH)
    change(params, data)
    with pytest.raises(error):
        pm.step(params, state, data)


@pytest.mark.parametrize("bad", [None, {}, {"step": 2.5}, {"step": "2"}])
def test_a_state_that_is_none(bad):
    optimizer = ml.optim.SGD(lr=0.1)
    pm = compiled(optimizer)
    params, _, _ = steps(pm, optimizer)
    with pytest.raises(ml.ArgumentError):
        pm.step(params, bad, BATCH)


def test_a_superfluous_key_still_warns():
    optimizer = ml.optim.SGD(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    with pytest.warns(ml.errors.UnusedKeyWarning):
        pm.step(params, state, {**BATCH, "other": BATCH["x"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.step(params, state, BATCH)


@pytest.mark.parametrize("dtype", [ml.float32, ml.float64])
def test_both_precisions_and_names(dtype, long_steps):
    optimizer = ml.optim.Adam(lr=0.1)
    pm = compiled(optimizer, ml.CpuBackend(dtype=dtype))
    data = {name: value.astype(dtype.numpy()) for name, value in BATCH.items()}
    params, state, _ = steps(pm, optimizer, 1, data)
    got = pm.step(data=data, opt_state=state, params=params)
    assert len(long_steps) == 1
    assert type(got).__name__ == "Step" and got._fields == (
        "params",
        "opt_state",
        "state",
        "outputs",
    )
    moved, kept = optimizer.update(
        params, pm.evaluate(params, data, output_gradients=True).gradients, state
    )
    assert list(got.params) == list(params) and list(got.opt_state) == list(kept)
    for name, value in moved.items():
        assert got.params[name].dtype == dtype.numpy()
        np.testing.assert_allclose(got.params[name], value, rtol=1e-5)


def test_keys_beside_the_trained_ones_stay(long_steps):
    optimizer = ml.optim.Adam(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    other = np.zeros(2, np.float32)
    state = {**state, "m": {"other": other, **state["m"]}}
    got = pm.step(params, state, BATCH).opt_state
    assert len(long_steps) == 1
    assert list(got["m"]) == ["other", *[n for n in state["m"] if n != "other"]]
    assert got["m"]["other"] is other and list(state) == list(got)


@pytest.mark.parametrize("rate", [1, np.float64(0.1), 1e300])
def test_rates_that_are_no_plain_numbers_go_the_long_way(rate, long_steps):
    optimizer = ml.optim.SGD(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    optimizer.lr = rate
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pm.step(params, state, BATCH)
    assert len(long_steps) == 2


def test_the_last_number_of_a_step():
    optimizer = ml.optim.SGD(lr=0.1)
    pm = compiled(optimizer)
    params, state, _ = steps(pm, optimizer)
    assert pm.step(params, {**state, "step": 2**62}, BATCH).opt_state["step"] == 2**62 + 1
    assert pm.step(params, {**state, "step": 2**63 - 1}, BATCH).opt_state["step"] == 2**63
    with pytest.raises((ml.MithrilError, OverflowError)):
        pm.step(params, {**state, "step": 2**63}, BATCH)


def test_a_model_that_is_in_its_optimizer_is_collected():
    import gc
    import weakref

    optimizer = ml.optim.SGD(lr=0.1)
    pm = compiled(optimizer)
    steps(pm, optimizer)
    optimizer.__dict__["lr"] = type("Rate", (float,), {})(0.1)
    optimizer.lr.model = pm
    seen = weakref.ref(pm)
    del pm, optimizer
    gc.collect()
    assert seen() is None


class Named(dict):
    pass


def evaluations(monkeypatch):
    counted, original = [], Compilation.program_for

    def ready(self, *arguments):
        counted.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(Compilation, "program_for", ready)
    return counted


def relu(**options):
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.expose_keys("y")
    return ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": ["n", 3]}, **options)


def test_evaluations_that_the_engine_takes(monkeypatch):
    pm, long = relu(), evaluations(monkeypatch)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    wanted = np.maximum(x, 0)
    taken = [
        lambda: pm.evaluate({}, {"x": x}),
        lambda: pm.evaluate(None, {"x": x}),
        lambda: pm.evaluate(data={"x": x}),
        lambda: pm.evaluate(data={"x": x}, params={}, state=None, wrt=None, fetch=None),
        lambda: PhysicalModel.evaluate(pm, {}, {"x": x}),
    ]
    for call in taken:
        np.testing.assert_array_equal(call()["y"], wanted)
    assert not long
    left = [
        lambda: pm.evaluate(Named(), {"x": x}),
        lambda: pm.evaluate({}, {"x": x.tolist()}),
        lambda: pm.evaluate({}, {"x": x.astype(np.float64)}),
        lambda: pm.evaluate({}, {"x": np.asfortranarray(x)}),
        lambda: pm.evaluate({}, {"x": x}, state={}),
        lambda: pm.evaluate({}, {"x": x}, output_gradients=False),
        lambda: pm.evaluate(**{"".join(["da", "ta"]): {"x": x.astype(">f4")}}),
    ]
    for call in left:
        np.testing.assert_array_equal(call()["y"], wanted)
    assert len(long) == len(left)


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (5, 3)])
def test_outputs_are_arrays_like_others(shape):
    out = relu().evaluate({}, {"x": np.ones(shape, np.float32)})["y"]
    like = np.empty(shape, np.float32)
    assert type(out) is np.ndarray and out.shape == shape
    assert out.size == 0 or out.strides == like.strides
    for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE", "ALIGNED"):
        assert out.flags[flag] == like.flags[flag], flag
    assert not out.flags["OWNDATA"] and out.ctypes.data % 64 == 0
    out += 1
    assert (out == 2).all()


def test_misfits_are_refused_as_ever():
    pm, x = relu(), np.ones((2, 3), np.float32)
    for call in (
        lambda: pm.evaluate({}, {"x": x}, None),
        lambda: pm.evaluate({}, {"x": x}, data={"x": x}),
        lambda: pm.evaluate({}, dat={"x": x}),
        lambda: pm.evaluate(3, {"x": x}),
        lambda: PhysicalModel.evaluate(),
        lambda: PhysicalModel.evaluate(3),
    ):
        with pytest.raises((ml.MithrilError, TypeError, AttributeError)):
            call()
    with pytest.raises(ml.KeyNotFound, match="must have 'x'"):
        pm.evaluate({}, {})


def test_keys_that_cannot_be_compared():
    class Bad(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            raise RuntimeError("no")

    pm = relu()
    with pytest.raises(RuntimeError, match="no"):
        pm.evaluate({}, {Bad("x"): np.ones((2, 3), np.float32)})


def test_errors_of_the_engine_end_in_the_callers_code():
    model = ml.Model()
    model |= ml.Embedding(4, 2)(input="i", weight="w", output="y")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"i"}, shapes={"i": [3]})
    params = pm.get_parameters()
    told = r"index 9 is out of bounds for an axis of size 4\n  in model embedding"
    with pytest.raises(IndexError, match=told) as caught:
        pm.evaluate(params, {"i": np.array([0, 9, 1])})
    assert {str(entry.path) for entry in caught.traceback} == {__file__}


def test_static_shapes_are_looked_at_still():
    pm = relu(static_shapes=True)
    assert pm._native_evaluate is None


def test_what_a_method_looks_like_stays():
    import inspect

    parameters = list(inspect.signature(relu().evaluate).parameters)
    assert parameters[:2] == ["params", "data"] and parameters[-2:] == ["donate_state", "lazy"]
    assert "outputs" in PhysicalModel.evaluate.__doc__
    assert list(inspect.signature(PhysicalModel.step).parameters)[1:3] == ["params", "opt_state"]
