"""Plans, loops, explanations and emitted source of a table of models are those that are stored."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "golden_plans.py"


@pytest.fixture(scope="module")
def golden_plans():
    spec = importlib.util.spec_from_file_location("golden_plans", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["golden_plans"] = module
    spec.loader.exec_module(module)
    return module


def test_plans_are_as_they_are_stored(golden_plans):
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("the stored plans are those for AVX2")
    found = golden_plans.differences(golden_plans.stored(), golden_plans.today())
    assert not found, "\n".join([*found[:40], "all of it: python scripts/golden_plans.py"])


def test_differences_are_found(golden_plans):
    assert golden_plans.differences({"a": "x\ny"}, {"a": "x\ny"}) == []
    assert "-y" in golden_plans.differences({"a": "x\ny"}, {"a": "x\nz"})
    assert golden_plans.differences({"a": "x"}, {})
