"""`mithril docs`: makes the reference pages from the engine's own tables, and checks all links."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from mithril import _core
from mithril.backends.registry import get_backend
from mithril.cli import _tables
from mithril.cli._links import problems
from mithril.codegen.generate import literal, parameters, signature
from mithril.physical.compile import compile
from mithril.physical.key_facts import key_facts_of
from mithril.types import MISSING, Dtype

_MADE = "<!-- made by `mithril docs`; changes are overwritten -->\n"


def run(arguments: Sequence[str]) -> int:
    """Writes the pages; 1 where a link leads nowhere. With ``--check`` says which pages differ."""
    parser = argparse.ArgumentParser("mithril docs", description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if out of date")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        print(f"mithril docs: no folder {options.folder}", file=sys.stderr)
        return 2
    made = {**pages(), **with_tables(options.folder)}
    stale = [name for name, text in made.items() if _read(options.folder / name) != text]
    for name in stale:
        if not options.check:
            (options.folder / name).write_text(made[name], encoding="utf-8")
        print(f"{'out of date' if options.check else 'wrote'}: {options.folder / name}")
    wrong = problems(options.folder)
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong or (options.check and stale) else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def pages() -> dict[str, str]:
    """Returns the reference pages: file name -> text."""
    return {"env_vars.md": env_vars_page(), "ops.md": ops_page()}


def with_tables(folder: Path) -> dict[str, str]:
    """The pages of a folder that have tables of backends -> their texts with them as they are."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.md"))}
    tables = {name: _tables.filled(text, _supports) for name, text in texts.items()}
    return {name: text for name, text in tables.items() if _tables.has_tables(text)}


# --- variables -----------------------------------------------------------------------------------


