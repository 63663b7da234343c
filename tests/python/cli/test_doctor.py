"""`mithril doctor`: right, wrong, absent and broken backends, each in a process of its own."""

# Covers: mithril/cli/_names.py

import json
import os
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from installed_package import write_entry_points
from mithril.backends import registry
from mithril.cli import _doctor_backend, _doctor_machine, doctor
from mithril.cli.__main__ import main
from mithril.errors import CompilerError, DeviceNotAvailable


def states(report):
    return {name: found["state"] for name, found in report["backends"].items()}


# --- whole reports -------------------------------------------------------------------------------


def test_the_backends_that_need_nothing_are_right(capsys):
    assert main(["doctor", "--backends=numpy,cpu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert states(report) == {"numpy": "right", "cpu": "right"}
    numpy = report["backends"]["numpy"]
    assert numpy["versions"] == {"numpy": np.__version__} and numpy["devices"] == ["cpu"]
    assert 0 < numpy["largest_error"] < 1e-5
    here = report["machine"]
    assert here["mithril"] == ml.__version__ and here["executable"] == sys.executable
    assert here["cores"] == os.cpu_count()
    assert here["usable_cores"] == len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert here["memory_bytes"] == pages > here["free_memory_bytes"] > 0


def test_the_text_has_each_part(capsys, monkeypatch):
    monkeypatch.setenv("MITHRIL_THREDS", "2")
    assert main(["doctor", "--backends=numpy"]) == 0
    out = capsys.readouterr().out
    assert "  ok     numpy  NumpyBackend(device='cpu', dtype='float32')\n" in out
    assert f"numpy {np.__version__}\n" in out and "values and gradients as NumPy's" in out
    assert "MITHRIL_THREDS=2  <- has no effect: there is no such variable, did you mean" in out
    assert out.endswith("\nall 1 backends here work\n")


# A plug-in that ends its process, one that never ends, one that prints, and one that is absent.
PLUGIN = """
import os, signal, time
import mithril as ml
from mithril.errors import DeviceNotAvailable
class Crashing(ml.NumpyBackend):
    def __init__(self): os.kill(os.getpid(), signal.SIGSEGV)
class Leaving(ml.NumpyBackend):
    def __init__(self): os.write(2, b"licence expired\\n"); os._exit(7)
class Hanging(ml.NumpyBackend):
    def __init__(self): time.sleep(600)
class Talking(ml.NumpyBackend):
    def __init__(self): print("hello"); super().__init__()
class Absent(ml.NumpyBackend):
    def __init__(self): raise DeviceNotAvailable("no card", hint="buy one")
"""
NAMES = ("crashing", "leaving", "hanging", "talking", "absent")


@pytest.fixture
def plugins(tmp_path):
    """An environment in which an installed package offers these backends."""
    (tmp_path / "odd_backends.py").write_text(PLUGIN)
    points = [f"{name} = odd_backends:{name.title()}" for name in NAMES]
    write_entry_points(tmp_path, "odd_backends", "mithril.backends", *points)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    # A sanitizer would end a crashing process with a report of its own.
    asan = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "PYTHONPATH": path, "ASAN_OPTIONS": asan}


def test_a_backend_that_ends_its_process_is_a_line_of_the_report(plugins):
    command = [sys.executable, "-m", "mithril", "doctor", "--timeout=25", "--json"]
    command.append("--backends=numpy," + ",".join(NAMES))
    ended = subprocess.run(command, env=plugins, capture_output=True, text=True)
    assert ended.returncode == 1, ended.stderr
    report = json.loads(ended.stdout)
    expected = dict.fromkeys(NAMES[:3], "broken")
    assert states(report) == {"numpy": "right", **expected, "talking": "right", "absent": "absent"}
    told = {name: found.get("error") for name, found in report["backends"].items()}
    assert told["crashing"].startswith("its process was ended by SIGSEGV")
    assert told["leaving"] == "its process ended with status 7: licence expired"
    assert told["hanging"] == "did not end within 25 s"
    assert (told["absent"], report["backends"]["absent"]["help"]) == ("no card", "buy one")
    shown = doctor.text(report)
    assert "  BROKEN crashing  its process was ended by SIGSEGV" in shown
    assert "  --     absent    no card\n" in shown and "to get it: buy one" in shown
    assert shown.endswith("3 of 5 backends here do not work: crashing, leaving, hanging")


# --- one backend ---------------------------------------------------------------------------------


class Steep(ml.NumpyBackend):
    """Right values, a gradient of the wrong sign."""

    def tanh(self, input):
        return np.tanh(input)

    def backward_tanh(self, grad_output, inputs, outputs):
        return -grad_output * (1 - outputs[0] ** 2)


class NotANumber(ml.NumpyBackend):
    def tanh(self, input):
        return np.tanh(input) * np.float32("nan")


class Failing(ml.NumpyBackend):
    def tanh(self, input):
        raise MemoryError("card is full")


class Uncompiled(ml.NumpyBackend):
    def __init__(self):
        raise CompilerError("cc cannot compile")


class Unlicensed(ml.NumpyBackend):
    def __init__(self):
        raise DeviceNotAvailable("no licence")


@pytest.fixture
def registered(request):
    cls = request.param
    ml.register_backend("odd", cls)
    yield
    del registry._registered["odd"]


@pytest.mark.parametrize(
    ("registered", "state", "text"),
    [
        (Steep, "wrong", "differs from NumPy: gradient of W by 2, gradient of b by 2;"),
        (NotANumber, "wrong", "output by inf"),
        (Failing, "broken", "card is full"),
        (Uncompiled, "broken", "cc cannot compile"),
        (Unlicensed, "absent", "no licence"),
    ],
    indirect=["registered"],
)
def test_states(registered, state, text):
    found = _doctor_backend.examined("odd")
    assert found["state"] == state
    assert text in found["error"]


def test_a_wrong_backend_is_the_status(monkeypatch, capsys):
    wrong = {"state": "wrong", "error": "differs from NumPy: output by 1", "help": ""}
    monkeypatch.setattr(doctor, "_in_its_own_process", lambda name, seconds: wrong)
    assert main(["doctor", "--backends=numpy"]) == 1
    out = capsys.readouterr().out
    assert "  WRONG  numpy  differs from NumPy: output by 1\n" in out
    assert out.endswith("1 of 1 backends here do not work: numpy\n")


def test_what_is_expected_agrees_with_torch():
    torch = pytest.importorskip("torch")
    expected, arrays, slope = _doctor_backend._expected()
    own = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    hidden = torch.tanh(torch.nn.functional.linear(own["x"], own["W"], own["b"]))
    output = torch.nn.functional.linear(hidden, own["V"], own["c"])
    output.backward(torch.tensor(slope))
    np.testing.assert_allclose(expected["output"], output.detach().numpy(), rtol=1e-13)
    for name in "WbVc":
        right = own[name].grad.numpy()
        np.testing.assert_allclose(expected[f"gradient of {name}"], right, rtol=1e-12)


def test_a_result_of_a_wrong_shape_is_wrong():
    assert _doctor_backend._error(np.zeros((2, 1)), np.ones((2, 2))) == float("inf")


# --- variables, compilers and folders ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("MITHRIL_THREADS", "4", ""),
        ("MITHRIL_THREADS", "0", "has no effect: 1..1024 is required"),
        ("MITHRIL_DEBUG", "six", "has no effect: 1..5 is required"),
        ("MITHRIL_CPU_ISA", "avx2", ""),
        ("MITHRIL_CPU_ISA", "sse9", "has no effect: generic | avx2 | avx512 is required"),
        ("MITHRIL_VERIFY", "on", ""),
        ("MITHRIL_VERIFY", "yes", "has no effect: 1 is required"),
        ("MITHRIL_PASSES", "-fuse,-fold", ""),
        ("MITHRIL_LOG", "memory:debug", ""),
        ("MITHRIL_CUDA_LIB", "libcuda.so.1", ""),
        ("MITHRIL_GGML_LIB", "/nowhere/libggml.so", "there is no such file"),
        ("MITHRIL_CACHE_DIR", "/dev/null", "is no folder"),
        ("MITHRIL_DUMPS", "x", "has no effect: there is no such variable, did you mean"),
    ],
)
def test_variables(name, value, problem):
    (found,) = _doctor_machine.variables({name: value, "HOME": "/root"})
    assert (found["name"], found["value"]) == (name, value)
    assert found["problem"].startswith(problem) and bool(found["problem"]) == bool(problem)


