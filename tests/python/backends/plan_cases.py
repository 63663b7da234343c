"""What backends that run the engine's plans are asked, whatever runs the plans: the engine's bits.

`both` compiles a model for the engine and for the backend that is tested.
"""

import threading

import mithril as ml
import numpy as np
import pytest
from formats.c_cases import MODELS, drawn, training
from mithril.errors import DataIndexError
from test_random_models import RandomModel, trials_of

every_model = pytest.mark.parametrize("title", MODELS)


def same(got, want):
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
        assert np.asarray(got[name]).dtype == np.asarray(want[name]).dtype


def same_runs(runs):
    """Asserts that two sequences of dictionaries are equal."""
    for got, want in zip(*runs, strict=True):
        same(got, want)


def check_values_and_gradients(both, title, dtype):
    make, shape = MODELS[title]
    engine, other = both(make(), dtype, data_keys={"x"}, shapes={"x": shape}, mode="eval")
    params, data = engine.get_parameters(), {"x": drawn(shape)}
    wanted = engine.evaluate(params, data)
    same(other.evaluate(params, data), wanted)
    cotangents = {"y": drawn(wanted["y"].shape, 1)}
    same_runs(pm.evaluate(params, data, output_gradients=cotangents) for pm in (other, engine))


def training_on(backend, title, optimizer):
    """A training step of a model, compiled, with data for it."""
    make, shape = MODELS[title]
    pm = ml.compile(
        training(make()), backend, data_keys={"x", "target"}, shapes={"x": shape},
        optimizer=optimizer, deterministic="portable",
    )  # fmt: skip
    return pm, {"x": drawn(shape), "target": drawn(dict(pm.shapes)["target"], 1)}


def check_steps(both, title, count, **options):
    make, shape = MODELS[title]
    optimizer = ml.optim.AdamW(lr=1e-2)
    runs = []
    for pm in both(
        training(make()), data_keys={"x", "target"}, shapes={"x": shape}, optimizer=optimizer,
        **options,
    ):  # fmt: skip
        data = {"x": drawn(shape), "target": drawn(dict(pm.shapes)["target"], 1)}
        params, state = pm.get_parameters(), pm.initial_state()
        opt_state = optimizer.init(params)
        for _ in range(count):
            params, opt_state, state, outputs = pm.step(params, opt_state, data, state)
        runs.append((params, opt_state["m"], state, outputs))
    same_runs(runs)


def branch():
    model = ml.Model()
    negative, positive = ml.Model(), ml.Model()
    negative |= ml.Sine()(input="v", output="w")
    positive |= ml.Exponential()(input="v", output="w")
    model |= ml.Sum()(input="x", output="s")
    model |= ml.Greater()(left="s", right=0.0, output="p")
    model |= ml.Cond(positive, negative)(predicate="p", v="x", w="y")
    model.expose_keys("y")
    return model


def check_branches(both, sign):
    engine, other = both(branch(), data_keys={"x"}, shapes={"x": [5]})
    data = {"x": sign * np.abs(drawn([5]))}
    same(other.evaluate({}, data), engine.evaluate({}, data))


def check_random_models(both, count):
    for seed in range(max(1, count)):
        case = RandomModel(seed)
        inputs = case.inputs()
        engine, other = both(
            case.model, "float64", trainable_keys={"a", "b"}, data_keys=set(inputs) - {"a", "b"}
        )
        split = (
            {k: inputs[k] for k in ("a", "b")},
            {k: inputs[k] for k in inputs if k not in "ab"},
        )
        want = engine.evaluate(*split)
        same(other.evaluate(*split), want)
        floats = {k: np.ones_like(v) for k, v in want.items() if v.dtype == np.float64}
        runs = (pm.evaluate(*split, output_gradients=floats) for pm in (other, engine))
        same(*(run.gradients for run in runs))


def check_many_random_models(name, graphs, seed, check_counts):
    """Those of `--device-graphs` that one test has, in one: values beside the oracle, and the
    gradients of the engine, whose slopes are checked there, within their bounds. A third of the
    tests are in float32."""
    numbers = [seed * 10**6 + number for number in graphs]
    dtype = "float32" if graphs[0] % 3 == 0 else "float64"
    kind = getattr(ml, name).backend_type
    for some, device, engine in trials_of(numbers, name, dtype):
        device.check_gradients(device.check_values(), engine.check_values())
        check_counts[f"random models on {kind}"] += len(some)


def check_open_sizes(both):
    engine, other = both(MODELS["mlp"][0](), data_keys={"x"}, shapes={"x": ["batch", 16]})
    params = engine.get_parameters()
    for batch in (1, 3, 0, 3):
        data = {"x": drawn([batch, 16])}
        same(other.evaluate(params, data), engine.evaluate(params, data))


def check_threads_at_once(backend, count, wait):
    """`count` evaluations in each of four threads, which end within `wait` seconds."""
    make, shape = MODELS["gpt_block"]
    pm = ml.compile(make(), backend, data_keys={"x"}, shapes={"x": shape})
    params, found = pm.get_parameters(), {}

    def work(i):
        for _ in range(count):
            found[i] = pm.evaluate(params, {"x": drawn(shape, i)})["y"]

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(wait)
        assert not thread.is_alive()
    for i, y in found.items():
        np.testing.assert_array_equal(y, pm.evaluate(params, {"x": drawn(shape, i)})["y"])


def check_donated_states(backend):
    make, shape = MODELS["cnn"]
    pm = ml.compile(make(), backend, data_keys={"x"}, shapes={"x": shape}, mode="train")
    params, data = pm.get_parameters(), {"x": drawn(shape)}
    kept = pm.evaluate(params, data, state=pm.initial_state())
    given = pm.evaluate(params, data, state=pm.initial_state(), donate_state=True)
    same(given.outputs, kept.outputs)
    same(given.state, kept.state)


def check_bad_index(both):
    model = ml.Model()
    model |= ml.Embedding(num_embeddings=4, dim=2)(input="x", output="y")
    said = []
    for pm in both(model, data_keys={"x"}, shapes={"x": [3]}):
        with pytest.raises(DataIndexError) as raised:
            pm.evaluate(pm.get_parameters(), {"x": np.array([0, 4, 1])})
        said.append(str(raised.value))
    assert said[0] == said[1]
