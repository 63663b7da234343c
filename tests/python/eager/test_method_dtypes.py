# Covers: mithril/eager/dtypes.py
"""Dtypes of what methods give: one rule (`docs/numerics.md`) on every backend, NumPy's values."""

import functools
import itertools

import numpy as np
import pytest
from mithril.backends import get_backend
from mithril.errors import DTypeError
from scipy import special

shared = functools.cache(get_backend)  # tests of a backend share one, and what it has compiled


@pytest.fixture
def b(backend_name):
    return shared(backend_name)


DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64"]  # fmt: skip
VALUES = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]])
OTHER = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]])
PAIRS = list(itertools.combinations_with_replacement(DTYPES, 2))
DIGITS = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}


def joined(one, other):
    """In which dtype two meet, as the order of promotion has it."""
    if {one, other} == {"uint8", "int8"}:
        return "int16"
    if {one, other} == {"float16", "bfloat16"}:
        return "float32"
    return max(one, other, key=DTYPES.index)


# What a result is, of operands that meet in `d`; None: such operands are refused.


def same(b, d):
    return d


def floating(b, d):
    return d if "float" in d else str(b.default_dtype)


def number(b, d):
    return str(b.default_int) if d == "bool" else d


def summed(b, d):
    return d if "float" in d else str(b.default_int)


def truth(b, d):
    return "bool"


def place(b, d):
    return str(b.default_int)


def no_bool(rule):
    return lambda b, d: None if d == "bool" else rule(b, d)


def no_float(rule):
    return lambda b, d: None if "float" in d else rule(b, d)


def softmax(x):
    return special.softmax(x, -1)


def difference(x, y):
    return x ^ y if x.dtype == bool else x - y


UNARY = {
    "abs": (np.abs, no_bool(same)), "negate": (np.negative, no_bool(same)),
    "sign": (np.sign, no_bool(same)),
    "square": (np.square, floating), "relu": (lambda x: np.maximum(x, 0), no_bool(same)),
    "exp": (np.exp, floating), "expm1": (np.expm1, floating), "log1p": (np.log1p, floating),
    "sqrt": (np.sqrt, floating), "sin": (np.sin, floating), "cos": (np.cos, floating),
    "tanh": (np.tanh, floating), "sigmoid": (special.expit, floating),
    "softplus": (lambda x: np.logaddexp(x, 0), floating), "erf": (special.erf, floating),
    "softmax": (softmax, floating), "log_softmax": (lambda x: np.log(softmax(x)), floating),
    "atan": (np.arctan, floating), "tan": (np.tan, floating),
    "isnan": (np.isnan, truth), "isfinite": (np.isfinite, truth),
    "floor": (np.floor, place), "ceil": (np.ceil, place), "round": (np.round, place),
    "stop_gradient": (lambda x: x, same), "buffer": (lambda x: x, same),
    "transpose": (np.transpose, same), "sort": (np.sort, same),
    "argsort": (lambda x: np.argsort(x, -1, kind="stable"), place),
    "sum": (np.sum, summed), "prod": (np.prod, summed), "mean": (np.mean, floating),
    "variance": (np.var, floating), "max": (np.max, same), "min": (np.min, same),
    "argmax": (np.argmax, place), "argmin": (np.argmin, place),
    "any": (np.any, truth), "all": (np.all, truth), "cumsum": (lambda x: np.cumsum(x, 0), summed),
    "logsumexp": (special.logsumexp, floating),
}  # fmt: skip
BINARY = {
    "add": (np.add, same), "subtract": (difference, same), "multiply": (np.multiply, same),
    "divide": (np.true_divide, floating), "power": (np.power, number),
    "floor_divide": (np.floor_divide, number), "remainder": (np.remainder, number),
    "minimum": (np.minimum, same), "maximum": (np.maximum, same),
    "equal": (np.equal, truth), "not_equal": (np.not_equal, truth), "less": (np.less, truth),
    "less_equal": (np.less_equal, truth), "greater": (np.greater, truth),
    "greater_equal": (np.greater_equal, truth),
    "logical_and": (np.bitwise_and, no_float(same)), "logical_or": (np.bitwise_or, no_float(same)),
    "logical_xor": (np.bitwise_xor, no_float(same)),
    "shift_left": (np.left_shift, no_float(number)),
    "shift_right": (np.right_shift, no_float(number)),
    "matmul": (np.matmul, no_bool(same)),
    "squared_error": (lambda x, y: difference(x, y) ** 2, same),
    "atan2": (np.arctan2, floating),
}  # fmt: skip
DIVISIONS = ("divide", "floor_divide", "remainder")


