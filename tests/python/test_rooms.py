"""The Python package has rooms, low to high: a module imports from its own room and from those
before it only. Imports inside functions count, and so does `importlib.import_module` of a name that
is written out; those for type checkers do not, nor do names that are looked up in a table, as the
ones that packages resolve when they are first used."""

import ast
import functools
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python" / "mithril"

# Low to high.
ROOMS = """
    base | logical | drawing | execution | models | optim | physical | training | eager | backends |
    formats | inspection | testing | codegen | cli | offers
"""
ORDER = {room.strip(): i for i, room in enumerate(ROOMS.split("|"))}
# Folders and modules of the root that are no rooms of their own. Public paths that only offer what
# rooms have are the last room, which may import everything and is imported by nobody.
ROOM_OF = {
    **dict.fromkeys(("_core", "errors", "types"), "base"),
    **dict.fromkeys(("compat", "contrib"), "backends"),
    **dict.fromkeys(("common", "cores", "examples", "framework", "utils"), "offers"),
    **dict.fromkeys(("__init__", "__main__", "_former"), "offers"),
    **dict.fromkeys(("compile", "connection", "constraints", "derivatives", "inspect"), "offers"),
    **dict.fromkeys(("model", "operator_model", "primitive", "recommendation"), "offers"),
    **dict.fromkeys(("tracing", "train_model", "models.train_model"), "offers"),
}
SHORTCUTS = "shortcuts"  # modules of this name hold methods of convenience, and may look up

LOADERS = {"importlib.import_module", "import_module", "__import__"}
OF_NAMED_TUPLES = {"_asdict", "_fields", "_replace"}  # which are public, says Python's reference
LOADS_NUMPY = "mithril.base.numpy"  # imported late on purpose: `import mithril` loads no NumPy

# What the tree has, of which no number may grow. "upward": `codegen.package_stubs` reads what the
# package offers. "late" are mostly what `mithril` itself and the command line load when asked.
MOST = {"upward": 1, "late": 34, "circular": 0, "private": 0, "reached": 0, "interface": 21}


class Import(NamedTuple):
    source: str  # modules, "mithril.room.module"
    target: str
    name: str  # what is imported of it; "" for the module
    is_late: bool


class Reader(ast.NodeVisitor):
    """Collects the imports of one module that run."""

    def __init__(self, module: str, is_package: bool, modules: set[str]) -> None:
        self.module, self.modules = module, modules
        self.package = module if is_package else module.rpartition(".")[0]
        self.depth = 0
        self.found: list[Import] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    def visit_If(self, node: ast.If) -> None:
        for part in [] if ast.unparse(node.test) == "TYPE_CHECKING" else node.body:
            self.visit(part)
        for part in node.orelse:
            self.visit(part)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, "")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = ".".join(self.package.split(".")[: len(self.package.split(".")) - node.level + 1])
        parts = ([base] if node.level else []) + ([node.module] if node.module else [])
        module = ".".join(parts)
        for alias in node.names:
            if f"{module}.{alias.name}" in self.modules:
                self.add(f"{module}.{alias.name}", "")
            else:
                self.add(module, alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) in LOADERS and isinstance(node.args[0], ast.Constant):
            self.add(node.args[0].value, "")
        self.generic_visit(node)

    def add(self, target: str, name: str) -> None:
        if target in self.modules and (target, name) != ("mithril", "_core"):  # imports nothing
            self.found.append(Import(self.module, target, name, self.depth > 0))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@functools.cache
def imports() -> list[Import]:
    paths = [p for p in sorted(PACKAGE.rglob("*.py")) if "_generated" not in p.parts]
    modules = {name_of(path) for path in paths} | {"mithril.models._generated"}
    found = []
    for path in paths:
        reader = Reader(name_of(path), path.stem == "__init__", modules)
        reader.visit(ast.parse(path.read_text()))
        found += reader.found
    return found


def room_of(module: str) -> str:
    path = module.removeprefix("mithril.")
    if path in ROOM_OF:
        return ROOM_OF[path]
    top = module.split(".")[1] if "." in module else "__init__"
    return top if top in ORDER else ROOM_OF[top]


def may_import(source: str, target: str) -> bool:
    if source.rpartition(".")[2] == SHORTCUTS:
        return True
    return ORDER[room_of(target)] <= ORDER[room_of(source)]


def upward() -> list[str]:
    found = {(i.source, i.target) for i in imports() if not may_import(i.source, i.target)}
    return [f"{source} -> {target}" for source, target in sorted(found)]


def late() -> list[str]:
    """Imports of the package's own modules inside functions."""
    return [
        f"{i.source} -> {i.target}"
        for i in imports()
        if i.is_late and i.source.rpartition(".")[2] != SHORTCUTS
        if i.target != LOADS_NUMPY
    ]


def circular() -> list[str]:
    """Modules that import themselves by way of others."""
    reaches = defaultdict(set)
    for i in imports():
        if i.source.rpartition(".")[2] != SHORTCUTS:
            reaches[i.source].add(i.target)

    def reached(module: str) -> set[str]:
        seen: set[str] = set()
        stack = [module]
        while stack:
            new = reaches[stack.pop()] - seen
            seen |= new
            stack += new
        return seen

    return sorted(module for module in list(reaches) if module in reached(module))


