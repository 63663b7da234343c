"""Links, anchors and pages that nothing leads to are found; the project's own pages have none."""

import re
from pathlib import Path

import pytest
from mithril.cli.__main__ import main
from mithril.cli._links import problems

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Index\n\n[one](one.md), [two](two.md#a-b-c)\n")
    (docs / "one.md").write_text("# One\n\nBack to [the start](index.md).\n")
    (docs / "two.md").write_text("# Two\n\n## `A`, b & c!\n\n## Again\n\n## Again\n")
    return docs


def test_pages_whose_links_lead_somewhere(folder):
    text = '# One\n[a](two.md#a-b--c) [b](#one) [c](two.md#again-1) [d](<two.md> "title")\n'
    text += '[e](https://example.org/x_(y)) `[f](nowhere.md)` <a name="here"></a>[g](#here)\n'
    text += "```text\n[h](nowhere.md)\n# not a heading\n```\n\n[i]: two.md\n"
    (folder / "one.md").write_text(text)
    (folder / "index.md").write_text("[one](one.md) [two](two.md)\n")
    assert problems(folder) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[a](three.md)", "three.md: there is no such file"),
        ("[a](two.md#again-2)", "two.md#again-2: the page has no such heading"),
        ("[a](#two)", "#two: the page has no such heading"),
        ("[a]()", ": there is no such file"),
        ("[a][b]\n\n[b]: four.md", "four.md: there is no such file"),
        ("![a](a.png)", "a.png: there is no such file"),
        ("[a](https://examples)", "https://examples: this is no address"),
        ("[a](ftp://example.org)", "ftp://example.org: https is required"),
        ("```python\nx = 1\n", "a block of code is not closed"),
        ("```text\n# heading\n```\n[a](#heading)", "#heading: the page has no such heading"),
    ],
)
def test_links_that_lead_nowhere(folder, text, told):
    (folder / "index.md").write_text("[one](one.md) [two](two.md)\n")
    (folder / "one.md").write_text(f"# One\n\n{text}\n")
    assert problems(folder) == [f"docs/one.md: {told}"]


def test_pages_outside_of_the_folder_are_read_where_a_link_leads_to_them(folder):
    (folder / "index.md").write_text("[one](one.md) [two](two.md) [r](../README.md)\n")
    (folder.parent / "README.md").write_text("[a](docs/none.md)\n")
    (folder.parent / "OTHER.md").write_text("[a](docs/none.md)\n")
    assert problems(folder) == ["README.md: docs/none.md: there is no such file"]


def test_a_page_that_nothing_leads_to(folder):
    (folder / "index.md").write_text("[one](one.md) ```[two](two.md)```\n")
    assert problems(folder) == ["docs/two.md: no link leads here from index.md"]


def test_the_command_fails_for_a_link(folder, capsys):
    (folder / "index.md").write_text("[o](one.md) [t](two.md) [p](ops.md) [e](env_vars.md)\n")
    assert main(["docs", str(folder)]) == 0
    (folder / "one.md").write_text("[a](three.md)\n")
    assert main(["docs", str(folder), "--check"]) == 1
    assert capsys.readouterr().err == "docs/one.md: three.md: there is no such file\n"


def test_the_pages_of_the_project_have_no_problem():
    assert problems(ROOT / "docs") == []


@pytest.mark.parametrize("page", ["architecture.md", "extending.md"])
def test_files_of_the_tree_that_a_page_names_are_there(page):
    named = set(re.findall(r"`([\w/]+\.(?:h|cc|inc|py))`", (ROOT / "docs" / page).read_text()))
    there = [f"/{path.relative_to(ROOT)}" for top in ("csrc", "python", "tests", "scripts")
             for path in (ROOT / top).rglob("*.*")]  # fmt: skip
    assert len(named) > 5
    assert [name for name in named if not any(at.endswith(f"/{name}") for at in there)] == []
