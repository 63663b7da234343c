"""The code of the pages in docs/ runs, and prints what the text block behind it shows."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import mithril as ml
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


FRAMEWORKS = {"jax", "mlx", "torch"}


def pages() -> list:
    found = [p for p in sorted((ROOT / "docs").glob("*.md")) if "```python\n" in p.read_text()]
    return [pytest.param(p, id=p.stem, marks=needs(frameworks(p))) for p in found]


def frameworks(page: Path) -> list[str]:
    """Those that the blocks of a page import."""
    blocks = "".join(code for code, _ in BLOCK.findall(page.read_text(encoding="utf-8")))
    return sorted(FRAMEWORKS & {*re.findall(r"^import (\w+)", blocks, re.MULTILINE)})


def needs(found: list[str]) -> list:
    missing = [name for name in found if importlib.util.find_spec(name) is None]
    marks = [pytest.mark.skip(reason=f"{name} is not installed") for name in missing]
    return [pytest.mark.frameworks, *marks] if found else []


def require_opencl() -> None:
    try:
        ml.OpenCLBackend()
    except ml.errors.DeviceNotAvailable as error:
        pytest.skip(error.message)


@pytest.mark.parametrize("page", pages())
def test_the_blocks_of_a_page_run_in_order(page):
    if page.stem == "ggml":
        pytest.importorskip("ggml", reason="ggml-python is not installed")
    if page.stem == "opencl":
        require_opencl()
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
    assert pages()


def test_the_index_names_each_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    names = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert [name for name in sorted(names) if f"]({name})" not in index] == []


PLACES = ("python/mithril", "csrc", "examples", "scripts")
FILES = [p for place in PLACES for p in sorted((ROOT / place).rglob("*")) if p.is_file()]
SOURCES = [p for p in FILES if p.suffix in (".py", ".cc", ".h", ".md")]
PAGE_NAME = re.compile(r"\bdocs/[\w-]+\.md\b")


def test_pages_that_the_source_names_are_there():
    named = {name for path in SOURCES for name in PAGE_NAME.findall(path.read_text("utf-8"))}
    assert len(named) >= 5
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


EXCERPT = re.compile(r"^```(?:cpp|py)\n(?://|#) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_excerpts_stand_in_their_files():
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    excerpts = EXCERPT.findall(page)
    assert len(excerpts) == page.count("```cpp") + page.count("```py\n") >= 10
    for path, text in excerpts:
        assert text in (ROOT / path).read_text(encoding="utf-8"), f"{path}:\n{text}"
