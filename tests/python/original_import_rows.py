"""Rows of the original's tables of imports, methods, templates and compilation: row -> function.

They continue `original_rows.py`.
"""

import mithril as ml
import numpy as np
import pytest
from mithril import models as m

from tests.python.original_rows import X, compiled, has, net, row

# --- names that programs and tests import ---------------------------------------------------------

IMPORTED = {
    "mithril.framework.logical.base": "BaseKey ConnectionData",
    "mithril.models.primitives": "PrimitiveModel",
    "mithril.framework": "IOKey Tensor NOT_GIVEN ConnectionType ExtendInfo",
    "mithril.framework.logical.model": "Connection IOKey ConnectionType",
    "mithril.backends.utils": "DtypeBits",
    "mithril.common": "PaddingType get_specific_types_from_value find_dominant_type",
    "mithril.utils.type_utils": "is_list_int is_generic_alias_type is_union_type",
    "mithril.utils": "dict_conversions",
    "mithril.framework.logical": "BaseModel Model Operator ExtendInfo",
    "mithril.framework.logical.operators": "CosineOp MultiplyOp SineOp TransposeOp BufferOp",
    "mithril.framework.physical": "PhysicalModel",
    "mithril.models.train_model": "TrainModel",
    "mithril.framework.logical.primitive": "OperatorModel PrimitiveModel",
    "mithril": "TorchBackend JaxBackend NumpyBackend compile Backend IOKey MlxBackend CBackend"
    " DataType GGMLBackend types Constant epsilon_table models Tensor",
    "mithril.cores.c.array": "PyArray",
}


def _imports(module, names):
    def check():
        has(module, names)

    return check


for _module, _names in IMPORTED.items():
    row(f"logical 1.1 {_module}")(_imports(_module, _names))

USED = (
    "connect expose_keys set_types set_shapes conns set_values cout set_cin set_cout dag _freeze"
    " set_differentiability merge_connections shapes add_constraint cin generate_keys rename_key"
    " summary bind_state_keys create"
)


@row("logical 1.4 connect 45/12 (≈3 840 calls), expose_keys 25/6, set_types 21")
def methods():
    assert all(hasattr(ml.Model, name) for name in USED.split())
    training = "add_loss add_regularization add_metric set_loss_combiner finalize"
    assert all(hasattr(ml.TrainModel, name) for name in training.split())
    assert ml.Relu().submodel is not None and net().x.metadata is not None


# --- templates of shapes --------------------------------------------------------------------------


def shaped(*template):
    model = ml.Model()
    model |= ml.Buffer()(input="x", output="y")
    model.set_types(x=ml.Tensor)
    model.set_shapes(x=list(template))
    return model


@row("logical 3.1 int")
def sizes():
    assert shaped(2, 0).shapes["y"] == [2, 0]


@row("logical 3.1 str", "logical 3.1 Uniadic")
def symbols():
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="y")
    model.set_shapes(a=["n", "n"], b=["n", 3])
    rows, columns = model.get_shapes()["a"]
    assert rows == columns
    model.set_shapes(b=[4, 3])
    assert model.shapes["a"] == [4, 4] and model.shapes["y"] == [4, 3]
    with pytest.raises(ValueError):
        model.set_shapes(a=[5, 5])
    assert model.shapes["a"] == [4, 4]


@row("logical 3.1 None")
def unknown_sizes():
    assert shaped(None, None).shapes["y"] == ["u1", "u2"]


@row('logical 3.1 ("V", ...)', "logical 3.1 Variadic")
def open_ranks():
    assert shaped(("V", ...), 3).shapes["y"] == ["(V1, ...)", 3]
    model = shaped(("V", ...), 3)
    model.set_shapes(x=[5, 4, 3])
    assert model.shapes["y"] == [5, 4, 3]


