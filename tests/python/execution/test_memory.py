"""The process's memory: its peak is never below what is in use."""

import resource
from types import SimpleNamespace

import mithril as ml
import pytest
from mithril.execution.memory import process_memory

pytestmark = pytest.mark.device


@pytest.mark.parametrize("kept", [1, 2**40])
def test_the_peak_is_never_below_what_is_used(kept, monkeypatch):
    """The kernel updates its two counters at different times."""
    usage = SimpleNamespace(ru_maxrss=kept)  # in units of 1024 bytes
    monkeypatch.setattr(resource, "getrusage", lambda who: usage)
    used, peak, limit = process_memory()
    assert 0 < used < limit and peak == max(used, kept * 1024)
    info = ml.CpuBackend().get_memory_info()
    assert info["peak_bytes"] >= info["used_bytes"] and info["peak"] >= info["used"]
