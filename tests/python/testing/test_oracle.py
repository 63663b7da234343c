"""The oracle's reader and interpreter: model files in, values worked out by hand out."""

import ast
import base64
import doctest
import json
import pathlib

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.testing import (
    op_matrix,
    oracle,
    oracle_arrays,
    oracle_fourier,
    oracle_functions,
    oracle_loops,
    oracle_losses,
    oracle_ops,
    oracle_windows,
)
from mithril.testing.op_matrix import cases, difference
from mithril.testing.oracle import OracleError, evaluate, parse, read_value


def file_of(model, **sections):
    """The text of a model file, written by hand."""
    return json.dumps({"format": "mithril-model", "version": "1.0", "model": model, **sections})


def part(op, wires, **more):
    return {"op": op, "wires": wires, **more}


def nested():
    inner = ml.Model()
    inner |= ml.MatrixMultiply()(left="x", right="w", output="h")
    inner |= ml.Exponential()(input="h", output="y")
    inner.expose_keys("y")
    outer = ml.Model()
    outer |= inner(x="a", w="w", y="b")
    outer |= ml.Concat(axis=1)(input=[ml.IOKey("c"), outer["b"]], output="d")
    outer |= ml.Mean(axis=0)(input="d", output="e")
    outer |= ml.Add()(left="e", right=ml.Tensor([0.5]), output="f")
    outer.expose_keys("d", "f")
    outer.set_shapes(a=["n", "k"], w=["k", 2])
    return outer


ONES = {"a": np.ones((3, 4)), "w": np.ones((4, 2)), "c": np.ones((3, 1))}


# --- reading -------------------------------------------------------------------------------------


def test_reads_structure():
    inner = {"wires": ["p", "q", "r"], "outputs": ["r"], "parts": [
        part("subtract", {"left": "q", "right": "p", "output": "r"}),
    ]}  # fmt: skip
    text = file_of(
        {"wires": ["x", "y", "z"], "outputs": ["z"], "parts": [
            part("exp", {"input": "x", "output": "y"}),
            {"model": "sub", "wires": {"p": "x", "q": "y", "r": "z"}},
            part("dropout", {"input": None, "output": None}, attrs={"p": 0.5}, values={"input": 1}),
        ], "states": [{"input": "x", "output": "z", "initial": 2.0}]},
        submodels={"sub": inner},
        facts=[{"by": "m", "says": [{"model": "sub", "wire": "p", "shape": ["n", 3]}]}],
    )  # fmt: skip
    program = parse(text)
    assert [op.name for op in program.ops] == ["exp", "subtract", "dropout"]
    assert program.ops[1].wires == {"left": ("", "y"), "right": ("", "x"), "output": ("", "z")}
    assert program.ops[2].attrs == {"p": 0.5}
    assert program.values == {("#2", "input"): 1}
    assert program.shapes == [(("", "x"), ["n", 3], ("scope", 0))]
    assert program.states == [(("", "x"), ("", "z"), 2.0)]
    assert program.outputs == ["z"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (True, True),
        (None, None),
        (-3, -3),
        (1e-05, 1e-05),
        ({"float": "-inf"}, -np.inf),
        ('a"\n', 'a"\n'),
        ({"tuple": [1]}, (1,)),
        ({"tuple": [{"tuple": [1, 0]}, {"tuple": [0, 2]}]}, ((1, 0), (0, 2))),
        ([1, [2]], [1, [2]]),
        ({"tuple": [{"slice": [None, 3, None]}, {"ellipsis": True}, None]},
         (slice(None, 3), ..., None)),
        ({"dtype": "bfloat16"}, "bfloat16"),
    ],
)  # fmt: skip
def test_reads_host_values(written, value):
    assert read_value(json.loads(json.dumps(written))) == value


@pytest.mark.parametrize(
    ("dtype", "numbers", "raw", "held"),
    [
        ("float", [0.1, "inf"], np.array([0.1, np.inf]).tobytes(), "float64"),
        ("float32", [0.5, "-inf"], np.array([0.5, -np.inf], "<f4").tobytes(), "float64"),
        ("bfloat16", [1.5, -2.0], b"\xc0\x3f\x00\xc0", "float64"),
        ("int8", [1, -2], b"\x01\xfe", "int8"),
        ("int", [1, -2], np.array([1, -2], "<i8").tobytes(), "int64"),
        ("bool", [True, False], b"\x01\x00", "bool"),
    ],
)
def test_reads_tensors(dtype, numbers, raw, held):
    tensor = {"dtype": dtype, "shape": [2, 1]}
    want = [[float(x) if isinstance(x, str) else x] for x in numbers]
    for more in ({"data": numbers}, {"bytes": base64.b64encode(raw).decode()}):
        found = read_value({"tensor": {**tensor, **more}})
        assert (found.tolist(), found.dtype) == (want, held)


