"""What is said of a model under edits: constraints of users, and where facts came from."""

import inspect

import mithril as ml
import pytest
from mithril.errors import ArgumentError, ShapeError, UnsupportedError


def same_rows(a, b):
    """Both have one number of rows."""
    if a.shape and b.shape:
        a.tie(0, b, 0)
        return True
    return False


def two_rows(a):
    a.set_shape([2, None])
    return True


def model():
    """Two paths, x -> y -> u and z -> t; `y` is read twice."""
    m = ml.Model()
    m |= ml.Relu(name="first")(input="x", output="y")
    m |= ml.Relu(name="second")(input="y", output="u")
    m |= ml.Tanh(name="third")(input="y", output="v")
    m |= ml.Tanh(name="apart")(input="z", output="t")
    return m


def live(m):
    """The keys of the constraints that are there."""
    return [keys for _, keys, _ in m._node.constraints if keys]


def ties(m, one, other):
    """Whether the rows of two wires are one number."""
    m = m.clone()
    m.set_shapes({one: [7, 2]})
    m.set_shapes({other: [None, 2]})
    return m.shapes[other][0] == 7


# --- constraints ----------------------------------------------------------------------------------

# An edit, and which of the wires of `model` are no more after it.
EDITS = {
    "remove a reader": (lambda m: m.remove("second"), {"u"}),
    "remove a writer": (lambda m: m.remove("first"), {"x"}),
    "remove a path": (lambda m: m.remove("apart"), {"z", "t"}),
    "remove two": (lambda m: m.remove("second", "third"), {"u", "v"}),
    "replace by one": (lambda m: m.replace("second", ml.Tanh()), set()),
    "replace the writer": (lambda m: m.replace("first", ml.Gelu()), set()),
    "clear a shape": (lambda m: m.clear("x", shape=True), set()),
    "clear all": (lambda m: m.clear("y", "t"), set()),
    "rename": (lambda m: m.rename_key("u", "u"), set()),
    "unfreeze": (lambda m: (m._freeze(), m.unfreeze()), set()),
}
PAIRS = [("x", "z"), ("y", "t"), ("u", "t"), ("v", "z"), ("v", "t")]


@pytest.mark.parametrize("edit", EDITS)
def test_constraints_that_lose_a_key_go(edit):
    change, gone = EDITS[edit]
    for pair in PAIRS:
        m = model()
        constraint = m.add_constraint(same_rows, pair)
        change(m)
        if gone & set(pair):
            assert live(m) == [] and constraint.keys == []
            left = [key for key in pair if key not in gone]
            assert set(left) <= set(m.shapes) and not gone & set(m.shapes)
        else:
            assert live(m) == [list(pair)] and constraint.keys == list(pair)
            assert ties(m, *pair) and ties(m, *reversed(pair))


@pytest.mark.parametrize("edit", EDITS)
def test_constraints_that_wait_for_them_go_too(edit):
    change, gone = EDITS[edit]
    m = model()
    first = m.add_constraint(same_rows, ("u", "t"))
    second = m.add_constraint(same_rows, ("v", "t"), dependencies=[first])
    third = m.add_constraint(same_rows, ("y", "z"), dependencies=[second])
    apart = m.add_constraint(same_rows, ("x", "y"))
    change(m)
    lost_first = bool(gone & {"u", "t"})
    lost_second = lost_first or bool(gone & {"v", "t"})
    lost_third = lost_second or bool(gone & {"y", "z"})
    lost = [lost_first, lost_second, lost_third, bool(gone & {"x", "y"})]
    assert [c.keys == [] for c in (first, second, third, apart)] == lost
    assert len(live(m)) == lost.count(False)
    if not any(lost):
        assert ties(m, "y", "z")
    for constraint, is_lost in zip((first, second, third, apart), lost, strict=True):
        if is_lost:
            with pytest.raises(ArgumentError, match="is no more"):
                m.add_constraint(lambda y: True, ["y"], dependencies=[constraint])
        else:
            m.add_constraint(lambda y: True, ["y"], dependencies=[constraint])


def test_what_a_lost_constraint_has_said_goes_with_it():
    m = model()
    m.add_constraint(same_rows, ["u", "t"])
    m.set_shapes(u=[7, 2], t=[None, 3])
    assert m.shapes["z"] == [7, 3]
    m.remove("second")
    assert m.shapes["z"][0] != 7 and m.shapes["z"][1] == 3
    m.set_shapes(z=[9, 3])
    assert m.shapes["t"] == [9, 3] and m.shapes["y"][0] != 9


