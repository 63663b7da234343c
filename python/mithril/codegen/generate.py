"""Writes the classes of ops from the registry, at build time.

`mithril/models/_generated/` gets one module for each family of blocks, a stub beside it, and
`__init__.py` with the table class name -> family, which is all that an import reads. Names that are
resolved when they are first used get stubs, too: `mithril/__init__.pyi` and its like.
"""

from __future__ import annotations

import functools
import importlib
import keyword
import sys
import textwrap
from pathlib import Path

from mithril import _core
from mithril.codegen import argument_types as types
from mithril.codegen import package_stubs
from mithril.types import MISSING, Constant, Dtype

# Second spellings of arguments, keyword only (K14 of the documents).
SYNONYMS = {"out_channels": "filters"}
# Says `mode` by True and False, where a block names it among its arguments.
FLAG = "inference"
RANDOM_KEY = "rng_key"  # the engine moves it from call to call; no wire leads to it
# Arguments that come last although they have no value of their own.
OPTIONS = (
    *("ceil_mode", "count_include_pad", "divisor_override", "upper"),  # what the original lacks
    *("mode", "dtype"),
)
TENSORS = sum(bit for name, bit in _core.kinds().items() if name.startswith("tensor_"))
HEAD = (
    '"""Made by mithril/codegen/generate.py from csrc/ops/{family}.cc;'
    ' changes are overwritten."""\n\n'
)
IMPORTS = """\
from mithril.base.public import public
from mithril.logical.model import ExtendInfo
from mithril.models.operator_model import KernelFirst, OperatorModel
from mithril.types import NOT_GIVEN, TBD, Constant, Dtype
"""


def literal(value) -> str:
    """Python text of a default."""
    if value is MISSING:
        return "TBD"
    if isinstance(value, Dtype):
        return f"Dtype.{value}"
    if isinstance(value, str) and value in Constant.__members__:
        return f"Constant.{value}"
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return f'float("{value}")'
    return repr(value)


@functools.cache
def robust_forms() -> dict[str, dict]:
    """Op -> the op that its class makes with `robust=True`: the function with finite slopes."""
    ops = {op["name"]: op for op in _core.ops()}
    return {name: ops[f"robust_{name}"] for name in ops if f"robust_{name}" in ops}


def robust_form(op: dict) -> dict | None:
    return robust_forms().get(op["name"])


@functools.cache
def keyed_forms() -> dict[str, dict]:
    """Op that moves a random key of its own -> the op that takes one."""
    ops = {op["name"]: op for op in _core.ops()}
    drawn = {name: name.removeprefix("draw_") for name in ops if name.startswith("draw_")}
    return {name: ops[form] for name, form in drawn.items()}


def plain_form(op: dict) -> dict | None:
    """The op whose robust or keyed form this one is: its class makes it, too."""
    forms = {**robust_forms(), **keyed_forms()}
    plain = [name for name, form in forms.items() if form["name"] == op["name"]]
    return _core.find_op(plain[0]) if plain else None


def robust_keywords(op: dict) -> list[tuple[str, str]]:
    """Returns (name, default) of each argument that only the robust form takes."""
    form = robust_form(op)
    own = {i["name"] for i in op["inputs"]}
    further = [i for i in form["inputs"] if i["name"] not in own] if form else []
    return [(i["name"], literal(i["default"])) for i in further]


def is_list_of_keys(op: dict) -> bool:
    """Ops that say how many operands they have get the keys `input1 … inputN` instead of a list."""
    return any(i["variadic"] for i in op["inputs"]) and any(n == "n" for n, _ in op["attrs"])


def has_parameters(op: dict) -> bool:
    """Tells whether the class takes `init`: how its parameters start."""
    return any(i["trainable"] for i in op["inputs"])


