"""`public` marks what users call: its tracebacks end in their code, and a call that does not fit
its parameters is a typed error instead of Python's own TypeError."""

from __future__ import annotations

import copyreg
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from mithril import _core
from mithril.base.peer_names import argument_here
from mithril.errors import SignatureError, shown, suggestion

F = TypeVar("F", bound=Callable[..., Any])

# Of the methods with two underscores, those that users call with arguments of their choice.
_CALLED = ("__init__", "__call__")
_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_USAGE = {
    inspect.Parameter.POSITIONAL_ONLY: "{}",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "{}",
    inspect.Parameter.VAR_POSITIONAL: "*{}",
    inspect.Parameter.KEYWORD_ONLY: "{}=",
    inspect.Parameter.VAR_KEYWORD: "**{}",
}


def public(function: F) -> F:
    """Marks a function as public; a call that fits costs one more Python frame."""
    if _fits_always(function):
        return _core.public(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            # With a frame of its own, the function has begun: the error is of its body.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
        raise refusal(function, args, kwargs)

    return _core.public(call)  # type: ignore[return-value]


# Public functions are pickled as others are: by where they are found.
copyreg.pickle(type(_core.public(lambda: None)), lambda function: str(function.__qualname__))


def public_with_shortcut(attribute: str) -> Callable[[F], F]:
    """`public` for a method that refuses misfits by itself, of objects whose attribute of this name
    is None or takes calls first: it returns NotImplemented for those that are the method's."""
    return lambda function: _core.public(function, attribute)


def _fits_always(function: Callable[..., Any]) -> bool:
    """Tells whether no call can misfit: Python itself calls it, or it takes any arguments."""
    name = function.__name__
    if name.startswith("__") and name.endswith("__") and name not in _CALLED:
        return True
    code = function.__code__
    takes_any = code.co_flags & inspect.CO_VARARGS and code.co_flags & inspect.CO_VARKEYWORDS
    required = code.co_argcount - len(function.__defaults__ or ())
    return bool(takes_any) and required <= max(1, code.co_posonlyargcount)


def signature_of(what: str, function: Any) -> inspect.Signature:
    """Returns the signature of a function of the user."""
    if not callable(function):
        raise SignatureError(f"{what}: requires a function, got {shown(function)}")
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # of an extension module
        raise SignatureError(f"{what}: {shown(function)} does not tell its parameters") from None


# The default of a parameter without one, in a function that refuses misfits by itself.
REQUIRED: Any = object()


def refuses_misfits(function: F) -> F:
    """Hides the `*`, `**` and REQUIRED of a function that refuses misfits by itself from its
    signature: for functions where one more Python frame would cost too much."""
    signature = inspect.signature(function)
    own = [
        p.replace(default=p.empty) if p.default is REQUIRED else p
        for p in signature.parameters.values()
        if p.kind in (*_PLACED, *_NAMED)
    ]
    function.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return function


def refusal(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> SignatureError:
    """Returns the error for a call that does not fit the parameters of `function`."""
    parameters = list(inspect.signature(function).parameters.values())
    title, given = function.__name__, list(args)
    kwargs = {name: value for name, value in kwargs.items() if value is not REQUIRED}
    if parameters and parameters[0].name in ("self", "cls") and given:
        parameters.pop(0)
        owner = given.pop(0)
        cls = owner if isinstance(owner, type) else type(owner)
        title = cls.__name__ if title == "__init__" else f"{cls.__name__}.{title}"
    return SignatureError(
        f"{title}: {_problem(title, parameters, len(given), kwargs)}", hint=_usage(parameters)
    )


def _problem(
    title: str, parameters: list[inspect.Parameter], count: int, kwargs: Mapping[str, Any]
) -> str:
    by_place = [p.name for p in parameters if p.kind in _PLACED]
    by_name = [p.name for p in parameters if p.kind in _NAMED]
    kinds = {p.kind for p in parameters}
    unknown = [name for name in kwargs if name not in by_name]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        hint = argument_here(unknown[0], by_name, title) or suggestion(unknown[0], by_name)
        return f"has no argument {unknown[0]!r}{hint}"
    if count > len(by_place) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return f"takes at most {len(by_place)} arguments by position, got {count}"
    taken = set(by_place[:count])
    twice = [name for name in kwargs if name in taken and name in by_name]
    if twice:
        first = argument_here("params", (), title) if twice == ["lr"] else ""
        return f"{twice[0]!r} is given twice{first}"
    missing = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind in (*_PLACED, *_NAMED) and p.name not in taken
    ]
    return f"requires {' and '.join(repr(name) for name in missing if name not in kwargs)}"


def _usage(parameters: list[inspect.Parameter]) -> str:
    names = [_USAGE[p.kind].format(p.name) for p in parameters]
    return f"its arguments are ({', '.join(names)})" if names else "it takes no arguments"


__all__ = [
    "REQUIRED",
    "public",
    "public_with_shortcut",
    "refusal",
    "refuses_misfits",
    "signature_of",
]