def test_the_others_still_hold_and_refuse():
    m = model()
    m.add_constraint(same_rows, ["u", "t"])
    m.add_constraint(two_rows, ["t"])
    m.add_constraint(same_rows, ["v", "z"])
    m.remove("second")
    m.set_shapes(y=[None, 4])
    assert m.shapes["t"][0] == m.shapes["v"][0] == 2
    before = m._node.dump()
    with pytest.raises(ShapeError):
        m.set_shapes(y=[3, None])
    assert m._node.dump() == before


def test_a_failed_edit_keeps_them():
    m = model()
    constraint = m.add_constraint(same_rows, ["u", "t"])
    m.add_constraint(two_rows, ["t"])
    before = m._node.dump()
    head = ml.Model()
    head |= ml.Relu()(input="input", output="output")
    head.set_shapes(input=[5, 5])
    with pytest.raises(ShapeError):
        m.replace("second", head)
    assert m._node.dump() == before and constraint.keys == ["u", "t"]
    assert m.shapes["t"][0] == 2


def test_a_cleared_shape_is_solved_again_with_them():
    m = model()
    m.add_constraint(same_rows, ["x", "z"])
    m.set_shapes(x=[7, 2], z=[None, 3])
    assert m.shapes["t"] == [7, 3]
    m.clear("x", shape=True)
    assert m.shapes["t"] != [7, 3] and m.shapes["t"][1] == 3
    m.set_shapes(x=[8, 2])
    assert m.shapes["t"] == [8, 3]
    m.change("x", shape=[9, 2])
    assert m.shapes["t"] == [9, 3]


def test_constraints_of_a_part():
    """They are the part's: they go with it, are replaced with it, and come along when copied."""
    part = ml.Model(name="part")
    part |= ml.Relu()(input="a", output="b")
    part |= ml.Relu()(input="c", output="d")
    part.expose_keys("b", "d")
    part.add_constraint(same_rows, ["a", "c"])
    m = ml.Model()
    m |= ml.Relu(name="before")(input="x", output="h")
    m |= part(a="h", c="z", b="b", d="d")
    assert ties(m, "x", "z")
    twin = m.clone()
    copied = m.extract("part")
    assert live(copied) == [["a", "c"]] and ties(copied, "a", "c")
    cut = m.extract(inputs=["h", "z"], outputs=["b", "d"])
    assert ties(cut, "h", "z")
    m.remove("before")
    assert ties(m, "h", "z")
    m.remove("part")
    assert "z" not in m.shapes
    free = ml.Model()
    free |= ml.Relu()(input="a", output="b")
    free |= ml.Relu()(input="c", output="d")
    free.expose_keys("b", "d")
    twin.replace("part", free)
    assert not ties(twin, "x", "z")


def test_extracts_take_the_constraints_whose_keys_come_along():
    m = model()
    m.add_constraint(same_rows, ["u", "t"])
    m.add_constraint(same_rows, ["v", "t"])
    both = m.extract(inputs=["y", "z"], outputs=["u", "v", "t"])
    assert live(both) == [["u", "t"], ["v", "t"]] and ties(both, "u", "t")
    one = m.extract(inputs=["y", "z"], outputs=["v", "t"])
    assert live(one) == [["v", "t"]] and ties(one, "y", "z")
    assert live(m.extract(inputs=["y"], outputs=["u", "v"])) == []
    assert live(m.extract(inputs=["z"], outputs=["t"])) == []
    assert live(m) == [["u", "t"], ["v", "t"]]


@pytest.mark.parametrize("edit", EDITS)
def test_a_lost_constraint_is_no_part_of_a_file(edit):
    change, gone = EDITS[edit]
    m = model()
    m.add_constraint(same_rows, ("u", "t"))
    change(m)
    if gone & {"u", "t"}:
        loaded = ml.Model.from_json(m.to_json())
        assert live(loaded) == [] and loaded.to_json() == m.to_json()
    else:  # its function cannot be written
        with pytest.raises(UnsupportedError, match="add_constraint"):
            m.to_json()


# --- where facts came from ------------------------------------------------------------------------


def here(back=0):
    """The line that calls this, or one before it."""
    return inspect.currentframe().f_back.f_lineno - back


