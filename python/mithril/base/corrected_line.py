"""Corrections of lines of the user's code, for error messages."""

from __future__ import annotations

import ast

__all__ = ["corrected"]


def corrected(source: str, key: str) -> str:
    """Returns the line of code with a name for `key`, or "" where it is no single statement.

    >>> corrected('model |= ml.Add()(output="y")', "left")
    'model |= ml.Add()(output="y", left="left")'
    """
    try:
        statement = ast.parse(source).body[0]
    except (SyntaxError, ValueError, IndexError):
        return ""
    value = getattr(statement, "value", None)
    if value is None or not source.isascii():
        return ""
    end = value.end_col_offset
    if not isinstance(value, ast.Call) or not _is_model_call(value):
        return f'{source[:end]}({key}="{key}"){source[end:]}'
    comma = ", " if value.args or value.keywords else ""
    return f'{source[: end - 1]}{comma}{key}="{key}"){source[end:]}'


def _is_model_call(call: ast.Call) -> bool:
    """Tells whether a call takes keys: `layer(...)`, `ml.Relu()(...)`, `x.connect(...)`."""
    if isinstance(call.func, ast.Call):
        return True
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "connect" or not name[:1].isupper()
