"""The README's script prints what the README says, on every backend."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def printed(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def with_backend(line: str) -> str:
    script, count = re.subn(r"^backend = .*$", line, blocks("python")[0], flags=re.MULTILINE)
    assert count == 1
    return script


def test_the_script_has_twelve_lines_and_prints_what_is_shown():
    script = blocks("python")[0]
    assert len([line for line in script.splitlines() if line.strip()]) == 12
    assert printed(script) == blocks("text")[0]


def test_the_changed_line_is_a_backend():
    line = blocks("python")[1].splitlines()[0]
    assert (
        line
        == "backend = ml.JaxBackend()  # or ml.TorchBackend(), ml.MlxBackend(), ml.NumpyBackend()"
    )


def test_the_same_on_numpy():
    assert printed(with_backend("backend = ml.NumpyBackend()")) == blocks("text")[0]


FRAMEWORKS = {"torch": "TorchBackend", "jax": "JaxBackend", "mlx": "MlxBackend"}


@pytest.mark.frameworks
@pytest.mark.parametrize("module, name", FRAMEWORKS.items())
def test_the_same_on_frameworks(module, name):
    pytest.importorskip(module)
    assert printed(with_backend(f"backend = ml.{name}()")) == blocks("text")[0]


@pytest.mark.parametrize("path", re.findall(r"^\| `([^`]+)`", TEXT, re.MULTILINE))
def test_the_places_are_there(path):
    assert (ROOT / path).exists()


def test_the_commands_are_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
