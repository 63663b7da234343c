"""Later steps of training skip what the first one has checked, and do the same otherwise."""

import warnings

import mithril as ml
import numpy as np
import pytest
from mithril import _quick_step

BATCH = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)}
BATCH["target"] = BATCH["x"][:, :2].copy()


def compiled(optimizer):
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="target")
    shapes = {"x": [None, 3], "target": [None, 2]}
    return ml.compile(
        train, ml.CpuBackend(), data_keys=set(shapes), shapes=shapes, optimizer=optimizer
    )


def steps(pm, optimizer, count=4, data=BATCH):
    params = pm.randomize_params(3)
    state = optimizer.init(params)
    for _ in range(count):
        params, state, _, outputs = pm.step(params, state, data)
    return params, state, outputs


@pytest.fixture
def long_way(monkeypatch):
    monkeypatch.setattr(_quick_step.QuickStep, "try_run", lambda *_: None)


@pytest.fixture
def quick_steps(monkeypatch):
    """How many steps went the quick way."""
    counted, original = [], _quick_step.QuickStep.try_run

    def try_run(self, *arguments):
        result = original(self, *arguments)
        counted.append(result is not None)
        return result

    monkeypatch.setattr(_quick_step.QuickStep, "try_run", try_run)
    return counted


OPTIMIZERS = [
    ml.optim.SGD(lr=0.1),
    ml.optim.Momentum(lr=0.1),
    ml.optim.Adam(lr=0.1),
    ml.optim.AdamW(lr=0.1),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
def test_it_is_taken_and_gives_the_same_bits(optimizer, quick_steps, request):
    got = steps(compiled(optimizer), optimizer)
    assert quick_steps == [True] * 3
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
