"""What each row of the original's tables says, as a check: row -> function.

Rows are named after their section and first cell (`tests/data/original_rows.json`). Sections that
another test goes through name it there; the rest is here. Numbers are NumPy's or by hand.
"""

import contextlib
import io
import math
import pickle

import mithril as ml
import numpy as np
import pytest
from mithril import models as m

CHECKS = {}


def row(*names):
    """The function checks these rows."""

    def keep(function):
        for name in names:
            document, section, cell = name.split(" ", 2)
            name = f"{document} {section} {cell[:60].strip()}"  # as the list has it
            assert name not in CHECKS, name
            CHECKS[name] = function
        return function

    return keep


def has(module, names):
    import importlib

    found = importlib.import_module(module)
    missing = [name for name in names.split() if not hasattr(found, name)]
    assert not missing, (module, missing)


def net(**names):
    model = ml.Model()
    model |= ml.Linear(2)(input="x", output="h", **names)
    model |= ml.Relu()(input="h", output="y")
    model.expose_keys("y")
    return model


def compiled(model=None, **options):
    options = {"data_keys": {"x"}, "shapes": {"x": [4, 3]}, **options}
    return ml.compile(model or net(), ml.NumpyBackend(), **options)


def of_data(*models, **options):
    model = ml.Model()
    for part in models:
        model |= part
    return ml.compile(model, ml.NumpyBackend(), **options)


X = np.arange(12, dtype=np.float32).reshape(4, 3)
BACKENDS = (ml.NumpyBackend, ml.CpuBackend)


# --- names ----------------------------------------------------------------------------------------


@row("logical 1.3 mithril.types", "physical 0 mithril.types")
def types():
    has("mithril.types", "DataType Constant Dtype uint8 int8 int16 short int32 int int64 long float16"  # noqa: E501
        " bfloat16 float32 float float64 double bool half constant_type_table constant_shp_table"
        " epsilon_table")  # fmt: skip
    t = ml.types
    assert (t.short, t.int, t.long) == (t.int16, t.int32, t.int64)
    assert (t.half, t.float, t.double) == (t.float16, t.float32, t.float64)


@row("logical 1.3 mithril.types.Dtype (IntEnum)")
def dtypes():
    names = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 bool"
    for name in names.split():
        assert ml.types.Dtype[name] == name  # K17: strings, not numbers


@row("logical 1.3 mithril.common", "physical 0 mithril.common")
def common():
    has("mithril.common", "PaddingType find_dominant_type get_specific_types_from_value")
    assert ml.common.PaddingType.VALID == 0 and ml.common.PaddingType.SAME == 1


@row("logical 1.3 mithril.framework")
def framework():
    has("mithril.framework", "IOKey Tensor NOT_GIVEN ConnectionType ExtendInfo")


@row("logical 1.3 mithril.framework.logical")
def framework_logical():
    has("mithril.framework.logical", "BaseModel Model Operator ExtendInfo Connection IOKey"
        " ConnectionType")  # fmt: skip
    has("mithril.framework.logical.base", "BaseKey ConnectionData")
    has("mithril.framework.logical.model", "Connection IOKey ConnectionType")
    has("mithril.framework.logical.operators", "CosineOp MultiplyOp SineOp TransposeOp BufferOp")
    has("mithril.framework.logical.primitive", "OperatorModel PrimitiveModel")


@row("logical 1.3 mithril.utils.type_utils")
def type_utils():
    has("mithril.utils.type_utils", "is_list_int is_union_type is_generic_alias_type")


@row("logical 1.3 mithril.backends.utils", "physical 0 mithril.backends.utils")
def bits():
    from mithril.backends.utils import DtypeBits

    sizes = {"bool": 8, "int8": 8, "int16": 16, "int32": 32, "int64": 64, "float16": 16,
             "bfloat16": 16, "float32": 32, "float64": 64}  # fmt: skip
    assert {name: DtypeBits[name].value for name in sizes} == sizes


@row("logical 1.3 mithril.models", "physical 0 mithril.models")
def models():
    has("mithril.models", "Model BaseModel Connection IOKey BaseKey ExtendInfo ConnectionType Operator"  # noqa: E501
        " OperatorModel PrimitiveModel PhysicalModel TrainModel Tensor TBD IOHyperEdge functional"
        " define_unique_names Cast Dtype Clamp Floor primitives NOT_GIVEN Constant")  # fmt: skip


@row("logical 1.3 mithril.utils.dict_conversions", "physical 0 mithril.utils.dict_conversions")
def dict_conversions():
    from mithril.utils.dict_conversions import dict_to_model, model_dict, model_to_dict

    assert model_dict["linear"] is m.Linear
    again = dict_to_model(model_to_dict(net(weight="w")))
    assert again.input_keys == net(weight="w").input_keys and again.output_keys == ["y"]
    assert dict_to_model({"name": "Linear", "args": {"dimension": 2}}).shapes["bias"] == [2]


@row("physical 0 mithril (__all__)")
def top_level():
    has("mithril", "JaxBackend MlxBackend TorchBackend NumpyBackend compile DataType bool float float16"  # noqa: E501
        " bfloat16 float32 float64 int double int16 int32 int64 short Backend IOKey TBD Constant"
        " epsilon_table Tensor")  # fmt: skip


@row("physical 0 mithril (importable, not in __all__)")
def importable():
    has("mithril", "Connection Model PhysicalModel TrainModel PhysicalConstantType PhysicalShapeType"  # noqa: E501
        " models types backends framework utils common")  # fmt: skip


# --- constants ------------------------------------------------------------------------------------

CONSTANTS = {
    "EPSILON": (2**-52, 1.1920929e-07, 0.000977),
    "LEFT_EPSILON": (2**-53, 5.9604645e-08, 0.0004885),
    "MIN_POSITIVE_NORMAL": (2.2250738585072014e-308, 1.1754944e-38, 6.104e-05),
    "MIN_POSITIVE_SUBNORMAL": (5e-324, 1e-45, 6e-08),
    "STABLE_RECIPROCAL_THRESHOLD": (1.4916681462400413e-153, 1.0842021951e-19,
                                    0.007812809993849843),
}  # fmt: skip


def _constant(name):
    def check():
        values = tuple(ml.epsilon_table[bits][ml.Constant[name]] for bits in (64, 32, 16))
        assert values == CONSTANTS[name]

    return check


for _name in CONSTANTS:
    row(f"logical 1.5 {_name}", f"physical 0 {_name}")(_constant(_name))


@row("logical 1.5 ZEROS, ONES")
def fills():
    for name, value in (("ZEROS", 0.0), ("ONES", 1.0)):
        model = ml.Model()
        model |= ml.Add()(left="x", right="b", output="y")
        model.bind_state_keys("b", "y", ml.Constant[name])
        model.expose_keys("y")
        pm = ml.compile(model, ml.NumpyBackend(), inference=True, mode="train",
                        shapes={"x": [2], "b": [2]})  # fmt: skip
        assert pm.initial_state_dict["b"].tolist() == [value, value]


# --- objects --------------------------------------------------------------------------------------


@row("logical 2.1 Connection / IOKey")
def io_key():
    assert ml.IOKey is ml.Connection


@row("logical 2.1 identity")
def identity():
    inner, outer = net(), ml.Model()
    outer |= inner(x="a", y="b")
    assert inner.x.metadata == outer.a.metadata and inner.x is not outer.a
    assert inner.x == inner.x and hash(inner.x) == hash(inner.x)