def parameters(op: dict) -> list[tuple[str, str | None]]:
    """Constructor parameters: leading attributes without a value, keys, other attributes, wires."""
    attrs = [pair for pair in op["attrs"] if pair[0] not in OPTIONS]
    is_open = [default is MISSING or default is None for _, default in attrs]
    leading = is_open.index(False) if False in is_open else len(attrs)
    required = is_list_of_keys(op)
    first = [
        (n, None if default is MISSING or required else "None") for n, default in attrs[:leading]
    ]
    rank = {name: i for i, name in enumerate(op["connect_order"])}
    inputs = sorted(op["inputs"], key=lambda i: rank.get(i["name"], len(rank)))
    late = [(i["name"], literal(i["default"])) for i in inputs if i["name"] in OPTIONS]
    late = [pair for pair in late if pair[1] != "TBD"]
    inputs = [i for i in inputs if i["name"] not in dict(late)]
    keys = [i for i in inputs if i["is_key"]]
    wires = [i for i in inputs if not i["is_key"] and not (i["variadic"] and required)]
    wires = [i for i in wires if i["name"] != RANDOM_KEY]
    values = [i for i in wires if i["default"] is not MISSING or not i["kinds"] & TENSORS]
    tensors = [i for i in wires if i not in values]
    out: list[tuple[str, str | None]] = [("robust", "False")] if robust_form(op) else []
    out += first + [(i["name"], literal(i["default"])) for i in keys]
    out += [(n, literal(default)) for n, default in attrs[leading:]]
    out += [(i["name"], literal(i["default"])) for i in values]
    out += [(i["name"], "None" if i["optional"] and not i["when"] else "TBD") for i in tensors]
    out += late + [(n, literal(default)) for n, default in op["attrs"] if n in OPTIONS]
    order = {name: i for i, name in enumerate(op["argument_order"])}
    out += [("key", "TBD")] if op["name"] in keyed_forms() else []
    out += [(FLAG, "None")] if FLAG in order else []
    if order:
        out.sort(key=lambda pair: order.get(pair[0], len(order)))
    if any(default is None for _, default in out[len(first) :]):
        raise SystemExit(f"op {op['name']!r}: parameters without default must come first")
    return out


def class_facts(op: dict) -> list[str]:
    """Class attributes that OperatorModel reads."""
    switches = {i["name"]: i["when"] for i in op["inputs"] if i["when"]}
    optional = tuple(i["name"] for i in op["inputs"] if i["optional"] and not i["when"])
    defaults = {i["name"]: i["default"] for i in op["inputs"] if i["default"] is not MISSING}
    attrs = tuple(n for n, _ in op["attrs"] if not (n == "n" and is_list_of_keys(op)))
    facts = [f'_op = "{op["name"]}"', f"_connect_order = {tuple(op['connect_order'])!r}"]
    facts += [f"_attrs = {attrs!r}"] if attrs else []
    facts += [f"_optional = {optional!r}"] if optional else []
    facts += [f"_switches = {switches!r}"] if switches else []
    if defaults:
        items = ", ".join(f"{name!r}: {literal(value)}" for name, value in defaults.items())
        facts.append(f"_defaults = {{{items}}}")
    return [*facts, "_counts = True"] if is_list_of_keys(op) else facts


def signature(pairs: list[tuple[str, str | None]], last: str) -> str:
    items = [name if default is None else f"{name}={default}" for name, default in pairs]
    return ", ".join(["self", *items, *([last] if last else [])])


def wire_line(entry: dict) -> str:
    notes = [entry["type"]]
    if entry["default"] is not MISSING:
        notes.append(f"default {literal(entry['default'])}")
    if entry["trainable"]:
        notes.append("trainable")
    if entry["optional"]:
        notes.append("optional")
    return f"{entry['name']} : {', '.join(notes)}"


def docstring(op: dict) -> str:
    lines = [op["doc"] or op["name"], ""]
    if op["formula"]:
        lines += [f"``{op['formula']}``", ""]
    lines += ["Keys", "----", *(wire_line(i) for i in op["inputs"])]
    lines += [f"{name} : output" for name in op["outputs"]]
    if op["attrs"]:
        lines += ["", "Arguments", "---------"]
        lines += [
            name if default is MISSING else f"{name} : default {literal(default)}"
            for name, default in op["attrs"]
        ]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return textwrap.indent(text, "    ").lstrip()


