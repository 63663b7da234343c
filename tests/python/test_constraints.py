"""Constraints of users: what their functions see and state, and what happens when they fail."""

import functools
import threading

import mithril as ml
import pytest
from mithril.errors import (
    ArgumentError,
    FrozenModelError,
    KeyNotFound,
    MithrilError,
    ShapeError,
    ShapeTemplateError,
    SignatureError,
)
from mithril.logical.constraints import Constraint, Updates, UpdateType, find, name_of, register


def model():
    m = ml.Model()
    m |= ml.Relu()(input="x", output="y")
    m |= ml.Tanh()(input="z", output="t")
    return m


@register
def same_rows(a, b):
    if a.shape and b.shape:
        a.tie(0, b, 0)
        return True
    return False


def test_it_relates_keys_both_ways():
    for known, other in (("x", "z"), ("z", "x")):
        m = model()
        constraint = m.add_constraint(same_rows, ["x", "z"])
        assert isinstance(constraint, Constraint) and constraint.keys == ["x", "z"]
        m.set_shapes({known: [7, 2], other: [None, 5]})
        assert m.shapes["y" if other == "x" else "t"] == [7, 5]


def test_it_runs_at_once_on_what_is_known():
    m = model()
    m.set_shapes(x=[7, 2], z=[None, 5])
    m.add_constraint(same_rows, ["x", "z"])
    assert m.shapes["t"] == [7, 5]


def test_what_its_function_sees():
    seen = []

    def look(a, b):
        seen.append((a.type, a.shape, a.is_tensor, a.is_scalar, a.value, b.value))

    m = model()
    m |= ml.Buffer()(input="n", output="n2")
    m.add_constraint(look, ["x", "n"])
    m.set_shapes(x=[None, 3])
    m.set_values(n=(1, 2))
    assert seen[0][1] is None and seen[0][4] is ml.TBD
    assert seen[-1] == ("int tensor or float tensor", [None, 3], True, False, ml.TBD, (1, 2))


def test_what_it_may_state():
    def state(a, n):
        a.set_type(ml.Tensor[float])
        a.set_shape([2, None])
        n.set_value(3)
        return True, Updates()

    m = model()
    m |= ml.Buffer()(input="n", output="n2")
    m.add_constraint(state, ["x", "n"], type=[UpdateType.SHAPE])
    assert m.shapes["y"][0] == 2
    assert m.conns.get_type("y") == "float tensor"
    assert m.conns.get_metadata("n2").value == 3


def test_why_names_it_where_it_was_added():
    m = ml.Model()
    m |= ml.Relu()(input="x", output="y")
    for _ in range(20):  # more models than wires
        outer = ml.Model()
        outer |= m(x="x", y="y")
        m = outer
    m |= ml.Tanh()(input="z", output="t")
    m.add_constraint(same_rows, ["x", "z"])
    m.set_shapes(x=[7, 2], z=[None, 5])
    line = test_why_names_it_where_it_was_added.__code__.co_firstlineno + 8
    for each in (m, ml.Model.from_json(m.to_json(history=True))):
        told = [text.split("<-") for text in str(each.why("t")).splitlines()]
        place = ["add_constraint", f"test_constraints.py:{line}"]
        assert place in [[part.strip() for part in parts] for parts in told]


@pytest.mark.parametrize("name", ["", 3, b"name"])
def test_a_name_is_text(name):
    with pytest.raises((SignatureError, ArgumentError), match="register.*requires a"):
        register(lambda edge: True, name)
    with pytest.raises(SignatureError, match="register: name: requires a string"):
        register(functools.partial(same_rows))


def test_a_finished_one_does_not_run_again():
    runs = []

    def once(a):
        runs.append(1)
        return True

    m = model()
    m.add_constraint(once, ["x"])
    m.set_shapes(x=[2, 3])
    assert len(runs) == 1


def test_dependencies_wait():
    order = []

    def first(a):
        if a.shape is None:
            return False
        order.append("first")
        return True

    def second(b):
        order.append("second")
        return True

    m = model()
    before = m.add_constraint(first, ["x"])
    m.add_constraint(second, ["z"], dependencies=[before])
    assert order == []
    m.set_shapes(x=[2])  # says nothing about z
    assert order == ["first", "second"]