@row("logical 2.1 Tensor(value=TBD, type=int|float|bool, shape=None, different")
def tensor():
    assert ml.Tensor([[1, 2.0], [3, 4]]).shape == [2, 2]
    with pytest.raises(ValueError):
        ml.Tensor([[1], [2, 3]])
    once = ml.Tensor([1.0])
    model = ml.Model()
    model |= ml.Add()(left=once, right="x")
    with pytest.raises(ValueError):
        model |= ml.Add()(left=once, right="x")


@row("logical 2.1 Tensor[int|float]")
def tensor_type():
    model = net()
    model.set_types(x=ml.Tensor[float])
    with pytest.raises(TypeError):
        model.set_types(x=ml.Tensor[bool])


@row("logical 2.1 TBD", "logical 2.1 NOT_GIVEN")
def singletons():
    from mithril.framework.common import NOT_GIVEN, TBD

    assert pickle.loads(pickle.dumps(TBD)) is TBD and ml.TBD is TBD
    model = ml.Model()
    model |= ml.Relu().connect(input=NOT_GIVEN, output="y")
    assert model.input_keys == ["$1"]


@row("logical 2.1 ExtendInfo(model, connections)")
def extend_info():
    relu = ml.Relu()
    found = relu.connect(input="x")
    assert isinstance(found, m.ExtendInfo)
    with pytest.raises((KeyError, TypeError)):
        relu.connect(nothing="x")


@row("logical 2.1 Operator", "logical 2.1 OperatorModel", "logical 2.10 submodel")
def operators():
    assert isinstance(ml.Relu(), m.OperatorModel)
    assert isinstance(ml.Relu().submodel, m.Operator)
    with pytest.raises((AttributeError, RuntimeError, NotImplementedError)):
        relu = ml.Relu()
        relu |= ml.Tanh()


@row("logical 2.1 PrimitiveModel(formula_key, *, name=None, **keys)")
def primitive_model():
    assert issubclass(m.PrimitiveModel, m.OperatorModel)


# --- kinds of keys, properties --------------------------------------------------------------------


def kinds():
    model = ml.Model()
    model |= ml.Mean()(input="x", output="h")
    model |= ml.Add()(left="h", right=3.0, output="y")
    model |= ml.Relu()(input="h")
    model.expose_keys("y")
    return model


@row("logical 2.4 INPUT")
def kind_input():
    assert kinds().input_keys == ["x", "$3"]  # one with a value at connect, too


@row("logical 2.4 LATENT_INPUT")
def kind_latent_input():
    assert kinds().conns.latent_input_keys == ["$1", "$2"]  # axis, keepdim


@row("logical 2.4 OUTPUT")
def kind_output():
    assert kinds().output_keys == ["y"]


@row("logical 2.4 LATENT_OUTPUT")
def kind_latent_output():
    assert kinds().conns.latent_output_keys == ["$4"]


@row("logical 2.4 INTERNAL", "logical 2.10 conns")
def kind_internal():
    assert kinds().conns.internal_keys == ["h"]
    conns = kinds().conns
    for name in ("input_connections", "output_connections", "internal_connections", "io_keys", "all",  # noqa: E501
                 "latent_input_connections", "latent_output_connections", "cins", "couts"):  # fmt: skip  # noqa: E501
        assert getattr(conns, name)
    assert conns.get_key_origin("$4") == "output" and conns.get_connection("h").key == "h"


@row("logical 2.10 input_keys / output_keys / external_keys")
def external_keys():
    assert list(kinds().external_keys) == ["x", "$3", "y"]


@row("logical 2.10 shapes / get_shapes(uni_keys=None, var_keys=None, symbolic=T")
def model_shapes():
    assert net().get_shapes()["x"] == ["(V1, ...)", "u1"]
    assert net().get_shapes(symbolic=False)["h"] == ["...", 2]
    assert kinds().shapes["$_Mean_0_axis"] is None
    assert net().shapes["$weight"] == [2, "u1"]


@row("logical 2.10 dag")
def dag():
    model = net()
    assert [type(part) for part in model.dag] == [ml.Linear, ml.Relu]
    assert list(model.dag.values())[1]["input"].key == "h"


@row("logical 2.10 cin, cout, jittable, name, default_name, is_frozen, parent,")
def properties():
    model = net()
    assert (model.cin.key, model.cout.key) == ("x", "y") and model.jittable
    assert model.name is None and model.default_name == "Model" and not model.is_frozen
    assert ml.Relu().is_frozen and model.parent is None and model.state_connections == []
    assert ml.Linear(3).factory_args["dimension"] == 3
    with pytest.raises(AttributeError):
        _ = model.grad_formula


@row("logical 2.10 get_models_in_topological_order(start=None), get_outermost_p")
def helpers():
    model = net()
    linear, relu = model.get_models_in_topological_order()
    assert model.get_models_in_topological_order(relu) == [relu]
    assert relu.get_outermost_parent() is model
    assert model.get_unique_submodel_names() == {linear: "Linear", relu: "Relu"}
    assert model.generate_keys() == {"$1": "$weight", "$2": "$bias"}


# --- summary --------------------------------------------------------------------------------------


def printed(what, **options):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        what.summary(**options)
    return out.getvalue()


@row("logical 2.12 Model Name", "logical 2.12 Keys")
def summary_keys():
    out = printed(net(), name="mine")
    assert out.split()[0] == "mine" and out.index("Linear ") < out.index("Relu ")
    assert out.index("Inputs") < out.index("Outputs")


@row("logical 2.12 Shapes (if shapes)")
def summary_shapes():
    assert "[..., None]" in " ".join(printed(net()).split())
    assert "(V1, ...)" in printed(net(), symbolic=True)
    assert "Shapes" not in printed(net(), shapes=False)


@row("logical 2.12 Types (if types)")
def summary_types():
    assert "Types" not in printed(net()) and "Tensor[float]" in printed(net(), types=True)


@row("logical 2.12 Connections")
def summary_connections():
    out = printed(net())
    assert "'x'" in out and "'$weight'" in out and "Linear.output" in out and "Relu.input" in out


# --- compile --------------------------------------------------------------------------------------


@row(
    "logical 2.13 TrainModel is finalized first; a child model cannot be compil",
    "physical 1.1 finalise TrainModel",
    "physical 1.1 parent check",
    "physical 1 model",
)
def what_is_compiled():
    with pytest.raises(ValueError):
        compiled(ml.TrainModel(net()))
    inner, outer = net(), ml.Model()
    outer |= inner(x="x", y="y")
    with pytest.raises(ValueError):
        compiled(inner)


@row("logical 2.13 no outputs and no couts", "physical 1.1 outputs exist")
def no_outputs():
    model = net()
    closed = ml.Model()
    closed |= ml.Relu()(input="x", output="y")
    closed.set_cout()
    with pytest.raises(KeyError):
        compiled(closed)
    compiled(model)


@row(
    "logical 2.13 $-prefixed strings as keys; keys not in the model; keys that",
    "physical 1.1 convert keys",
    "physical 1.1 subsets",
)
def unknown_keys():
    for options in ({"trainable_keys": {"$1"}}, {"trainable_keys": {"y"}}, {"data_keys": {"h"}},
                    {"constant_keys": {"z": X}}, {"trainable_keys": {"z"}}, {"shapes": {"z": [1]}},
                    {"discard_keys": {"z"}}):  # fmt: skip
        with pytest.raises(KeyError):
            compiled(**{"data_keys": set(), **options})
    model = net()
    assert compiled(model, data_keys={model.x}).data_keys == ("x",)


