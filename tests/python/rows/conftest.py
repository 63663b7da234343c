"""Counts the rows of the documents' table as they are proven, and prints them letter by letter.

A row is proven when all of its tests pass. One that needs hardware, a later feature or a package of
others has the marker `limited`, with the reason, and tests what happens here instead; those are
counted apart, as are expected failures (rows that do not hold yet).
"""

import re
from collections import defaultdict

import pytest

ROW = re.compile(r"test_([PBOCMTWK]\d+)(?![0-9])")
OUTCOMES = pytest.StashKey[dict]()
LIMITED = "limited"


def row_of(nodeid):
    """The row that a test is named after, if it is."""
    found = ROW.match(nodeid.rpartition("::")[2])
    return found[1] if found else None


def pytest_collection_modifyitems(items):
    for item in items:
        mark = item.get_closest_marker(LIMITED)
        if mark is not None:
            item.user_properties.append((LIMITED, mark.args[0]))


def told(report):
    """What one test says of its row."""
    if getattr(report, "wasxfail", None) is not None:
        return "open"
    if report.failed:
        return "failed"
    if report.skipped:
        return "not run"
    return LIMITED if dict(report.user_properties).get(LIMITED) else "proven"


ORDER = ("failed", "open", "not run", LIMITED, "proven")  # the worst of a row's tests counts


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    row = row_of(item.nodeid)
    if row and (report.when == "call" or not report.passed):
        found = item.config.stash.setdefault(OUTCOMES, {}).setdefault(row, [])
        reason = dict(report.user_properties).get(LIMITED) or getattr(report, "wasxfail", "")
        found.append((told(report), reason))
    return report


def counted(outcomes):
    """Letter -> how often each outcome was a row's worst."""
    table = defaultdict(lambda: dict.fromkeys(ORDER, 0))
    for row, found in outcomes.items():
        worst = min((outcome for outcome, _ in found), key=ORDER.index)
        table[row[0]][worst] += 1
    return table


def pytest_terminal_summary(terminalreporter, config):
    outcomes = config.stash.get(OUTCOMES, None)
    if not outcomes:
        return
    terminalreporter.section("rows of the documents")
    table = counted(outcomes)
    for letter in [letter for letter in "PBOCMTWK" if letter in table]:
        counts = table[letter]
        others = [f"{n} {name}" for name, n in reversed(counts.items()) if n and name != "proven"]
        line = f"{letter}: {counts['proven']}/{sum(counts.values())} proven"
        terminalreporter.write_line(", ".join([line, *others]))
    proven = sum(counts["proven"] for counts in table.values())
    terminalreporter.write_line(f"all: {proven}/{len(outcomes)} proven")
    for row, found in outcomes.items():
        for outcome in (LIMITED, "open"):
            reasons = {reason for kind, reason in found if kind == outcome}
            if reasons:
                terminalreporter.write_line(f"{row} {outcome}: {'; '.join(sorted(reasons))}")