@row("logical 3.1 other item / malformed tuple")
def malformed_templates():
    for wrong in ([2.5], [("V",)], [("V", 3)], [object()]):
        with pytest.raises((TypeError, KeyError, ValueError)):
            shaped(*wrong)


@row("logical 3.1 scalar-shaped tensor")
def no_axes():
    assert shaped().shapes["y"] == []


@row("logical 3.1 match errors")
def clashes():
    for first, second in (([2, 3], [2, 3, 4]), (["a", "b", ("V", ...)], [2]), ([2, 3], [2, 4])):
        with pytest.raises(ValueError):
            shaped(*first).set_shapes(x=second)


# --- when something is inferred -------------------------------------------------------------------


@row("logical 3.4 op construction")
def at_construction():
    assert ml.Linear(3).shapes["bias"] == [3]
    assert ml.Reshape((2, 3)).shapes["output"] == [2, 3]


@row("logical 3.4 every extend, merge, set_*")
def at_each_step():
    model = net()
    model.set_shapes(x=[7, 5])
    assert model.shapes["h"] == [7, 2]
    model |= ml.Linear(4)(input="y", output="z")
    assert model.shapes["z"] == [7, 4]
    other = ml.Model()
    other |= ml.Relu()(input="a", output="u")
    other |= ml.Relu()(input="b", output="v")
    other.set_shapes(a=[2, 3])
    other.merge_connections(other.a, other.b, name="c")
    assert other.shapes["v"] == [2, 3]


@row("logical 3.4 compile")
def at_compile():
    model = ml.Model()
    model |= ml.SquaredError()(input="x", target="t", output="y")
    assert compiled(model, data_keys={"x", "t"}).shapes["t"] == [4, 3]  # safe shapes
    with pytest.raises(ValueError):
        compiled(net(), shapes={"x": [4, 3]}, constant_keys={"weight": np.ones((2, 5))})


@row("logical 3.4 staging of polymorphic arithmetic")
def tensor_or_number():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="y")
    model.set_values(a=2)
    assert model.get_shapes()["y"] is None  # undecided
    model.set_types(b=ml.Tensor[float])
    model.set_shapes(b=[3, 4])
    assert model.shapes["y"] == [3, 4]


@row("logical 3.4 constant folding")
def numbers_fold():
    model = ml.Model()
    model |= ml.Add()(left=2, right=3, output="n")
    model |= ml.Reshape()(input="x", shape=(model.n, -1), output="y")
    model.set_shapes(x=[10, 2])
    assert model.shapes["y"] == [5, 4]


@row("logical 3.4 order")
def one_result():
    facts = {"x": [4, 6], "h": [4, 2], "y": [None, 2]}
    found = []
    for order in (list(facts), list(reversed(facts))):
        model = net()
        for key in order:
            model.set_shapes({key: facts[key]})
        found.append(model.shapes)
    assert found[0] == found[1] and found[0]["$weight"] == [2, 6]


@row("logical 3.4 conflicts")
def kinds_of_errors():
    model = net()
    for change, kind in (
        (lambda: model.set_types(x=ml.Tensor[bool]), TypeError),
        (lambda: model.set_shapes(h=[2, 3]), ValueError),
        (lambda: model.set_values(h=2.0), ValueError),
    ):
        with pytest.raises(kind):
            change()


# --- from the logical to the physical model -------------------------------------------------------


@row("physical 4.1 flatten")
def flat():
    inner, outer = net(weight="w"), ml.Model()
    outer |= inner(x="x", w="w", y="h")
    outer |= ml.Tanh()(input="h", output="z")
    outer.expose_keys("z")
    text = str(compiled(outer).graph)
    assert text.index("linear") < text.index("relu") < text.index("tanh")


@row("physical 4.1 physical edges")
def snapshot():
    model = net()
    pm = compiled(model, shapes={})
    model.set_shapes(x=[9, 9])
    params = {"weight": np.ones((2, 3), "float32"), "bias": np.zeros(2, "float32")}
    assert pm.evaluate(params, {"x": X})["y"].shape == (4, 2)