@row("logical 2.13 overlapping key sets", "physical 1.1 disjointness")
def overlaps():
    for other in ({"trainable_keys": {"x"}}, {"constant_keys": {"x": X}}, {"discard_keys": {"x"}}):
        with pytest.raises(ValueError):
            compiled(**other)


@row(
    "logical 2.13 giving a constant for an already valued key; trainable key th",
    "physical 1.1 already valued",
)
def valued():
    model = ml.Model()
    model |= ml.Add()(left="x", right="b", output="y")
    model.set_values(b=ml.Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError):
        compiled(model, constant_keys={"b": X[0]})
    with pytest.raises(ValueError):
        compiled(model, trainable_keys={"b"})


@row("logical 2.13 discard_keys that are neither inputs nor outputs")
def bad_discard():
    with pytest.raises(KeyError):
        compiled(discard_keys={"h"})


@row(
    "logical 2.13 parameters = tensors with differentiability True or listed in",
    "physical 1.1 trainable",
    "physical 1.1 runtime static",
    "physical 1 data_keys",
    "physical 1 trainable_keys",
)
def roles():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="h")
    model |= ml.Multiply()(left="h", right="s", output="y")
    pm = compiled(model)
    assert set(pm.trainable_keys) == {"w", "b"} and set(pm.data_keys) == {"x", "s"}
    pm = compiled(model, trainable_keys={"s"}, data_keys={"x", "b"})
    assert set(pm.trainable_keys) == {"w", "s"} and set(pm.data_keys) == {"x", "b"}


@row(
    "logical 2.13 safe_shapes=True additionally applies each primitive’s safe s",
    "physical 1 safe_shapes",
)
def safe_shapes():
    model = ml.Model()
    model |= ml.SquaredError()(input="a", target="b", output="y")
    shapes = {"a": [4, 1], "b": [4, 3]}
    with pytest.raises(ValueError):
        ml.compile(model, ml.NumpyBackend(), shapes=shapes, inference=True)
    pm = ml.compile(model, ml.NumpyBackend(), shapes=shapes, inference=True, safe_shapes=False)
    assert pm.shapes["y"] == [4, 3]


@row("physical 1 backend")
def any_backend():
    model = net()
    for kind in BACKENDS:
        assert ml.compile(model, kind(), data_keys={"x"}).backend.backend_type
    with pytest.raises(TypeError):
        ml.compile(model, ml.NumpyBackend(), {"x": X})


@row("physical 1 constant_keys", "physical 1.1 constant")
def constants():
    pm = compiled(data_keys=set(), constant_keys={"x": X})
    params = pm.randomize_params(0)
    plain = pm.evaluate(params)["y"]
    np.testing.assert_array_equal(plain, pm.evaluate(params, {"x": X + 1})["y"])
    assert not pm.has_grad("x") and "x" in pm.input_keys and "x" not in pm.data_keys


@row(
    "physical 1 discard_keys",
    "physical 1.1 discard propagation",
    "physical 2.3 discarded_keys",
    "physical 1.1 unused",
)
def discards():
    model = net()
    model |= ml.Add()(left="y", right="z", output="w")
    model.expose_keys("w")
    pm = compiled(model, discard_keys={"w"})
    assert pm.output_keys == ["y"] and pm.discarded_keys == {"w", "z"}
    pm = compiled(model, discard_keys={"z"})  # and what depends on it
    assert pm.output_keys == ["y"]


@row("physical 1 shapes", "physical 1.1 shapes")
def compile_shapes():
    assert compiled(shapes={"h": [None, 2], "x": (4, 3)}).shapes["h"] == [4, 2]
    with pytest.raises(ValueError):
        compiled(shapes={"x": [4, 3], "h": [4, 5]})


@row("physical 1 inference", "physical 2.3 backend, jit, inference")
def inference():
    pm = compiled(inference=True)
    assert pm.inference and pm.jit is False and pm.backend.backend_type == "numpy"
    with pytest.raises(NotImplementedError):
        pm.evaluate({}, {"x": X}, output_gradients={"y": np.ones((4, 2))})


@row("physical 1 safe_names", "physical 1.1 safe_names")
def safe_names():
    model = ml.Model()
    model |= ml.Add()(left="x")
    with pytest.raises(KeyError):
        compiled(model)
    assert "right" in compiled(model, safe_names=False).input_keys


@row("physical 1 use_short_namings", "physical 1.1 flatten + name (§1.3), JAX fusing of Linear")
def namings():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", output="h")
    model |= ml.Linear(2)(input="h", output="y")
    short = {"x", "weight_0", "weight_1", "bias_0", "bias_1"}
    assert compiled(model).input_keys == short
    long = compiled(model, use_short_namings=False).input_keys
    assert long == {"x", *(f"linear_{i}_{key}" for i in (0, 1) for key in ("weight", "bias"))}


@row("physical 1 file_path")
def file_path():
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.py"
        pm = compiled(file_path=str(path))
        assert "def " in path.read_text()
        assert pm.evaluate(pm.get_parameters(), {"x": X})["y"].shape == (4, 2)
        with pytest.raises(FileNotFoundError):
            compiled(file_path=str(Path(folder) / "none" / "net.py"))


@row("physical 1.1 constants")
def bad_constants():
    with pytest.raises((ValueError, TypeError)):
        compiled(data_keys=set(), constant_keys={"x": "text"})


@row("physical 1.1 constant folding")
def folding():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="c")
    model |= ml.Multiply()(left="c", right="x", output="y")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, inference=True,
                    constant_keys={"a": X, "b": X}, shapes={"x": [4, 3]})  # fmt: skip
    assert [step.nodes for step in pm.explain().steps] == ["multiply: multiply"]
    np.testing.assert_array_equal(pm.evaluate({}, {"x": X})["y"], 2 * X * X)


@row("physical 1.1 codegen")
def unknown_formula():
    with pytest.raises(NotImplementedError, match="no function of that name"):
        model = m.CustomPrimitiveModel("no_such_formula", input=ml.IOKey(type=ml.Tensor[float]),
                                       output=ml.IOKey(type=ml.Tensor[float]))  # fmt: skip
        ml.compile(model, ml.NumpyBackend(), inference=True, shapes={"input": [2]}).evaluate(
            {}, {"input": X[0]}
        )


# --- evaluate -------------------------------------------------------------------------------------


def with_state():
    model = ml.Model()
    model |= ml.Multiply()(left="x", right="w", output="p")
    model |= ml.Add()(left="p", right="s", output="y")
    model.bind_state_keys("s", "y", ml.Tensor([0.0, 0.0]))
    model.expose_keys("y")
    return ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, trainable_keys={"w"}, mode="train",
                      shapes={"x": [2], "w": [2], "s": [2]})  # fmt: skip


@row("physical 2.1 no gradients, model without state keys", "physical 2.2 evaluate")
def plain():
    pm = compiled()
    params = {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)}
    out = pm.evaluate(params, {"x": X})
    np.testing.assert_array_equal(out["y"], np.repeat(X.sum(1, keepdims=True), 2, 1))


