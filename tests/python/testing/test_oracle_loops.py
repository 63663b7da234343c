"""The oracle's loops against loops written out in NumPy."""

import mithril as ml
import numpy as np
import pytest
from mithril.testing import oracle


def nested(reverse):
    inner = ml.Model()
    inner |= ml.Multiply()(left="a", right="b", output="c")
    inner.expose_keys("c")
    outer = ml.Model()
    outer |= ml.Scan(inner, carry={"a": "c"}, xs=["b"])(a="state", b="row", c="next")
    outer |= ml.Buffer()(input="next", output="kept")
    outer.expose_keys("next", "kept")
    model = ml.Model()
    model |= ml.Scan(outer, carry={"state": "next"}, xs=["row"], reverse=reverse)(
        state="start", row="rows", next="last", kept="states"
    )
    model.expose_keys("last", "states")
    return model


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_in_a_loop(reverse):
    rows = np.array([[1.0, 2.0], [3.0, 0.5], [-1.0, 4.0]])
    found = oracle.evaluate(nested(reverse).to_json(), {"start": 2.0, "rows": rows}).outputs
    products = rows.prod(1)[::-1] if reverse else rows.prod(1)
    states = 2.0 * np.cumprod(products)
    np.testing.assert_array_equal(found["last"], states[-1])
    np.testing.assert_array_equal(found["states"], states[::-1] if reverse else states)


def test_no_steps():
    found = {"start": 2.0, "rows": np.zeros((0, 2))}
    with pytest.raises(oracle.OracleError, match="a loop without steps"):
        oracle.evaluate(nested(False).to_json(), found)


def halving():
    """x is halved as long as it is above a limit; then, where p holds, squared."""
    step, goes_on = ml.Model(), ml.Model()
    step |= ml.Multiply()(left="x", right=0.5, output="half")
    goes_on |= ml.Greater()(left="x", right="limit", output="go")
    squared, same = ml.Model(), ml.Model()
    squared |= ml.Square()(input="small", output="y")
    same |= ml.Buffer()(input="small", output="y")
    for part, key in ((step, "half"), (goes_on, "go"), (squared, "y"), (same, "y")):
        part.expose_keys(key)
    model = ml.Model()
    loop = ml.While(goes_on, step, carry={"x": "half"})
    model |= loop(x="x", limit="limit", half="small")
    model |= ml.Cond(squared, same)(predicate="p", small="small", y="y")
    model.expose_keys("y")
    model.set_shapes(x=[], limit=[])
    return model


@pytest.mark.parametrize("p", [True, False])
@pytest.mark.parametrize("x", [40.0, 1.0])
def test_a_while_and_branches(x, p):
    found = oracle.evaluate(halving().to_json(), {"x": x, "limit": 3.0, "p": p}).outputs["y"]
    wanted = x
    while wanted > 3.0:
        wanted /= 2
    assert found == (wanted**2 if p else wanted)
