"""The original's import paths (reference 1.1 to 1.3, 1.5): what is there, and what is not yet."""

import importlib

import mithril as ml
import pytest
from mithril.types import Constant, Dtype, epsilon_table

NAMES = {
    "mithril": """compile CBackend NumpyBackend TorchBackend JaxBackend MlxBackend Backend Model
        PhysicalModel TrainModel Connection IOKey Tensor TBD Constant DataType epsilon_table bool
        short int int16 int32 int64 float float16 bfloat16 float32 float64 double models types
        PhysicalConstantType PhysicalShapeType LogicalModel Lambda""",
    "mithril.types": """DataType Constant Dtype uint8 int8 int16 short int32 int int64 long float16
        bfloat16 float32 float float64 double bool half constant_type_table constant_shp_table
        epsilon_table""",
    "mithril.common": "PaddingType find_dominant_type get_specific_types_from_value",
    "mithril.framework": "IOKey Tensor NOT_GIVEN ConnectionType ExtendInfo",
    "mithril.framework.common": """NOT_GIVEN TBD KeyType IOHyperEdge Tensor Constraint Constant
        ToBeDetermined Updates UpdateType""",
    "mithril.framework.logical": """BaseModel Model Operator ExtendInfo Connection IOKey
        ConnectionType""",
    "mithril.framework.logical.base": "BaseKey ConnectionData",
    "mithril.framework.logical.model": "Connection IOKey ConnectionType",
    "mithril.framework.logical.operator": "Operator",
    "mithril.framework.logical.operators": "CosineOp MultiplyOp SineOp TransposeOp BufferOp",
    "mithril.framework.logical.primitive": "OperatorModel PrimitiveModel",
    "mithril.framework.physical": "PhysicalModel",
    "mithril.models": """Model BaseModel Connection IOKey BaseKey ExtendInfo ConnectionType Operator
        OperatorModel PrimitiveModel PhysicalModel TrainModel Tensor TBD IOHyperEdge functional
        define_unique_names Cast Clamp Floor primitives LogicalModel CustomPrimitiveModel""",
    "mithril.models.primitives": "PrimitiveModel CustomPrimitiveModel OperatorModel Relu",
    "mithril.models.train_model": "TrainModel",
    "mithril.utils.utils": "OrderedSet",
    "mithril.utils.type_utils": "is_list_int is_union_type is_generic_alias_type",
    "mithril.backends.utils": "DtypeBits",
    "mithril.cores.c.array": "PyArray",
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    found = importlib.import_module(module)
    missing = [name for name in NAMES[module].split() if not hasattr(found, name)]
    assert not missing


def test_one_thing_under_many_names():
    from mithril.framework.common import IOHyperEdge, ToBeDetermined
    from mithril.framework.logical.base import BaseKey, ConnectionData
    from mithril.framework.logical.operators import AddOp

    assert ml.IOKey is ml.Connection is BaseKey is ConnectionData
    assert ml.LogicalModel is ml.Model is ml.models.BaseModel
    assert AddOp is ml.Add
    assert isinstance(ml.TBD, ToBeDetermined)
    assert isinstance(ml.IOKey("x").metadata, IOHyperEdge)
    assert ml.models.primitives.Relu is ml.Relu


@pytest.mark.parametrize(
    "module", ["mithril.framework.logical.operators", "mithril.models.primitives"]
)
@pytest.mark.parametrize("name", ["NopeOp", "Op", "nope"])
def test_names_that_are_nowhere(module, name):
    with pytest.raises(AttributeError):
        getattr(importlib.import_module(module), name)


def test_members_of_dtype():
    order = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 bool"
    assert " ".join(dtype.name for dtype in Dtype) == order


# Reference 1.5, written off the table.
CONSTANTS = {
    "EPSILON": (2.220446049250313e-16, 1.1920929e-07, 0.000977),
    "LEFT_EPSILON": (1.1102230246251565e-16, 5.9604645e-08, 0.0004885),
    "MIN_POSITIVE_NORMAL": (2.2250738585072014e-308, 1.1754944e-38, 6.104e-05),
    "MIN_POSITIVE_SUBNORMAL": (5e-324, 1e-45, 6e-08),
    "STABLE_RECIPROCAL_THRESHOLD": (
        1.4916681462400413e-153,
        1.0842021951e-19,
        0.007812809993849843,
    ),
}


def test_constants():
    for column, bits in enumerate((64, 32, 16)):
        assert {c.name: v for c, v in epsilon_table[bits].items()} == {
            name: row[column] for name, row in CONSTANTS.items()
        }
    assert {c.name for c in Constant} == {*CONSTANTS, "ZEROS", "ONES"}


@pytest.mark.device
@pytest.mark.parametrize("engine", ["NumpyBackend", "CpuBackend"])
@pytest.mark.parametrize(("dtype", "column"), [("float64", 0), ("float32", 1), ("float16", 2)])
@pytest.mark.parametrize("name", ["EPSILON", "STABLE_RECIPROCAL_THRESHOLD"])
def test_a_constant_has_the_precision_of_the_backend(engine, dtype, column, name):
    import numpy as np

    model = ml.Model()
    constant = Constant[name]
    model |= ml.Add()(left="x", right=constant, output="y")
    model |= ml.Add()(left="x", right=ml.IOKey(value=constant), output="z")
    model.expose_keys("y", "z")
    try:
        backend = getattr(ml, engine)(dtype=dtype)
    except TypeError:
        pytest.skip(f"{engine} does not compute in {dtype}")
    pm = ml.compile(model, backend, shapes={"x": [1]}, data_keys={"x"}, inference=True)
    out = pm.evaluate({}, {"x": np.zeros(1, dtype)})
    expected = np.asarray(CONSTANTS[name][column], dtype)
    assert out["y"][0] == out["z"][0] == expected


def test_widths():
    from mithril.backends.utils import DtypeBits

    for dtype in Dtype:
        assert DtypeBits[dtype.name].value == dtype.itemsize * 8


def test_ordered_set():
    from mithril.utils.utils import OrderedSet

    items = OrderedSet([3, 1, 3, 2])
    items.add(0)
    items.discard(1)
    items.discard(7)
    items.update([5, 3])
    assert list(items) == [3, 2, 0, 5] and len(items) == 4 and 2 in items
    assert items == {0, 2, 3, 5}
    assert repr(OrderedSet("ab")) == "OrderedSet(['a', 'b'])"


def test_questions_about_types():
    from mithril.utils.type_utils import is_generic_alias_type, is_list_int, is_union_type

    assert is_list_int([1, 2]) and not is_list_int([1, True]) and not is_list_int((1,))
    assert is_union_type(int | None) and not is_union_type(int)
    assert is_generic_alias_type(list[int]) and not is_generic_alias_type(int | str)
