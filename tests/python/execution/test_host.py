"""Host numbers: functions of emitted text, and sizes that reach arithmetic on every backend."""

import inspect

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.execution import host

OPS = {op["name"]: [i["name"] for i in op["inputs"]] for op in _core.ops()}
NUMBERS = {"input": 6, "left": 5, "right": 3, "numerator": 7, "denominator": 2, "base": 2}
NUMBERS |= {"exponent": 0.5, "shift": 1}


@pytest.mark.parametrize("name", sorted(OPS.keys() & vars(host).keys()))
def test_operands_by_place_and_by_name_mean_the_same(name):
    inputs = OPS[name]
    if inputs[0] == "start" or name in ("index", "to_tuple", "to_list"):
        assert list(inspect.signature(getattr(host, name)).parameters)[0]
        return
    values = [(1, 2, 3) if name == "length" else NUMBERS[key] for key in inputs]
    function = getattr(host, name)
    wanted = function(*values)
    assert function(**dict(zip(reversed(inputs), reversed(values), strict=True))) == wanted
    assert function(values[0], **dict(zip(inputs[1:], values[1:], strict=True))) == wanted


def sized():
    """x / (2 ** sqrt(n) / (7 - n / 2)) for the number n of elements."""
    model = ml.Model()
    model |= ml.Relu()(input=ml.IOKey("x", shape=["N", 3]), output="h")
    n = model["h"].size()
    factor = 2.0 ** (n**0.5) / (7 - n * 0.5)
    model |= ml.Divide()(numerator=model["h"], denominator=factor, output="y")
    return model


def test_sizes_reach_arithmetic(backend_name):
    backend = ml.get_backend(backend_name, dtype="float64")
    pm = ml.compile(sized(), backend, data_keys={"x"}, inference=True)
    for rows in (1, 2, 6):  # one program, three sizes
        x = np.arange(3.0 * rows).reshape(rows, 3)
        wanted = x / (2.0 ** (x.size**0.5) / (7 - x.size * 0.5))
        np.testing.assert_allclose(backend.to_numpy(pm.evaluate({}, {"x": x})["y"]), wanted)


@pytest.mark.device
def test_arithmetic_of_numbers_that_only_calls_give_on_the_cpu():
    model = ml.Model()
    n = ml.IOKey("n", type=float)
    model |= ml.Multiply()(left=ml.IOKey("x", shape=[3]), right=n**0.5, output="y")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x", "n"}, inference=True)
    for n in (4.0, 9.0, 4.0):
        got = pm.evaluate({}, {"x": np.ones(3, np.float32), "n": n})["y"]
        np.testing.assert_array_equal(got, np.full(3, n**0.5, np.float32))
