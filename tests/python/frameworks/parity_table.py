"""The table of parity: how far models are from the modules of PyTorch that they stand for. A plugin
of pytest: with several processes, the one that prints reads no `conftest.py` but the first."""

import sys
from collections import defaultdict
from pathlib import Path

import pytest

PROPERTY = "parity"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    """What `check` measured in a test goes with its report, also from another process."""
    parity = sys.modules.get("frameworks.parity")
    if parity is not None and call.when == "call":
        item.user_properties += [(PROPERTY, row) for row in parity.MEASURED]
        parity.MEASURED.clear()
    return (yield)


def largest_errors(reports):
    """(file of tests, backend, dtype) -> cases, and the largest errors of outputs and gradients."""
    table = defaultdict(lambda: [0, 0.0, 0.0])
    for report in reports:
        for name, row in getattr(report, "user_properties", ()):
            if name != PROPERTY:
                continue
            backend, dtype, of_outputs, of_gradients = row
            model = Path(report.nodeid.split("::")[0]).stem.removeprefix("test_")
            found = table[model, backend, dtype]
            found[0] += 1
            found[1] = max(found[1], of_outputs)
            found[2] = max(found[2], of_gradients or 0.0)
    return table


def pytest_terminal_summary(terminalreporter):
    table = largest_errors(terminalreporter.stats.get("passed", ()))
    if not table:
        return
    terminalreporter.section("parity of models with PyTorch's, which compute in float64")
    head = f"{'model':<20} {'backend':<8} {'dtype':<8} {'cases':>5} {'outputs':>9} {'gradients':>9}"
    terminalreporter.write_line(head)
    for (model, backend, dtype), (cases, outputs, gradients) in sorted(table.items()):
        slopes = f"{gradients:9.1e}" if gradients else f"{'-':>9}"
        line = f"{model:<20} {backend:<8} {dtype:<8} {cases:>5} {outputs:9.1e} {slopes}"
        terminalreporter.write_line(line)
