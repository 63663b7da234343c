"""`mithril explain MTH101`: the page of an error code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

PAGES = Path(__file__).parent.parent / "error_pages"


def run(arguments: Sequence[str]) -> int:
    """Prints the pages of the codes; without any, the title of every page."""
    parser = argparse.ArgumentParser("mithril explain", description=__doc__)
    parser.add_argument("code", nargs="*", help='such as "MTH101" or "101"')
    codes = parser.parse_args(list(arguments)).code
    if not codes:
        print("\n".join(f"{code}  {title}" for code, title in titles().items()))
        return 0
    status = 0
    for code in codes:
        text = page(code)
        if text is None:
            print(f"mithril explain: no error has the code {code!r}", file=sys.stderr)
            status = 1
        else:
            print(text)
    return status


def page(code: str) -> str | None:
    """The text of a page, or None where there is no such code."""
    name = code.upper().removeprefix("MTH")
    path = PAGES / f"MTH{name}.md"
    known = len(name) == 3 and name.isascii() and name.isdigit() and path.is_file()
    return path.read_text(encoding="utf-8") if known else None


def titles() -> dict[str, str]:
    """Code -> title, in the order of the codes."""
    pages = sorted(PAGES.glob("MTH*.md"))
    first = {path.stem: path.read_text(encoding="utf-8").partition("\n")[0] for path in pages}
    return {code: line.partition(": ")[2] for code, line in first.items()}
