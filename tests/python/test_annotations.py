"""The algebra of types (reference 3.2): unions, tuples, lists, and what they say of items."""

# Covers: mithril/logical/annotation.py

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import mithril as ml
import pytest
from inference_cases import value_of
from mithril.errors import DTypeError, MithrilError

Tensor = ml.Tensor


def buffer(*types) -> ml.Model:
    """A wire whose types are stated one after the other."""
    model = ml.Model()
    model |= ml.Buffer()(input="x", output="y")
    for annotation in types:
        model.set_types(x=annotation)
    return model


def type_of(*types) -> str:
    return buffer(*types).conns.get_type("y")


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (Tensor, "tensor"),
        (Tensor[int | float], "int tensor or float tensor"),
        (Tensor[int] | None, "int tensor or none"),
        (int, "int"),
        (bool | float, "bool or float"),
        (Union[int, str], "int or str"),  # noqa: UP007
        (None, "none"),
        (slice, "slice"),
        (..., "ellipsis"),
        (dict, "dict"),
        (ml.Dtype, "dtype"),
        (ml.Constant, "constant"),
        (ml.PaddingType, "padding"),
        (Any, "any"),
        (tuple, "tuple"),
        (list, "list"),
        (Sequence, "tuple or list"),
        (tuple[int, float], "tuple[int, float]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (tuple[()], "tuple[]"),
        (list[int], "list[int]"),
        (list[list[int]], "list[list[int]]"),
        (list[Tensor], "list[tensor]"),
        (Sequence[int], "tuple[int, ...] or list[int]"),
        (tuple[Tensor[float], int | None], "tuple[float tensor, int or none]"),
        (int | tuple[int, int], "int or tuple[int, int]"),
        (tuple[int] | tuple, "tuple"),
    ],
)
def test_annotations(annotation, shown):
    assert type_of(annotation) == shown
    assert ml.IOKey("x", type=annotation) is not None


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (int | float, float | str, "float"),
        (Any, list[int], "list[int]"),
        (list, list[int], "list[int]"),
        (tuple, tuple[int, float], "tuple[int, float]"),
        (Sequence[int], list, "list[int]"),
        (Sequence[int | float], list[float | str], "list[float]"),
        (tuple[int | float, ...], tuple[int, float | str], "tuple[int, float]"),
        (tuple[int, ...], tuple[int | float, ...], "tuple[int, ...]"),
        (int | tuple[int, int], tuple[int, int] | list[int], "tuple[int, int]"),
        (tuple[int, int] | tuple[int, int, int], tuple[int | str, str | int], "tuple[int, int]"),
        (list[list[int]], list[Sequence[int | float]], "list[list[int]]"),
        (list[Tensor[int | float]], list[Tensor[float]], "list[float tensor]"),
    ],
)
def test_intersections(first, second, both):
    assert type_of(first, second) == both
    assert type_of(second, first) == both


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (int, float),
        (bool, int),
        (Tensor[int], int),
        (list[int], list[float]),
        (list[int], tuple[int, ...]),
        (tuple[int, int], tuple[int]),
        (tuple[int, int], tuple[int, float]),
        (tuple[int, ...], tuple[int, str]),
        (Sequence[int], list[str]),
        (list[Tensor[int]], list[Tensor[float]]),
    ],
)
def test_empty_intersections_are_refused(first, second):
    model = buffer(first)
    before = model._node.dump()
    with pytest.raises(TypeError) as caught:
        model.set_types(x=second)
    assert isinstance(caught.value, MithrilError)
    assert model._node.dump() == before


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (tuple[int, float], (1, 2.5)),
        (tuple[int, ...], (1, 2, 3)),
        (tuple[int, ...], ()),
        (list[int], [1, 2]),
        (list[list[int]], [[1], [2, 3]]),
        (int | tuple[int, int], 3),
        (int | tuple[int, int], (3, 4)),
        (tuple[int, int] | tuple[tuple[int, int], tuple[int, int]], ((1, 2), (3, 4))),
        (list[int | None], [1, None]),
        (Sequence[int], (1, 2)),
    ],
)
def test_values_that_fit(annotation, value):
    model = buffer(annotation)
    model.set_values(x=value)
    assert value_of(model, "y") == value
    model = buffer()
    model.set_values(x=value)
    model.set_types(x=annotation)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (tuple[int, float], (1, 2)),
        (tuple[int, float], (1,)),
        (tuple[int, ...], (1, 2.5)),
        (tuple[int, ...], [1, 2]),
        (list[int], [True]),
        (list[list[int]], [[1], 2]),
        (int | tuple[int, int], (1, 2, 3)),
        (tuple[int, int] | tuple[tuple[int, int], tuple[int, int]], ((1, 2), 3)),
        (list[int], 3),
    ],
)
def test_values_that_do_not_fit(annotation, value):
    for first, second in (
        (lambda m: m.set_types(x=annotation), lambda m: m.set_values(x=value)),
        (lambda m: m.set_values(x=value), lambda m: m.set_types(x=annotation)),
    ):
        model = buffer()
        first(model)
        before = model._node.dump()
        with pytest.raises((TypeError, ValueError)) as caught:
            second(model)
        assert isinstance(caught.value, MithrilError)
        assert model._node.dump() == before


