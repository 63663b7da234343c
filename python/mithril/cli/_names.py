"""Names of backends as commands take them."""

from __future__ import annotations

from mithril.backends.registry import available_backends
from mithril.errors import suggestion


def backends_of(names: str) -> list[str] | str:
    """Names of backends, or what is wrong with them."""
    known = available_backends()
    if names == "all":
        return known
    chosen = [name for name in names.split(",") if name]
    unknown = next((name for name in chosen if name not in known), None)
    if unknown is not None:
        near = suggestion(unknown, known)
        return f"no backend named {unknown!r}{near}; known: {', '.join(known)}"
    return chosen or "--backends: requires names"


__all__ = ["backends_of"]
