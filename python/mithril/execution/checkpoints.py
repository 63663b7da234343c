"""Emitted functions whose backward pass computes most values again, by a framework's checkpoints.

The lines of a function become about as many segments as each has lines. What one segment hands to
later ones is kept for the backward pass; the rest is computed again there: by `mx.checkpoint`, and
by `torch.utils.checkpoint`, also under `torch.compile`, which would merge what text computes twice.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["segmented"]


def segmented(
    text: str, function: Callable[..., Any], checkpoint: Callable[..., Any]
) -> Callable[..., Any] | None:
    """The emitted function `evaluate` of `text` in segments; None where it is no straight line.

    Parameters
    ----------
    function : the same as it was loaded, whose scope serves the segments
    checkpoint : called as ``checkpoint(segment, *arrays)``; gives what the segment does
    """
    (whole,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    lines = [line for line in whole.body if not isinstance(line, ast.Delete)]
    *assigned, last = lines
    if not isinstance(last, ast.Return) or not all(isinstance(x, ast.Assign) for x in assigned):
        return None
    length = max(math.isqrt(len(assigned)), 1)
    parts = [assigned[at : at + length] for at in range(0, len(assigned), length)]
    scope = {**function.__globals__, "checkpoint": checkpoint}
    exec(compile(_text(whole, parts, last), "mithril_segments.py", "exec"), scope)
    made: Callable[..., Any] = scope["evaluate"]
    return made


def _text(whole: ast.FunctionDef, parts: Sequence[list[ast.stmt]], last: ast.stmt) -> str:
    known = {argument.arg for argument in whole.args.args}
    out, body = [], []
    for i, part in enumerate(parts):
        later = _names([*(line for other in parts[i + 1 :] for line in other), last], ast.Load)
        made = _names(part, ast.Store)
        given = ", ".join(sorted(_names(part, ast.Load) & known))
        handed = "".join(f"{name}, " for name in sorted(made & later))
        inner = [*(ast.unparse(line) for line in part), f"return ({handed})"]
        out.append(f"def segment_{i}({given}):\n" + "\n".join(f"    {line}" for line in inner))
        call = f"checkpoint(segment_{i}, {given})"
        body.append(f"({handed}) = {call}" if handed else call)
        known |= made
    arguments = ", ".join(argument.arg for argument in whole.args.args)
    body.append(ast.unparse(last))
    return "\n".join([*out, f"def evaluate({arguments}):", *(f"    {line}" for line in body)])


def _names(lines: Sequence[ast.stmt], context: type) -> set[str]:
    nodes = (node for line in lines for node in ast.walk(line) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, context)}