def test_compilers_of_the_path(tmp_path, monkeypatch):
    for name, text in (("cc", "echo; echo cc 12.3"), ("clang", "echo gone >&2; exit 3")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    told = {found["name"]: found["version"] for found in _doctor_machine.compilers()}
    assert told == {"cc": "cc 12.3", "clang": "does not run: gone"}
    assert doctor._compiler_lines([])[0].startswith("  none: CBackend requires one")


SIZES = "import json; from mithril.cli import _doctor_machine as m; print(json.dumps(m.caches()))"


def test_sizes_of_folders(tmp_path):
    (tmp_path / "c").mkdir(mode=0o700)
    (tmp_path / "c" / "a.so").write_bytes(b"x" * 100)
    (tmp_path / "c" / "b.so").write_bytes(b"x" * 28)
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda").chmod(0o777)
    environment = {**os.environ, "MITHRIL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SIZES]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(out.stdout)
    assert found["folder"] == str(tmp_path)
    assert found["kinds"]["c"] == {"files": 2, "bytes": 128, "problem": ""}
    assert found["kinds"]["cuda"]["problem"] == "is not used: other users may write to it"


# --- arguments -----------------------------------------------------------------------------------


def test_unknown_backends(capsys):
    assert main(["doctor", "--backends=numppy"]) == 2
    assert "mithril doctor: no backend named 'numppy', did you mean" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--timeout=0"], ["--timeout=soon"], ["--fast"]])
def test_arguments_that_do_not_fit(words):
    with pytest.raises(SystemExit):
        main(["doctor", *words])
