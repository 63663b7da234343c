"""Optimizers against torch.optim, in float64."""

# Covers: mithril/optim/optimizers.py

import copy
import pickle
import re

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, KeyNotFound

CASES = [
    (ml.optim.SGD(lr=0.1), "SGD", {"lr": 0.1}),
    (ml.optim.SGD(lr=0.1, weight_decay=0.01), "SGD", {"lr": 0.1, "weight_decay": 0.01}),
    (ml.optim.Momentum(lr=0.1), "SGD", {"lr": 0.1, "momentum": 0.9}),
    (
        ml.optim.Momentum(lr=0.1, nesterov=True),
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    ),
    (ml.optim.Adam(lr=0.1), "Adam", {"lr": 0.1}),
    (ml.optim.Adam(lr=0.1, weight_decay=0.01), "Adam", {"lr": 0.1, "weight_decay": 0.01}),
    (ml.optim.AdamW(lr=0.1), "AdamW", {"lr": 0.1}),
]


@pytest.mark.frameworks
@pytest.mark.parametrize(("optimizer", "name", "options"), CASES)
def test_steps_are_torchs(optimizer, name, options):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 2))
    theirs = torch.tensor(start, requires_grad=True)
    reference = getattr(torch.optim, name)([theirs], **options)
    params = {"w": start}
    state = optimizer.init(params)
    for _ in range(20):
        gradient = rng.normal(size=(3, 2))
        theirs.grad = torch.tensor(gradient)
        reference.step()
        params, state = optimizer.update(params, {"w": gradient}, state)
    np.testing.assert_allclose(params["w"], theirs.detach().numpy(), rtol=1e-12, atol=1e-14)


OPTIMIZERS = [ml.optim.SGD(0.1), ml.optim.Momentum(0.1), ml.optim.Adam(0.1), ml.optim.AdamW(0.1)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_every_backend_keeps_the_dtype(backend_name, dtype, optimizer, is_compiled):  # K61
    if (backend_name, dtype) == ("mlx", "float64"):
        pytest.skip("MLX has no float64 on GPUs")
    backend = ml.get_backend(backend_name, dtype=dtype)
    start, gradient = np.array([1.0, -2.0, 3.0]), np.array([0.3, 1e-3, -2.0])
    params, wanted = {"w": backend.array(start)}, {"w": start}
    state, theirs = optimizer.init(params), optimizer.init(wanted)
    model = ml.Model()
    model |= ml.Multiply()(left="w", right="x", output="h")
    model |= ml.Sum()(input="h", output="cost")
    model.expose_keys("cost")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [3], "w": [3]},
                    trainable_keys={"w"}, optimizer=optimizer)  # fmt: skip
    for _ in range(3):
        if is_compiled:
            params, state, *_ = pm.step(params, state, {"x": backend.array(gradient)})
        else:
            params, state = optimizer.update(params, {"w": backend.array(gradient)}, state)
        wanted, theirs = optimizer.update(wanted, {"w": gradient}, theirs)  # tested against PyTorch
        kept = [state[slot]["w"] for slot in optimizer.slots]
        assert all(str(x.dtype).endswith(dtype) for x in (params["w"], *kept))
    tolerance = 2e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(backend.to_numpy(params["w"]), wanted["w"], rtol=tolerance)


def test_nothing_changes_in_place_and_dtypes_stay():
    opt = ml.optim.Adam(lr=np.float64(0.1))
    params = {"w": np.ones(3, np.float32), "other": np.ones(2, np.float32)}
    state = opt.init(params)
    new, new_state = opt.update(params, {"w": np.ones(3, np.float32)}, state)
    assert new["w"].dtype == new_state["m"]["w"].dtype == np.float32
    assert new["other"] is params["other"]
    np.testing.assert_array_equal(params["w"], 1)
    np.testing.assert_array_equal(state["m"]["w"], 0)


def test_the_rate_may_be_an_array():
    opt = ml.optim.SGD(lr=np.array(0.5))
    new, _ = opt.update({"w": np.ones(1)}, {"w": np.ones(1)}, opt.init({"w": np.ones(1)}))
    np.testing.assert_array_equal(new["w"], 0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ml.optim.SGD(lr=-1),
        lambda: ml.optim.SGD(lr=float("nan")),
        lambda: ml.optim.Adam(lr="a"),
        lambda: ml.optim.Adam(beta1=1.0),
        lambda: ml.optim.AdamW(weight_decay=-1),
    ],
)
def test_bad_numbers(make):
    with pytest.raises(ArgumentError):
        make()


