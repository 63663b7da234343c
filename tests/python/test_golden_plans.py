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
    def of(text):
        return {"file": {"a": text}}

    assert golden_plans.differences(of("x\ny"), of("x\ny")) == []
    assert "-y" in golden_plans.differences(of("x\ny"), of("x\nz"))
    assert golden_plans.differences(of("x"), {"file": {}})
    assert golden_plans.differences({}, of("x"))


def test_weights_in_few_bits_loops_and_the_digits_are_among_them(golden_plans):
    stored = golden_plans.stored()
    assert len({name for texts in stored.values() for name in texts}) == sum(
        map(len, stored.values())
    )
    texts = stored["further_plans.json.xz"]
    assert "matmul.int8_weights" in texts["mlp bound in int8"]
    assert "matmul.int4_weights" in texts["mlp bound in int4"]
    assert "scan" in texts["scan"] and "== gradient" in texts["scan"]
    assert "== step" in texts["digits step"]
