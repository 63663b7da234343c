"""Writes the stubs of packages whose names are resolved when they are first used."""

from __future__ import annotations

from typing import Any

import mithril
from mithril import backends, errors, models

HEAD = "# Made by mithril/codegen/generate.py; changes are overwritten.\n"


def generate() -> dict[str, str]:
    """Path in the package -> text."""
    return {
        "__init__.pyi": _of_package(),
        "models/__init__.pyi": _of_models(),
        "backends/__init__.pyi": _of_backends(),
    }


def _rows(module: str, names: Any) -> str:
    return "".join(f"from {module} import {name} as {name}\n" for name in names)


def _of_package() -> str:
    own = vars(mithril)
    text = HEAD + "__version__: str\n" + _rows("mithril", own["_MODULES"])
    text += "".join(_rows(module, [name]) for name, module in own["_LAZY"].items())
    text += _rows("mithril.types", own["_TYPES"]) + _rows("mithril.backends", own["_BACKENDS"])
    text += _rows("mithril.errors", errors.__all__)
    taken = {*own["_LAZY"], *own["_TYPES"], *errors.__all__}
    names = [name for name in _offered(models) if name not in taken]
    return text + _rows("mithril.models", names) + _star(mithril)


def _of_models() -> str:
    own = vars(models)
    text = HEAD + _rows("mithril.models", own["_MODULES"])
    for name, (module, attribute) in own["_BY_HAND"].items():
        text += f"from {module} import {attribute} as {name}\n"
    for name, family in sorted(own["_families"]().items()):
        if name not in own["_BY_HAND"]:
            text += _rows(f"mithril.models._generated.{family}", [name])
    return text + _star(models)


def _of_backends() -> str:
    modules = vars(backends)["_LAZY"]
    rows = (_rows(f"mithril.backends.{module}", [name]) for name, module in modules.items())
    return HEAD + "".join(rows) + _star(backends)


def _star(module: Any) -> str:
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in _offered(module)) + "]\n"


def _offered(module: Any) -> list[str]:
    return list(module.__all__)
