"""What a compiled model tells of its keys: gradients, names, what was left out, shapes.

The names and forms are those of the original (physical-api 2.2, 2.3); shapes are counted by hand.
"""

# Covers: mithril/physical/keys.py mithril/physical/key_facts.py

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    DTypeError,
    KeyNotFound,
    SignatureError,
    UnsupportedError,
)


def net():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", output="h")
    model |= ml.Relu()(input="h", output="y")
    model |= ml.Mean(axis=-1)(input="y", output="m")
    model |= ml.ArgMax()(input="h", output="best")
    model.expose_keys("y", "m", "best")
    return model


def compiled(model=None, backend=None, **options):
    options = {"data_keys": {"x"}, **options}
    return ml.compile(model or net(), backend or ml.NumpyBackend(), **options)


SHAPES = [{}, {"x": [5, 3]}]  # open ranks, and known ones


@pytest.mark.parametrize("shapes", SHAPES)
def test_has_grad(shapes):
    model = net()
    pm = compiled(model, shapes=shapes)
    flows = {"x": False, "weight": True, "bias": True, "h": True, "y": True, "m": True}
    assert {key: pm.has_grad(key) for key in flows} == flows
    assert not pm.has_grad("best")  # integers
    assert pm.has_grad(model.h) and pm.has_grad(model.y) and not pm.has_grad(model.x)
    inner, outer = net(), ml.Model()
    outer |= inner(x="x", y="y", m="m")
    pm = compiled(outer, shapes=shapes)
    assert pm.has_grad(inner.h) and not pm.has_grad(inner.x)
    pm = compiled(shapes=shapes)
    with pytest.raises(KeyNotFound, match="has_grad: the model has no wire or submodel 'z'"):
        pm.has_grad("z")
    with pytest.raises(SignatureError, match="has_grad: key"):
        pm.has_grad(3)


def test_constants_and_what_depends_on_them_alone_have_no_gradient():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="c")
    model |= ml.Multiply()(left="c", right="w", output="y")
    model.expose_keys("c", "y")
    one = np.ones(2, np.float32)
    pm = ml.compile(model, ml.NumpyBackend(), constant_keys={"a": one, "b": one},
                    trainable_keys={"w"})  # fmt: skip
    assert [pm.has_grad(key) for key in ("a", "c", "w", "y")] == [False, False, True, True]
    assert pm.cotangent_keys == {"y"}
    assert pm.input_keys == {"a", "b", "w"}  # constants with a name are listed still


@pytest.mark.parametrize("shapes", SHAPES)
def test_cotangent_keys(shapes):
    assert compiled(shapes=shapes).cotangent_keys == {"y", "m"}
    pm = compiled(shapes=shapes, inference=True)
    assert pm.cotangent_keys == set()
    assert pm.has_grad("y")  # what flows does not depend on what is asked for
    train = ml.TrainModel(net())
    train.add_loss(ml.SquaredError(), input="m", target="t")
    pm = compiled(train, data_keys={"x", "t"}, shapes=shapes)
    assert pm.cotangent_keys == {"final_cost"}


def test_names_of_external_keys():
    pm = compiled()
    assert pm.external_key_mapping == {
        "$1": "weight", "x": "x", "$2": "bias", "y": "y", "m": "m", "best": "best"
    }  # fmt: skip
    model = ml.Model()
    model |= ml.Relu()(input="x")
    model |= ml.Tanh()(input="x")
    assert compiled(model).external_key_mapping == {"x": "x", "$1": "output", "$2": "_output"}
    relu = ml.compile(ml.Relu(), ml.NumpyBackend(), inference=True)
    assert relu.external_key_mapping == {"input": "input", "output": "output"}


def test_discarded_keys():
    assert compiled().discarded_keys == set()
    assert compiled(discard_keys={"m"}).discarded_keys == {"m"}
    model = net()
    model |= ml.Multiply()(left="m", right="only", output="z")
    model.expose_keys("z")
    pm = compiled(model, discard_keys={"z"})
    assert pm.discarded_keys == {"z", "only"}
    assert pm.output_keys == ["y", "m", "best"]
    model = net()
    model |= ml.Relu()(input="side")  # nothing exposed depends on it
    assert compiled(model).discarded_keys == {"side"}


# --- shapes ---------------------------------------------------------------------------------------


def test_shapes_of_open_ranks():
    pm = compiled()
    assert pm.shapes["x"] == ["...", None]
    assert pm.get_shapes(symbolic=True)["x"] == ["(V1, ...)", "u1"]
    assert pm.shapes["h"] == ["...", 2]


