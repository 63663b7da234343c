"""The package that `mithril new-backend` writes: its own tests pass, and find what is broken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed_package import write_entry_points
from mithril.cli import new_backend
from mithril.cli.__main__ import main

PACKAGE = Path(new_backend.__file__).parent.parent.parent
LIBRARIES = [
    "numpy",
    pytest.param("array_api_strict", marks=pytest.mark.slow),
    pytest.param("jax.numpy", marks=[pytest.mark.frameworks, pytest.mark.slow]),
]


def run_tests(folder, *options):
    paths = [str(PACKAGE), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_its_tests_pass_as_it_stands(tmp_path, library, capsys):
    pytest.importorskip(library)
    arguments = ["new-backend", "my_chip", "--folder", str(tmp_path), "--library", library]
    assert main(arguments) == 0
    assert f"MyChipBackend over {library}" in capsys.readouterr().out
    done = run_tests(tmp_path / "my_chip")
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout


ZEROS = "xp.zeros(tuple(shape), dtype=native(dtype or self.default_dtype))"

# What somebody may write, and the test that has to notice.
FAULTS = {
    "add subtracts": ("ops.py", "else xp.add(left", "else xp.subtract(left", "own_operations"),
    "wrong sign": ("ops.py", "return grad_output * (1", "return -grad_output * (1", "one_layer"),
    "zeros ignore the dtype": ("backend.py", ZEROS, "xp.zeros(tuple(shape))", "types"),
    "ones are zeros": ("backend.py", "xp.ones(tuple", "xp.zeros(tuple", "arrays"),
    "a dtype is forgotten": ("utils.py", "dtype=native(wanted)", "dtype=xp.float32", "types"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_its_tests_find_what_is_broken(tmp_path, fault):
    file, before, after, found_by = FAULTS[fault]
    folder = new_backend.write("my_chip", tmp_path)
    path = folder / "my_chip" / file
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    done = run_tests(folder, "-k", "not all_operations")
    assert done.returncode == 1, done.stdout
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert any(found_by in line for line in failed), done.stdout


def test_the_layout_is_that_of_the_documents(tmp_path):
    folder = new_backend.write("my_chip", tmp_path)
    files = sorted(path.name for path in (folder / "my_chip").iterdir())
    assert files == ["__init__.py", "backend.py", "ops.py", "utils.py"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my_chip"]
    assert 'my_chip = "my_chip.backend:MyChipBackend"' in (folder / "pyproject.toml").read_text()


def test_installed_it_is_found_by_its_name(tmp_path):
    """By the entry point: a folder with its metadata is what an installation leaves."""
    folder = new_backend.write("my_chip", tmp_path)
    point = "my_chip = my_chip.backend:MyChipBackend"
    write_entry_points(folder, "my_chip", "mithril.backends", point)
    code = "import mithril as ml; print(ml.get_backend('my_chip'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(folder)])},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("MyChipBackend("), done.stderr


REFUSED = {
    "my-chip": "a name such as my_chip is required",
    "MyChip": "a name such as my_chip is required",
    "class": "a name such as my_chip is required",
    "../up": "a name such as my_chip is required",
    "x" * 65: "a name such as my_chip is required",
    "chip\n": "a name such as my_chip is required",
    "": "a name such as my_chip is required",
    "numpy": "a module named 'numpy' is there already",
    "json": "a module named 'json' is there already",
}


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_are_refused_write_nothing(tmp_path, capsys, name):
    assert main(["new-backend", name, "--folder", str(tmp_path)]) == 2
    assert REFUSED[name] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_else_is_refused(tmp_path, capsys):
    def said(*more):
        assert main(["new-backend", "my_chip", *more]) == 2
        return capsys.readouterr().err

    assert "no folder" in said("--folder", str(tmp_path / "none"))
    folder = ["--folder", str(tmp_path)]
    assert "the name of a module is required" in said(*folder, "--library", "os;x")
    assert "no module named 'nowhere.at_all' is" in said(*folder, "--library", "nowhere.at_all")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "my_chip").mkdir()
    assert "is there already" in said(*folder)
    assert list((tmp_path / "my_chip").iterdir()) == []


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr(new_backend.os, "rename", fail)
    with pytest.raises(OSError, match="full"):
        new_backend.write("my_chip", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name, cls", [("my_chip", "MyChipBackend"), ("tiny_backend", "TinyBackend"), ("a", "ABackend")]
)
def test_names_of_classes(name, cls):
    assert new_backend.class_name(name) == cls
