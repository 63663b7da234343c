"""The oracle's reader and interpreter: graph text in, values worked out by hand out."""

import doctest

import numpy as np
import pytest
from mithril.testing import oracle
from mithril.testing.oracle import OracleError, evaluate, parse, size_of

MLP = """graph mlp(%x: float[b, 4], %w: float[3, 4] param, %"a b": float[] state) {
  %0 = linear(%w, %x, dimension=3) : float[b, 3]  # mlp.linear_1
  %1 = relu(%0) : float[b, 3]  # mlp.relu%201
  %2 = add(%1, right=0.5) : float[b, 3]
  state %"a b" <- %2 = 0.0
  return "y z"=%1, w=%2
}
"""


def test_reads_structure():
    graph = parse(MLP)
    assert [(i.name, i.type.dtype, i.type.shape, i.role) for i in graph.inputs] == [
        ("x", "float", ("b", "4"), "data"),
        ("w", "float", ("3", "4"), "param"),
        ("a b", "float", (), "state"),
    ]
    assert [node.op for node in graph.nodes] == ["linear", "relu", "add"]
    assert graph.nodes[0].operands == ["w", "x"]
    assert graph.nodes[2].attrs == {"right": 0.5}
    assert graph.states == [("a b", "2", 0.0)]
    assert graph.outputs == [("y z", "1"), ("w", "2")]


def test_evaluates():
    x = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 1.0]])
    w = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, -1.0], [1.0, 1.0, 1.0, 1.0]])
    outputs, states = evaluate(MLP, {"x": x, "w": w, "a b": 0.0})
    assert outputs["y z"].tolist() == [[1.0, 0.0, 10.0], [0.0, 0.0, 1.0]]
    assert states["a b"].tolist() == outputs["w"].tolist() == [[1.5, 0.5, 10.5], [0.5, 0.5, 1.5]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("none", None),
        ("-3", -3),
        ("1e-05", 1e-05),
        ("-inf", -np.inf),
        ('"a\\"\\x0a"', 'a"\n'),
        ("(1,)", (1,)),
        ("((1, 0), (0, 2))", ((1, 0), (0, 2))),
        ("[1, [2]]", [1, [2]]),
        ("(:, 1:3, ::-2, :'n', ..., none, -1)",
         (slice(None), slice(1, 3), slice(None, None, -2), slice(None, 5), Ellipsis, None, -1)),
        ("('2*n', 'floor(n/2)+1')", (10, 3)),
        ("f32", "float32"),
    ],
)  # fmt: skip
def test_reads_host_values(text, value):
    graph = f"graph m(%x: float[n]) {{\n  %0 = op(%x, value={text}) : opaque\n  return y=%0\n}}"
    given = {"op": lambda x, value: value}
    assert oracle.run(parse(graph), {"x": np.zeros(5)}, given).outputs["y"] == value


def test_reads_literals():
    text = """graph m() {
  %0 = constant(value=tensor<float[2]>(0.1, inf)) : float[2]
  return y=%0
}"""
    assert evaluate(text, {}).outputs["y"].tolist() == [0.1, np.inf]


def test_absent_operands_take_the_attribute_or_the_default():
    text = """graph m(%x: float[2], %y: float[2]) {
  %0 = concat(_, %x, %y, axis=-1) : float[4]
  %1 = concat(_, %x, %y) : float[4]
  return a=%0, b=%1
}"""
    outputs = evaluate(text, {"x": [1.0, 2.0], "y": [3.0, 4.0]}).outputs
    assert outputs["a"].tolist() == outputs["b"].tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("2*N*N-N+1", 46), ("floor((N+1)/2)", 3), ("floor(N/M)", 2), ("broadcast(M, N)", 5),
     ("-N+10", 5)],
)  # fmt: skip
def test_sizes(text, size):
    assert size_of(text, {"N": 5, "M": 2} if "broadcast" not in text else {"N": 5, "M": 1}) == size


def test_symbols_are_solved_from_expressions():
    text = """graph m(%x: float[2*n, n+k], %y: float[k]) {
  %0 = reshape(%y, shape=('k', 1)) : float[k, 1]
  %1 = reshape(%x, shape=('2*n*n+2*n*k',)) : float[2*n*n+2*n*k]
  return a=%0, b=%1
}"""
    outputs = evaluate(text, {"x": np.zeros((6, 5)), "y": np.zeros(2)}).outputs
    assert outputs["b"].shape == (30,)
    with pytest.raises(OracleError, match="stated size k = 2"):
        evaluate(text.replace("[k])", "[k, n])"), {"x": np.zeros((6, 5)), "y": np.zeros((3, 3))})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph m(%x: float[3]) {\n  %0 = exp(%x) : float[3]\n  return y=%0\n}", "stated size 3"),
        ("graph m(%x: float[2]) {\n  %0 = exp(%x) : float[2, 1]\n  return y=%0\n}", "stated \\[2"),
        (
            "graph m(%x: float[2]) {\n  %0 = exq(%x) : float[2]\n  return y=%0\n}",
            "line 2: .* 'exq'",
        ),
        ("graph m(%x: float[2]) {\n  %0 = exp(%x : float[2]\n", "line 2: expected"),
        ("graph m(%x: float[2]) {\n", "ends too early|expected"),
        ("graph m(%x: float[2]) ?", "unexpected"),
    ],
)
def test_contradictions_are_told(text, message):
    with pytest.raises(OracleError, match=message):
        evaluate(text, {"x": np.zeros(2)})


def test_examples():
    assert doctest.testmod(oracle).failed == 0
