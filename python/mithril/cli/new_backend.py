"""`mithril new-backend NAME`: a package with a backend of your own, and tests that pass."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from string import Template

from mithril.cli._backend_files import FILES


def run(arguments: Sequence[str]) -> int:
    """Writes the package; 2, and nothing written, where it cannot."""
    parser = argparse.ArgumentParser("mithril new-backend", description=__doc__)
    parser.add_argument("name", help="of the package and the backend, such as my_chip")
    parser.add_argument("--folder", default=".", type=Path, help="where its folder is made")
    parser.add_argument(
        "--library", default="numpy", help="a module of the array API standard (default: numpy)"
    )
    options = parser.parse_args(list(arguments))
    problem = _problem(options.name, options.library, options.folder)
    if problem:
        print(f"mithril new-backend: {problem}", file=sys.stderr)
        return 2
    made = write(options.name, options.folder, options.library)
    print(f"wrote {made}: {class_name(options.name)} over {options.library}")
    print(f"  cd {made} && python -m pytest")
    return 0


def write(name: str, folder: Path, library: str = "numpy") -> Path:
    """Writes the files, all of them or none, and returns their folder."""
    target = folder / name
    words = {"name": name, "cls": class_name(name), "library": library}
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
    try:
        for path, text in FILES.items():
            file = scratch / Template(path).substitute(words)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(Template(text).substitute(words), encoding="utf-8")
        scratch.chmod(0o755)
        os.rename(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return target


def class_name(name: str) -> str:
    """The name of the class.

    >>> class_name("my_chip"), class_name("tiny_backend")
    ('MyChipBackend', 'TinyBackend')
    """
    words = name.removesuffix("_backend").split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + "Backend"


def _problem(name: str, library: str, folder: Path) -> str:
    """Why there can be no such package, or ""."""
    ascii_name = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    if not ascii_name or name != name.lower() or name.startswith("_") or len(name) > 64:
        return f"a name such as my_chip is required (letters, digits, _), got {name[:80]!r}"
    if importlib.util.find_spec(name) is not None:
        return f"a module named {name!r} is there already; choose another name"
    if not all(part.isidentifier() and part.isascii() for part in library.split(".")):
        return f"--library: the name of a module is required, got {library[:80]!r}"
    if not _is_there(library):
        return f"--library: no module named {library!r} is installed"
    if not folder.is_dir():
        return f"no folder {folder}"
    return f"{folder / name} is there already" if (folder / name).exists() else ""


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # of the package around it
        return False
