"""The whole of a model, explained: steps in order, kernels, and why others were not taken."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import KeyNotFound, SignatureError, UnsupportedError

device = pytest.mark.device


def network(backend=None, rows=2, **options):
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="first")(input="x", output="h")
    model |= ml.Gelu(name="act")(input="h", output="a")
    model |= ml.Linear(5, name="head")(input="a", output="y")
    model.expose_keys("y")
    backend = backend or ml.CpuBackend()
    return ml.compile(model, backend, shapes={"x": [rows, 3]}, data_keys={"x"}, **options)


@device
def test_steps_stand_in_the_order_in_which_they_run():
    explanation = network().explain()
    found = [(step.kernel, step.nodes, step.shape) for step in explanation.steps]
    assert found == [
        ("view", "net.first: swapaxes", (3, 4)),
        ("gemm", "net.first: matmul; net.first: add; net.act: gelu", (2, 4)),
        ("view", "net.head: swapaxes", (4, 5)),
        ("gemm", "net.head: matmul; net.head: add", (2, 5)),
    ]
    pm = network()
    with pm.profile() as profile:  # what is told is what runs
        pm.evaluate(pm.get_parameters(), {"x": np.ones((2, 3), np.float32)})
    told = [step for step in explanation.steps if step.kernel != "view"]
    assert sum(row.count for row in profile.rows) == len(told)


@device
def test_notes_say_why():
    view, product, _, last = network().explain().steps
    assert view.notes == ()
    assert product.notes == (
        "net.first (matmul) is finished block by block with what follows it",
        "kernel gemm: it takes elements of float32 or float64, at most 16 axes",
        "kernel matmul.integer is not taken: it wants elements of int32 or int64, at most 16 axes",
    )
    reason = "it is no pointwise op and no reduction"
    assert last.notes[1] == f"net.head (matmul) is not fused with net.act (gelu): {reason}"


@device
def test_loops_that_are_no_epilogues_say_why():
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="first")(input="x", output="h")
    model |= ml.Softmax(name="soft")(input="h", output="y")
    model.expose_keys("y")
    options = {"shapes": {"x": [2, 3]}, "data_keys": {"x"}}
    _, product, loop = ml.compile(model, ml.CpuBackend(), **options).explain().steps
    end = "it is no pointwise op and no reduction"
    assert product.notes[0] == f"net.first (matmul) is not fused: {end}"
    end = "it reduces, and that kernel finishes a block at a time"
    assert loop.notes[0] == f"net.first (add) is not fused with net.first (matmul): {end}"
    off = network(passes=["-epilogues"]).explain().steps
    assert [step.kernel for step in off] == ["view", "gemm", "loop", "view", "gemm", "loop"]
    end = "that is no loop, and only loops are joined"
    assert off[2].notes[0] == f"net.first (add) is not fused with net.first (matmul): {end}"
    assert any(note.startswith("interpreted: ") for note in off[-1].notes)


@device
def test_each_boundary_has_its_reason():
    def notes(model, **shapes):
        pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes))
        return [note for step in pm.explain().steps for note in step.notes]

    model = ml.Model()
    model |= ml.Sum(axis=1)(input="x", output="rows")
    model |= ml.Sum(axis=0)(input="x", output="columns")
    model |= ml.Subtract()(left="columns", right="rows", output="y")
    model.expose_keys("y")
    found = notes(model, x=[4, 4])
    end = "its elements are not those of that loop"
    assert f"subtract (subtract) is not fused with sum_1 (sum): {end}" in found
    end = "that loop reduces, and only pointwise loops move to a later one"
    assert f"subtract (subtract) is not fused with sum_0 (sum): {end}" in found
    model = ml.Model()
    model |= ml.Exponential()(input="x", output="e")
    model |= ml.Sum(axis=0)(input="e", output="columns")
    model |= ml.Sum(axis=1)(input="e", output="rows")
    model.expose_keys("columns", "rows")
    end = "it reduces other axes than that loop"
    assert f"sum_1 (sum) is not fused with sum_0 (sum): {end}" in notes(model, x=[4, 4])


@device
def test_fusion_may_be_off():
    steps = network(passes=["-fuse"]).explain().steps
    assert all(len(step.members) == 1 for step in steps)
    gelu = next(step for step in steps if step.members[0][0] == "gelu")
    assert gelu.notes[0].endswith("is not fused with net.first (add): fusion is switched off")


@device
def test_bodies_stand_under_their_loops():
    body = ml.Model()
    body |= ml.MatrixMultiply()(left="h", right="w", output="p")
    body |= ml.Tanh()(input="p", output="h_next")
    body.expose_keys("h_next")
    model = ml.Model(name="net")
    model |= ml.Scan(body, carry={"h": "h_next"}, length=3, name="loop")(h="h", w="w", h_next="y")
    model |= ml.Relu(name="end")(input="y", output="z")
    model.expose_keys("z")
    shapes = {"h": [4, 8], "w": [8, 8]}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes))
    explanation = pm.explain()
    assert [(step.depth, step.kernel) for step in explanation.steps] == [
        (0, "scan"), (1, "gemm"), (0, "loop"),
    ]  # fmt: skip
    assert "\n  1    gemm  [4, 8]" in str(explanation)


@device
def test_open_sizes_are_asked_for():
    pm = network(rows="rows")
    with pytest.raises(UnsupportedError, match="give shapes="):
        pm.explain()
    assert pm.explain(shapes={"x": [7, 3]}).steps[1].shape == (7, 4)
    with pytest.raises(KeyNotFound):
        pm.explain(shapes={"z": [7, 3]})
    untold = ml.compile(ml.Linear(4), ml.CpuBackend())
    with pytest.raises(UnsupportedError, match="the shapes of input are open"):
        untold.explain()
    assert untold.explain(shapes={"input": [7, 3]}).steps[1].kernel == "gemm"


@device
def test_gradients_and_training_steps_are_explained_too():
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="first")(input="x", output="h")
    model |= ml.Mean(name="mean")(input="h", output="cost")
    model.expose_keys("cost")
    shapes = {"x": ["rows", 3]}
    optimizer = ml.optim.Adam(0.1)
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys={"x"}, optimizer=optimizer)
    given = {"x": [5, 3]}
    steps = {
        program: len(pm.explain(shapes=given, program=program).steps)
        for program in ("evaluate", "gradient", "step")
    }
    assert steps["evaluate"] < steps["gradient"] < steps["step"]
    ops = [op for step in pm.explain(shapes=given, program="step").steps for op, _ in step.members]
    assert "sqrt" in ops
    with pytest.raises(UnsupportedError, match="give shapes="):
        pm.explain(program="step")
    with pytest.raises(KeyNotFound, match="no program 'steps', did you mean 'step'"):
        pm.explain(shapes=given, program="steps")
    with pytest.raises(KeyNotFound, match="no program 'step'"):
        network().explain(program="step")
    with pytest.raises(SignatureError):
        pm.explain(shapes=given, program=3)
    with pytest.raises(UnsupportedError, match="no program for 'gradient'"):
        network(ml.NumpyBackend()).explain(program="gradient")


@device
def test_a_name_gives_the_lines_of_inspect():
    pm = network()
    assert pm.explain("act") == ml.inspect.explain(pm, "act")
    assert ml.inspect.explain(pm) == str(pm.explain()).splitlines()
    with pytest.raises(KeyNotFound, match="did you mean 'first'"):
        pm.explain("fist")
    for bad in (3, ["first"]):
        with pytest.raises(SignatureError):
            pm.explain(bad)


@device
def test_other_backends_tell_how_ops_are_written():
    explanation = network(ml.NumpyBackend()).explain()
    assert "NumpyBackend" in explanation.note and "its own business" in explanation.note
    kernels = {step.nodes: step.kernel for step in explanation.steps}
    assert kernels["net.act: gelu"] == "own function"
    assert all(step.shape is None for step in explanation.steps)


@device
def test_the_table_is_for_people():
    lines = str(network().explain()).splitlines()
    assert lines[0] == "  0  view  [3, 4]  net.first: swapaxes"
    assert lines[1] == "  1  gemm  [2, 4]  net.first: matmul; net.first: add; net.act: gelu"
    assert lines[2].startswith("       net.first (matmul) is finished block by block")
    assert repr(network().explain()) == str(network().explain())


def test_attention_and_its_gradient_are_one_kernel_each():
    """The forward kernel leaves a number a row; the backward one makes the weights of it anew."""
    model = ml.Model()
    model |= ml.ScaledDotProduct(is_causal=True)(query="q", key="k", value="v", output="y")
    shapes = {name: [2, 4, 64, 32] for name in "qkv"}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, trainable_keys=set(shapes))
    kernels = [step.kernel for step in pm.explain(program="gradient").steps]
    assert kernels == ["attention", "attention_grad"]