@row(
    "physical 2.1 no gradients, with state keys",
    "physical 2.1 … with state keys",
    "physical 2.2 state_keys",
    "physical 2.2 initial_state_dict",
)
def states():
    pm = with_state()
    first = pm.initial_state_dict
    assert list(pm.state_keys) == ["s"] and first["s"].tolist() == [0.0, 0.0]
    w, x = np.array([2.0, 3.0], np.float32), np.array([1.0, 2.0], np.float32)
    outputs, state = pm.evaluate({"w": w}, {"x": x}, state=first)
    assert outputs["y"].tolist() == state["s"].tolist() == [2.0, 6.0]
    ones = {"y": np.ones(2, np.float32)}
    _, gradients, state = pm.evaluate({"w": w}, {"x": x}, state=state, output_gradients=ones)
    assert gradients["w"].tolist() == [1.0, 2.0] and state["s"].tolist() == [4.0, 12.0]
    with pytest.raises((ValueError, KeyError)):
        pm.evaluate({"w": w}, {"x": x})


@row(
    "physical 2.1 output_gradients True or dict, no state keys",
    "physical 2.1 dict with some outputs",
)
def gradients():
    pm = compiled()
    params = {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)}
    result = pm.evaluate(params, {"x": X}, output_gradients={"y": np.ones((4, 2), np.float32)})
    assert len(result) == 2 and result[1]["bias"].tolist() == [4.0, 4.0]


@row("physical 2.1 model is a TrainModel (final_cost is an output), True")
def cost():
    train = ml.TrainModel(net())
    train.add_loss(ml.SquaredError(), input="y", target="t")
    pm = compiled(train, data_keys={"x", "t"})
    params = pm.randomize_params(0)
    data = {"x": X, "t": np.zeros((4, 2), np.float32)}
    outputs, gradients = pm.evaluate(params, data, output_gradients=True)
    assert outputs["final_cost"].shape == () and set(gradients) == {"weight", "bias"}
    assert pm.cotangent_keys == {"final_cost"}


@row("physical 2.1 exactly one output, scalar tensor (shape []) or non-tensor, T")
def scalar_output():
    pm = of_data(ml.Sum()(input="x", output="y"), trainable_keys={"x"}, shapes={"x": [3]})
    for request in (True, {}):
        _, found = pm.evaluate({"x": X[0]}, {}, output_gradients=request)
        assert found["x"].tolist() == [1.0, 1.0, 1.0]


@row("physical 2.1 exactly one output, non-scalar, True", "physical 2.1 several outputs, True")
def cotangents_wanted():
    for pm in (compiled(), compiled_with_two()):
        with pytest.raises(ValueError):
            pm.evaluate(pm.get_parameters(), {"x": X}, output_gradients=True)


def compiled_with_two():
    model = net()
    model.expose_keys("h")
    return compiled(model)


@row("physical 2.2 randomize_params")
def random_params():
    pm = compiled()
    params = pm.randomize_params(excluded_keys={"bias"})
    assert set(params) == {"weight"} and params["weight"].shape == (2, 3)


@row("physical 2.2 shapes", "physical 2.2 get_shapes")
def physical_shapes():
    model = net()
    pm = compiled(model, shapes={"x": [None, 3]})
    assert pm.shapes == pm.get_shapes() and pm.shapes["h"] == [None, 2]
    assert pm.get_shapes(symbolic=True)["y"] == ["u1", 2]
    assert pm.get_shapes(model=model, uni_keys={}, var_keys={}, verbose=True)["h"] == [None, 2]


@row("physical 2.2 propose_shardings")
def shardings():
    with pytest.raises(NotImplementedError):
        compiled().propose_shardings()


@row("physical 2.2 summary")
def physical_summary():
    model = net()
    pm = compiled(model)
    out = printed(pm)
    assert "numpy" in out and "parameters" in out
    assert "Relu" in printed(pm, verbose=True) and "Relu" in printed(pm, model=model)
    with pytest.raises(ValueError):
        pm.summary(depth=1)
    with pytest.raises(ValueError):
        pm.summary(model=ml.Relu())


@row("physical 2.2 has_grad", "physical 2.2 cotangent_keys")
def has_grad():
    pm = compiled()
    assert pm.has_grad("weight") and pm.has_grad("y") and not pm.has_grad("x")
    assert pm.cotangent_keys == {"y"} and compiled(inference=True).cotangent_keys == set()


@row("physical 2.3 external_key_mapping")
def mapping():
    names = {"$1": "weight", "x": "x", "$2": "bias", "y": "y"}
    assert compiled().external_key_mapping == names


# --- backends -------------------------------------------------------------------------------------


@row("physical 3.1 constructor (in order)", "physical 3.1 backend_type")
def constructor():
    assert ml.NumpyBackend("cpu", ml.float64).precision == 64
    assert ml.NumpyBackend().backend_type == "numpy"


@row("physical 3.1 array type")
def array_type():
    backend = ml.NumpyBackend()
    assert backend.get_backend_array_type() is np.ndarray and backend.DataType is np.ndarray


@row(
    "physical 3.1 supported_dtypes (default dtype)", "physical 3.1 dtype attributes on the instance"
)
def backend_dtypes():
    backend = ml.NumpyBackend()
    assert {"float16", "float32", "float64"} <= {str(d) for d in backend.supported_dtypes}
    for name in ["int16", "int32", "int64", "float16", "float32", "float64", "bool"]:
        assert np.dtype(str(getattr(backend, name))) == np.dtype(name)
    with pytest.raises((ValueError, TypeError)):
        ml.NumpyBackend(dtype=ml.int32)


@row("physical 3.1 devices", "physical 3.1 get_available_devices() (static)")
def devices():
    assert ml.NumpyBackend.get_available_devices() == ["cpu"]
    with pytest.raises(RuntimeError):
        ml.NumpyBackend(device="cuda")


@row("physical 3.1 side effects")
def side_effects():  # K61
    np.random.seed(3)
    want = np.random.rand()
    np.random.seed(3)
    ml.NumpyBackend().randn(3)
    assert np.random.rand() == want


