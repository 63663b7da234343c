"""Takes the lines of an emitted function that depend on constants only out of it.

v1 = C[0]; v2 = ops.exp(v1); v3 = ops.multiply(v0, v2)  ->  v2 = C[1]; v3 = ops.multiply(v0, v2)
"""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["folded"]


def folded(backend: Any, text: str, scope: dict[str, Any]) -> tuple[str, list[Any]]:
    """The text without these lines, and the values that follow those of `C` in `scope`.

    They are computed here, once, by the backend's own functions.
    """
    (whole,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    variables = {argument.arg for argument in whole.args.args} | _names(whole.body, ast.Store)
    constants = _constant_lines(whole, variables)
    if not constants:
        return text, []
    others = [node for node in whole.body if node.lineno not in constants]
    made = {name: at for at, line in constants.items() for name in _names([line], ast.Store)}
    read = [name for name in made if name in _names(others, ast.Load)]
    results = _values(backend, list(constants.values()), read, scope)
    first = len(scope["C"])
    places = {name: first + i for i, name in enumerate(read)}
    kept = []
    for number, line in enumerate(text.split("\n"), start=1):
        if number not in constants:
            kept.append(line)
            continue
        comment = line.partition("  #")[1:]
        kept += [f"    {name} = C[{places[name]}]" + "".join(comment)
                 for name in read if made[name] == number]  # fmt: skip
    return "\n".join(kept), results


def _constant_lines(whole: ast.FunctionDef, variables: set[str]) -> dict[int, ast.Assign]:
    """Number of a line -> what it assigns, where nothing that it reads depends on arguments."""
    numbers = [node.lineno for node in whole.body if not isinstance(node, ast.Delete)]
    stored = [n.id for n in ast.walk(whole) if isinstance(n, ast.Name) and _is_stored(n)]
    known: set[str] = set()
    found = {}
    for node in whole.body:
        is_alone = node.lineno == node.end_lineno and numbers.count(node.lineno) == 1
        if not isinstance(node, ast.Assign) or not is_alone:
            continue
        made = _names([node], ast.Store)
        once = all(stored.count(name) == 1 for name in made)  # not again in a branch or a loop
        if once and not _names([node], ast.Load) & variables - known:
            known |= made
            found[node.lineno] = node
    return found


def _values(
    backend: Any, lines: list[ast.Assign], names: list[str], scope: dict[str, Any]
) -> list[Any]:
    body = [*(ast.unparse(line) for line in lines), f"return ({''.join(f'{n}, ' for n in names)})"]
    text = "def constants():\n" + "\n".join(f"    {line}" for line in body)
    bound = dict(scope)  # which keeps no function of ours
    exec(compile(text, "mithril_constants.py", "exec"), bound)
    return list(backend._call(bound["constants"], ()))


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _names(lines: list[Any], context: type) -> set[str]:
    nodes = (node for line in lines for node in ast.walk(line) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, context)}
