"""Classes of errors: what they derive from, how they print, that they survive pickling."""

# Covers: mithril/base/files.py mithril/base/explanations.py mithril/base/public.py

import pickle

import pytest
from mithril import errors
from mithril.errors import Fact, KeyNotFound, MithrilError, Place, ShapeError, from_core

BUILTINS = {
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "ArgumentError": ValueError,
    "KeyNotFound": KeyError,
    "WireNameError": KeyError,
    "FrozenModelError": AttributeError,
    "CycleError": KeyError,
    "MultiWriteError": ValueError,
    "ParseError": ValueError,
    "DataIndexError": IndexError,
    "DataOverflowError": OverflowError,
    "OutOfMemoryError": MemoryError,
    "UnsupportedError": NotImplementedError,
    "DeviceNotAvailable": RuntimeError,
    "CompilerError": RuntimeError,
    "InternalError": RuntimeError,
}


@pytest.mark.parametrize(("name", "builtin"), BUILTINS.items())
def test_each_class_is_also_the_builtin(name, builtin):
    cls = getattr(errors, name)
    assert issubclass(cls, MithrilError)
    assert issubclass(cls, builtin)
    assert cls.code.startswith("MTH")


def test_the_message_is_verbatim():
    assert str(KeyNotFound("no key named 'x'")) == "no key named 'x'"


def test_the_hint_follows_the_message():
    assert str(ShapeError("a clash", hint="turn it")) == "a clash\n  help: turn it"


def test_the_message_is_without_the_hint():
    for error in (
        from_core(0, 101, "text\n  help: h", "h", ("", 0, ""), []),
        ShapeError("text\n  help: h", hint="h"),
        pickle.loads(pickle.dumps(ShapeError("text", hint="h"))),
    ):
        assert (error.message, error.args) == ("text", ("text",))
        assert str(error) == "text\n  help: h"


def test_errors_of_the_engine_keep_their_facts():
    facts = [("f", ("b.py", 4, ""), "set_shapes")]
    error = from_core(0, 101, "text\n  help: h", "h", ("a.py", 3, "m"), facts)
    assert isinstance(error, ShapeError)
    assert (error.code, error.place) == ("MTH101", Place("a.py", 3, "m"))
    assert error.facts == (Fact("f", Place("b.py", 4, ""), "set_shapes"),)
    assert str(error) == "text\n  help: h"


def test_an_unknown_shape_has_its_own_class():
    assert isinstance(from_core(0, 105, "t", "", ("", 0, ""), []), errors.ShapeNotKnown)


def test_an_interrupt_is_an_interrupt():
    assert type(from_core(14, 704, "", "", ("", 0, ""), [])) is KeyboardInterrupt


def test_errors_can_be_pickled():
    error = KeyNotFound("gone", code="MTH402", hint="look", place=Place("f.py", 1, ""))
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code, copy.place) == (
        type(error),
        str(error),
        "MTH402",
        error.place,
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("rellu", ", did you mean 'relu'?"), ("qqq", ""), ("x" * 10**6, "")]
)
def test_suggestions(name, expected):
    assert errors.suggestion(name, ["relu", "tanh"]) == expected