def call(name, *arguments, **options):
    """What each backend gives, as NumPy arrays."""
    out = []
    for kind in BACKENDS:
        backend = kind()
        given = [backend.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
        out.append(np.asarray(getattr(backend, name)(*given, **options)))
    return out


def equal(name, want, *arguments, **options):
    for got in call(name, *arguments, **options):
        np.testing.assert_allclose(got, want, rtol=1e-6)
        assert got.shape == np.shape(want)


@row(
    "physical 3.3 array(input, *, dtype=None[, device_mesh])",
    "physical 3.3 cast(value, dtype=None)",
)
def arrays():
    equal("array", [[1.0, 2.0]], [[1.0, 2.0]])
    equal("cast", [1.0, 2.0], np.array([1, 2]), dtype=ml.float32)


@row("physical 3.3 empty(*shape, dtype=None)", "physical 3.3 zeros(*shape, dtype=None) / ones")
def filled():
    equal("zeros", np.zeros((2, 3)), 2, 3)
    equal("ones", np.ones((2, 3)), (2, 3))
    equal("zeros", 0.0)
    assert [a.shape for a in call("empty", 2, 3)] == [(2, 3)] * 2


@row(
    "physical 3.3 zeros_like(input, *, dtype=None)", "physical 3.3 ones_like(input, *, dtype=None)"
)
def likes():
    equal("zeros_like", np.zeros((4, 3)), X)
    equal("ones_like", np.ones((4, 3)), X)


@row(
    "physical 3.3 arange(stop) / (start, stop) / (start, stop, step), dtype=",
    "physical 3.3 linspace(start, stop, steps, dtype=None)",
)
def ranges():
    equal("arange", [0, 1, 2], 3)
    equal("arange", [1.0, 1.5], 1, 2, 0.5)
    equal("linspace", [0.0, 0.5, 1.0], 0, 1, 3)


@row(
    "physical 3.3 rand(*shape, dtype=None, key=None)",
    "physical 3.3 randn(*shape, dtype=None, key=None)",
    "physical 3.3 randint(low, high, *shape, dtype=None, key=None)",
    "physical 3.3 rand_uniform(low, high, *shape, dtype=None, key=None)",
    "physical 3.3 set_seed(seed)",
    "physical 3.3 multinomial(probs, num_samples, replacement=False, key=None)",
)
def draws():
    for kind in BACKENDS:
        backend = kind()
        found = np.asarray(backend.rand(1000))
        assert found.min() >= 0 and found.max() < 1 and abs(found.mean() - 0.5) < 0.05
        assert abs(np.asarray(backend.randn(4000)).std() - 1) < 0.1
        whole = np.asarray(backend.randint(2, 5, 200))
        assert set(whole.tolist()) == {2, 3, 4}
        assert np.asarray(backend.rand_uniform(-3, -2, 50)).max() < -2
        backend.set_seed(5)
        first = np.asarray(backend.randn(3))
        backend.set_seed(5)
        np.testing.assert_array_equal(first, np.asarray(backend.randn(3)))
        picked = np.asarray(backend.multinomial(backend.array([0.0, 1.0, 1.0]), 2))
        assert sorted(picked.tolist()) == [1, 2]


@row("physical 3.3 empty_cache()", "physical 3.3 to_numpy(array)")
def odds():
    for kind in BACKENDS:
        backend = kind()
        backend.empty_cache()
        np.testing.assert_array_equal(backend.to_numpy(backend.array([1.0, 2.0])), [1.0, 2.0])


@row(
    "physical 3.3 flatten(input, start_dim=0, end_dim=-1)",
    "physical 3.3 reshape(input, shape) squeeze(input) (all unit dims) expand_",
)
def moved():
    equal("flatten", X.ravel(), X)
    equal("flatten", [2.0], np.float32(2.0) + np.zeros((), np.float32))
    equal("reshape", X.reshape(2, 6), X, (2, 6))
    equal("squeeze", [1.0, 2.0], np.array([[[1.0], [2.0]]], np.float32))
    equal("expand_dims", X[:, None], X, 1)
    equal("transpose", X.T, X)
    equal("transpose", X.T, X, (1, 0))


@row(
    "physical 3.3 concat(input, axis=0) cat(input, axis=0) stack(inputs, axis=0)",
    "physical 3.3 pad(input, pad_width)",
)
def joined():
    for kind in BACKENDS:
        backend = kind()
        x = backend.array(X)
        for name in ("concat", "cat"):
            np.testing.assert_array_equal(
                getattr(backend, name)([x, x], 1), np.concatenate([X, X], 1)
            )
        np.testing.assert_array_equal(backend.stack((x, x)), np.stack([X, X]))
        for width in (1, (1, 2), ((1, 0), (0, 2))):
            np.testing.assert_array_equal(backend.pad(x, width), np.pad(X, width))


@row(
    "physical 3.3 abs sign sin cos tanh relu sigmoid softplus log isnan stop_g",
    "physical 3.3 leaky_relu(input, slope) softmax(input, dim=-1)",
)
def functions():
    x = X[1:] - 5.5
    for name in ("abs", "sign", "sin", "cos", "tanh", "isnan"):
        equal(name, getattr(np, name)(x), x)
    equal("relu", np.maximum(x, 0), x)
    equal("sigmoid", 1 / (1 + np.exp(-x.astype(float))), x)
    equal("softplus", np.log1p(np.exp(x.astype(float))), x)
    equal("log", np.log(x * x), x * x)
    equal("stop_gradient", x, x)
    equal("leaky_relu", np.where(x > 0, x, 0.25 * x), x, 0.25)
    e = np.exp(x.astype(float))
    equal("softmax", e / e.sum(-1, keepdims=True), x)


@row(
    "physical 3.3 argmax(input, axis=None, keepdim=False)",
    "physical 3.3 sort(input, axis=-1, descending=False)",
    "physical 3.3 topk(input, k)",
    "physical 3.3 unique(input, **kw)",
)
def ordered():
    x = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], np.float32)
    equal("argmax", 4, x)
    equal("argmax", [[0], [1]], x, 1, True)
    equal("sort", np.sort(x), x)
    equal("sort", -np.sort(-x), x, descending=True)
    equal("topk", [[3.0, 2.0], [5.0, 4.0]], x, 2)
    equal("unique", [1.0, 2.0], np.array([2.0, 1.0, 2.0], np.float32))


@row(
    "physical 3.3 where(cond, input1, input2) clip(input, min, max) all(input)",
    "physical 3.3 atleast_1d(inputs) atleast_2d(inputs)",
)
def chosen():
    equal("where", np.where(X > 4, X, -X), X > 4, X, -X)
    equal("clip", np.clip(X, 2, 7), X, 2.0, 7.0)
    equal("all", False, X > 4)
    equal("any", True, X > 4)
    equal("atleast_1d", [3.0], np.zeros((), np.float32) + 3)
    equal("atleast_2d", [[3.0]], np.zeros((), np.float32) + 3)


@row(
    "physical 3.3 grad(fn)",
    "physical 3.3 value_and_grad(fn)",
    "physical 3.3 vmap(fn)",
    "physical 3.3 jacrev(fn) jacfwd(fn)",
    "physical 3.3 vjp(fn, primals, *, cotangents=None, has_aux=False)",
)
def transformations():
    for kind in BACKENDS:
        backend = kind()
        x = backend.array([1.0, 2.0])

        def f(v, backend=backend):
            return backend.reduce_sum(backend.power(v, 3.0))

        np.testing.assert_allclose(backend.grad(f)(x), [3.0, 12.0])
        value, slope = backend.value_and_grad(f)(x)
        assert math.isclose(float(value), 9.0) and np.allclose(slope, [3.0, 12.0])
        np.testing.assert_allclose(backend.vmap(f)(backend.array([[1.0, 2.0]])), [9.0])

        def g(v, backend=backend):
            return backend.multiply(v, v)

        for name in ("jacrev", "jacfwd"):
            np.testing.assert_allclose(getattr(backend, name)(g)(x), [[2.0, 0.0], [0.0, 4.0]])
        out, gradients, aux = backend.vjp(g, [x], cotangents=backend.array([1.0, 1.0]))
        np.testing.assert_allclose(out, [1.0, 4.0])
        np.testing.assert_allclose(np.asarray(gradients[0]), [2.0, 4.0])
        assert not aux


@row("physical 3.3 convert_to_logical(input, force=False)")
def logical_dtype():
    backend = ml.NumpyBackend()
    assert backend.convert_to_logical(np.dtype("float32")) == ml.float32
    assert backend.convert_to_logical(3) == 3
    with pytest.raises(ml.errors.DTypeError):
        backend.convert_to_logical(3, force=True)


@row("physical 3.3 check_op_jittable(op_key, *args)")
def jittable():
    assert ml.NumpyBackend().check_op_jittable("add") is True


# --- the rest of compile --------------------------------------------------------------------------


@row("physical 1.1 per-op copy")
def whole_numbers_are_not_trained():
    model = ml.Model()
    model |= ml.Add()(left="x", right="i", output="y")
    model.set_types(i=ml.Tensor[int])
    with pytest.raises(TypeError, match="trainable_keys: 'i' is int tensor"):
        compiled(model, trainable_keys={"i"})


