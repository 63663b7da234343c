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


EXCERPT = re.compile(r"^```cpp\n// (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^--- (?:a/(\S+)|/dev/null)\n\+\+\+ b/(\S+)\n(?=@@\n)", re.MULTILINE)


def extending():
    return (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def test_excerpts_stand_in_their_files():
    page = extending()
    excerpts = EXCERPT.findall(page)
    assert len(excerpts) == page.count("```cpp") == 2 and "```py\n" not in page
    for path, text in excerpts:
        assert text in (ROOT / path).read_text(encoding="utf-8"), f"{path}:\n{text}"


def hunks(page):
    """Yields (path, lines) of each hunk of the unified diffs in a page."""
    for diff in DIFF.findall(page):
        _, *parts = FILE.split(diff)
        assert len(parts) % 3 == 0 and diff.startswith("--- ")
        for old, path, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            assert old in (None, path)
            first, *texts = re.split(r"^@@\n", body, flags=re.MULTILINE)
            assert not first
            yield from ((path, text.splitlines()) for text in texts)


def wrong_hunks(page):
    """Lists the hunks whose result is not in its file, that add nothing, or that remove a line that
    is still there."""
    wrong = []
    for path, lines in hunks(page):
        of = {mark: [x[1:] for x in lines if x[:1] == mark] for mark in "+-"}
        after = [x[1:] for x in lines if x[:1] != "-"]
        text = (ROOT / path).read_text(encoding="utf-8")
        is_in = "\n" + "\n".join(after) + "\n" in "\n" + text
        known = all(x[:1] in ("+", "-", " ", "") for x in lines)
        if not (is_in and known and of["+"]) or set(of["-"]) & set(text.splitlines()):
            wrong.append("\n".join([path, *lines]))
    return wrong


def test_diffs_are_those_of_the_tree():
    page = extending()
    assert len(DIFF.findall(page)) == page.count("```diff") >= 8
    assert len({path for path, *_ in hunks(page)}) >= 25
    assert not wrong_hunks(page), "\n\n".join(wrong_hunks(page))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+      .points({0.5, -0.5});", "+      .points({0.5, -0.25});"),
        (" void define_soft_ones(OpFamily& ops) {", " void define_soft_twos(OpFamily& ops) {"),
        ('+    "softsign": of_float(F.softsign),', '     "softsign": of_float(F.softsign),'),
        (
            "-erf, erfc = _special.erf, _special.erfc\n",
            "-linear_scan, cumprod = _scans.linear_scan, _scans.cumprod\n",
        ),
    ],
)
def test_a_diff_that_is_not_of_the_tree_is_found(old, new):
    page = extending()
    assert page.count(old) == 1
    assert len(wrong_hunks(page.replace(old, new))) == 1