def further_wires(op: dict) -> list[str]:
    """Keys that only the op's robust or keyed form has."""
    return [*(["key"] if op["name"] in keyed_forms() else []), *(n for n, _ in robust_keywords(op))]


def connect_method(op: dict) -> str:
    if is_list_of_keys(op):
        return ""
    order = op["connect_order"]
    further = further_wires(op)
    last = ", ".join(["*", *(f"{name}=NOT_GIVEN" for name in further)]) if further else ""
    arguments = signature([(name, "NOT_GIVEN") for name in order], last)
    items = ", ".join(f'"{name}": {name}' for name in [*order, *further])
    return f"""
    @public
    def connect({arguments}):
        return ExtendInfo(self, {{{items}}})
"""


def class_text(op: dict) -> str:
    pairs = parameters(op)
    form, further = robust_form(op), robust_keywords(op)
    taken = (FLAG, "robust") if form else (FLAG,)  # by the prologue, by _make_either
    items = ", ".join(f'"{name}": {name}' for name, _ in pairs if name not in taken)
    if is_list_of_keys(op):
        items += ", **inputs"
    facts = "\n    ".join(class_facts(op))
    make = f"self._make(name, {{{items}}}{', init' if has_parameters(op) else ''})"
    if form is not None:
        values = ", ".join(f'"{name}": {name}' for name, _ in further)
        make = (
            f'self._make_either(robust, "{form["python_name"]}", name, {{{items}}}, {{{values}}})'
        )
    if op["name"] in keyed_forms():
        make = f'self._make_drawn("{keyed_forms()[op["name"]]["python_name"]}", name, {{{items}}})'
    synonyms = [(name, SYNONYMS[name]) for name, _ in pairs if name in SYNONYMS]
    options = [f"{other}=None" for _, other in synonyms]
    options += [f"{key}={default}" for key, default in further]
    inputs = ["**inputs"] if is_list_of_keys(op) else []
    init = ["init=None"] if has_parameters(op) else []
    keywords = ", ".join(["*", *options, "name=None", *inputs, *init])
    prologue = "".join(
        f"        {name} = {name} if {other} is None else {other}\n" for name, other in synonyms
    )
    if (FLAG, "None") in pairs:
        prologue += f"        mode = self._mode(mode, {FLAG})\n"
    text = f'''

class {op["python_name"]}({base_of(op)}):
    """{docstring(op)}
    """

    {facts}

    @public
    def __init__({signature(pairs, keywords)}):
{prologue}        {make}
{connect_method(op)}'''
    aliases = "".join(f"\n\n{alias} = {op['python_name']}" for alias in op["python_aliases"])
    return text.rstrip() + "\n" + aliases


def base_of(op: dict) -> str:
    plain = plain_form(op)
    if plain:
        return str(plain["python_name"])
    first = [name for name, _ in parameters(op)][:2]
    return "KernelFirst" if first == ["kernel_size", "out_channels"] else "OperatorModel"


def stub_text(op: dict) -> str:
    typed = types.of_parameters(op, parameters(op), robust_keywords(op))
    pairs = parameters(op)
    arguments = [f"{n}: {typed[n]}" + ("" if d is None else " = ...") for n, d in pairs]
    keywords = [f"{SYNONYMS[n]}: {typed[n]} = ..." for n, _ in pairs if n in SYNONYMS]
    keywords += [f"{n}: {typed[n]} = ..." for n, _ in robust_keywords(op)]
    plain = plain_form(op)
    base = plain["python_name"] if plain else "OperatorModel"
    inputs = ["**inputs: Value"] if is_list_of_keys(op) else []
    init = ["init: Initial = ..."] if has_parameters(op) else []
    last = ["name: str | None = ...", *inputs, *init]
    head = ", ".join(["self", *arguments, "*", *keywords, *last])
    text = f"class {op['python_name']}({base}):\n    def __init__({head}) -> None: ...\n"
    result = "Call" if len(op["outputs"]) == 1 else "Calls"
    if is_list_of_keys(op):
        text += "    def connect(self, /, **keys: Wire) -> ExtendInfo: ...\n"
        text += f"    def __call__(self, /, *inputs: Wire, **keys: Wire) -> {result}: ...\n"
    else:
        wires = stub_wires(op)
        text += f"    def connect({wires}) -> ExtendInfo: ...\n"
        text += f"    def __call__({wires}) -> {result}: ...\n"
    return text + "".join(f"{alias} = {op['python_name']}\n" for alias in op["python_aliases"])