BAD_NUMBERS = [
    ("lr", -1, "lr: requires a number of at least 0, got -1"),
    ("lr", float("nan"), "lr: requires a number of at least 0, got nan"),
    ("lr", None, "lr: requires a number, got None"),
    ("lr", "0.5", "lr: requires a number, got '0.5'"),
    ("lr", np.array([0.1, 0.2]), "lr: requires a number, got"),
    ("lr", np.array("a"), "lr: requires a number, got"),
    ("lr", lambda step: 0.1, "lr: requires a number, got"),
    ("weight_decay", -0.1, "weight_decay: requires a number of at least 0, got -0.1"),
    ("clip_norm", 0, "clip_norm: requires a number above 0, got 0"),
    ("clip_value", "a", "clip_value: requires a number, got 'a'"),
    ("beta1", 1, "beta1: requires a number in [0, 1), got 1"),
    ("beta2", -0.5, "beta2: requires a number in [0, 1), got -0.5"),
    ("eps", -1e-8, "eps: requires a number of at least 0, got -1e-08"),
    ("momentum", 1.5, "momentum: requires a number in [0, 1), got 1.5"),
    ("nesterov", "yes", "nesterov: requires True or False, got 'yes'"),
    ("learning_rate", 0.5, "has no attribute 'learning_rate': it is 'lr' here"),
    ("epsilon", 0.5, "has no attribute 'epsilon'"),
    ("clip_nrom", 0.5, "has no attribute 'clip_nrom', did you mean 'clip_norm'?"),
    ("slots", (), "has no attribute 'slots'"),
]