def test_shapes_of_known_ranks():
    pm = compiled(shapes={"x": [None, 3]})
    known = {"weight": [2, 3], "bias": [2], "x": [None, 3], "h": [None, 2], "y": [None, 2]}
    assert {key: pm.shapes[key] for key in known} == known
    symbolic = pm.get_shapes(symbolic=True)
    assert symbolic["x"] == ["u1", 3] and symbolic["m"] == ["u1"]
    assert symbolic["axis_0"] is symbolic["axis_1"] is None  # no tensors


def test_names_of_sizes_stay_from_call_to_call():
    pm = compiled(shapes={"x": [None, None]})
    sizes, ranks = {"u2": "batch"}, {}
    assert pm.get_shapes(uni_keys=sizes, var_keys=ranks, symbolic=True)["y"] == ["batch", 2]
    assert sizes == {"u1": "u1", "u2": "batch"} and ranks == {}
    ranks = {"V1": "any"}
    model = net()
    assert model.get_shapes(None, ranks)["h"] == ["(any, ...)", 2]
    with pytest.raises(SignatureError, match="uni_keys"):
        pm.get_shapes(uni_keys=[1])
    with pytest.raises(SignatureError, match="a name of a size"):
        model.get_shapes(var_keys={"V1": 1})


def test_every_representation_of_a_shape():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_shapes(x=["a", ("rest", ...)])
    model.set_shapes(x=[("rest", ...), 3])
    pm = compiled(model, inference=True)
    assert pm.get_shapes(verbose=True)["y"] == [[None, "..."], ["...", 3]] or (
        pm.get_shapes(verbose=True)["y"] == [["...", 3], [None, "..."]]
    )
    assert len(pm.get_shapes()["y"]) == 2


def test_shapes_of_parts():
    inner = ml.Model(name="inner")
    inner |= ml.Linear(4)(input="a", output="b")
    outer = ml.Model()
    outer |= inner(a="x", b="y")
    pm = ml.compile(outer, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [7, 3]})
    assert pm.get_shapes(model=inner) == {"$weight": [4, 3], "a": [7, 3], "$bias": [4], "b": [7, 4]}
    assert pm.get_shapes(next(iter(inner.dag)))["output"] == [7, 4]
    assert pm.get_shapes(model=outer)["$weight"] == [4, 3]
    assert outer.shapes["x"] == ["(V1, ...)", "u1"]  # compile changes nothing of the model
    with pytest.raises(ArgumentError, match="no part"):
        pm.get_shapes(model=ml.Relu())
    with pytest.raises(SignatureError, match="requires a model"):
        pm.get_shapes(model=3)


def test_what_compile_was_told_is_known():
    model = ml.Model()
    model |= ml.Reshape()(input="x", shape="to", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), constant_keys={"to": (2, 3)}, inference=True)
    assert pm.shapes["y"] == [2, 3]
    loss = ml.compile(ml.SquaredError(), ml.NumpyBackend(), shapes={"input": [2, 3]},
                      inference=True)  # fmt: skip
    assert loss.shapes["target"] == [2, 3]  # safe_shapes
    wide = ml.compile(ml.Add(), ml.NumpyBackend(), types={"left": ml.Tensor[float]},
                      inference=True)  # fmt: skip
    assert wide.shapes["left"] == ["..."]


# --- parallelism ----------------------------------------------------------------------------------


def test_shardings_are_proposed_where_there_is_a_mesh():
    from mithril.physical.keys import proposed

    assert proposed([1, 512, 1, 4], (4,)) == (1, 4, 1, 1)  # examples of physical-api 5.3
    assert proposed([1, 9, 4, 4], (2, 3)) == (1, 3, 2, 1)
    assert proposed([3, 5], (2,)) is None
    assert proposed([None, 4], (2, 1)) == (1, 2)
    assert proposed(["...", 4], (2,)) is None and proposed(None, (2,)) is None
    with pytest.raises(UnsupportedError, match="NumpyBackend.* has no mesh of devices"):
        compiled().propose_shardings()


@pytest.mark.frameworks
def test_a_mesh_of_one_device_cuts_nothing():
    jax = pytest.importorskip("jax")
    assert jax.device_count() >= 1
    pm = compiled(backend=ml.JaxBackend(device_mesh=(1, 1)), shapes={"x": [4, 3]})
    assert pm.propose_shardings({"x": (1, 1)}) == {"x": (1, 1), "weight": (1, 1), "bias": (1,)}
    with pytest.raises(KeyNotFound, match="no input named"):
        pm.propose_shardings({"z": (1,)})


def test_bad_flags():
    with pytest.raises((SignatureError, DTypeError), match="symbolic"):
        compiled().get_shapes(symbolic=[])
