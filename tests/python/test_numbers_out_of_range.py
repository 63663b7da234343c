"""Numbers that the element type does not hold: what takes them over is refused, what computes with
them computes in float32. Expected values are NumPy's in float64, of the same halves."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, DataOverflowError, SignatureError

HALVES = ("float16", "bfloat16")
BEYOND = {"float16": 1e9, "bfloat16": 1e39, "float32": 1e39}
MOVED = {
    "masked_fill": lambda x, n: ml.MaskedFill()(x, x > 0, -n),
    "where": lambda x, n: ml.Where()(x > 0, n, x),
    "full": lambda x, n: ml.Full(shape=(2,), value=n)() + x,
    "pad": lambda x, n: ml.Pad(pad_width=((1, 0),), value=n)(x),
    "constant": lambda x, n: x * ml.Tensor([1.0, n]),
}


def compiled(formula, backend_name, dtype, number):
    x = ml.IOKey("x", shape=[2])
    backend = ml.get_backend(backend_name, dtype=dtype)
    return ml.compile(ml.Model.create(y=formula(x, number)), backend, data_keys={"x"})


@pytest.mark.parametrize("dtype", BEYOND)
@pytest.mark.parametrize("what", MOVED)
def test_a_number_that_would_become_infinite_is_refused(what, dtype, backend_name):
    with pytest.raises(DataOverflowError, match=f"in the range of {dtype}, got"):
        compiled(MOVED[what], backend_name, dtype, BEYOND[dtype])


@pytest.mark.parametrize("what", MOVED)
@pytest.mark.parametrize("dtype, number", [("float16", 65504.0), ("bfloat16", 1e38)])
def test_what_it_holds_and_infinity_are_taken(what, dtype, number, backend_name):
    for given in (number, np.inf):
        pm = compiled(MOVED[what], backend_name, dtype, given)
        found = pm.evaluate({}, {"x": np.array([0.5, 1.0])})["y"]
        found = np.asarray(pm.backend.to_numpy(found)).astype("float64")
        assert np.isclose(abs(found).max(), given, rtol=1e-2)


def test_the_text_of_the_error():
    with pytest.raises(DataOverflowError) as error:
        compiled(MOVED["masked_fill"], "numpy", "float16", 1e9)
    said = str(error.value)
    assert "masked_fill: 'value' must be in the range of float16, got -1000000000.0" in said
    assert "give -inf, a number nearer to 0, or a wider type" in said


COMPUTED = {
    "product": (lambda x, n: x * n, lambda x, n: x * n),
    "quotient": (lambda x, n: x / n, lambda x, n: x / n),
    "quotient of it": (lambda x, n: n / x, lambda x, n: n / x),
    "sum": (lambda x, n: x + n, lambda x, n: x + n),
    "difference": (lambda x, n: n - x, lambda x, n: n - x),
    "maximum": (lambda x, n: ml.Maximum()(x, -n), lambda x, n: np.maximum(x, -n)),
    "minimum": (lambda x, n: ml.Minimum()(x, n), lambda x, n: np.minimum(x, n)),
    "less": (lambda x, n: x < n, lambda x, n: x < n),
    "equal": (lambda x, n: ml.Equal()(x, n), lambda x, n: x == n),
    "error": (lambda x, n: ml.AbsoluteError()(x, n), lambda x, n: abs(x - n)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("what", COMPUTED)
def test_numbers_are_computed_with_in_float32(what, dtype, backend_name):
    if (backend_name, dtype, what) == ("jax", "bfloat16", "quotient"):
        pytest.skip("XLA multiplies by the reciprocal, which is subnormal: 0")
    formula, exact = COMPUTED[what]
    number = 1e6 if dtype == "float16" else 3.395e38  # float32 holds the second one
    pm = compiled(formula, backend_name, dtype, number)
    half = ml.Dtype(dtype).numpy()
    x = np.array([1e-3, np.inf]).astype(half)
    found = np.asarray(pm.backend.to_numpy(pm.evaluate({}, {"x": x})["y"]))
    with np.errstate(all="ignore"):
        want = np.float64(exact(x.astype("float64"), number))
        want = want.astype("float32").astype(half)
    np.testing.assert_allclose(found.astype("float64"), want.astype("float64"), rtol=2**-7)
    assert found.dtype == (bool if what in ("less", "equal") else half)


def test_gradients_beside_such_numbers(backend_name):
    pm = compiled(lambda x, n: x * n * 1e-3, backend_name, "float16", 1e6)
    ones = {"y": pm.backend.ones(2)}
    data = {"x": np.array([1e-3, 2e-3])}
    found = pm.evaluate({}, data, output_gradients=ones, wrt=["x"]).gradients["x"]
    found = np.asarray(pm.backend.to_numpy(found))
    assert found.dtype == np.float16
    between = float(np.float16(1e-3))  # the cotangent of the first product is a half
    np.testing.assert_array_equal(found, np.float16([between * 1e6] * 2))


# --- numbers that no float holds ------------------------------------------------------------------

HUGE = 10**400
LAYERS = {
    "dropout": [
        lambda n: ml.GRU(2, num_layers=2, dropout=n),
        lambda n: ml.LSTM(2, num_layers=2, dropout=n),
        lambda n: ml.SimpleRNN(2, num_layers=2, dropout=n),
        lambda n: ml.MultiHeadAttention(2, dropout=n),
    ],
    "scale": [lambda n: ml.MultiHeadAttention(2, scale=n)],
    "theta": [lambda n: ml.models.create_llama(4, 2, 2, 1, 8, 9, theta=n)],
    "eps": [lambda n: ml.models.create_llama(4, 2, 2, 1, 8, 9, eps=n)],
}


@pytest.mark.parametrize("key", LAYERS)
@pytest.mark.parametrize("number", [HUGE, -HUGE], ids=["huge", "-huge"])
def test_layers_name_the_argument(key, number):
    for layer in LAYERS[key]:
        with pytest.raises((DataOverflowError, ArgumentError), match=f": {key}\\b"):
            layer(number)
    if key == "dropout":
        for layer in LAYERS[key]:
            with pytest.raises(ArgumentError, match=": dropout .*got nan"):
                layer(float("nan"))


NOT_HELD = {
    "random_normal: mean": lambda b, n: b.random_normal((2,), mean=n),
    "random_normal: stddev": lambda b, n: b.random_normal((2,), stddev=n),
    "rand_uniform: low": lambda b, n: b.rand_uniform(n, 1.0, 2),
    "rand_uniform: high": lambda b, n: b.rand_uniform(0.0, n, 2),
    "randint: low": lambda b, n: b.randint(n, 5, 2),
    "randint: high": lambda b, n: b.randint(0, n, 2),
    "arange: stop": lambda b, n: b.arange(0, n),
    "arange: start": lambda b, n: b.arange(n, 5),
    "arange: step": lambda b, n: b.arange(0, 5, n),
    "linspace: start": lambda b, n: b.linspace(n, 1.0, 3),
    "linspace: stop": lambda b, n: b.linspace(0.0, n, 3),
    "full: value": lambda b, n: b.full((2,), n),
    "array: ": lambda b, n: b.array([n], dtype="float32"),
    "array: values": lambda b, n: b.array([n], dtype="int32"),
}
COUNTS = {
    "eye: rows": lambda b, n: b.eye(n),
    "eye: columns": lambda b, n: b.eye(2, n),
    "linspace: steps": lambda b, n: b.linspace(0.0, 1.0, n),
    "multinomial: num_samples": lambda b, n: b.multinomial(b.ones(3), n),
}


def test_arrays_of_numbers_that_no_float_holds(backend_name):
    backend = ml.get_backend(backend_name)
    for what, make in NOT_HELD.items():
        for number in (HUGE, -HUGE):
            with pytest.raises(DataOverflowError, match=f"^{what}"):
                make(backend, number)
        for number in ("a", None):
            with pytest.raises(TypeError) as e:
                make(backend, number)
            assert isinstance(e.value, ml.errors.MithrilError), what
    for what, make in COUNTS.items():
        for number in (HUGE, -HUGE, 1.5, float("nan"), "a", None):
            if (what, number) == ("eye: columns", None):
                continue
            with pytest.raises(ml.errors.MithrilError, match=f"^{what}"):
                make(backend, number)
    for number in (np.nan, np.inf, -np.inf):
        with pytest.raises(ArgumentError, match="^arange: stop: requires a finite number"):
            backend.arange(number)
    with pytest.raises(ArgumentError, match="^arange: step: requires another number than 0"):
        backend.arange(0, 5, 0)
    with pytest.raises(ml.errors.OutOfMemoryError, match="^arange: "):
        backend.arange(0.0, 1.0, 1e-300)
    with pytest.raises(ArgumentError, match="randint: high: requires more than low = 5, got 5"):
        backend.randint(5, 5, 2)
    with pytest.raises(ArgumentError, match="num_samples: more samples .*, got 4 and 3"):
        backend.multinomial(backend.ones(3), 4)
    with pytest.raises(ml.errors.SignatureError, match="a size of an array requires an integer"):
        backend.zeros((2, 1.5))


def test_what_these_make_of_numbers_that_fit(backend_name):
    backend = ml.get_backend(backend_name)
    made = {
        "arange": (backend.arange(2, np.int64(9), 3), np.arange(2, 9, 3)),
        "backwards": (backend.arange(3, 0, -1), np.arange(3, 0, -1)),
        "none": (backend.arange(5, 2), np.arange(5, 2)),
        "floats": (backend.arange(0.0, 1.0, 0.25), np.arange(0.0, 1.0, 0.25)),
        "linspace": (backend.linspace(0, 2**70, 3), np.array([0, 2.0**69, 2.0**70])),
        "eye": (backend.eye(2, 3), np.eye(2, 3)),
        "no rows": (backend.eye(0), np.eye(0)),
    }
    for what, (found, wanted) in made.items():
        np.testing.assert_array_equal(backend.to_numpy(found), wanted, err_msg=what)
    drawn = backend.random_normal((1000,), mean=2**70, stddev=1)
    np.testing.assert_allclose(backend.to_numpy(drawn), 2.0**70, rtol=1e-6)
    whole = backend.to_numpy(backend.randint(-(2**63), 2**63 - 1, 50, dtype="int64"))
    assert whole.min() < -(2**60) and whole.max() > 2**60


def test_full_takes_the_kind_of_its_value(backend_name):
    backend = ml.get_backend(backend_name)
    values = [3.0, 3, True, np.float32(2), np.int32(4), np.array([1, 2]), [1.0, 2.0], np.nan]
    for value in values:
        found, like = backend.full((2,), value), backend.array(value)
        assert found.dtype == like.dtype, value
        np.testing.assert_array_equal(backend.to_numpy(found), np.full((2,), value))
        for dtype in ("float32", "int32"):
            if value is np.nan and dtype == "int32":
                continue
            found = backend.full(shape=(3, 2), value=value, dtype=dtype)
            assert str(found.dtype).endswith(dtype)
            np.testing.assert_array_equal(backend.to_numpy(found), np.full((3, 2), value, dtype))
    np.testing.assert_array_equal(backend.to_numpy(backend.full(3, 7)), [7, 7, 7])
    with pytest.raises(ml.errors.SignatureError, match="full: requires 'value'"):
        backend.full((2,))
    with pytest.raises(ml.errors.ShapeError, match=r"value of shape \[3\] does not broadcast"):
        backend.full((2,), [1, 2, 3])


def test_integers_that_the_default_does_not_hold(backend_name):
    backend = ml.get_backend(backend_name)
    if backend.default_int == "int64":
        assert int(backend.to_numpy(backend.array(2**40))) == 2**40
    else:
        with pytest.raises(DataOverflowError, match="array: values do not fit int32; give dtype"):
            backend.array(2**40)
    assert int(backend.to_numpy(backend.array(2**40, dtype="int64"))) == 2**40


OF_TWO = {
    "divide": np.divide,
    "power": np.power,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "atan2": np.arctan2,
}


@pytest.mark.parametrize("op", OF_TWO)
def test_integers_of_more_than_32_bits_beside_floats(op, backend_name):
    backend = ml.get_backend(backend_name)
    x = np.array([1.0, -1.0], np.float32)
    for number in (3_000_000_000, 2**40, -(2**40)):
        found = backend.to_numpy(getattr(backend, op)(backend.array(x), number))
        with np.errstate(all="ignore"):
            expected = OF_TWO[op](x.astype(np.float64), np.float64(number))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


# --- seeds ----------------------------------------------------------------------------------------


def test_seeds_are_integers(backend_name):
    backend = ml.get_backend(backend_name)
    name = type(backend).__name__
    for seed in (1.5, 2.0, True, False, None, "a", np.True_, [1], np.ones(2)):
        if not (backend_name == "mlx" and seed is None):  # where it is the default
            with pytest.raises(SignatureError, match=f"^{name}: seed requires an integer, got"):
                ml.get_backend(backend_name, seed=seed)
        with pytest.raises(SignatureError, match="^set_seed: seed requires an integer, got"):
            backend.set_seed(seed)
        if seed is not None:
            with pytest.raises(SignatureError, match="^rand: key requires an integer, got"):
                backend.rand(2, key=seed)
    for seed, same in ((-1, 2**64 - 1), (2**64 + 3, 3), (np.int64(3), 3)):  # as randomize_params
        drawn = [
            backend.to_numpy(ml.get_backend(backend_name, seed=s).rand(4)) for s in (seed, same)
        ]
        np.testing.assert_array_equal(*drawn)
        backend.set_seed(seed)
        np.testing.assert_array_equal(backend.to_numpy(backend.rand(4)), drawn[0])
        pm = ml.compile(ml.Linear(2), backend, shapes={"input": [1, 3]})
        both = [backend.to_numpy(pm.randomize_params(s)["weight"]) for s in (seed, same)]
        np.testing.assert_array_equal(*both)
