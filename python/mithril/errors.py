"""Errors and warnings. Each error derives from `MithrilError` and from the fitting builtin.

The engine raises them through `from_core`. `code` (such as "MTH101") names the page that
``python -m mithril explain MTH101`` prints, and stands behind the class in tracebacks.
"""

from __future__ import annotations

import builtins
import functools
import sys
import warnings
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A position in the user's code, with the model path that it belongs to."""

    file: str
    line: int
    path: str


class Fact(NamedTuple):
    """One side of a clash, and where it came from."""

    text: str
    place: Place
    by: str = ""


def _without_hint(text: str, hint: str) -> str:
    return text.removesuffix(f"\n  help: {hint}") if hint else text


@functools.cache
def _with_code(cls: type, code: str) -> type:
    """`cls` under the name that tracebacks print: ``ShapeError[MTH101]``."""
    names = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}[{code}]"}
    return type(cls.__name__, (cls,), {**names, "__doc__": cls.__doc__, "_plain": cls})


_LONGEST = 8000  # characters of a message: names may be long


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


class MithrilError(Exception):
    """Base of every error that mithril raises on purpose.

    Attributes
    ----------
    code : the number of its page, such as "MTH101"
    message : the text without the hint
    facts : both sides of a clash, each with the line of user code where it came from
    hint : what to change, or ""
    place : the user's line that failed
    """

    code = "MTH000"
    _plain: type = None  # type: ignore[assignment]

    def __new__(cls, message: str = "", *, code: str | None = None, **_: Any):
        # Not super(): MemoryError.__new__ makes nothing but itself.
        return Exception.__new__(_with_code(cls._plain or cls, code or cls.code), message)

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        hint: str = "",
        facts: tuple[Fact, ...] = (),
        place: Place | None = None,
    ):
        message = _shortened(_without_hint(message, hint), _LONGEST)
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.hint = _shortened(hint, _LONGEST // 8)
        self.facts = tuple(facts)
        # Most have one: type checkers need not be told.
        self.place: Place | Any = place

    def __str__(self) -> str:
        """The message verbatim (KeyError would quote it), with the hint."""
        return f"{self.message}\n  help: {self.hint}" if self.hint else self.message

    def __reduce__(self):
        plain = type(self)._plain or type(self)
        return _rebuild, (plain, self.message, self.code, self.hint, self.facts, self.place)


def _rebuild(cls, message, code, hint, facts, place):
    return cls(message, code=code, hint=hint, facts=facts, place=place)


class ShapeError(MithrilError, ValueError):
    """Shapes that clash, or a shape that an op cannot take."""

    code = "MTH101"


class ShapeNotKnown(ShapeError):  # noqa: N818
    """A size is needed that no fact gives yet."""

    code = "MTH105"


class DTypeError(MithrilError, TypeError):
    """Element types or kinds of values that clash."""

    code = "MTH201"


class ArgumentError(MithrilError, ValueError):
    """A value that no rule of shape or dtype covers."""

    code = "MTH301"


class SignatureError(MithrilError, TypeError):
    """A call with arguments that the callee does not have."""

    code = "MTH301"


class OptionError(ArgumentError, AssertionError):
    """An argument of a model's constructor that does not go with the others."""


class NotAConnectionError(ArgumentError, SignatureError, AssertionError):
    """Something that no key of a model can be given."""


class NotAModelError(SignatureError, AttributeError):
    """Something that no model can be extended with."""


class ShapeTemplateError(ShapeError, SignatureError, KeyError):
    """A shape that is no list of sizes, names, None and one (name, ...)."""

    code = "MTH107"


class TraceError(SignatureError):
    """A Python function that cannot be recorded as ops."""


class KeyNotFound(MithrilError, KeyError):  # noqa: N818
    """An unknown or missing name."""

    code = "MTH401"


class WireNameError(MithrilError, KeyError, ValueError):
    """A name that is taken, reserved or malformed."""

    code = "MTH403"


class UnknownNameError(MithrilError, AttributeError):
    """A name that the package, a connection or a model does not have."""

    code = "MTH401"


class UnexpectedKeyError(KeyNotFound, TypeError):
    """A keyword of a call or of `connect` that the model has no key for."""


class FrozenModelError(MithrilError, AttributeError):
    """A model that cannot be extended any more."""

    code = "MTH501"


class SealedModelError(FrozenModelError, NotImplementedError):
    """A model that could never be extended: a primitive, an operator, a training model."""


class CycleError(MithrilError, KeyError, ValueError):
    """Wiring that would feed a model with its own output."""

    code = "MTH502"


class MultiWriteError(MithrilError, ValueError, KeyError):
    """Two writers of one wire."""

    code = "MTH503"


class ParseError(MithrilError, ValueError):
    """Malformed text or file."""

    code = "MTH601"


class DataIndexError(MithrilError, IndexError):
    """An index in data that is out of bounds."""

    code = "MTH701"


class DataOverflowError(MithrilError, OverflowError):
    """A size or value that does not fit."""

    code = "MTH702"


class OutOfMemoryError(MithrilError, MemoryError):
    """Memory that the system refused."""

    code = "MTH703"


class NotFiniteError(MithrilError, FloatingPointError):
    """NaN (or Inf, where it is looked for) that an op made of finite values."""

    code = "MTH705"


class UnsupportedError(MithrilError, NotImplementedError):
    """Something that this target cannot do."""

    code = "MTH801"


class DeviceNotAvailable(MithrilError, RuntimeError):  # noqa: N818
    """A device or library that is not there."""

    code = "MTH802"


class CompilerError(MithrilError, RuntimeError):
    """A C compiler that failed, was killed or made nothing, with what it said."""

    code = "MTH804"


class InternalError(MithrilError, RuntimeError):
    """A bug in mithril."""

    code = "MTH901"


# In the order of core::ErrorKind.
_CLASSES: tuple[type[BaseException], ...] = (
    ShapeError,
    DTypeError,
    ArgumentError,
    KeyNotFound,
    WireNameError,
    FrozenModelError,
    CycleError,
    MultiWriteError,
    ParseError,
    DataIndexError,
    DataOverflowError,
    OutOfMemoryError,
    UnsupportedError,
    DeviceNotAvailable,
    KeyboardInterrupt,
    InternalError,
    UnexpectedKeyError,
    SealedModelError,
)
_BY_CODE: dict[int, type[MithrilError]] = {105: ShapeNotKnown, 107: ShapeTemplateError}
_UNNAMED_INPUT = 406


def from_core(
    kind: int,
    code: int,
    text: str,
    hint: str,
    place: tuple[str, int, str],
    facts: list[tuple[str, tuple[str, int, str], str]],
) -> BaseException:
    """The exception for an error of the engine; `text` is complete (facts and hint included)."""
    cls = _BY_CODE.get(code) or _CLASSES[kind]
    if not issubclass(cls, MithrilError):
        return cls()
    text = _without_hint(text, hint)
    if code == _UNNAMED_INPUT:
        hint = _name_in_line(facts)
    return cls(
        text,
        code=f"MTH{code}",
        hint=hint,
        facts=tuple(Fact(fact, Place(*where), by) for fact, where, by in facts),
        place=Place(*place),
    )


def _name_in_line(facts: list) -> str:
    """The line that leaves a key without a name, with one put in."""
    general = "name it, or give safe_names=False"
    if not facts:
        return general
    import linecache

    from mithril.base.corrected_line import corrected

    text, (file, line, _), _by = facts[0]
    fixed = corrected(linecache.getline(file, line).strip(), text.partition(" : ")[0])
    return f"write {fixed}" if fixed else general


class MithrilWarning(UserWarning):
    """Base of every warning that mithril gives."""


class InitialParamsWarning(MithrilWarning):
    """A model with weights ran on its initial parameters."""


class UnusedParamsWarning(MithrilWarning):
    """Parameters were given that the model does not have."""


class UnusedKeyWarning(MithrilWarning):
    """A key was named that the model does not have."""


class NearMissWarning(MithrilWarning):
    """A model looks as if a name were misspelt, or a layer were forgotten."""


class EmptyModelWarning(MithrilWarning):
    """A model without outputs was compiled or called."""


class DTypeWarning(MithrilWarning):
    """A parameter changed its dtype and was cast back."""


class ModeWarning(MithrilWarning):
    """Gradients were asked of a model in eval mode that behaves differently in training."""


class CompilerWarning(MithrilWarning):
    """A C compiler warned of the text of a model, which it compiled nevertheless."""


def shown(value: object) -> str:
    """`repr` for messages: short, whatever the value and however it is nested."""
    import reprlib

    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 80
    try:
        return shortener.repr(value)
    except Exception:  # a __repr__ of somebody
        return f"<{type(value).__name__}>"


_PACKAGE = __file__.rpartition("errors.py")[0]


def warn(text: str, category: type[Warning]) -> None:
    """Warns at the user's line: the innermost frame outside of this package."""
    level = 2
    frame = sys._getframe(1)  # who calls this is level 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)


def suggestion(name: str, candidates) -> str:
    """ ", did you mean 'relu'?" for the nearest candidate, or ""."""
    import difflib

    if not isinstance(name, str) or len(name) > 64:
        return ""
    known = (c for c in candidates if isinstance(c, str))
    short = {c.lower(): c for c in known if len(c) <= 64 and c != name}
    found = difflib.get_close_matches(name.lower(), short, 1, 0.6)
    near = [short[c] for c in found]
    return f", did you mean {near[0]!r}?" if near else ""


__all__ = [
    name
    for name, value in list(globals().items())
    if isinstance(value, type)
    and issubclass(value, (MithrilError, MithrilWarning, builtins.tuple))
    and not name.startswith("_")
]