@row(
    "logical 2.13 no output left with a gradient in a non-inference compile; s",
    "physical 1.1 data keys",
)
def unused_keys():  # K11: said, and passed over
    with pytest.warns(ml.errors.UnusedKeyWarning):
        pm = compiled(data_keys={"x", "nothing"})
    out = pm.evaluate({"weight": np.ones((2, 3)), "bias": np.zeros(2)}, {"x": X, "nothing": 3})
    assert out["y"].shape == (4, 2)


@row("logical 2.13 randomize_params() while a trainable shape has an unknown di")
def open_parameters():  # K9: they are placed by the first call
    pm = compiled(shapes={})
    params = pm.randomize_params(0)
    assert pm.evaluate(params, {"x": X})["y"].shape == (4, 2)
    assert params["weight"].shape == (2, 3)


@row("logical 2.13 jit=True with file_path", "physical 1.1 file_path with jit")
def jit_and_file():  # K54: allowed where there is a compiler
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.py"
        assert compiled(file_path=str(path), jit=True).jit in (True, False) and path.exists()


@row("physical 1 jit", "physical 1.1 prune + jit check", "physical 1.2 all others")
def jit():
    pm = compiled(jit=True)
    assert pm.evaluate(pm.get_parameters(), {"x": X})["y"].shape == (4, 2)
    assert ml.Linear(3).jittable


@row("physical 1.2 tensor_to_list, item")
def not_jittable():
    for part in (m.Item(), m.TensorToList()):
        assert not part.jittable
        model = ml.Model()
        model |= part(input="x")
        assert not model.jittable


@row("physical 1.1 state")
def bound_state():
    assert with_state().state_keys == ("s",) and "s" not in with_state().data_keys


@row("physical 2.1 unknown key in dict")
def unknown_cotangent():
    pm = compiled()
    with pytest.raises(KeyError):
        pm.evaluate(pm.get_parameters(), {"x": X}, output_gradients={"z": X})


@row("physical 2.1 TrainModel, dict given")
def scaled_cost():
    train = ml.TrainModel(net())
    train.add_loss(ml.SquaredError(), input="y", target="t")
    pm = compiled(train, data_keys={"x", "t"})
    params, data = pm.randomize_params(0), {"x": X, "t": np.zeros((4, 2), np.float32)}
    once = pm.evaluate(params, data, output_gradients=True).gradients
    twice = pm.evaluate(params, data, output_gradients={"final_cost": 2.0}).gradients
    np.testing.assert_allclose(twice["weight"], 2 * once["weight"], rtol=1e-6)


@row("physical 3.1 initial seed")
def first_seed():
    np.testing.assert_array_equal(ml.NumpyBackend().randn(3), ml.NumpyBackend().randn(3))


@row("physical 3.1 gradients", "physical 3.1 kernels")
def capabilities():
    assert ml.NumpyBackend().is_manualgrad and ml.NumpyBackend.is_installed
    assert "relu" in ml.NumpyBackend().op_function_dict


@row("physical 3.3 register_primitive(fn[, fn_grad]) (static)")
def registered():
    def doubled_of_rows(input):
        return input * 2

    def doubled_of_rows_grad(output_gradient, cache, idx, *inputs):
        return output_gradient * 2

    backend = ml.NumpyBackend()
    backend.register_primitive(doubled_of_rows, doubled_of_rows_grad)
    model = m.CustomPrimitiveModel(
        "doubled_of_rows",
        input=ml.IOKey(shape=["n"], type=ml.Tensor[float]),
        output=ml.IOKey(shape=["n"], type=ml.Tensor[float]),
    )
    pm = ml.compile(model, backend, trainable_keys={"input"}, jit=False)
    ones = {"output": np.ones(3, np.float32)}
    out, gradients = pm.evaluate({"input": X[0]}, {}, output_gradients=ones)
    assert out["output"].tolist() == [0.0, 2.0, 4.0] and gradients["input"].tolist() == [2.0] * 3


@row("physical 1.2 unique", "physical 1.2 primitive_slice with a bool-typed non-tensor arg")
def jittable_everywhere():
    assert m.Unique().jittable and m.Slice().jittable


@row(
    "physical 3.3 jit(fn)",
    "physical 3.3 to_device(data, device, asynchronous=…)",
    "physical 3.3 block_until_ready(data)",
)
def waiting():  # K63: every backend waits
    backend = ml.NumpyBackend()
    x = backend.array([1.0])
    assert backend.block_until_ready(x).tolist() == [1.0]
    with pytest.raises((RuntimeError, NotImplementedError)):
        backend.jit(lambda v: v)
    with pytest.raises(RuntimeError):
        backend.to_device(x, "cuda")


# --- numbers (4.3) --------------------------------------------------------------------------------


def differentiated(part, cotangent=None, wrt=None, **inputs):
    """The output and the gradients of a part, in float64; `wrt` are trained (default: floats)."""
    arrays = {key: np.asarray(value) for key, value in inputs.items()}
    trained = set(wrt or (key for key, a in arrays.items() if a.dtype.kind == "f"))
    model = ml.Model()
    model |= part.connect(**{key: key for key in arrays}, output="y")
    pm = ml.compile(
        model, ml.NumpyBackend(dtype=ml.float64), trainable_keys=trained, safe_shapes=False,
        data_keys=set(arrays) - trained, shapes={k: list(a.shape) for k, a in arrays.items()},
    )  # fmt: skip
    params = {key: arrays[key] for key in trained}
    data = {key: a for key, a in arrays.items() if key not in trained}
    out = np.asarray(pm.evaluate(params, data)["y"])
    ones = np.ones_like(out) if cotangent is None else np.asarray(cotangent, float)
    _, gradients = pm.evaluate(params, data, output_gradients={"y": ones})
    return out, {key: np.asarray(value) for key, value in gradients.items()}


def slope(part, x, **more):
    return differentiated(part, input=np.asarray(x, float), **more)[1]["input"]


@row("logical 4.3 sum-to-shape")
def sum_to_shape():
    _, found = differentiated(m.Multiply(), left=np.ones((3, 1)), right=np.arange(4.0))
    assert found["left"].tolist() == [[6.0]] * 3 and found["right"].tolist() == [3.0] * 4


@row(
    "logical 4.3 relu, leaky_relu at 0",
    "logical 4.3 abs, absolute_error at 0",
    "logical 4.3 sign, stop_gradient, zeros_like",
)
def kinks():
    assert slope(m.Relu(), [-1, 0, 2]).tolist() == [0, 0, 1]
    assert slope(m.LeakyRelu(0.25), [-1, 0, 2]).tolist() == [0.25, 0.25, 1]
    assert slope(m.Absolute(), [-1, 0, 2]).tolist() == [-1, 0, 1]
    _, found = differentiated(m.AbsoluteError(), input=np.array([0.0, 2.0]), target=np.zeros(2))
    assert found["input"].tolist() == [0, 1]
    for part in (m.Sign(), ml.StopGradient(), m.ZerosLike()):
        assert slope(part, [-1, 0, 2]).tolist() == [0, 0, 0]


@row("logical 4.3 max / min reductions", "logical 4.3 prod", "logical 4.3 variance")
def reductions():
    assert slope(m.Max(), [1, 3, 3]).tolist() == [0, 0.5, 0.5]
    assert slope(m.Min(), [1, 1, 3]).tolist() == [0.5, 0.5, 0]
    assert slope(m.Prod(), [2, 0, 3]).tolist() == [0, 6, 0]
    x = np.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(slope(m.Variance(correction=1.0), x), 2 * (x - 3) / 2)