def test_it_survives_nesting():
    inner = model()
    inner.add_constraint(same_rows, ["x", "z"])
    outer = ml.Model()
    outer |= inner(x="a", z="b")
    outer.set_shapes(a=[4, 1], b=[None, 2])
    assert outer.shapes["b"] == [4, 2]
    more = ml.Model()
    more |= outer(a="p", b="q")
    with pytest.raises(ShapeError):
        more.set_shapes(q=[5, 2])


def test_it_runs_for_facts_of_compile_only():
    m = model()
    m.add_constraint(same_rows, ["x", "z"])
    pm = ml.compile(m, ml.NumpyBackend(), shapes={"x": [4, 1], "z": [None, 2]}, inference=True)
    assert pm.get_shapes()["z"] == [4, 2]
    assert m.shapes["z"] != [4, 2]


# --- failing --------------------------------------------------------------------------------------


class Refused(Exception):
    pass


def refusing(a):
    if a.shape is not None:
        raise Refused("no shapes")


def test_its_exception_passes_through_and_nothing_changes():
    m = model()
    m.add_constraint(refusing, ["x"])
    before = m._node.dump()
    with pytest.raises(Refused, match="no shapes"):
        m.set_shapes(x=[2])
    assert m._node.dump() == before
    m.set_types(x=ml.Tensor[float])  # the model is as good as before


@pytest.mark.parametrize("where", ["at once", "in an extend", "in compile"])
def test_wherever_it_fails(where):
    m = model()
    if where == "at once":
        m.set_shapes(x=[2])
        before = m._node.dump()
        with pytest.raises(Refused):
            m.add_constraint(refusing, ["x"])
        assert m._node.constraints == []
    else:
        m.add_constraint(refusing, ["x"])
        before = m._node.dump()
        with pytest.raises(Refused):
            if where == "in compile":
                ml.compile(m, ml.NumpyBackend(), shapes={"x": [2], "z": [2]}, inference=True)
            else:
                m |= ml.models.Reshape((2, 3))(input="q", output="x")
    assert m._node.dump() == before


def test_a_contradiction_is_an_error_of_shapes():
    def two_rows(a):
        a.set_shape([2, None])
        return True

    m = model()
    m.add_constraint(two_rows, ["x"])
    before = m._node.dump()
    with pytest.raises(ShapeError):
        m.set_shapes(x=[3, None])
    assert m._node.dump() == before


def test_a_caught_contradiction_still_fails():
    def stubborn(a):
        try:
            a.set_shape([2])
        except MithrilError:
            return True

    m = model()
    m.set_shapes(x=[3])
    before = m._node.dump()
    with pytest.raises(ShapeError):
        m.add_constraint(stubborn, ["x"])
    assert m._node.dump() == before


MEDDLING = {
    "extend": lambda m: m.extend(ml.Relu()),
    "set_shapes": lambda m: m.set_shapes(z=[2]),
    "set_cout": lambda m: m.set_cout(),
    "freeze": lambda m: m._freeze(),
    "rename": lambda m: m.rename_key("z", "q"),
    "as a child": lambda m: ml.Model().extend(m),
    "call": lambda m: ml.Buffer()(m()[0]),
    "constraint": lambda m: m.add_constraint(refusing, ["x"]),
}


@pytest.mark.parametrize("call", MEDDLING)
@pytest.mark.parametrize("compiling", [False, True])
def test_it_must_not_change_its_model(call, compiling):
    m = model()
    armed = []

    def meddle(a):
        if armed:
            MEDDLING[call](m)

    m.add_constraint(meddle, ["x"])
    armed.append(1)
    before = m._node.dump()
    with pytest.raises(FrozenModelError, match="busy"):
        if compiling:
            ml.compile(m, ml.NumpyBackend(), shapes={"x": [2], "z": [2]}, inference=True)
        else:
            m.set_shapes(x=[2])
    assert m._node.dump() == before