def said(m, key):
    """The lines of this file that `why` names."""
    name = __file__.rpartition("/")[2]
    found = (line.rpartition(f"{name}:")[2] for line in m.why(key).splitlines() if name in line)
    return [int(text) for text in found if text.isdigit()]


def rows(m, key):
    """What `why` rests on, but for the wire `s`, which is edited; solving again may order it
    otherwise."""
    found = (" ".join(line.split()) for line in m.why(key).splitlines())
    return {line for line in found if not line.startswith("s :")}


def valued():
    """A model with a value, a shape and a type; the lines that say them."""
    m = ml.Model()
    m |= ml.Add(name="plus")(left="x", right="c", output="h")
    m |= ml.Relu(name="act")(input="h", output="y")
    m |= ml.Tanh(name="side")(input="h", output="s")
    m.set_values(c=2.0)
    value = here(1)
    m.set_shapes(x=[2, 3])
    shape = here(1)
    m.set_types(x=ml.Tensor[float])
    return m, {"value": value, "shape": shape, "type": here(1)}


STAYING = {
    "remove": lambda m: m.remove("side"),
    "replace": lambda m: m.replace("side", ml.Relu()),
    "clear elsewhere": lambda m: m.clear("s"),
    "clear another facet": lambda m: m.clear("x", differentiability=True),
    "change elsewhere": lambda m: m.change("s", shape=[2, 3]),
    "freeze": lambda m: (m._freeze(), m.unfreeze()),
    "rename": lambda m: m.rename_key("s", "other"),
}


@pytest.mark.parametrize("edit", STAYING)
def test_facts_keep_their_places(edit):
    m, lines = valued()
    before = {key: rows(m, key) for key in ("x", "c", "h", "y")}
    STAYING[edit](m)
    assert lines["value"] in said(m, "c")
    assert lines["shape"] in said(m, "x") and lines["shape"] in said(m, "y")
    assert all(found <= rows(m, key) for key, found in before.items())
    assert m.conns.get_metadata("c").value == 2.0


def test_facts_of_copies_have_the_places_of_the_original():
    m, lines = valued()
    for copied in (
        m.clone(),
        m.extract(inputs=["x", "c"], outputs=["y"]),
        ml.Model.from_json(m.to_json(history=True)),
    ):
        assert lines["shape"] in said(copied, "x")
        assert copied.shapes["y"] == [2, 3]
    assert lines["value"] in said(m.clone(), "c")


def test_what_is_cleared_has_no_place_any_more():
    m, lines = valued()
    m.clear("x", shape=True)
    assert lines["shape"] not in said(m, "x") and m.shapes["y"] != [2, 3]
    m.clear("c", value=True)
    assert lines["value"] not in said(m, "c")
    assert m.conns.get_metadata("c").value is ml.TBD
    m.set_values(c=3.0)
    again = here(1)
    assert again in said(m, "c") and m.conns.get_metadata("c").value == 3.0


def test_what_is_changed_has_the_place_of_the_change():
    m, lines = valued()
    m.change("c", value=5.0)
    line = here(1)
    assert line in said(m, "c") and lines["value"] not in said(m, "c")
    m.change("x", shape=[4, 3])
    line = here(1)
    assert line in said(m, "x") and line in said(m, "y") and lines["shape"] not in said(m, "y")
    assert m.shapes["y"] == [4, 3]


def test_facts_go_with_the_part_that_said_them():
    part = ml.Model(name="part")
    part |= ml.Relu()(input="a", output="b")
    part.expose_keys("b")
    part.set_shapes(a=[6, 2])
    inside = here(1)
    m = ml.Model()
    m |= part(a="x", b="h")
    m |= ml.Relu(name="act")(input="h", output="y")
    assert m.shapes["y"] == [6, 2] and inside in said(m, "y")
    m.replace("part", ml.Relu(), {"a": "input", "b": "output"})
    assert m.shapes["y"] != [6, 2] and inside not in said(m, "y")


def test_a_clash_after_an_edit_names_the_line_that_still_holds():
    m, lines = valued()
    m.replace("act", ml.Gelu())
    with pytest.raises(ShapeError) as caught:
        m.set_shapes(y=[2, 7])
    line = here(1)
    text = str(caught.value)
    assert f":{lines['shape']}" in text and f":{line}" in text
    m.change("x", shape=[2, 7])
    m.set_shapes(y=[2, 7])
    assert m.shapes["x"] == [2, 7]
