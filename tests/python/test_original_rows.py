"""Every row of the tables of the original's interface has its check, or a reason why it differs.

`tests/data/original_rows.json` lists the rows by section; a section that another test goes through
row by row names that test. `open` are those that nothing here checks yet: a row that is in neither
place fails. `about` are sections that say nothing of the interface. Where the original's reference
is at hand, the list is compared with it. `tests/data/original_deviations.json` has the rows that a
document or a resolution K contradicts.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import tests.python.original_import_rows  # noqa: F401
from tests.python.original_rows import CHECKS

pytestmark = pytest.mark.device
ROOT = Path(__file__).resolve().parent.parent
ROWS = json.loads((ROOT / "data" / "original_rows.json").read_text())
DEVIATIONS = json.loads((ROOT / "data" / "original_deviations.json").read_text())["rows"]
OPEN = {f"{section} {row}" for section, rows in ROWS["open"].items() for row in rows}
LISTED = {
    f"{section} {row}": table.get("by")
    for section, table in ROWS["sections"].items()
    for row in table["rows"]
}
ELSEWHERE = {name for name, by in LISTED.items() if by}


@pytest.mark.parametrize("name", CHECKS)
def test_a_row(name):
    CHECKS[name]()


def test_no_row_is_missing(capsys):
    here, open_rows = set(CHECKS) | set(DEVIATIONS), OPEN
    assert not (set(LISTED) - ELSEWHERE - here - open_rows), "rows without a check"
    assert not (here | open_rows) - set(LISTED), "checks of no row"
    assert not here & open_rows and not set(CHECKS) & set(DEVIATIONS)
    with capsys.disabled():
        print(
            f"\nrows of the original: {len(CHECKS)} proven here, {len(ELSEWHERE)} in other"
            f" tables, {len(DEVIATIONS)} deviating, {len(open_rows)} open, {len(LISTED)} in all"
        )


@pytest.mark.parametrize("path", sorted({by for by in LISTED.values() if by}))
def test_tables_that_others_go_through(path):
    text = (ROOT.parent / path).read_text()
    sections = [s.split()[1] for s, table in ROWS["sections"].items() if table.get("by") == path]
    assert "def test_" in text and sections


def test_deviations_name_a_resolution_or_a_page(request):
    surface = Path(request.config.getoption("--documents")) / "surface.md"
    text = surface.read_text() if surface.is_file() else ""
    resolutions = set(re.findall(r"^\| (K\d+) \|", text, re.MULTILINE))
    for name, reason in DEVIATIONS.items():
        named = set(re.findall(r"\bK\d+\b", reason))
        pages = re.findall(r"docs/\w+\.md", reason)
        assert named or pages, f"{name}: {reason}"
        assert all((ROOT.parent / page).is_file() for page in pages), reason
        assert not text or named <= resolutions, reason


def sections_of(reference: Path) -> Counter:
    """Section -> rows of its tables."""
    rows: Counter = Counter()
    for document in ("logical", "physical"):
        section, in_table = "", False
        for line in (reference / f"{document}-api.md").read_text().splitlines():
            if heading := re.match(r"#+ ([\d.]*)", line):
                section = heading[1].rstrip(".")
            is_row = line.startswith("|") and in_table and not re.match(r"\| ?-", line)
            rows[f"{document} {section}"] += is_row
            in_table = line.startswith("|")
    return +rows


def test_every_table_is_listed(request):
    reference = Path(request.config.getoption("--documents")).parent / "reference"
    if not reference.is_dir():
        pytest.skip(f"reference of the original: not found ({reference})")
    listed = {section: len(table["rows"]) for section, table in ROWS["sections"].items()}
    about = set(ROWS["about"])
    assert {s: n for s, n in sections_of(reference).items() if s not in about} == listed
