"""Graph text from Python, and what the registry tells."""

# Covers: mithril/inspection/graphs.py

import mithril as ml
import pytest
from mithril.errors import ParseError, SignatureError

TEXT = """\
graph m(%x: f32[b, 4]) {
  %0 = relu(%x) : f32[b, 4]
  return y=%0
}
"""


def test_text_survives_a_round_trip():
    graph = ml.inspect.parse(TEXT)
    assert graph.inputs == [("x", "data", "float32", ["b", 4])]
    assert graph.outputs == ["y"]
    assert str(ml.inspect.parse(str(graph))) == str(graph)


@pytest.mark.parametrize("bad", ["", "graph", TEXT[:-3], TEXT.replace("relu", "rellu"), "\0" * 10])
def test_bad_text_is_a_typed_error(bad):
    with pytest.raises((ParseError, KeyError)):
        ml.inspect.parse(bad)


def test_the_registry_has_what_classes_are_made_of():
    ops = {op["name"]: op for op in ml.inspect.ops()}
    assert ops["relu"]["python_name"] == "Relu"
    assert ops["mean"]["connect_order"] == ["input", "axis", "keepdim", "output"]
    for op in ops.values():
        if op["python_name"]:
            assert getattr(ml.models, op["python_name"])._op == op["name"]
            assert op["doc"].splitlines()[0] in getattr(ml.models, op["python_name"]).__doc__


def test_dump():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    assert "x" in ml.inspect.dump(model)
    with pytest.raises(SignatureError):
        ml.inspect.dump(3)


@pytest.mark.device
def test_stages():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": ["b", 4]}, data_keys={"x"})
    stages = ml.inspect.stages(pm)
    assert list(stages) == ["flatten", "assign_dtypes", "optimize"]
    assert "relu" in stages["optimize"]
    assert ml.inspect.dump(pm) == stages["flatten"]


def compiled(backend=None, sizes=("b", 3)):
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="first")(input="x", output="h")
    model |= ml.Gelu(name="act")(input="h", output="a")
    model |= ml.Sum(name="total")(input="a", output="y")
    model.expose_keys("y")
    backend = backend or ml.CpuBackend()
    return ml.compile(model, backend, shapes={"x": list(sizes)}, data_keys={"x"})


@pytest.mark.device
def test_explain_says_what_was_decomposed_and_fused():
    first = ml.inspect.explain(compiled(sizes=(2, 3)), "first")
    assert first[0] == "net.first: linear"
    assert first[1].startswith("  decomposed into ") and "matmul" in first[1]
    assert "  matmul is a step of its own: gemm" in first
    assert "    net.first (matmul) is not fused: it is no pointwise op and no reduction" in first
    fused = "\n".join(ml.inspect.explain(compiled(sizes=(2, 3)), "net.act"))
    assert "fused into one loop over [2, 4]" in fused
    assert "net.first: add" in fused and "net.total: sum" in fused


@pytest.mark.device
def test_explain_needs_sizes_for_fusion():
    assert "give shapes=" in ml.inspect.explain(compiled(), "act")[-1]
    lines = ml.inspect.explain(compiled(), "act", shapes={"x": [5, 3]})
    assert lines[1].startswith("  decomposed into ") or "[5, 4]" in lines[1]
    assert any("fused into one loop over [5, 4]: " in line for line in lines)


@pytest.mark.device
def test_explain_names_functions_of_a_framework():
    lines = ml.inspect.explain(compiled(ml.NumpyBackend()), "act")
    assert lines == ["net.act: gelu", "  gelu runs as the backend's own function"]


@pytest.mark.device
def test_explain_takes_no_unknown_name():
    with pytest.raises(KeyError, match="did you mean 'first'"):
        ml.inspect.explain(compiled(), "fist")
    for bad in [(3, "x"), (compiled(), 3)]:
        with pytest.raises(SignatureError):
            ml.inspect.explain(*bad)


@pytest.mark.device
def test_dot_of_everything(tmp_path):
    graph = ml.inspect.parse(TEXT)
    assert 'n0 [label="relu"]' in ml.inspect.dot(graph)
    pm = compiled()
    assert ml.inspect.dot(pm, tmp_path / "a.dot") == (tmp_path / "a.dot").read_text()
    assert "linear" in ml.inspect.dot(pm.graph)
    assert ml.inspect.dot(ml.Relu()).startswith("digraph {")
    with pytest.raises(SignatureError):
        ml.inspect.dot(3)


def test_profile_is_empty_unless_asked_for():
    assert ml.inspect.profile() == []
