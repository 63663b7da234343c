"""Finds the subcommand and runs it; nothing else is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "backends": "list the backends of this machine, and how one runs each op",
    "bench": "measure models on the backends of this machine",
    "docs": "write the pages that are made from tables, or check these pages and all links",
    "doctor": "say what is installed, which backends work here, and what the others lack",
    "explain": "print the page of an error code, such as MTH101",
    "new-backend": "write a package with a backend of your own, and its tests",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the subcommand that the arguments name; its exit status, 2 if there is none."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in ([], ["-h"], ["--help"]):
        print(usage())
        return 0 if words else 2
    if words[0] not in COMMANDS:
        from mithril.errors import suggestion

        near = suggestion(words[0], COMMANDS)
        print(f"mithril: no command named {words[0]!r}{near}", file=sys.stderr)
        return 2
    run = importlib.import_module(f"mithril.cli.{words[0].replace('-', '_')}").run
    status: int = run(words[1:])
    return status


def usage() -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: mithril COMMAND [ARGUMENT ...]", "", *rows])


if __name__ == "__main__":
    sys.exit(main())