def stub_wires(op: dict) -> str:
    further = further_wires(op)
    names = [*op["connect_order"], *(["*", *further] if further else [])]
    kinds = dict.fromkeys(op["outputs"], "Output")
    typed = [n if n == "*" else f"{n}: {kinds.get(n, 'Wire')} = ..." for n in names]
    return ", ".join(["self", *typed])


def check_names(op: dict) -> None:
    names = [op["python_name"], *op["python_aliases"], *(n for n, _ in parameters(op))]
    bad = [n for n in names if not n.isidentifier() or keyword.iskeyword(n)]
    if bad:
        raise SystemExit(f"op {op['name']!r}: {bad[0]!r} cannot be a Python name")


def base_imports(ops: list[dict]) -> str:
    """Classes of other families that classes of this one derive from."""
    plains = [plain for plain in map(plain_form, ops) if plain]
    rows = {
        f"from mithril.models._generated.{plain['family']} import {plain['python_name']}\n"
        for plain in plains
        if plain["family"] != ops[0]["family"]
    }
    return "".join(sorted(rows))


def imports(ops: list[dict]) -> str:
    above, below = IMPORTS.split("from mithril.models.operator_model")
    return above + base_imports(ops) + "from mithril.models.operator_model" + below


def generate() -> dict[str, str]:
    """File name -> text."""
    families: dict[str, list[dict]] = {}
    for op in _core.ops():
        if op["python_name"]:
            check_names(op)
            families.setdefault(op["family"], []).append(op)
    files: dict[str, str] = {}
    table: dict[str, str] = {}
    for family, ops in families.items():
        ops.sort(key=lambda op: plain_form(op) is not None)  # bases first
        files[f"{family}.py"] = (
            HEAD.format(family=family)
            + imports(ops)
            + "\n".join(class_text(op) for op in ops)
            + "\n"
        )
        files[f"{family}.pyi"] = (
            types.STUB_IMPORTS + base_imports(ops) + "\n" + "\n".join(stub_text(op) for op in ops)
        )
        for op in ops:
            table |= dict.fromkeys((op["python_name"], *op["python_aliases"]), family)
    rows = "".join(f'    "{name}": "{family}",\n' for name, family in sorted(table.items()))
    classes = "".join(
        f'    "{op["name"]}": "{op["python_name"]}",\n' for ops in families.values() for op in ops
    )
    files["__init__.py"] = (
        '"""Made by mithril/codegen/generate.py: which module holds a class."""\n\n'
        f"FAMILIES = {{\n{rows}}}\n\n# op -> class\nCLASSES = {{\n{classes}}}\n"
    )
    files["__init__.pyi"] = "FAMILIES: dict[str, str]\nCLASSES: dict[str, str]\n" + "".join(
        f"from .{family} import {name} as {name}\n" for name, family in sorted(table.items())
    )
    return files


def write_text(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def write(folder: Path, files: dict[str, str]) -> None:
    """Leaves unchanged files alone, and removes those of families that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_text(folder / name, text)
    for path in folder.glob("*.py*"):
        if path.is_file() and path.name not in files:
            path.unlink()


if __name__ == "__main__":
    package = Path(__file__).resolve().parent.parent
    made = generate()
    write(package / "models" / "_generated", made)
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.startswith("mithril.models._generated")]:
        del sys.modules[name]  # of an earlier build
    vars(importlib.import_module("mithril.models")).pop("_generated", None)
    for name, text in package_stubs.generate().items():
        write_text(package / name, text)