@row("logical 4.3 avg pooling")
def average_counts_padding():
    out, _ = differentiated(m.AvgPool2D(2, padding=(1, 1)), input=np.ones((1, 1, 2, 2)))
    assert out.tolist() == [[[[0.25, 0.25], [0.25, 0.25]]]]


@row("logical 4.3 power")
def powers():
    _, found = differentiated(m.Power(), base=np.array([2.0, 0.0]), exponent=np.array([3.0, 2.0]))
    np.testing.assert_allclose(found["base"], [12, 0])
    np.testing.assert_allclose(found["exponent"], [8 * math.log(2), 0])


@row("logical 4.3 robust_log / robust_sqrt / stable_reciprocal")
def robust():
    limit = 2.2250738585072014e-308
    out, found = differentiated(m.Log(robust=True), input=np.array([0.0, 2.0]))
    np.testing.assert_allclose(out, [math.log(limit) - 1, math.log(2)])
    np.testing.assert_allclose(found["input"][1], 0.5)
    assert np.isfinite(out).all()
    out, _ = differentiated(m.StableReciprocal(), input=np.array([0.0, 4.0]))
    np.testing.assert_allclose(out, [2 / 1.4916681462400413e-153, 0.25])


@row("logical 4.3 sigmoid", "logical 4.3 softmax")
def stable():
    x = np.array([-800.0, 0.0, 800.0])
    for part, want in ((m.Sigmoid(), [0, 0.5, 1]), (m.Softplus(), [0, math.log(2), 800])):
        np.testing.assert_allclose(differentiated(part, input=x)[0], want)
    out, found = differentiated(m.Softmax(), [1.0, 0.0], input=np.array([800.0, 800.0]))
    np.testing.assert_allclose(out, [0.5, 0.5])
    np.testing.assert_allclose(found["input"], [0.25, -0.25])


@row("logical 4.3 quantile", "logical 4.3 hinge")
def kinks_of_losses():
    one, zero = np.array([1.0]), np.array([0.0])
    _, found = differentiated(m.QuantileLoss(0.25), input=zero, target=zero, wrt=["target"])
    assert found["target"].tolist() == [-0.25]  # q - 0.5
    _, found = differentiated(m.HingeLoss(), input=zero, target=one, wrt=["input"])
    assert found["input"].tolist() == [-1]
    _, found = differentiated(m.QuadHingeLoss(), input=zero, target=one, wrt=["input"])
    assert found["input"].tolist() == [-2]


@row("logical 4.3 kl_divergence")
def divergence():
    p, q = np.array([0.25, 0.75]), np.array([0.5, 0.5])
    out, found = differentiated(m.KLDivergence(), input=q, target=p)
    np.testing.assert_allclose(out, p * np.log(p / q))
    np.testing.assert_allclose(found["input"], -p / q)
    np.testing.assert_allclose(found["target"], np.log(p / q) + 1)


@row("logical 4.3 conv")
def convolution():
    x, w = np.arange(5.0).reshape(1, 1, 5), np.array([[[1.0, 2.0, 4.0]]])
    out, _ = differentiated(m.Convolution1D(3, 1, use_bias=False), input=x, weight=w)
    assert out.tolist() == [[[10, 17, 24]]]  # not flipped
    out, _ = differentiated(m.Convolution1D(2, 1, use_bias=False, dilation=2), input=x,
                            weight=np.ones((1, 1, 2)))  # fmt: skip
    assert out.tolist() == [[[2, 4, 6]]]


@row("logical 4.3 transpose gradient")
def transposed():
    part = m.Transpose((2, 0, 1))
    g = np.arange(24.0).reshape(4, 2, 3)
    _, found = differentiated(part, g, input=np.zeros((2, 3, 4)))
    np.testing.assert_array_equal(found["input"], g.transpose(1, 2, 0))


@row("logical 4.3 distance_matrix", "logical 4.3 norm_modifier")
def distances():
    out, found = differentiated(m.DistanceMatrix(), left=np.array([[1.0, 2.0]]),
                                right=np.array([[1.0, 5.0]]), norm=np.array(3.0))  # fmt: skip
    assert out.tolist() == [[27]]
    np.testing.assert_allclose(found["norm"], 27 * math.log(3))  # 0 log 0 is 0
    assert np.isclose(differentiated(m.NormModifier(), input=np.array(5.0))[0], 5)
    assert abs(float(slope(m.NormModifier(), 2.0))) == 1


@row("logical 4.3 Cast gradient", "logical 4.3 Arange")
def kinds_of_results():
    assert slope(m.Cast(ml.float32), [1, 2]).dtype == np.float64
    for stop, kind in ((3, "i"), (3.0, "f")):
        pm = of_data(m.Arange(stop=stop)(output="y"), inference=True)
        assert pm.evaluate()["y"].dtype.kind == kind


@row("logical 4.3 randomness")
def keys_of_draws():
    for kind in BACKENDS:
        model = ml.Model()
        model |= m.PrimitiveRandn()(shape=(3,), key=7, output="y")
        first, again = (ml.compile(model, kind(), inference=True).evaluate()["y"] for _ in "ab")
        np.testing.assert_array_equal(first, again)


# --- building details (5.2) -----------------------------------------------------------------------


@row("logical 5.2 Linear")
def linear():
    assert m.Linear(3, use_bias=False).input_keys == ["weight", "input"]
    with pytest.raises((KeyError, TypeError)):
        m.Linear(3, use_bias=False).connect(bias="b")
    assert m.Linear().shapes["weight"] == ["u1", "u2"]


@row("logical 5.2 Convolution1D/2D")
def convolutions():
    layer = m.Convolution2D(3, 8, padding=((1, 1), (0, 2)))
    layer.set_shapes(input=[2, 4, 6, 6])
    assert layer.shapes["weight"] == [8, 4, 3, 3] and layer.shapes["bias"] == [1, 8, 1, 1]
    assert layer.shapes["output"] == [2, 8, 6, 6]
    open_layer = m.Convolution1D()
    assert len(open_layer.shapes["weight"]) == 3


@row("logical 5.2 MLP")
def mlp():
    with pytest.raises(ValueError):
        m.MLP([ml.Relu()], [2, 3])
    names = {"weight": "w", "bias": "b"}
    found = m.MLP([ml.Relu(), ml.Tanh()], [2, 3], input_name_templates=names).input_keys
    assert {"w0", "b0", "w1", "b1"} <= set(found)


@row("logical 5.2 RNNCell / LSTMCell", "logical 5.2 OneToMany etc.")
def cells():
    for cell in (m.RNNCell, m.LSTMCell):
        for name in ("shared_keys", "private_keys", "state_keys", "hidden_key", "out_key"):
            assert getattr(cell, name)
    keys = set(m.ManyToOne(m.RNNCell(), 2).input_keys)
    assert {"input0", "input1", "initial_hidden", "w_ih", "w_hh"} <= keys


@row("logical 5.2 EncoderDecoder")
def encoder_decoder():
    found = set(m.EncoderDecoder(m.RNNCell(), 2, 2).input_keys)
    assert {"input0", "input1", "indices", "decoder_w_ih"} <= found


@row("logical 5.2 Metric family", "logical 5.2 AUC")
def metrics():
    model = ml.Model()
    model |= m.Accuracy(is_label_one_hot=False)(pred="p", label="l", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"p", "l"}, inference=True)
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], np.float32)
    assert np.isclose(pm.evaluate({}, {"p": p, "l": np.array([0, 1, 1])})["y"], 2 / 3)
    for wrong in (lambda: m.Precision("none"), lambda: m.Recall("macro"), lambda: m.AUC(0)):
        with pytest.raises((AssertionError, ValueError)):
            wrong()


