"""A state that is given away: the CPU engine and C update it where it lies, if nobody else needs
it."""

import shutil

import mithril as ml
import numpy as np
import pytest


def decoder_and_places(backend="cpu"):
    layer = ml.MultiHeadAttention(2, 8, is_causal=True, cache_size=6)
    on = ml.get_backend(backend)
    pm = ml.compile(layer, on, data_keys={"query"}, shapes={"query": [1, None, 8]})
    x = np.random.default_rng(0).standard_normal((1, 6, 8)).astype(np.float32)
    return pm, pm.randomize_params(seed=0), x


def copied(state):
    return {name: np.array(value) for name, value in state.items()}


def test_a_state_that_is_kept_does_not_change():
    pm, params, x = decoder_and_places()
    state = pm.evaluate(params, {"query": x[:, :3]}, state=pm.initial_state()).state
    before = copied(state)
    after = pm.evaluate(params, {"query": x[:, 3:4]}, state=state).state
    for name, value in before.items():
        np.testing.assert_array_equal(state[name], value)
        assert not np.shares_memory(after[name], state[name])


@pytest.mark.parametrize("backend", ["cpu", "c"])
def test_caches_of_a_donated_state_grow_where_they_are(backend):
    if backend == "c" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    pm, params, x = decoder_and_places(backend)
    kept = given = pm.evaluate(params, {"query": x[:, :2]}, state=pm.initial_state()).state
    given = copied(given)
    for at in range(2, 6):
        data = {"query": x[:, at : at + 1]}
        wanted = pm.evaluate(params, data, state=kept)
        found = pm.evaluate(params, data, state=given, donate_state=True)
        np.testing.assert_array_equal(found.outputs["output"], wanted.outputs["output"])
        for name, value in wanted.state.items():
            np.testing.assert_array_equal(found.state[name], value)
        assert found.state["k_cache"] is given["k_cache"]
        assert found.state["v_cache"] is given["v_cache"]
        kept, given = wanted.state, found.state
    beyond = pm.evaluate(params, {"query": x[:, :1]}, state=given, donate_state=True)
    assert np.isnan(beyond.state["k_cache"]).all()


def test_what_others_hold_or_may_not_be_written_is_copied():
    pm, params, x = decoder_and_places()
    state = pm.evaluate(params, {"query": x[:, :2]}, state=pm.initial_state()).state
    shared = np.zeros((2, *state["k_cache"].shape), np.float32)
    read_only = copied(state)["v_cache"]
    read_only.flags.writeable = False
    cases = (
        {**state, "k_cache": shared[0], "v_cache": shared[0]},  # one memory for both
        {**copied(state), "v_cache": read_only},
    )
    for given in cases:
        before = copied(given)
        wanted = pm.evaluate(params, {"query": x[:, 2:3]}, state=before)
        found = pm.evaluate(params, {"query": x[:, 2:3]}, state=given, donate_state=True)
        np.testing.assert_array_equal(found.outputs["output"], wanted.outputs["output"])
        np.testing.assert_array_equal(given["v_cache"], before["v_cache"])
        assert found.state["v_cache"] is not given["v_cache"]


def test_a_state_that_is_used_otherwise_is_copied():
    """The old cache is an output, too: what was given must be there until the end."""
    model = ml.Model()
    cache = ml.IOKey("cache", shape=[4, 2])
    offset = ml.IOKey("offset", shape=[], type=ml.Tensor[int])
    model |= ml.UpdateCache()(cache=cache, input="x", offset=offset, output="new")
    model |= ml.Add()(left="new", right="cache", output="sum")
    model.set_shapes(x=[1, 2])
    model.bind_state_keys("cache", "new", 0.0)
    model.expose_keys("sum")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x", "offset"})
    data = {"x": np.ones((1, 2), np.float32), "offset": np.array(1)}
    state = pm.initial_state()
    found = pm.evaluate({}, data, state=state, donate_state=True)
    assert found.outputs["sum"].sum() == 2 and found.state["cache"].sum() == 2
    assert np.asarray(state["cache"]).sum() == 0


def test_donation_is_yes_or_no():
    pm, params, x = decoder_and_places()
    with pytest.raises(ml.errors.SignatureError, match="donate_state: requires True or False"):
        pm.evaluate(params, {"query": x}, state=pm.initial_state(), donate_state="yes")


def test_donation_of_nothing_is_refused(backend_name):
    pm, params, x = decoder_and_places()
    plain = ml.compile(ml.Relu(), ml.get_backend(backend_name), shapes={"input": [2]})
    for model, data in ((pm, {"query": x}), (plain, {"input": np.ones(2, np.float32)})):
        for _ in range(2):  # the quick way, too
            with pytest.raises(ml.errors.ArgumentError, match="donate_state=True: there is no"):
                model.evaluate(params, data, donate_state=True)
            with pytest.raises(ml.errors.ArgumentError, match="donate_state=True: there is no"):
                model.evaluate(params, data, state={}, donate_state=True)
            plain.evaluate({}, {"input": np.ones(2, np.float32)}, state={}, donate_state=False)
