"""Integers stay integers: powers wrap in their type, and numbers beside int64 tensors are exact
above 2^53, where float64 has every second one only. Values are Python's, cut to the type.
"""

import itertools

import mithril as ml
import numpy as np
import pytest

BIG = 2**53 + 1
TYPES = ["uint8", "int8", "int16", "int32", "int64"]


def evaluated(model, backend_name, **data):
    backend = ml.get_backend(backend_name)
    types = {key: str(x.dtype) for key, x in data.items()}
    shapes = {key: list(x.shape) for key, x in data.items()}
    pm = ml.compile(model, backend, data_keys=set(data), types=types, shapes=shapes)
    given = {key: backend.array(x, dtype=types[key]) for key, x in data.items()}
    return np.asarray(backend.to_numpy(pm.evaluate({}, given)["y"]))


def of(function, *keys):
    return ml.Model.create(y=function(*(ml.IOKey(key) for key in keys)))


def skip_narrow(backend_name, dtype="int64"):
    if backend_name == "jax" and dtype == "int64":
        import jax

        if not jax.config.jax_enable_x64:
            pytest.skip("JAX has no int64 unless it is switched on")


def whole_power(base, exponent):
    if exponent >= 0:
        return base**exponent
    return 0 if base not in (1, -1) else base ** (exponent % 2)


@pytest.mark.parametrize("dtype", TYPES)
def test_powers_wrap(dtype, backend_name):
    skip_narrow(backend_name, dtype)
    info = np.iinfo(dtype)
    bases = [0, 1, 2, 3, 7, 10, info.max, info.max - 1]
    exponents = [0, 1, 2, 3, 7, 8, 31, 33, 63, 64, 100, info.max]
    if info.min < 0:
        bases += [-1, -2, -3, info.min, info.min + 1]
        exponents += [-1, -2, -7, info.min]
    pairs = [(b, e) for b, e in itertools.product(bases, exponents) if e <= info.max]
    wide = [whole_power(b, e) if e < 200 else pow(b, e, 2**64) for b, e in pairs]
    want = np.array([x % 2 ** (8 * info.dtype.itemsize) for x in wide], np.uint64)
    want = want.astype(f"u{info.dtype.itemsize}").view(dtype)
    x, p = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    got = evaluated(of(lambda x, p: x**p, "x", "p"), backend_name, x=x, p=p)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want)


def test_powers_of_numbers(backend_name):
    x = np.array([3, -2, 2**15], "int32")
    got = evaluated(of(lambda x: x**5, "x"), backend_name, x=x)
    np.testing.assert_array_equal(got, [243, -32, 0])
    got = evaluated(of(lambda x: 3**x, "x"), backend_name, x=np.array([0, 19, 21], "int32"))
    np.testing.assert_array_equal(got, [1, 3**19, (3**21 + 2**31) % 2**32 - 2**31])


def test_bounds_of_a_clamp_are_exact(backend_name):
    skip_narrow(backend_name)
    x = np.array([0, BIG - 1, BIG, BIG + 5, -BIG - 5], "int64")
    got = evaluated(of(lambda x: x.clamp(BIG, None), "x"), backend_name, x=x)
    np.testing.assert_array_equal(got, [BIG, BIG, BIG, BIG + 5, BIG])
    got = evaluated(of(lambda x: x.clamp(-BIG, BIG), "x"), backend_name, x=x)
    np.testing.assert_array_equal(got, [0, BIG - 1, BIG, BIG, -BIG])


def test_filled_tensors_and_ranges_are_exact(backend_name):
    skip_narrow(backend_name)
    x = np.zeros(2, "int64")
    full = ml.Full(shape=(2,), value=BIG, dtype=ml.int64)
    np.testing.assert_array_equal(
        evaluated(of(lambda x: x + full(), "x"), backend_name, x=x), [BIG, BIG]
    )
    numbers = ml.Arange(start=BIG, stop=BIG + 6, step=3, dtype=ml.int64)
    np.testing.assert_array_equal(
        evaluated(of(lambda x: x + numbers(), "x"), backend_name, x=x), [BIG, BIG + 3]
    )


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (lambda x: x + BIG, [BIG - 1 + BIG, 2 * BIG, 2 * BIG + 1]),
        (lambda x: BIG - x, [1, 0, -1]),
        (lambda x: x // BIG, [0, 1, 1]),
        (lambda x: x % BIG, [BIG - 1, 0, 1]),
        (lambda x: x * 3 + 1, [3 * BIG - 2, 3 * BIG + 1, 3 * BIG + 4]),
        (lambda x: x.eq(BIG).cast(ml.int64), [0, 1, 0]),
        (lambda x: (x < BIG).cast(ml.int64), [1, 0, 0]),
        (lambda x: (x > BIG).cast(ml.int64), [0, 0, 1]),
        (lambda x: ml.MaskedFill()(x, x > BIG, BIG), [BIG - 1, BIG, BIG]),
        (lambda x: x & BIG, [2**53, BIG, BIG & (BIG + 1)]),
    ],
    ids=["add", "subtract", "floor", "mod", "multiply", "equal", "less", "greater", "fill", "and"],
)
def test_numbers_beside_tensors_are_exact(function, want, backend_name):
    skip_narrow(backend_name)
    x = np.array([BIG - 1, BIG, BIG + 1], "int64")
    got = evaluated(of(function, "x"), backend_name, x=x)
    np.testing.assert_array_equal(got, want)


def test_files_keep_numbers(tmp_path):
    model = of(lambda x: x.clamp(BIG, None) + BIG, "x")
    model.save(tmp_path / "model.json")
    loaded, _ = ml.load(tmp_path / "model.json")
    x = np.array([0, BIG + 1], "int64")
    np.testing.assert_array_equal(evaluated(loaded, "cpu", x=x), [2 * BIG, 2 * BIG + 1])


def test_negative_numbers_are_no_exponents_of_integers():
    model = of(lambda x: x**-1, "x")
    with pytest.raises(ValueError, match="negative exponent, got -1: cast the base"):
        model.set_types(x=ml.Tensor[int])
    halves = of(lambda x: x**-1, "x")
    pm = ml.compile(halves, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2]})
    np.testing.assert_array_equal(pm.evaluate({}, {"x": [2.0, 4.0]})["y"], [0.5, 0.25])