@pytest.mark.parametrize("kind", [ml.optim.SGD, ml.optim.Momentum, ml.optim.Adam, ml.optim.AdamW])
def test_attributes_are_checked_as_the_constructor_does(kind):
    opt = kind(lr=0.25)
    before, text = dict(vars(opt)), repr(opt)
    for name, value, said in BAD_NUMBERS:
        if name in before:
            with pytest.raises((ArgumentError, TypeError), match=re.escape(said)):
                kind(**{name: value})
        elif name in ("beta1", "beta2", "eps", "momentum", "nesterov"):  # of other optimizers
            said = f"{kind.__name__}: has no attribute {name!r}"
        with pytest.raises(ml.errors.MithrilError, match=re.escape(said)):
            setattr(opt, name, value)
        assert vars(opt) == before and repr(opt) == text
    opt.lr, opt.weight_decay, opt.clip_norm, opt.clip_value = 0, 0.5, 2, None
    assert (opt.lr, opt.weight_decay, opt.clip_norm, opt.clip_value) == (0, 0.5, 2, None)
    for twin in (copy.copy(opt), copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
        assert vars(twin) == vars(opt)


def test_a_rate_of_a_schedule_may_be_0_or_an_array():
    opt, params, gradients = ml.optim.SGD(lr=1.0), {"w": np.ones(2)}, {"w": np.full(2, 0.5)}
    for rate in (0, np.float32(0.5), np.array(0.25)):
        opt.lr = rate
        new, _ = opt.update(params, gradients, opt.init(params))
        np.testing.assert_array_equal(new["w"], 1 - 0.5 * float(rate))


@pytest.mark.frameworks
def test_a_rate_may_be_traced():
    jax = pytest.importorskip("jax")

    def moved(rate):
        opt = ml.optim.SGD(lr=rate)
        opt.lr = rate * 2
        params, gradients = {"w": np.ones(2, np.float32)}, {"w": np.full(2, 0.5, np.float32)}
        return opt.update(params, gradients, {"step": 0})[0]["w"]

    np.testing.assert_allclose(jax.jit(moved)(0.25), 0.75)


def test_classes_of_users_have_attributes_of_their_own():
    class Mine(ml.optim.SGD):
        def __init__(self, gain):
            super().__init__(lr=0.1)
            self.gain = gain

    mine = Mine(3)
    mine.gain = 4
    assert mine.gain == 4
    with pytest.raises(ArgumentError, match="lr: requires a number of at least 0"):
        mine.lr = -1
    assert mine.lr == 0.1


def test_gradients_of_nobody():
    opt = ml.optim.SGD()
    with pytest.raises(KeyNotFound, match="'wight', did you mean 'weight'"):
        opt.update({"weight": np.ones(1)}, {"wight": np.ones(1)}, {"step": 0})


BAD_GRADIENTS = [
    (np.ones((2, 1)), np.ones(2), ml.errors.ShapeError,
     "update: the gradient of 'w' requires the shape [2, 1], got [2]"),
    (np.ones(2), np.ones((1, 2)), ml.errors.ShapeError,
     "update: the gradient of 'w' requires the shape [2], got [1, 2]"),
    (np.ones(3), np.ones(2), ml.errors.ShapeError,
     "update: the gradient of 'w' requires the shape [3], got [2]"),
    (np.array([5, 5], "int32"), np.ones(2), ml.errors.DTypeError,
     "update: params: 'w' requires a float dtype, got int32"),
    (np.array([True]), np.ones(1), ml.errors.DTypeError,
     "update: params: 'w' requires a float dtype, got bool"),
    (np.ones(2), np.array([1, 2], "int32"), ml.errors.DTypeError,
     "update: gradients: 'w' requires a float dtype, got int32"),
]  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
def test_gradients_that_do_not_fit_are_refused(backend_name, optimizer):
    backend = ml.get_backend(backend_name)
    for parameter, gradient, error, said in BAD_GRADIENTS:
        params = {"other": backend.ones(1), "w": backend.array(parameter)}
        state = optimizer.init(params)
        with pytest.raises(error) as e:
            optimizer.update(params, {"w": backend.array(gradient)}, state)
        assert str(e.value).startswith(said), e.value
        kept = backend.to_numpy(params["w"])
        np.testing.assert_array_equal(kept, parameter)
    # What has no gradient may be anything.
    params = {"n": backend.array(np.array([5], "int32")), "w": backend.ones(2)}
    gradients = {"w": backend.zeros(2)}
    new, _ = optimizer.update(params, gradients, optimizer.init(params))
    assert new["n"] is params["n"]


STATEFUL = [o for o in OPTIMIZERS if o.slots]
BAD_SLOTS = [((1, 3), "[3], got [1, 3]"), ((1,), "[3], got [1]"), ((2,), "[3], got [2]"),
             ((), "[3], got []")]  # fmt: skip


def three_weights(backend, optimizer):
    model = ml.Model()
    model |= ml.Multiply()(left="w", right="x", output="h")
    model |= ml.Sum()(input="h", output="cost")
    model.expose_keys("cost")
    return ml.compile(model, backend, data_keys={"x"}, shapes={"x": [3], "w": [3]},
                      trainable_keys={"w"}, optimizer=optimizer)  # fmt: skip


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("optimizer", STATEFUL, ids=lambda o: type(o).__name__)
def test_states_that_do_not_fit_are_refused(backend_name, optimizer, clip):
    backend, optimizer = ml.get_backend(backend_name), copy.copy(optimizer)
    optimizer.clip_norm = clip
    pm = three_weights(backend, optimizer)
    params, data = {"w": backend.ones(3)}, {"x": backend.ones(3)}
    first = optimizer.init(params)
    for warm in (False, True):  # the fast paths, too
        for shape, said in BAD_SLOTS:
            slot = optimizer.slots[-1]
            state = {**first, slot: {"w": backend.zeros(shape)}}
            with pytest.raises(ml.errors.ShapeError) as e:
                optimizer.update(params, {"w": data["x"]}, state)
            text = f"state: '{slot}' of 'w' requires the shape {said}"
            assert str(e.value).startswith(f"update: {text}")
            with pytest.raises(ml.errors.ShapeError) as e:
                pm.step(params, state, data)
            assert str(e.value).startswith(f"step: opt_{text}")
        if not warm:
            pm.step(params, first, data)


@pytest.mark.parametrize("step", [-1, True, np.ones(3), np.array(-2), np.array(1.5), 2**70])
def test_what_counts_no_steps_is_refused(step):
    opt, params = ml.optim.Adam(), {"w": np.ones(3, np.float32)}
    state = {**opt.init(params), "step": step}
    with pytest.raises(ArgumentError, match="update: state: 'step' requires a number of steps"):
        opt.update(params, params, state)
    with pytest.raises(ArgumentError, match="step: opt_state: 'step' requires a number of steps"):
        three_weights(ml.NumpyBackend(), opt).step(params, state, {"x": np.ones(3)})


def test_a_state_of_no_arrays_is_refused():
    opt, params = ml.optim.Momentum(), {"w": np.ones(3)}
    with pytest.raises(ml.errors.SignatureError, match="'v' of 'w' requires an array, got 3.0"):
        opt.update(params, params, {"step": 0, "v": {"w": 3.0}})


def test_classes_of_users_keep_what_they_like():
    class Rows(ml.optim.Momentum):
        def init(self, params):
            return {"step": 0, "v": {n: p[0] * 0 for n, p in params.items()}}

    params = {"w": np.ones((2, 3))}
    opt = Rows(lr=1.0)
    new, _ = opt.update(params, {"w": np.ones((2, 3))}, opt.init(params))
    np.testing.assert_array_equal(new["w"], 0)
