"""The code of the pages in docs/ runs, and prints what the text block behind it shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return [p for p in sorted((ROOT / "docs").glob("*.md")) if "```python\n" in p.read_text()]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(page):
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python\n")
    names: dict = {"__name__": page.stem}
    for block in blocks:
        code, shown = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + code, str(page), "exec"), names)
        assert printed.getvalue() == (shown or ""), f"{page.name}:{line}"


def test_there_is_a_page_that_runs():
    assert [page.stem for page in pages()]