def private() -> list[str]:
    """Names with an underscore in front that modules of other rooms import."""
    found = {
        (i.source, i.target, i.name)
        for i in imports()
        if room_of(i.source) != room_of(i.target) and room_of(i.source) != "offers"
        for part in [i.name or i.target.rpartition(".")[2]]
        if part.startswith("_") and part not in ("_core", "_generated")
    }
    return [f"{source} -> {target} {name}" for source, target, name in sorted(found)]


@functools.cache
def attributes() -> dict[str, tuple[set[str], set[str]]]:
    """Room -> its attributes with an underscore in front, and those that it reads of objects."""
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for path in sorted(PACKAGE.rglob("*.py")):
        own, read = found[room_of(name_of(path))]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            elif isinstance(node, ast.Attribute):
                of_itself = ast.unparse(node.value) in ("self", "cls")
                if not of_itself:
                    read.add(node.attr)
                elif isinstance(node.ctx, ast.Store):
                    own.add(node.attr)
    return found


def declared() -> set[str]:
    """What compiled models may read of a backend, whatever room it is in."""
    tree = ast.parse((PACKAGE / "execution" / "interface.py").read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    fields = (node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
    others = (target for n in ast.walk(tree) if isinstance(n, ast.Assign) for target in n.targets)
    return names | {target.id for target in (*fields, *others) if isinstance(target, ast.Name)}


def underscored() -> list[tuple[str, str]]:
    """(room, name) of the attributes with one underscore in front that rooms read of objects of
    other rooms."""
    ours = {name for own, _ in attributes().values() for name in own} | declared()
    return [
        (room, name)
        for room, (own, read) in sorted(attributes().items())
        for name in sorted((read & ours) - own)
        if name.startswith("_") and not name.startswith("__") and name not in OF_NAMED_TUPLES
    ]


def reached() -> list[str]:
    return [f"{room}: {name}" for room, name in underscored() if name not in declared()]


def interface() -> list[str]:
    """Those of the interface of backends, which are meant to be read: docs/architecture.md says
    why these members of a class that users derive from keep the underscore."""
    return [f"{room}: {name}" for room, name in underscored() if name in declared()]


COUNTS = {
    "upward": upward,
    "late": late,
    "circular": circular,
    "private": private,
    "reached": reached,
    "interface": interface,
}


@pytest.mark.parametrize("kind", COUNTS)
def test_what_is_left_to_do_only_falls(kind):
    found = COUNTS[kind]()
    assert len(found) <= MOST[kind], "\n".join([f"{kind}: {len(found)}", *found])


def test_the_numbers_are_those_of_the_tree():
    """A number that has fallen is written here, so that it stays."""
    assert {kind: len(count()) for kind, count in COUNTS.items()} == MOST


def test_every_module_has_a_room():
    unknown = {i.source for i in imports()} | {i.target for i in imports()}
    assert not [m for m in unknown if "." in m and m.split(".")[1] not in {*ORDER, *ROOM_OF}]


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("mithril.errors", "mithril.types", True),
        ("mithril.logical.model", "mithril.base.checks", True),
        ("mithril.base.checks", "mithril.logical.model", False),
        ("mithril.logical.shortcuts", "mithril.physical.compile", True),
        ("mithril.physical.compile", "mithril.training.cost", False),
        ("mithril.backends.cpu.backend", "mithril.execution.emitted", True),
        ("mithril.testing.oracle", "mithril.framework.common", False),
        ("mithril.framework.common", "mithril.testing.oracle", True),
    ],
)
def test_the_rule_itself(source, target, allowed):
    assert may_import(source, target) is allowed


def test_imports_in_functions_count_and_those_of_type_checkers_do_not():
    reader = Reader("mithril.base.a", False, {"mithril.base.b", "mithril.base.c"})
    reader.visit(
        ast.parse(
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from mithril.base import c\n"
            "def f():\n    from mithril.base.b import _x\n"
        )
    )
    assert reader.found == [Import("mithril.base.a", "mithril.base.b", "_x", True)]


@pytest.mark.parametrize(
    ("line", "is_package", "expected"),
    [
        ("from . import b", False, ("mithril.base.b", "", False)),
        ("from .b import x", False, ("mithril.base.b", "x", False)),
        ("from . import b", True, ("mithril.base.a.b", "", False)),
        ("from .. import base", False, ("mithril.base", "", False)),
        ("from ..base.b import x", False, ("mithril.base.b", "x", False)),
        ("import importlib\nimportlib.import_module('mithril.base.b')", False,
         ("mithril.base.b", "", False)),
        ("def f(): return importlib.import_module('mithril.base.b').x", False,
         ("mithril.base.b", "", True)),
        ("importlib.import_module(name)", False, None),
        ("import numpy", False, None),
    ],
)  # fmt: skip
def test_every_way_to_write_an_import_is_read(line, is_package, expected):
    known = {"mithril", "mithril.base", "mithril.base.a.b", "mithril.base.b"}
    reader = Reader("mithril.base.a", is_package, known)
    reader.visit(ast.parse(line))
    assert reader.found == ([Import("mithril.base.a", *expected)] if expected else [])