def check(b, method, wanted, expected, *operands, of=()):
    """The dtype, and the values as near as the coarsest dtype of `of` lets them be."""
    if wanted is None:
        with pytest.raises(DTypeError):
            method(*operands)
        return
    result = method(*operands)
    assert b.dtype(result) == wanted
    if "int" in wanted:  # they wrap
        expected = np.asarray(expected).astype(np.int64).astype(wanted)
    found = b.to_numpy(result).astype(np.float64)
    digits = max(DIGITS.get(d, 1e-5) for d in (wanted, *of))
    np.testing.assert_allclose(found, np.asarray(expected, np.float64), rtol=digits, atol=digits)


def exact(values, dtype):
    """As NumPy computes with them: bools, integers and floats of the widest kind."""
    return values.astype(bool if dtype == "bool" else "f8" if "float" in dtype else "i8")


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(b, name):
    function, rule = UNARY[name]
    with np.errstate(all="ignore"):
        for dtype in DTYPES:
            expected = function(VALUES.astype(np.float64))
            check(b, getattr(b, name), rule(b, dtype), expected, b.array(VALUES, dtype), of=[dtype])


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(b, name):
    function, rule = BINARY[name]
    other = np.ones_like(OTHER) if name in DIVISIONS else OTHER
    for one, two in PAIRS:
        wanted, expected = rule(b, joined(one, two)), None
        if wanted is not None:
            widest = "bool" if wanted == one == two == "bool" else wanted
            x, y = exact(VALUES, widest), exact(other, widest)
            expected = function(x, y)
        operands = b.array(VALUES, one), b.array(other, two)
        check(b, getattr(b, name), wanted, expected, *operands, of=[one, two])


def test_results_of_lists_and_choices(b):
    for one, two in PAIRS:
        x, y = b.array(VALUES, one), b.array(OTHER, two)
        wanted = joined(one, two)
        chosen = np.where(OTHER, VALUES, OTHER)
        check(b, lambda x, y: b.where(b.array(OTHER, "bool"), x, y), wanted, chosen, x, y)
        check(b, lambda *xs: b.concat(xs), wanted, np.concatenate([VALUES, OTHER]), x, y)
        check(b, lambda *xs: b.stack(xs), wanted, np.stack([VALUES, OTHER]), x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_python_widen_the_kind_only(b, dtype):
    x = b.array(VALUES, dtype)
    is_float, is_bool = "float" in dtype, dtype == "bool"
    whole = str(b.default_int) if is_bool else dtype
    check(b, b.add, whole, VALUES + 1, x, 1)
    check(b, b.add, floating(b, dtype), VALUES + 0.5, x, 0.5)
    check(b, b.add, whole, VALUES + 1, x, 1)
    check(b, b.multiply, whole, 3 * VALUES, 3, x)
    check(b, b.add, dtype, VALUES | 1 if is_bool else VALUES + 1, x, True)
    check(b, b.subtract, floating(b, dtype), VALUES - 0.5, x, 0.5)
    check(
        b,
        b.maximum,
        dtype if is_float else floating(b, dtype),
        np.maximum(VALUES, 0.5),
        x,
        0.5,
    )