# --- running -------------------------------------------------------------------------------------


def test_evaluates():
    text = file_of({"wires": ["x", "w", "h", "y", "z"], "outputs": ["y", "z"], "parts": [
        part("add", {"left": "y", "right": None, "output": "z"}, values={"right": 0.5}),
        part("linear", {"weight": "w", "input": "x", "output": "h"}, attrs={"dimension": 3}),
        part("relu", {"input": "h", "output": "y"}),
    ]})  # fmt: skip
    x = [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 1.0]]
    w = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, -1.0], [1.0, 1.0, 1.0, 1.0]]
    outputs = evaluate(text, {"x": x, "w": w}).outputs
    assert outputs["y"].tolist() == [[1.0, 0.0, 10.0], [0.0, 0.0, 1.0]]
    assert outputs["z"].tolist() == [[1.5, 0.5, 10.5], [0.5, 0.5, 1.5]]


def test_a_nested_model():
    random = np.random.default_rng(0)
    a, w, c = (random.standard_normal(shape) for shape in ((3, 4), (4, 2), (3, 1)))
    found = evaluate(nested().to_json(), {"a": a, "w": w, "c": c}).outputs
    d = np.concatenate([c, np.exp(a @ w)], 1)
    np.testing.assert_array_equal(found["d"], d)
    np.testing.assert_array_equal(found["f"], d.mean(0) + 0.5)


def test_operands_given_by_a_list_and_one_by_one():
    axis = {"axis": -1}
    listed = part("concat", {"input": "l", "axis": None, "output": "y"}, values=axis)
    pieces = {"input1": "a", "input2": "b", "output": "l"}
    text = file_of({"wires": ["a", "b", "l", "y"], "outputs": ["y"], "parts": [
        part("to_list", pieces, attrs={"n": None}, items=2), listed,
    ]})  # fmt: skip
    assert evaluate(text, {"a": [1.0, 2.0], "b": [3.0]}).outputs["y"].tolist() == [1.0, 2.0, 3.0]


def test_bound_state():
    model = ml.Model()
    model |= ml.Add()(left="x", right="old", output="new")
    model.bind_state_keys("old", "new", ml.Tensor([1.0, 2.0]))
    model.expose_keys("new")
    found = evaluate(model.to_json(), {"x": np.ones(2)})
    assert found.outputs["new"].tolist() == [2.0, 3.0]
    assert found.states["old"].tolist() == [2.0, 3.0]
    assert evaluate(model.to_json(), {"x": np.ones(2), "old": 5.0}).states["old"].tolist() == [6, 6]


def test_shared_statistics_move_one_after_the_other():
    wires = {"running_mean": "m", "running_var": "v"}
    text = file_of({"wires": ["x", "m", "v", "y", "z"], "outputs": ["z", "y"], "parts": [
        part("batch_norm2d", {"input": "x", **wires, "output": "y"}, attrs={"mode": None}),
        part("batch_norm2d", {"input": "x", **wires, "output": "z"}, attrs={"mode": None}),
    ]})  # fmt: skip
    given = {"x": np.full((2, 1, 1, 1), 10.0), "m": np.zeros(1), "v": np.ones(1)}
    assert evaluate(text, given).states == {}
    moved = evaluate(text, given, mode="train").states
    np.testing.assert_allclose(moved["m"], [1.0 * 0.9 + 1.0])
    np.testing.assert_allclose(moved["v"], [0.81])


def test_draws_take_the_key_in_turn():
    """In the order of the tree; in evaluation from a key of their own at every call."""
    draw = {"shape": None, "dtype": None}
    shape = {"shape": {"tuple": [2]}, "dtype": None}
    inner = {"wires": ["o"], "outputs": ["o"], "parts": [
        part("draw_rand", {**draw, "output": "o"}, values=shape),
    ]}  # fmt: skip
    text = file_of(
        {"wires": ["unread", "a", "b"], "outputs": ["b", "a"], "parts": [
            part("draw_rand", {**draw, "output": "unread"}, values=shape),
            {"model": "in", "wires": {"o": "a"}},
            part("draw_rand", {**draw, "output": "b"}, values=shape),
        ]},
        submodels={"in": inner},
    )  # fmt: skip
    key = np.array([3, 4])
    second = oracle_ops.next_key(*key)
    found = evaluate(text, {"rng_key": key}, mode="train")
    want = [oracle_ops.uniform(*k, (2,), "float64") for k in (key, second)]
    assert [found.outputs[n].tolist() for n in "ab"] == [w.tolist() for w in want]
    assert found.states["rng_key"].tolist() == oracle_ops.next_key(*second).tolist()
    still = evaluate(text, {"rng_key": key})
    assert still.states == {}
    assert still.outputs["a"].tolist() == oracle_ops.uniform(0, 42, (2,), "float64").tolist()