@row("physical 4.1 safe shapes, trainable/data flags, differentiability inferen")
def differentiability():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", output="h")
    model |= ml.FloorDivide()(numerator="h", denominator=2.0, output="f")
    model |= ml.ArgMax()(input="h", output="a")  # compiles; only its gradient is refused
    model.expose_keys("h", "f", "a")
    pm = compiled(model)
    assert [pm.has_grad(key) for key in ("h", "f", "a")] == [True, False, False]


@row("physical 4.1 user shapes, user constants")
def constants_reach_shapes():
    model = ml.Model()
    model |= m.Shape()(input="x", output="s")
    model |= ml.Reshape()(input="z", shape="s", output="y")
    shapes = {"x": [2, 6], "z": [12]}
    pm = ml.compile(model, ml.NumpyBackend(), inference=True, shapes=shapes)
    assert pm.shapes["y"] == [2, 6]


@row("physical 4.1 graph update (G only)")
def broadcasts_on_ggml():
    backend = ml.GGMLBackend
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="y")
    try:
        pm = ml.compile(model, backend(), inference=True, shapes={"a": [1, 3], "b": [2, 3]})
    except (ImportError, RuntimeError) as missing:
        pytest.skip(f"ggml: {str(missing).splitlines()[0]}")
    a, b = np.array([[1, 2, 3]], "float32"), np.ones((2, 3), "float32")
    out = pm.evaluate({}, {"a": a, "b": b})["y"]
    np.testing.assert_array_equal(pm.backend.to_numpy(out), a + b)


@row("physical 4.1 per-op traversal")
def duplicates_and_identities():
    model = ml.Model()
    for i in (1, 2):
        model |= ml.Buffer()(input="x", output=f"b{i}")
        model |= ml.Exponential()(input=f"b{i}", output=f"e{i}")
    model |= ml.Add()(left="e1", right="e2", output="y")
    model.expose_keys("y")
    pm = ml.compile(model, ml.NumpyBackend(), inference=True, shapes={"x": [3]})
    assert pm.source.count("exp(") == 1
    np.testing.assert_allclose(pm.evaluate({}, {"x": np.zeros(3)})["y"], 2.0)


@row("physical 4.1 constant folding")
def folded():
    model = ml.Model()
    model |= ml.Exponential()(input="c", output="e")
    model |= ml.Add()(left="x", right="e", output="y")
    pm = ml.compile(model, ml.CpuBackend(), inference=True, shapes={"x": [3]},
                    constant_keys={"c": np.zeros(3)})  # fmt: skip
    assert "exp" not in str(pm.explain())
    np.testing.assert_allclose(pm.evaluate({}, {"x": np.ones(3)})["y"], 2.0)


@row("physical 4.1 discard propagation")
def discarded():
    model = ml.Model()
    model |= ml.Relu()(input="a", output="h")
    model |= ml.Add()(left="h", right="b", output="y")
    model |= ml.Tanh()(input="c", output="z")
    model.expose_keys("h", "y", "z")

    def left(*keys):
        pm = ml.compile(model, ml.NumpyBackend(), inference=True, discard_keys=set(keys))
        return set(pm.input_keys), set(pm.output_keys)

    assert left("y") == ({"a", "c"}, {"h", "z"})  # what only it needs
    assert left("h") == ({"a", "b", "c"}, {"y", "z"})
    assert left("h", "y") == ({"a", "c"}, {"z"})  # read by another op: only not returned
    assert left("a") == ({"c"}, {"z"})  # and all that depends on an input


@row("physical 4.1 safe_names check, codegen, compile/exec, optional jit")
def source():
    assert "def " in compiled().source
    model = ml.Model()
    model |= ml.Add()
    with pytest.raises(KeyError):
        ml.compile(model, ml.NumpyBackend(), inference=True)