@row("logical 5.2 MDS / TSNE")
def embeddings():
    assert "coords" in m.MDS(2).input_keys and "coords" in m.TSNE(2).input_keys
    with pytest.raises((AssertionError, ValueError)):
        m.MDS(2, input_type="none")


@row("logical 5.2 ScaledDotProduct")
def attention():
    assert "attn_mask" in m.ScaledDotProduct(use_attn_mask=True, is_causal=False).input_keys
    with pytest.raises((KeyError, TypeError)):
        m.ScaledDotProduct().connect(attn_mask="mask")


# --- dictionaries (6) -----------------------------------------------------------------------------


def of_form(**more):
    from mithril.utils.dict_conversions import dict_to_model

    return dict_to_model({"name": "Model", "args": {}, **more})


LINEAR = {"m_0": {"name": "Linear", "args": {"dimension": 2}}}


@row(
    "logical 6 name",
    "logical 6 args",
    "logical 6 submodels",
    "logical 6 exposed_keys",
    "logical 6 model_to_dict(model) / dict_to_model(dict_or_class_name)",
)
def structure():
    model = of_form(submodels=LINEAR, connections={"m_0": {"input": "x", "output": "y"}},
                    exposed_keys=["y"])  # fmt: skip
    assert (model.input_keys, model.output_keys) == (["$1", "x", "$2"], ["y"])


@row("logical 6 connections")
def connections():
    wires = {"m_0": {"input": {"key": {"name": "x", "shape": [4, 3], "type": {"Tensor": ["float"]}}},  # noqa: E501
                     "weight": {"tensor": [[1.0, 2.0, 3.0]] * 2}, "output": "y"}}  # fmt: skip
    model = of_form(submodels=LINEAR, connections=wires)
    assert model.shapes["y"] == [4, 2]


@row("logical 6 assigned_shapes")
def assigned_shapes():
    model = of_form(submodels=LINEAR, connections={"m_0": {"input": "x", "output": "y"}},
                    assigned_shapes=[[["x", ["V,...", 3]], [["m_0", 0], [2, 3]]]])  # fmt: skip
    assert model.shapes["x"] == ["(V1, ...)", 3] and model.shapes["y"][-1] == 2


@row(
    "logical 6 assigned_types",
    "logical 6 assigned_differentiabilities",
    "logical 6 assigned_cins, assigned_couts",
)
def assigned_facts():
    parts = {"m_0": {"name": "Add"}, "m_1": {"name": "Relu"}}
    model = of_form(submodels=parts, connections={"m_0": {"left": "a", "right": "b"}, "m_1": {}},
                    assigned_types=[["a", {"Tensor": ["float"]}]],
                    assigned_differentiabilities=[["b", True]], assigned_cins=["a"],
                    assigned_couts=[["m_1", 1]])  # fmt: skip
    assert model.cin.key == "a" and model.b.metadata.differentiable
    assert model.cout.metadata == list(model.dag)[1].output.metadata
    assert model.conns.get_type("a") == "float tensor"


@row("logical 6 tuples, enums")
def tuples_and_enums():
    from mithril.utils.dict_conversions import dict_to_model

    form = {"name": "Reshape", "args": {"shape": [2, -1]}, "tuples": ["shape"]}
    assert dict_to_model(form).shapes["output"][0] == 2
    form = {"name": "MaxPool1D", "args": {"kernel_size": 3, "padding": 1},
            "enums": {"padding": "PaddingType"}, "assigned_shapes": [[["input", [1, 1, 6]]]]}  # fmt: skip  # noqa: E501
    assert dict_to_model(form).shapes["output"] == [1, 1, 2]


@row("logical 6 unnamed_keys")
def unnamed():
    model = of_form(submodels=LINEAR, connections={"m_0": {"input": "$5", "output": "y"}},
                    unnamed_keys=["$5"])  # fmt: skip
    assert model.input_keys == ["$1", "$2", "$3"]


@row("logical 6 assigned_constraints", "logical 6 unknown constraint function")
def constraints_of_files():
    with pytest.raises(NotImplementedError):
        of_form(assigned_constraints=[{"fn": "bcast", "keys": ["a"]}])


@row(
    "logical 6 is_train_model",
    "logical 6 model",
    "logical 6 losses",
    "logical 6 regularizations",
    "logical 6 train_model_to_dict(tm) / dict_to_trainmodel(d, model)",
)
def training():
    from mithril.utils.dict_conversions import dict_to_model, model_to_dict

    form = {
        "is_train_model": True,
        "model": {"name": "Model", "submodels": LINEAR,
                  "connections": {"m_0": {"input": "x", "weight": "w", "output": "y"}},
                  "exposed_keys": ["y"]},
        "losses": [{"model": {"name": "SquaredError"}, "reduce_steps": [{"name": "Mean"}],
                    "args": {"input": "y", "target": "t"}}],
        "regularizations": [{"model": {"name": "L2"}, "coef": 0.5, "args": {"input": "w"}}],
    }  # fmt: skip
    train = dict_to_model(form)
    assert isinstance(train, ml.TrainModel)
    again = dict_to_model(model_to_dict(train))
    pm = compiled(again, data_keys={"x", "t"})
    assert "final_cost" in pm.output_keys and "w" in pm.trainable_keys


@row("logical 6 model_dict")
def classes_by_name():
    from mithril.utils.dict_conversions import model_dict

    assert model_dict["mlp"] is m.MLP and "relu" in model_dict and len(model_dict) > 150


@row("logical 6 submodel and connection sections disagree", "logical 6 name missing")
def bad_forms():
    from mithril.utils.dict_conversions import dict_to_model

    with pytest.raises(KeyError):
        of_form(submodels=LINEAR, connections={"m_1": {}})
    with pytest.raises(ValueError):
        dict_to_model({"args": {}})


@row("logical 6 unknown class name")
def unknown_class():  # a new empty model would hide a typing error
    from mithril.utils.dict_conversions import dict_to_model

    with pytest.raises(KeyError):
        dict_to_model({"name": "NoSuchLayer", "args": {"formula_key": "f"}})


@row("logical 4.3 indexer gradient")
def repeated_indices():  # they add up (7.5, row 58)
    assert slope(m.Indexer([0, 0, 2]), [1, 2, 3]).tolist() == [2, 0, 1]


@row("logical 4.3 robust_power")
def robust_powers():
    base, exponent = np.array([-2.0, 3.0]), np.array([2.0, 2.0])
    out, found = differentiated(m.Power(robust=True), base=base, exponent=exponent)
    np.testing.assert_allclose(out, [4, 9])
    np.testing.assert_allclose(found["base"], [-4, 6])


@row("logical 4.3 cross_entropy*")
def cross_entropies():
    x = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    out, found = differentiated(m.CrossEntropy(), input=x, target=np.array([2, 0]))
    np.testing.assert_allclose(out, -np.log(p[[0, 1], [2, 0]]))
    want = p - np.eye(3)[[2, 0]]
    np.testing.assert_allclose(found["input"], want)


@row("logical 4.3 no NumPy gradient")
def gradients_that_are_there():
    _, found = differentiated(m.Minimum(), left=np.array([1.0, 5.0]), right=np.array([2.0, 3.0]))
    assert found["left"].tolist() == [1, 0] and found["right"].tolist() == [0, 1]
    assert slope(m.Clamp(min_val=0.0, max_val=1.0), [-1, 0.5, 2]).tolist() == [0, 1, 0]
