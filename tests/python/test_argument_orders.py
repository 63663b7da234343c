"""Every class of the original has the arguments, keys and canonical keys that the reference gives.

What mithril adds comes after them. Where it differs, `DIFFERENT` says what it has instead.
"""

# Covers: mithril/logical/arguments.py

import ast
import inspect

import pytest
from catalogue import ARGUMENTS, ROWS
from mithril import models as m
from mithril.types import TBD, Constant

ASPECTS = ("arguments", "connect", "inputs", "outputs", "cin", "cout")
DIFFERENT = {
    # A value of each key's own type, which the original's default becomes; "" is taken, too.
    ("CrossEntropy", "arguments"): "CrossEntropy(input_type='logits', weights=False, input=TBD,"
    " target=TBD, robust=False, threshold=MIN_POSITIVE_NORMAL, categorical=True)",
    # All but the first axis, as the documents have it.
    ("Flatten", "arguments"): "Flatten(start_dim=1, end_dim=-1, input=TBD)",
    # L may be left out: the spectrum is that of K_term then.
    ("Eigvalsh", "arguments"): "Eigvalsh(K_term=TBD, L=None, threshold=EPSILON)",
    ("Eigvalsh", "inputs"): "K_term threshold",
    # The mask is a key where it is used.
    ("ScaledDotProduct", "inputs"): "query key value dropout_p is_causal scale",
    # As in the other robust forms, by keyword.
    ("Power", "arguments"): "Power(robust=False, base=TBD, exponent=TBD, *,"
    " threshold=MIN_POSITIVE_NORMAL)",
    # No bound where none is given.
    ("Clamp", "arguments"): "Clamp(input=TBD, min_val=None, max_val=None)",
    # What may be wired as well as given.
    ("PositionalEncoding", "arguments"): "PositionalEncoding(hidden_dim=TBD, max_len=5000,"
    " input=TBD)",
    ("SwapAxes", "arguments"): "SwapAxes(axis1=TBD, axis2=TBD, input=TBD)",
    ("Split", "arguments"): "Split(split_size=TBD, axis=0, input=TBD)",
    **{
        (name, "arguments"): f"{name}(kernel_size=TBD, stride=None, padding=(0, 0), dilation=1,"
        " input=TBD)"
        for name in ("MaxPool1D", "MaxPool2D", "AvgPool2D")
    },
    # Whether it infers or trains is said at compile.
    ("BatchNorm2D", "arguments"): "BatchNorm2D(num_features=None, use_scale=True, use_bias=True,"
    " eps=1e-05, momentum=0.1, inference=None, *, input=TBD, weight=TBD, bias=TBD)",
    ("Cell", "arguments"): "Cell(name=None, formula_key=None)",
    # By position in the order of the keys that it declares.
    ("Activation", "connect"): "-",
    # The neighbourhoods that were not calculated are a key with a name.
    ("TSNE", "inputs"): "norm coords input p_joint",
    # The next random key is no output but state (`rng_key`).
    ("Randn", "outputs"): "output",
    ("RandInt", "inputs"): "shape low high dtype",
}

each = pytest.mark.parametrize("name", ROWS)


def wanted(name, aspect):
    text = DIFFERENT.get((name, aspect), ROWS[name][ASPECTS.index(aspect)])
    return None if text == "-" else text


def default(parameter):
    value = parameter.default
    if value is parameter.empty or value is TBD:
        return "TBD" if value is TBD else None
    return value.name if isinstance(value, Constant) else repr(value)


@each
def test_arguments(name):
    text = wanted(name, "arguments")
    args = ast.parse(f"def {text}: ...").body[0].args
    defaults = [None] * (len(args.args) - len(args.defaults)) + list(args.defaults)
    first = [(a.arg, d and ast.unparse(d)) for a, d in zip(args.args, defaults, strict=True)]
    parameters = list(inspect.signature(getattr(m, name)).parameters.values())
    ours = [(p.name, default(p)) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert ours[: len(first)] == first
    by_name = {p.name: default(p) for p in parameters}
    for argument, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        assert by_name[argument.arg] == ast.unparse(value), argument.arg
    assert not args.kwarg or any(p.kind is p.VAR_KEYWORD for p in parameters)


@each
def test_order_of_connect(name):
    wires = (wanted(name, "connect") or "").split()
    parameters = list(inspect.signature(getattr(m, name).connect).parameters)[1:]
    assert parameters[: len(wires)] == wires


@each
def test_keys(name):
    if wanted(name, "outputs") is None:
        return
    model = eval(f"m.{name}({ARGUMENTS.get(name, '')})")
    assert model.input_keys == (wanted(name, "inputs") or "").split()
    assert model.output_keys == wanted(name, "outputs").split()
    assert sorted(c.key for c in model.conns.cins) == sorted((wanted(name, "cin") or "").split())
    assert sorted(c.key for c in model.conns.couts) == sorted(wanted(name, "cout").split())


def test_differences_are_differences():
    for (name, aspect), text in DIFFERENT.items():
        assert ROWS[name][ASPECTS.index(aspect)] != text, (name, aspect)


def test_positional_arguments_reach_their_keys():
    assert m.CrossEntropy("probs").factory_args["input_type"] == "probs"
    assert m.PolynomialFeatures(3).factory_args["degree"] == 3
    model = m.Model()
    model |= m.QuantileLoss(0.25)(input="x", target="t", output="y")
    assert model["QuantileLoss.quantile"].metadata.value == 0.25
