"""Steps that update each parameter as its gradient comes, in the arrays that they are given."""

import signal

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, OutOfMemoryError, UnsupportedError

RNG = np.random.default_rng(0)
DATA = {
    "x": RNG.standard_normal((32, 20)).astype(np.float32),
    "t": RNG.standard_normal((32, 5)).astype(np.float32),
}
OPTIMIZERS = [
    ml.optim.SGD(lr=0.1, weight_decay=0.1),
    ml.optim.Momentum(lr=0.1),
    ml.optim.Adam(lr=0.1),
    ml.optim.AdamW(lr=0.1),
]


def network(width=64):
    model = ml.Model(name="net")
    model |= ml.Linear(width, name="first")(input="x", output="h")
    model |= ml.LayerNorm()(input="h", output="n")
    model |= ml.Gelu()(input="n", output="a")
    model |= ml.Linear(width, name="second")(input="a", output="b")
    model |= ml.Linear(5, name="third")(input="b", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t")
    return train


def compiled(optimizer, streams=True, backend=None, width=64, **options):
    shapes = {name: list(value.shape) for name, value in DATA.items()}
    return ml.compile(
        network(width),
        backend or ml.CpuBackend(),
        data_keys=set(shapes),
        shapes=shapes,
        optimizer=optimizer,
        stream_gradients=streams,
        **options,
    )


def addresses(arrays):
    return {name: value.ctypes.data for name, value in arrays.items()}


def copies(arrays):
    return {name: value.copy() for name, value in arrays.items()}


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
def test_bits_are_those_of_plain_steps_and_arrays_are_those_given(optimizer):
    plain, streaming = compiled(optimizer, streams=False), compiled(optimizer)
    params = plain.randomize_params(1)
    state = optimizer.init(params)
    given, given_state = (
        copies(params),
        {
            "step": 0,
            **{slot: copies(state[slot]) for slot in optimizer.slots},
        },
    )
    where = addresses(given)
    where_slots = {slot: addresses(given_state[slot]) for slot in optimizer.slots}
    for _ in range(4):
        params, state, _, outputs = plain.step(params, state, DATA)
        given, given_state, _, found = streaming.step(given, given_state, DATA)
    assert found["final_cost"] == outputs["final_cost"]
    assert given_state["step"] == 4
    assert addresses(given) == where
    for name, value in params.items():
        np.testing.assert_array_equal(given[name], value)
    for slot in optimizer.slots:
        assert addresses(given_state[slot]) == where_slots[slot]
        for name, value in state[slot].items():
            np.testing.assert_array_equal(given_state[slot][name], value)


def test_gradients_do_not_lie_beside_one_another():
    optimizer = ml.optim.Adam(0.1)
    plain = compiled(optimizer, False, width=512).memory_plan()["step"]
    plan = compiled(optimizer, width=512).memory_plan()["step"]
    assert plan.outputs < 1000  # no second copy of parameters and moments
    assert plain.outputs - plan.outputs == 3 * plan.parameters
    second = 4 * 512 * 512
    activations = 4 * 32 * (5 * 512 + 64)
    assert second <= plan.peak <= second + activations  # one gradient of a large matrix


def test_what_is_read_only_or_shared_is_copied():
    optimizer = ml.optim.Momentum(0.1)
    plain, streaming = compiled(optimizer, False), compiled(optimizer)
    params = plain.randomize_params(1)
    state = optimizer.init(params)
    wanted = plain.step(params, state, DATA)
    frozen = {
        name: np.frombuffer(v.tobytes(), v.dtype).reshape(v.shape) for name, v in params.items()
    }
    kept = copies(frozen)
    zeros = np.zeros(max(v.size for v in params.values()), np.float32)
    shared = {n: zeros[: v.size].reshape(v.shape) for n, v in params.items()}
    found = streaming.step(frozen, {"step": 0, "v": shared}, DATA)
    for name in params:
        np.testing.assert_array_equal(found.params[name], wanted.params[name])
        np.testing.assert_array_equal(found.opt_state["v"][name], wanted.opt_state["v"][name])
        np.testing.assert_array_equal(frozen[name], kept[name])
    assert not zeros.any()
    where = addresses(found.params)
    again = streaming.step(found.params, found.opt_state, DATA)
    assert addresses(again.params) == where


def test_a_parameter_that_is_data_too_is_copied():
    optimizer = ml.optim.SGD(0.1)
    pm = compiled(optimizer)
    params = pm.randomize_params(1)
    big = np.concatenate([DATA["x"].ravel(), np.zeros(64 * 20, np.float32)])
    weight = next(n for n, v in params.items() if v.shape == (64, 20))
    data = {"x": big[: 32 * 20].reshape(32, 20), "t": DATA["t"]}
    params[weight] = big[16 * 20 : 16 * 20 + 64 * 20].reshape(64, 20)
    before = big.copy()
    pm.step(params, optimizer.init(params), data)
    np.testing.assert_array_equal(big, before)


def embedding():
    model = ml.Model()
    model |= ml.Embedding(10, 4)(input="x", weight="table", output="h")
    model |= ml.Linear(3)(input="h", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t")
    return train


def test_bad_data_change_nothing():
    optimizer = ml.optim.Adam(0.1)
    shapes = {"x": [6], "t": [6, 3]}
    pm = ml.compile(
        embedding(), ml.CpuBackend(), data_keys=set(shapes), shapes=shapes,
        optimizer=optimizer, stream_gradients=True,
    )  # fmt: skip
    params = pm.randomize_params(1)
    state = optimizer.init(params)
    data = {"x": np.arange(6), "t": np.zeros((6, 3), np.float32)}
    params, state, *_ = pm.step(params, state, data)
    kept, moments = copies(params), copies(state["m"])
    for _ in range(2):
        with pytest.raises(ml.errors.DataIndexError, match="index 10"):
            pm.step(params, state, {**data, "x": np.array([0, 1, 2, 3, 4, 10])})
    assert state["step"] == 1
    for name in kept:
        np.testing.assert_array_equal(params[name], kept[name])
        np.testing.assert_array_equal(state["m"][name], moments[name])
    assert pm.step(params, state, data).opt_state["step"] == 2


def test_ctrl_c_waits_for_the_end_of_the_step():
    optimizer = ml.optim.Adam(0.1)
    plain, pm = compiled(optimizer, False, width=4096), compiled(optimizer, width=4096)
    params = pm.randomize_params(1)
    params, state, *_ = pm.step(params, optimizer.init(params), DATA)  # compiles
    slots = {slot: copies(state[slot]) for slot in optimizer.slots}
    wanted = plain.step(copies(params), {"step": 1, **slots}, DATA)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 5e-3)  # a step takes several times that
            pm.step(params, state, DATA)
    finally:
        signal.signal(signal.SIGALRM, old)
    assert state["step"] == 2
    for name in params:
        np.testing.assert_array_equal(params[name], wanted.params[name])
        np.testing.assert_array_equal(state["m"][name], wanted.opt_state["m"][name])


def test_steps_that_are_larger_than_memory_name_the_largest():
    model = ml.Model(name="net")
    model |= ml.Linear(3_000_000, use_bias=False, name="wide")(input="x", output="h")
    model |= ml.Linear(1, use_bias=False, name="narrow")(input="h", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t")
    optimizer = ml.optim.SGD(0.1)
    shapes = {"x": [None, 1], "t": [None, 1]}
    pm = ml.compile(
        train, ml.CpuBackend(), data_keys=set(shapes), shapes=shapes,
        optimizer=optimizer, stream_gradients=True,
    )  # fmt: skip
    params = pm.get_parameters()
    rows = {name: np.ones((3_000_000, 1), np.float32) for name in shapes}
    kept = copies(params)
    with pytest.raises(OutOfMemoryError, match="36.0 TB") as info:
        pm.step(params, optimizer.init(params), rows)
    assert "float32[3000000, 3000000] of gemm in 'net.wide'" in str(info.value)
    for name in kept:
        np.testing.assert_array_equal(params[name], kept[name])


def test_wrong_uses_are_told():
    adam = ml.optim.Adam(0.1)
    with pytest.raises(ArgumentError, match="stream_gradients: there is no optimizer"):
        compiled(None)
    with pytest.raises(UnsupportedError, match="stream_gradients: NumpyBackend"):
        compiled(adam, backend=ml.NumpyBackend())

    class Own(ml.optim.SGD):
        op = ""

    with pytest.raises(UnsupportedError, match="stream_gradients: Own"):
        compiled(Own(0.1))
    with pytest.raises(ArgumentError, match="stream_gradients: check_nan"):
        compiled(adam, check_nan=True)
