"""The plug-in in pytest runs of others: what it offers, and what it leaves alone."""

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import mithril
import pytest
from installed_package import write_entry_points

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PACKAGE = Path(mithril.__file__).parent.parent

USER = """
import mithril as ml
import pytest


def net():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", output="h")
    model |= ml.Tanh()(input="h", output="y")
    return model


def test_each(backend):
    assert ml.compile(net(), backend).backend is backend


def test_same(assert_same_on_all_backends):
    assert len(assert_same_on_all_backends(net(), shapes={"x": [3, 4]}).rows) == 3


def test_slopes(assert_gradients):
    assert_gradients(net(), shapes={"x": [3, 4]})


def test_difference(assert_same_on_all_backends):
    assert_same_on_all_backends(net(), shapes={"x": [3, 4]}, tolerance=0.0)


@pytest.mark.parametrize("backend", [1, 2])
def test_own_parameter(backend):
    assert backend in (1, 2)


class TestOwn:
    @pytest.fixture
    def backend(self):
        return "own"

    def test_own_fixture(self, backend):
        assert backend == "own"
"""

BROKEN = """
import types

import mithril as ml
from mithril.backends.with_manualgrad.numpy_backend import ops


class Broken(ml.NumpyBackend):
    ops = types.SimpleNamespace(**{**vars(ops), "relu": lambda input: -input})


ml.register_backend("broken", Broken)
"""


def run(folder: Path, *arguments: str) -> list[str]:
    """The lines of a pytest run that knows the plug-in by its entry point only."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [f"{name} = {module}" for name, module in points["pytest11"].items()]
    write_entry_points(folder, "mithril_entry", "pytest11", *lines)
    path = os.pathsep.join([str(folder), str(PACKAGE)])
    options = ["-q", "-rA", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout + done.stderr).splitlines()


def outcomes(lines: list[str]) -> dict[str, str]:
    words = ("PASSED", "FAILED", "ERROR")
    found = [line.split() for line in lines if line.startswith(words)]
    return {name.partition("::")[2]: word for word, name, *_ in found}


def test_fixtures_and_assertions(tmp_path):
    (tmp_path / "test_user.py").write_text(USER)
    lines = run(tmp_path, "test_user.py", "--mithril-backends=numpy,cpu")
    assert outcomes(lines) == {
        "test_each[numpy]": "PASSED",
        "test_each[cpu]": "PASSED",
        "test_same": "PASSED",
        "test_slopes": "PASSED",
        "test_difference": "FAILED",
        "test_own_parameter[1]": "PASSED",
        "test_own_parameter[2]": "PASSED",
        "TestOwn::test_own_fixture": "PASSED",
    }, "\n".join(lines)
    assert any("forward diverges first at linear: linear, " in line for line in lines)


def test_a_missing_framework_is_skipped(tmp_path):
    (tmp_path / "missing.py").write_text(
        "import mithril as ml\nfrom mithril.errors import DeviceNotAvailable\n"
        "class Missing(ml.NumpyBackend):\n    def __init__(self):\n"
        "        raise DeviceNotAvailable('Missing is not installed')\n"
        "ml.register_backend('missing', Missing)\n"
    )
    (tmp_path / "test_user.py").write_text("def test_each(backend): pass\n")
    lines = run(tmp_path, "-p", "missing", "test_user.py", "--mithril-backends=missing")
    assert any("SKIPPED" in line and "Missing is not installed" in line for line in lines)


def test_unknown_backends_are_refused(tmp_path):
    (tmp_path / "test_user.py").write_text("def test_each(backend): pass\n")
    text = "\n".join(run(tmp_path, "test_user.py", "--mithril-backends=numpi"))
    assert "--mithril-backends: no backend named 'numpi', did you mean 'numpy'" in text


def test_the_matrix_of_one_backend(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    arguments = ("-p", "broken", "--pyargs", "mithril.testing", "-k", "relu or exp or zeros")
    lines = run(tmp_path, *arguments, "--mithril-backend=broken")
    found = outcomes(lines)
    assert found["test_op[broken-relu]"] == "FAILED", "\n".join(lines)
    assert found["test_op[broken-exp]"] == found["test_op[broken-Backend.zeros]"] == "PASSED"
    assert any("relu[0, float] value: output: " in line for line in lines)


@pytest.mark.device
def test_the_matrix_skips_what_is_unsupported(tmp_path):
    lines = run(tmp_path, "--pyargs", "mithril.testing", "-k", "item", "--mithril-backend=cpu")
    assert any("SKIPPED" in line and "the CPU cannot compute it" in line for line in lines)


def test_the_plugin_costs_next_to_nothing():
    code = (
        "import pytest, sys; before = set(sys.modules); import mithril.testing.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    loaded = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    ours = [name for name in loaded.split() if name.partition(".")[0] == "mithril"]
    assert ours == [
        "mithril", "mithril.base", "mithril.base.process", "mithril.base.version",
        "mithril.testing",
        "mithril.testing.pytest_plugin",
    ]  # fmt: skip
    assert len(loaded.split()) <= len(ours) + 1  # and what tells interpreters apart


def test_the_entry_point_leads_to_the_plugin():
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module = importlib.import_module(points["pytest11"]["mithril"])
    assert module.__name__ == "mithril.testing.pytest_plugin"