@pytest.mark.parametrize("compiling", [False, True])
def test_it_must_not_compile_its_model(compiling):
    """Which would call it again, and so on."""
    m = model()
    armed, calls = [], []

    def compile_again(a):
        calls.append(1)
        if armed:
            ml.compile(m, ml.NumpyBackend(), shapes={"x": [2], "z": [2]}, inference=True)

    m.add_constraint(compile_again, ["x"])
    armed.append(1)
    del calls[:]
    with pytest.raises(FrozenModelError, match="busy"):
        if compiling:
            ml.compile(m, ml.NumpyBackend(), shapes={"x": [2], "z": [2]}, inference=True)
        else:
            m.set_shapes(x=[2])
    assert len(calls) <= 3
    del armed[:]
    ml.compile(m, ml.NumpyBackend(), shapes={"x": [2], "z": [2]}, inference=True)


def test_it_may_look_at_its_model_and_make_others():
    m = model()

    def look(a):
        assert m.input_keys == ["x", "z"]
        other = ml.Model()
        other |= ml.Linear(3)(input="x")
        return a.shape is not None

    m.add_constraint(look, ["x"])
    m.set_shapes(x=[2])


def test_edges_end_with_the_call():
    kept = []
    m = model()
    m.add_constraint(lambda a: kept.append(a), ["x"])
    with pytest.raises(ArgumentError, match="while its function runs"):
        _ = kept[0].shape


def test_another_thread_is_told_that_the_model_is_busy():
    m = model()
    inside, leave = threading.Event(), threading.Event()
    found = []

    def slow(a):
        inside.set()
        leave.wait(10)
        return True

    def other():
        inside.wait(10)
        try:
            m.set_shapes(z=[2])
        except FrozenModelError as error:
            found.append(error)
        leave.set()

    thread = threading.Thread(target=other)
    thread.start()
    m.add_constraint(slow, ["x"])
    thread.join()
    assert len(found) == 1


BAD = {
    "no function": (lambda m: m.add_constraint(3, ["x"]), SignatureError),
    "no keys": (lambda m: m.add_constraint(refusing, []), ArgumentError),
    "unknown key": (lambda m: m.add_constraint(refusing, ["nope"]), KeyNotFound),
    "foreign key": (lambda m: m.add_constraint(refusing, [model().x]), KeyNotFound),
    "no key": (lambda m: m.add_constraint(refusing, [3]), SignatureError),
    "wrong type": (lambda m: m.add_constraint(refusing, ["x"], type=["shape"]), SignatureError),
    "foreign dependency": (
        lambda m: m.add_constraint(
            refusing, ["x"], dependencies=[model().add_constraint(refusing, ["x"])]
        ),
        ArgumentError,
    ),
    "wrong count": (lambda m: m.add_constraint(lambda a, b: True, ["x"]), TypeError),
    "wrong result": (lambda m: m.add_constraint(lambda a: 3, ["x"]), TypeError),
    "symbol in a shape": (
        lambda m: m.add_constraint(lambda a: a.set_shape(["N"]), ["x"]),
        ShapeTemplateError,
    ),
    "too many axes": (
        lambda m: m.add_constraint(lambda a: a.set_shape([1] * 13), ["x"]),
        ShapeTemplateError,
    ),
    "no such axis": (
        lambda m: m.add_constraint(lambda a, b: a.tie(0, b, 0), ["x", "z"]),
        ValueError,
    ),
    "no such type": (lambda m: m.add_constraint(lambda a: a.set_type(3), ["x"]), TypeError),
    "no value": (lambda m: m.add_constraint(lambda a: a.set_value(object()), ["x"]), ValueError),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, error = BAD[name]
    m = model()
    before = m._node.dump()
    with pytest.raises(error):
        call(m)
    assert m._node.dump() == before


# --- names ----------------------------------------------------------------------------------------


def test_registered_names():
    @register
    def rows_of_two(a):
        return True

    assert find("rows_of_two") is rows_of_two and name_of(rows_of_two) == "rows_of_two"
    assert name_of(refusing) == "" and find("nope") is None
    m = model()
    m.add_constraint(rows_of_two, ["x"])
    assert m._node.constraints == [("rows_of_two", ["x"], [])]
    with pytest.raises(ArgumentError, match="another constraint"):
        register(refusing, "rows_of_two")
    with pytest.raises(SignatureError):
        register(3)