def env_vars_page() -> str:
    rows = [
        f"| `{name}` | {_cell(f'`{values}`')} | {_cell(meaning)} |"
        for name, values, meaning in _core.env_table()
    ]
    return "\n".join(
        [
            "# Variables of the environment",
            _MADE,
            "They are read once, when the package is first used; a value that cannot be read counts"
            " as not set.",
            "",
            "| variable | values | effect |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- ops -----------------------------------------------------------------------------------------


def ops_page() -> str:
    ours = _tables.built_in_ops()
    ops = sorted(ours, key=lambda op: (op["family"], op["name"]))
    families: dict[str, list[dict[str, Any]]] = {}
    for op in ops:
        families.setdefault(op["family"], []).append(op)
    contents = [f"- [{name}](#{name}): {_links(members)}" for name, members in families.items()]
    lines = ["# Ops", _MADE, _introduction(), *contents, ""]
    for name, members in families.items():
        lines += [f"## {name}", ""]
        for op in members:
            lines += [*_op_lines(op), ""]
    return "\n".join(lines)


def _introduction() -> str:
    return """\
Every op of the registry. *Keys* are wires: what they may hold, their default, and how they begin
where they are trained. *Shapes* show one example each. *Support* says how a backend runs the op:
`native` (a function of the framework or a kernel of the engine), `loop` (a fused loop of the
engine), `expression` (emitted from the op's expression), `composed` (of other ops), `host` (Python
values, no arrays), or `unsupported`.
"""


def _links(members: Iterable[dict[str, Any]]) -> str:
    return ", ".join(f"[{op['name']}](#{op['name']})" for op in members)


def _op_lines(op: dict[str, Any]) -> list[str]:
    lines = [f"### {op['name']}", "", op["doc"], ""]
    if op["formula"]:
        lines += [f"$${op['formula']}$$", ""]
    if op["python_name"]:
        pairs = [(name, default) for name, default in parameters(op)]
        text = signature(pairs, "").removeprefix("self").removeprefix(", ")
        lines += [f"`ml.{op['python_name']}({text})`", ""]
    lines += [f"- {title}: {text}" for title, text in _facts(op) if text]
    return lines


def _facts(op: dict[str, Any]) -> list[tuple[str, str]]:
    aliases = [*op["aliases"], *(f"ml.{name}" for name in op["python_aliases"])]
    return [
        ("also named", ", ".join(f"`{name}`" for name in aliases)),
        ("keys", "; ".join(map(_key_text, op["inputs"]))),
        ("outputs", ", ".join(f"`{name}`" for name in op["outputs"])),
        ("arguments", ", ".join(_argument(*pair) for pair in op["attrs"])),
        ("shapes", _example(op)),
        ("gradient", _gradient(op)),
        ("support", ", ".join(f"{name} {how(op)}" for name, how in _supports().items())),
    ]


_TENSORS = sum(bit for name, bit in _core.kinds().items() if name.startswith("tensor_"))
_VALUES = sum(_core.kinds().values()) - _TENSORS


def _type_text(entry: dict[str, Any]) -> str:
    values = "any Python value" if entry["kinds"] & _VALUES == _VALUES else ""
    if not values:
        return entry["type"]
    return f"tensor or {values}" if entry["kinds"] & _TENSORS else values


def _key_text(entry: dict[str, Any]) -> str:
    notes = [_type_text(entry)]
    if entry["default"] is not MISSING:
        notes.append(f"default {_code(entry['default'])}")
    notes += [word for word in ("variadic", "optional", "trainable") if entry[word]]
    if entry["when"]:
        notes.append(f"only if `{entry['when']}`")
    return f"`{entry['name']}` ({', '.join(notes)})"


def _argument(name: str, default: Any) -> str:
    return f"`{name}`" if default is MISSING else f"`{name}` = {_code(default)}"


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, Dtype) else literal(value)}`"


def _gradient(op: dict[str, Any]) -> str:
    if not op["differentiable"]:
        return "none: it is piecewise constant or no function of floats"
    if not op["has_gradient"]:
        return "none"
    kinks = ", ".join(f"{slope:g} at {at:g}" for at, slope in op["kinks"])
    if kinks:
        return f"yes; at kinks: {kinks}"
    return "yes; it has kinks, see above" if op["has_kinks"] else "yes"


def _example(op: dict[str, Any]) -> str:
    """Shapes of the op's first sample, and of its results as the engine infers them."""
    from mithril.testing.op_matrix import cases

    found = next(iter(cases(op)), None)
    if found is None:
        return ""
    shapes = key_facts_of(compile(found.model(), get_backend("numpy"))).sizes()
    given = [f"{name} {list(shape)}" for name, _, shape in found.tensors]
    made = [f"{name} {shapes[name]}" for name in shapes if name.split("_")[0] in op["outputs"]]
    made = [text for text in made if not text.endswith("None")]
    if not given and not made:
        return ""
    return ", ".join(given) + (" → " + ", ".join(made) if made else "")


# --- support -------------------------------------------------------------------------------------

_BODIES = ("built in", "composed", "expression", "expression", "kernel", "host")


def _supports() -> dict[str, Callable[[dict[str, Any]], str]]:
    emitted = {
        "NumPy": "with_manualgrad/numpy_backend",
        "PyTorch": "with_autograd/torch_backend",
        "JAX": "with_autograd/jax_backend",
        "MLX": "with_autograd/mlx_backend",
    }
    found: dict[str, Callable[[dict[str, Any]], str]] = {"CPU": _cpu_support}
    for name, package in emitted.items():
        found[name] = partial(_emitted_support, functions=_function_names(package))
    return found


def _cpu_support(op: dict[str, Any]) -> str:
    if _core.cpu_has_kernel(op["bounded"] or op["name"]):
        return "native"
    body = _BODIES[op["body"]]
    return {"expression": "loop", "kernel": "unsupported"}.get(body, body)


def _emitted_support(op: dict[str, Any], functions: set[str]) -> str:
    if op["name"] in functions:
        return "native"
    body = _BODIES[op["body"]]
    return "unsupported" if body == "kernel" else body


@cache
def _function_names(package: str) -> set[str]:
    """Returns the public names of a backend's `ops.py`, which is not imported but parsed."""
    import ast

    path = Path(__file__).resolve().parent.parent / "backends" / package / "ops.py"
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if not name.startswith("_")}