def test_items_of_a_fixed_tuple_are_wires():
    """tuple[int, int] is known to have two items, which inference fills."""
    model = ml.Model()
    model |= ml.models.BroadcastTo()(input="x", shape="s", output="y")
    model.set_types(s=tuple[int, int])
    assert model.shapes["y"] == ["u1", "u2"]
    model.set_shapes(y=[3, 4])
    assert value_of(model, "s") == (3, 4)


def test_items_decide_which_alternative_it_is():
    """The first item is a float: only one of the tuples is left, and says what the second is."""
    model = ml.Model()
    model |= ml.models.ToTuple(n=2)(
        input1=ml.IOKey("a"), input2=ml.IOKey("b"), output=ml.IOKey("t")
    )
    model.set_types(t=tuple[int, str] | tuple[float, bool])
    assert model.conns.get_type("b") == "bool or str"
    model.set_types(a=float)
    assert model.conns.get_type("b") == "bool"


def test_elements_of_a_list_of_open_length():
    model = ml.Model()
    model |= ml.models.Indexer(index=3)(input="sizes", output="n")
    model |= ml.models.Indexer(index=slice(1, 3))(input="sizes", output="some")
    model.set_types(sizes=list[int])
    assert model.conns.get_type("n") == "int"
    assert model.conns.get_type("some") == "list[int]"


def test_merged_wires_have_both_types():
    model = ml.Model()
    model |= ml.Buffer()(input=ml.IOKey("a", type=list[int | float]))
    model |= ml.Buffer()(input=ml.IOKey("b", type=list[float | str]))
    model.merge_connections("a", "b", name="a")
    assert model.conns.get_type("a") == "list[float]"


def test_types_of_a_child_reach_its_parent():
    child = ml.Model()
    child |= ml.Buffer()(input=ml.IOKey("x", type=tuple[int, ...]), output="y")
    parent = ml.Model()
    parent |= child(x="a", y="b")
    assert parent.conns.get_type("b") == "tuple[int, ...]"
    with pytest.raises(MithrilError):
        parent.set_values(a=(1, "text"))


@pytest.mark.parametrize(
    "bad", [complex, 3, "int", Tensor[int] if False else object(), bytes, list[complex], [int]]
)
def test_what_is_no_type(bad):
    with pytest.raises(DTypeError, match="type"):
        buffer(bad)


def test_types_nested_too_deep_are_refused():
    annotation: Any = int
    for _ in range(100):
        annotation = list[annotation]
    with pytest.raises(MithrilError, match="nesting"):
        buffer(annotation)
