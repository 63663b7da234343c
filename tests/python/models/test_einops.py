"""Named axes: values and gradients against NumPy's einsum and reshapes written by hand."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, MithrilError, SignatureError
from mithril.models import Einsum, Rearrange, Reduce, Repeat
from models.composite_cases import check, numbers

REARRANGED = {
    "b h w c -> b c h w": ({}, (2, 3, 4, 5), lambda x: x.transpose(0, 3, 1, 2)),
    "b h -> b h": ({}, (2, 3), lambda x: x),
    "(b h) w -> b w h": ({"h": 3}, (6, 4), lambda x: x.reshape(2, 3, 4).transpose(0, 2, 1)),
    "b n (h d) -> b h n d": (
        {"h": 2}, (3, 5, 6), lambda x: x.reshape(3, 5, 2, 3).transpose(0, 2, 1, 3)),
    "b h n d -> b n (h d)": (
        {}, (3, 2, 5, 4), lambda x: x.transpose(0, 2, 1, 3).reshape(3, 5, 8)),
    "b c (h i) (w j) -> b (i c j) h w": (
        {"i": 2, "j": 3}, (1, 2, 4, 6),
        lambda x: x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 1, 5, 2, 4).reshape(1, 12, 2, 2)),
    "a 1 b -> b (1 a) 1": ({}, (2, 1, 3), lambda x: x[:, 0].T[..., None]),
    "a b -> (a b)": ({"a": 2, "b": 3}, (2, 3), lambda x: x.reshape(6)),
    "->": ({}, (), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("pattern", REARRANGED)
def test_rearrange(backend_name, pattern):
    sizes, shape, by_hand = REARRANGED[pattern]
    model = Rearrange(pattern, **sizes)
    check(model, lambda input: {"output": by_hand(input)}, numbers(1, input=shape), backend_name)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min", "prod"])
def test_reduce(backend_name, reduction):
    model = Reduce("b (h s) c -> c b h", reduction, s=2)

    def by_hand(input):
        windows = input.reshape(2, 3, 2, 4)
        return {"output": getattr(np, reduction)(windows, axis=2).transpose(2, 0, 1)}

    check(model, by_hand, numbers(2, input=(2, 6, 4)), backend_name)


def test_reduce_to_a_scalar(backend_name):
    inputs = numbers(2, input=(2, 3))
    check(Reduce("a b ->", "sum"), lambda input: {"output": input.sum()}, inputs, backend_name)


def test_repeat(backend_name):
    inputs = numbers(3, input=(2, 3))
    cases = {
        ("a b -> a n b", 4): lambda x: np.repeat(x[:, None], 4, 1),
        ("a b -> (b n) a", 2): lambda x: np.repeat(x.T, 2, 0),
        ("a b -> (n a) b", 3): lambda x: np.tile(x, (3, 1)),
    }
    for (pattern, n), by_hand in cases.items():
        model = Repeat(pattern, n=n)
        check(model, lambda input, f=by_hand: {"output": f(input)}, inputs, backend_name)


EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "bid,bjd->bij": [(2, 3, 4), (2, 5, 4)],
    "bhid,bhjd->bhij": [(2, 1, 3, 4), (2, 1, 2, 4)],
    "i,j->ij": [(2,), (3,)],
    "i,i->": [(4,), (4,)],
    "ij->ji": [(2, 3)],
    "ij->i": [(2, 3)],
    "ijk->": [(2, 3, 2)],
    "ij,ij->ij": [(2, 3), (2, 3)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 2)],
    "a,ab,abc->abc": [(2,), (2, 3), (2, 3, 2)],
    "ab,cd->": [(2, 3), (2, 2)],
    "abc,cd->dab": [(2, 3, 4), (4, 2)],
    "ij,k->i": [(2, 3), (4,)],
    # diagonals
    "ii->i": [(3, 3)],
    "ii->": [(3, 3)],
    "iij->ij": [(3, 3, 2)],
    "iii->i": [(2, 2, 2)],
    "iijj->ji": [(2, 2, 3, 3)],
    "ii,ij->ij": [(3, 3), (3, 4)],
    # axes without names
    "...ij,...jk->...ik": [(2, 5, 3, 4), (5, 4, 2)],
    "ij...,jk...->ik...": [(2, 3, 5), (3, 4, 1)],
    "b...i,ij->b...j": [(2, 3, 2, 4), (4, 3)],
    "...abc,...cd->...dab": [(2, 3, 2, 4), (1, 4, 2)],
    "i...i->...i": [(3, 2, 3)],
    "i...j->...ji": [(2, 2, 3, 2)],
    "ab...,c->...c": [(2, 3, 4), (2,)],
    "...,...->...": [(2, 3), (3,)],
    # results that nobody states
    "ij,jk": [(2, 3), (3, 4)],
    "ba": [(2, 3)],
    "...ii": [(2, 3, 3)],
    "...i,...j": [(2, 3), (1, 4)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(backend_name, equation):
    shapes = {f"input{i}": shape for i, shape in enumerate(EQUATIONS[equation])}

    def by_hand(**inputs):
        return {"output": np.einsum(equation, *inputs.values())}

    check(Einsum(equation), by_hand, numbers(4, **shapes), backend_name)


def test_named_axes_are_those_of_letters():
    model = ml.Model()
    model |= Einsum("batch i d, batch j d -> batch i j")(input0="q", input1="k", output="s")
    model.set_shapes(q=["batch", 5, 8], k=[3, 7, None])
    assert model.shapes == {"q": [3, 5, 8], "k": [3, 7, 8], "s": [3, 5, 7]}


def test_axes_without_names():
    model = ml.Model()
    model |= Einsum("batch ... d, ... d e")(input0="x", input1="w", output="y")
    assert model.input_keys == ["x", "w"]
    model.set_shapes(x=["N", 7, 5, 4], w=[5, 4, 3])
    assert model.shapes["y"] == [7, 5, "batch", 3]
    model = ml.Model()
    model |= Einsum("...ii->...")(input0="x", output="y")
    model.set_shapes(y=[2, "n"])
    assert model.shapes["x"][:2] == [2, "n"]
    with pytest.raises(MithrilError):
        model.set_shapes(x=[2, 3, 4, 5])


def test_keys_have_the_order_of_the_operands():
    for equation in ("bid,bjd->bij", "a,ab,abc->abc", "ij,jk,kl->il"):
        names = [f"input{i}" for i in range(equation.count(",") + 1)]
        assert Einsum(equation).input_keys == names


def test_sizes_are_found_backwards():
    model = ml.Model()
    model |= Rearrange("b h n d -> b n (h d)", h=8)(input="x", output="y")
    model.set_shapes(y=["batch", 10, 48])
    assert model.shapes["x"] == ["batch", 8, 10, 6]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Rearrange("a b"), ArgumentError, "two sides"),
        (lambda: Rearrange("a b -> a c"), ArgumentError, "only one side has 'b', 'c'"),
        (lambda: Rearrange("a a -> a"), ArgumentError, "twice 'a'"),
        (lambda: Rearrange("(a b -> a b"), ArgumentError, "group without an end"),
        (lambda: Rearrange("((a) b) -> a b"), ArgumentError, "group"),
        (lambda: Rearrange("a) -> a"), ArgumentError, "group"),
        (lambda: Rearrange("a ... -> a"), ArgumentError, "'...'"),
        (lambda: Rearrange("a 2 -> a"), ArgumentError, "'2'"),
        (lambda: Rearrange("(a b) -> a b"), ArgumentError, "'a', 'b' are open"),
        (lambda: Rearrange("a b -> b a", c=2), SignatureError, "no axis 'c'"),
        (lambda: Rearrange("a b -> b a", a=0), MithrilError, "a"),
        (lambda: Rearrange("a b -> b a", a="2"), MithrilError, "a"),
        (lambda: Rearrange(3), SignatureError, "pattern"),
        (lambda: Reduce("a -> a b", "sum"), ArgumentError, "only the right side has 'b'"),
        (lambda: Reduce("a b -> a", "som"), ArgumentError, "did you mean 'sum'"),
        (lambda: Repeat("a -> a b"), ArgumentError, "'b' is open"),
        (lambda: Repeat("a b -> a"), ArgumentError, "only the left side has 'b'"),
        (lambda: Einsum("i->i->i"), ArgumentError, "two sides"),
        (lambda: Einsum("i->ii"), ArgumentError, "twice 'i'"),
        (lambda: Einsum("...i->i"), ArgumentError, "lacks '...'"),
        (lambda: Einsum("i->...i"), ArgumentError, "no operand has '...'"),
        (lambda: Einsum("...i...->..."), ArgumentError, "twice in one place"),
        (lambda: Einsum("..i->i"), ArgumentError, "'.' in"),
        (lambda: Einsum("ij->k"), ArgumentError, "no operand has 'k'"),
        (lambda: Einsum("i?->i"), ArgumentError, "no name"),
        (lambda: Einsum("ij->i", input1=3), SignatureError, "input1"),
    ],
)
def test_what_is_no_pattern(make, error, text):
    with pytest.raises(error, match=text.replace(".", r"\.").replace("?", r"\?")):
        make()


def test_sizes_that_do_not_fit():
    model = ml.Model()
    model |= Rearrange("a (b c) -> a b c", c=4)(input="x", output="y")
    with pytest.raises(MithrilError):
        model.set_shapes(x=[2, 6])
    model |= Einsum("ij,jk->ik")(input0="p", input1="q", output="z")
    with pytest.raises(MithrilError):
        model.set_shapes(p=[2, 3], q=[4, 5])


def test_they_are_saved_and_cloned():
    for model in (Rearrange("a (b c) -> b a c", c=2), Einsum("ij,jk->ik")):
        again = ml.Model.from_json(model.to_json())
        assert again.input_keys == model.input_keys
        assert type(model.clone()) is type(model)