def test_what_was_said_of_shapes_must_hold():
    text = nested().to_json()
    evaluate(text, ONES)
    with pytest.raises(OracleError, match="stated"):
        evaluate(text.replace('["k", 2]', '["k", 3]'), ONES)
    with pytest.raises(OracleError, match="stated"):
        evaluate(text.replace('["k", 2]', '["n", 2]'), ONES)
    said = [{"says": [{"wire": "x", "shape": [2, {"variadic": "V"}, 3]}]}]
    model = {"wires": ["x", "y"], "outputs": ["y"], "parts": [
        part("exp", {"input": "x", "output": "y"}),
    ]}  # fmt: skip
    evaluate(file_of(model, facts=said), {"x": np.ones((2, 3))})
    evaluate(file_of(model, facts=said), {"x": np.ones((2, 5, 3))})
    for shape in ((3,), (3, 3), (2, 3, 4)):
        with pytest.raises(OracleError, match="stated"):
            evaluate(file_of(model, facts=said), {"x": np.ones(shape)})


def test_what_cannot_be_run_is_refused():
    document = json.loads(nested().to_json())
    with pytest.raises(OracleError, match="no value"):
        evaluate(json.dumps(document), {"a": np.ones((1, 1))})
    document["model"]["parts"][-1]["op"] = "unheard_of"
    with pytest.raises(OracleError, match="unheard_of"):
        evaluate(json.dumps(document), ONES)
    with pytest.raises(OracleError, match="no model file"):
        parse("{}")
    loop = {"wires": ["x", "y"], "outputs": ["y"], "parts": [
        part("exp", {"input": "x", "output": "y"}), part("exp", {"input": "y", "output": "x"}),
    ]}  # fmt: skip
    with pytest.raises(OracleError, match="reads what it writes"):
        evaluate(file_of(loop), {})


# --- independence --------------------------------------------------------------------------------


def test_it_shares_nothing_with_the_engine():
    """It imports NumPy, the standard library, and its own table; it is at most 400 lines long."""
    tables = (
        oracle_ops,
        oracle_arrays,
        oracle_fourier,
        oracle_functions,
        oracle_loops,
        oracle_losses,
        oracle_windows,
    )
    for module in (oracle, *tables):
        text = pathlib.Path(module.__file__).read_text()
        names = []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names += [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                names.append(node.module)
        own = {name for name in names if name.startswith("mithril")}
        allowed = {module.__name__ for module in (oracle, *tables)}
        assert own <= allowed | {"mithril.testing"}
        assert set(names) - own <= {
            *(
                "__future__",
                "base64",
                "collections.abc",
                "dataclasses",
                "functools",
                "inspect",
                "itertools",
            ),
            *("json", "math", "numpy", "typing"),
        }
    assert len(pathlib.Path(oracle.__file__).read_text().splitlines()) <= 400


def swapped(text):
    """The file with the first two operands of the first op that does not commute exchanged."""
    document = json.loads(text)
    (found,) = [p for p in document["model"]["parts"] if p["op"] == "subtract"]
    wires = found["wires"]
    wires["left"], wires["right"] = wires["right"], wires["left"]
    return json.dumps(document)


def test_a_wrong_file_makes_the_matrix_red():
    """The matrix compares with the file: what flatten makes of another one differs."""
    op = _core.find_op("subtract")
    case = next(case for case in cases(op) if case.kind == "float")
    run = op_matrix.evaluate(op_matrix.compiled(case, ml.NumpyBackend()), case, case.inputs)
    texts = (case.text, swapped(case.text))
    right, wrong = (evaluate(text, case.inputs).outputs["output"] for text in texts)
    assert difference(run.outputs["output"], right, 2e-6) is None
    assert difference(run.outputs["output"], wrong, 2e-6) is not None


def test_examples():
    assert doctest.testmod(oracle).failed == 0
