"""What importing the package does to a process, and what its top level offers."""

# Covers: mithril/base/process.py mithril/base/numpy.py mithril/base/version.py

import subprocess
import sys
import tomllib
from pathlib import Path

import mithril as ml
import pytest


def run(code: str) -> str:
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_import_loads_no_array_library():
    loaded = run(
        "import sys; before = set(sys.modules); import mithril as ml; ml.float32; ml.Dtype\n"
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - before))"
    ).split()
    assert not {"numpy", "torch", "jax", "ml_dtypes"} & set(loaded)


def test_a_first_result_on_the_engine_loads_what_it_needs():
    """The others take 30 ms together, a quarter of the time to a first result."""
    loaded = run(
        "import sys, mithril as ml\n"
        "model = ml.Model()\n"
        "model |= ml.Linear(4)(input='x', output='y')\n"
        "pm = ml.compile(model, ml.CpuBackend(), data_keys={'x'}, shapes={'x': [2, 3]})\n"
        "pm.evaluate(pm.randomize_params(), {'x': [[1.0, 2.0, 3.0]] * 2})\n"
        "print(*sorted({'importlib.metadata', 'secrets', '_hashlib', 'difflib', 'ml_dtypes'}"
        " & set(sys.modules)))"
    )
    assert not loaded.split()


def test_import_leaves_the_process_alone():
    run(
        "import os, random, signal, sys, warnings, locale\n"
        "def state(): return (dict(os.environ), signal.getsignal(2), list(warnings.filters),"
        " random.getstate(), sys.getrecursionlimit(), locale.setlocale(locale.LC_ALL),"
        " sys.excepthook, sys.getswitchinterval())\n"
        "before = state()\n"
        "import mithril as ml; ml.float32; ml.errors\n"
        "assert state() == before\n"
    )


def test_another_interpreter_is_refused_at_once():
    """An interpreter of its own would hang in the engine. CPython 3.13 renamed the module, and
    returns what was raised there."""
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    pytest.importorskip(module)
    for before in ("", "import mithril as ml; ml.Model()\n"):
        told = run(
            before + f"import {module} as interpreters\n"
            "other = interpreters.create()\n"
            "try: print(interpreters.run_string(other, 'import mithril'))\n"
            "except interpreters.RunFailedError as error: print(error)\n"
        )
        assert "ImportError" in told
        assert "main interpreter" in told


@pytest.mark.parametrize(
    "use",
    [
        "ml.CpuBackend",
        "ml.compile",
        "ml.float32.numpy()",
        "import mithril.training; mithril.training.train_model",
        "import mithril.formats.c_export",
        "from mithril.backends.with_manualgrad.numpy_backend import NumpyBackend",
        "import mithril.execution.random",
    ],
)
def test_an_interrupt_waits_until_numpy_is_loaded(use):
    told = run(
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'numpy.linalg': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import mithril as ml\n"
        f"try: {use}; print('lost')\n"
        "except KeyboardInterrupt: print('raised')\n"
        "print(ml.CpuBackend().to_numpy(ml.CpuBackend().ones(2)))\n"
    )
    assert told.split("\n")[:2] == ["raised", "[1. 1.]"]


def test_unknown_names_get_a_suggestion():
    with pytest.raises(AttributeError, match="no attribute 'flot32', did you mean 'float32'"):
        _ = ml.flot32


def test_names_of_the_documents():
    for name in ("errors", "types", "Dtype", "float16", "Constant", "TBD"):
        assert name in dir(ml)
        assert getattr(ml, name) is getattr(ml, name)


NOT_THERE = ["trainer", "Compiled", "nope"]


@pytest.mark.parametrize("name", NOT_THERE)
def test_names_that_do_not_exist_are_not_offered(name):
    assert not hasattr(ml, name) and name not in dir(ml) and name not in ml.__all__


@pytest.mark.frameworks
@pytest.mark.parametrize("module", [ml, ml.models])
def test_every_name_that_is_offered_exists(module):
    missing = [name for name in {*dir(module), *module.__all__} if not hasattr(module, name)]
    assert not missing


def test_star_brings_all_models_and_leaves_builtins_alone():
    from mithril.models import _generated

    names: dict = {}
    exec("import inspect\nfrom mithril.models import *\nfrom mithril import *", names)
    assert {*_generated.FAMILIES, "Model", "MLP", "LSTM", "TrainModel", "compile"} - {*names} == {
        "compile"
    }
    assert names["Linear"] is ml.Linear and names["errors"] is ml.errors
    assert names["CpuBackend"] is ml.CpuBackend and names["ShapeError"] is ml.errors.ShapeError
    assert not {"int", "float", "bool", "compile", "types"} & names.keys()
    assert names["inspect"].__name__ == "inspect"


def test_star_of_the_package_loads_no_framework():
    loaded = run(
        "import sys\nfrom mithril import *\n"
        "print(*sorted({'torch', 'jax', 'mlx', 'sklearn'} & set(sys.modules)))"
    )
    assert not loaded.split()


def test_the_version_is_that_of_the_package():
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    told = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    assert ml.__version__ == told
