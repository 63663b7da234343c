"""Composing models from Python: naming, chaining, functional use, errors with the user's line."""

# Covers: mithril/logical/calls.py mithril/logical/conns.py mithril/logical/handles.py
# Covers: mithril/logical/shortcuts.py mithril/logical/shapes.py mithril/logical/stating.py

import gc
import inspect
import traceback

import mithril as ml
import pytest
from mithril.errors import (
    ArgumentError,
    FrozenModelError,
    KeyNotFound,
    MithrilError,
    MultiWriteError,
    ShapeError,
    SignatureError,
)


def snapshot(model):
    return model._node.dump()


def line_of(text: str) -> int:
    """The line of this file that holds `text` and the mark `# here`."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line and "# here" in line)


# --- naming (reference 2.11) ---------------------------------------------------------------------


def test_chain_of_unnamed_keys():
    model = ml.Model()
    model |= ml.Linear(10)
    model += ml.Relu()
    model += ml.Linear(2)
    assert model.input_keys == ["$1", "$2", "$3", "$6", "$7"]
    assert model.conns.internal_keys == ["$4", "$5"]
    assert model.conns.latent_output_keys == ["$8"]
    assert (model.cin.key, model.cout.key) == ("$2", "$8")
    generated = model.generate_keys(symbolic=False)
    assert {k: generated[k] for k in ("$1", "$2", "$3", "$6", "$7", "$4", "$5")} == {
        "$1": "weight_0",
        "$2": "input",
        "$3": "bias_0",
        "$6": "weight_1",
        "$7": "bias_1",
        "$4": "_Linear_0_output",
        "$5": "_Relu_1_output",
    }


def test_named_wires():
    model = ml.Model()
    model |= ml.Linear(10).connect(input="x", output="h")
    model += ml.Relu().connect(output="y")
    assert model.input_keys == ["$1", "x", "$2"]
    assert model.conns.internal_keys == ["h"]
    assert model.conns.latent_output_keys == ["y"]
    generated = model.generate_keys(symbolic=False)
    assert (generated["$1"], generated["$2"]) == ("weight", "bias")


def test_two_readers_of_one_wire():
    model = ml.Model()
    model |= ml.Linear(10).connect(input="x")
    model |= ml.Linear(10).connect(input="x")
    assert model.input_keys == ["$1", "x", "$2", "$4", "$5"]
    assert model.conns.latent_output_keys == ["$3", "$6"]
    assert model.cin.key == "x"
    assert [wire.key for wire in model.conns.couts] == ["$3", "$6"]


def test_a_value_given_when_connected_is_an_input():
    model = ml.Model()
    model |= ml.Add().connect(left="a", right=3.0)
    assert model.input_keys == ["a", "$1"]
    assert model.conns.latent_input_keys == []


def test_a_value_given_when_constructed_is_latent():
    model = ml.Model()
    model |= ml.Add(right=3.0).connect(left="a")
    assert model.input_keys == ["a"]
    assert model.conns.latent_input_keys == ["$1"]


def test_expressions():
    model = ml.Model()
    x = ml.IOKey("x")
    y = x.mean(axis=1) + 2 * x
    model |= ml.Buffer().connect(input=y, output="o")
    assert model.input_keys == ["x"]
    assert model.conns.latent_output_keys == ["o"]
    assert [type(m).__name__ for m in model.dag] == ["Mean", "Multiply", "Add", "Buffer"]
    assert len(model.conns.internal_keys) == 3


# --- composing -----------------------------------------------------------------------------------


def test_call_form_for_extending():  # K12
    model = ml.Model()
    model |= ml.Linear(4)(input="input", output="hidden")
    model += ml.Relu()(output="output")
    assert model.conns.internal_keys == ["hidden"]
    assert model.conns.latent_output_keys == ["output"]


def test_call_form_as_a_connection():  # K12, K64
    model = ml.Model()
    hidden = ml.Linear(4)(ml.IOKey("x"))
    model |= ml.Relu()(hidden)
    assert "x" in model.input_keys
    assert [type(m).__name__ for m in model.dag] == ["Linear", "Relu"]


def test_a_result_that_extended_is_a_connection_afterwards():
    model = ml.Model()
    hidden = ml.Linear(4)(input="x")
    model |= hidden
    model |= ml.Relu()(hidden)
    assert [type(m).__name__ for m in model.dag] == ["Linear", "Relu"]
    assert len(model.conns.internal_keys) == 1


def test_positional_arguments_are_in_connect_order():  # K64
    model = ml.Model()
    model |= ml.Linear(4)("x")
    assert model.input_keys == ["$1", "x", "$2"]


@pytest.mark.parametrize(("given", "wired"), [({"left": "a"}, "right"), ({"right": "a"}, "left")])
def test_chaining_leaves_given_keys_alone(given, wired):  # K13
    model = ml.Model()
    model |= ml.Relu()(input="x", output="h")
    model += ml.Add()(**given, output="y")
    add = list(model.dag)[1]
    assert model.dag[add][wired].key == "h"


def test_chaining_with_every_input_given_is_extending():  # K13
    model = ml.Model()
    model |= ml.Relu()(input="x", output="h")
    model += ml.Add()(left="h", right="x", output="y")
    assert model.conns.latent_output_keys == ["y"]


def test_chaining_with_two_open_inputs_names_them():  # K13
    model = ml.Model()
    model |= ml.Relu()(input="x", output="h")
    before = snapshot(model)
    with pytest.raises(KeyError, match="left.*right"):
        model += ml.Add()
    assert snapshot(model) == before


@pytest.mark.parametrize(
    ("extended", "named"),
    [
        (lambda m: m + ml.Relu(), "h"),
        (lambda m: m + ml.Relu()(output="y"), "y"),
        (lambda m: m | ml.Relu()(input="h", output="y"), "y"),
        (lambda m: m | ml.Relu()(input=m.h, output="y"), "y"),
        (lambda m: m | ml.Relu().connect(input=m["h"], output="y"), "y"),
        (lambda m: m | ml.Buffer()(input=m.cout, output="y"), "y"),
    ],
)
def test_operators_without_assignment_leave_their_model_alone(extended, named):
    model = ml.Model(name="net")
    model |= ml.Linear(8)(input="x", output="h")
    before, shapes = model.to_json(), model.shapes
    first, second = extended(model), extended(model)
    assert model.to_json() == before and model.shapes == shapes
    assert first is not model and type(first) is ml.Model and first.name == "net"
    for made in (first, second):
        assert len(made.submodels) == 2 and named in made.shapes
    first += ml.Linear(2)
    assert len(second.submodels) == 2
    model += ml.Tanh()
    assert list(model.submodels) == ["Linear", "Tanh"] and len(second.submodels) == 2


def test_a_refused_copy_leaves_the_call_usable():
    model = ml.Model()
    model |= ml.Linear(8)(input="x", output="h")
    call = ml.Relu()(input=model.h, output="x")
    with pytest.raises(ml.errors.MithrilError):
        model | call
    other = ml.Relu()(input=model.h, output="y")
    with pytest.raises(KeyError):
        ml.Model() | other
    model |= other
    assert "y" in model.shapes and len(model.submodels) == 2


def test_create():
    x = ml.IOKey("x")
    model = ml.Model.create(out=2 * x + 1)
    assert (model.input_keys, model.output_keys, model.is_frozen) == (["x"], ["out"], True)


def test_functional():
    @ml.models.functional
    def scaled(x, by):
        return x * by + 1

    model = ml.Model.create(out=scaled(ml.IOKey("a"), ml.IOKey("b")))
    assert model.input_keys == ["a", "b"]
    assert model.output_keys == ["out"]


def test_wires_by_name_and_attribute():  # K6
    model = ml.Model()
    model |= ml.Linear(4)(input="x", output="h")
    assert model["h"] is model.h
    assert model["$1"].key == "$1"
    with pytest.raises(KeyNotFound, match="'hh'"):
        model["hh"]
    with pytest.raises(AttributeError, match="hh"):
        _ = model.hh


def test_a_wire_with_the_name_of_a_member_warns():  # K6
    model = ml.Model()
    with pytest.warns(ml.errors.MithrilWarning, match="'shapes'"):
        model |= ml.Relu()(input="shapes")
    assert isinstance(model.shapes, dict)
    assert model["shapes"].key == "shapes"


# --- handles -------------------------------------------------------------------------------------


def test_look_ups_return_the_original_object():
    model = ml.Model()
    child = ml.Linear(3, name="head")
    child.note = "mine"
    model |= child(input="x")
    assert child.parent is model
    assert next(iter(model.dag)) is child
    identity = id(child)
    del child
    gc.collect()
    (again,) = model.dag
    assert id(again) == identity
    assert again.note == "mine"


def test_models_are_freed():
    model = ml.Model()
    model |= ml.Linear(3)(input="x")
    import weakref

    dead = weakref.ref(model)
    del model
    gc.collect()
    assert dead() is None


# --- what is known -------------------------------------------------------------------------------


def test_shapes_follow_each_other():
    model = ml.Model()
    model |= ml.Linear(4)(input="x", weight="w", output="y")
    model.set_shapes(x=["N", 3])
    assert model.shapes["w"] == [4, 3]
    assert model.shapes["y"] == ["N", 4]
    assert model.get_shapes(symbolic=False)["y"] == [None, 4]


def test_set_types_and_values():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="c")
    model.set_types(a=ml.Tensor[int], b=ml.Tensor[int])
    assert "int" in model.conns.get_type("c")
    with pytest.raises(TypeError):
        model.set_types(a=ml.Tensor[float])


# --- errors --------------------------------------------------------------------------------------


def clash():
    model = ml.Model()
    model |= ml.Linear(4)(input="x", weight="w")
    model.set_shapes(w=[4, 3])
    return model


def test_errors_name_the_users_line():
    model = clash()
    with pytest.raises(ShapeError) as caught:
        model.set_shapes(x=["N", 5])  # here
    error = caught.value
    assert error.place.line == line_of('model.set_shapes(x=["N", 5])')
    assert error.place.file.endswith("test_model.py")
    assert error.code.startswith("MTH1")
    assert any(fact.place.line for fact in error.facts)


def test_tracebacks_end_in_user_code():
    model = clash()
    try:
        model.set_shapes(x=["N", 5])
    except ShapeError as error:
        frames = traceback.extract_tb(error.__traceback__)
    assert [frame.filename for frame in frames] == [__file__]


@pytest.mark.parametrize(
    "fail",
    [
        lambda m: m.set_shapes(x=["N", 5]),
        lambda m: m.set_shapes(nope=[1]),
        lambda m: m.set_shapes(x=[-1]),
        lambda m: m.set_shapes(x=[2**63]),
        lambda m: m.set_shapes(x=[1.5]),
        lambda m: m.set_shapes(x="abc"),
        lambda m: m.set_shapes(3),
        lambda m: m.set_types(x=3),
        lambda m: m.set_types(x=ml.Tensor[int]) or m.set_types(x=ml.Tensor[float]),
        lambda m: m.__ior__(m),
        lambda m: m.__ior__(3),
        lambda m: m.__ior__(None),
        lambda m: m.__ior__(ml.Relu()(nope="a")),
        lambda m: m.__ior__(ml.Relu()("a", "b", "c")),
        lambda m: m.__ior__(ml.Relu()(input="a", output="x2")).__ior__(ml.Relu()(output="x2")),
        lambda m: m.__ior__(ml.Add()(left=ml.TBD)),
        lambda m: m.__ior__(ml.Add()(left=object())),
        lambda m: m.expose_keys("nope"),
        lambda m: m.rename_key("x", "w"),
        lambda m: m.set_values(y=1),
        lambda m: m["\0"],
        lambda m: m["x" * 10**6],
        lambda m: m[3],
        lambda m: ml.IOKey(3),
        lambda m: ml.IOKey("a", type=7),
        lambda m: ml.IOKey("a", value=1, shape=[2]),
        lambda m: ml.Tensor([[1, 2], [3]]),
        lambda m: ml.Tensor(["a"]),
        lambda m: ml.Tensor(object()),
        lambda m: ml.IOKey("a") + "b",
        lambda m: ml.Model(name=3),
        lambda m: ml.Model.create(3),
    ],
)
def test_failed_calls_change_nothing(fail):
    model = clash()
    keys = model.input_keys
    with pytest.raises((MithrilError, AttributeError)):
        fail(model)
    assert model.input_keys[: len(keys)] == keys


def test_a_failed_extend_is_as_if_it_had_not_been():
    model = clash()
    before = snapshot(model)
    child = ml.Linear(7)
    with pytest.raises(ShapeError):
        model |= child(input="x", weight="w")
    assert snapshot(model) == before
    assert child.parent is None
    other = ml.Model()
    other |= child
    assert child.parent is other


def test_two_writers():
    model = ml.Model()
    model |= ml.Relu()(input="a", output="b")
    with pytest.raises(MultiWriteError):
        model |= ml.Relu()(input="c", output="b")


def test_frozen_models():
    model = ml.Model.create(out=ml.IOKey("x") + 1)
    with pytest.raises(FrozenModelError):
        model |= ml.Relu()


def test_a_tensor_is_used_once():
    model = ml.Model()
    tensor = ml.Tensor([1.0, 2.0])
    model |= ml.Add()(left="a", right=tensor)
    with pytest.raises(ArgumentError, match="one place"):
        model |= ml.Add()(left="b", right=tensor)


def test_keys_that_hostile_users_choose():
    names = [
        "a\nb",
        "'",
        '"""',
        "*/",
        "\\",
        "??/",
        "a\0b",
        "\u2028",
        "(x)",
        "é",
        "名",
        "x" * 10**6,
    ]
    model = ml.Model()
    for name in names:
        model |= ml.Relu()(input=name)
    assert [k for k in model.input_keys if k in names] == names
    for name in ("\ud800", "$(x)"):
        with pytest.raises(MithrilError):
            model |= ml.Relu()(input=name)


def test_calls_of_wrong_arity():
    with pytest.raises(SignatureError, match="at most"):
        ml.Relu()("a", "b", "c", "d")
    with pytest.raises(TypeError):
        ml.Relu(nope=3)


def test_summary_prints(capsys):
    model = clash()
    assert model.summary() is None
    assert "Linear" in capsys.readouterr().out


def test_why():
    model = clash()
    chain = model.why("w").splitlines()
    assert chain[0].startswith("w : ")
    assert any("test_model.py" in line for line in chain[1:])


def test_a_chain_and_a_nest_do_not_recurse():
    model = ml.Model()
    for _ in range(2000):
        model += ml.Relu()
    assert len(model.dag) == 2000
    nest = ml.Model()
    nest |= ml.Relu()(input="x")
    for _ in range(1000):
        outer = ml.Model()
        outer |= nest(x="x")
        nest = outer
    assert nest.input_keys == ["x"]
