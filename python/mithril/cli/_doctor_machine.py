"""Facts of `mithril doctor` about the machine, its compilers, variables and folders.

Nothing here opens a framework, a driver or a device.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mithril import _core
from mithril.backends.with_manualgrad.object_cache import MOST_BYTES, ObjectCache, not_ours
from mithril.base.numpy import np
from mithril.base.version import PACKAGE_VERSION
from mithril.errors import suggestion
from mithril.execution.memory import process_memory

_COMPILERS = ("cc", "gcc", "clang", "g++", "nvcc")
_SECONDS = 20  # of a compiler that is asked for its version


def machine() -> dict[str, Any]:
    """The versions, the processor and the memory."""
    memory, free = _memory()
    return {
        "mithril": PACKAGE_VERSION,
        "folder": str(Path(__file__).resolve().parent.parent),
        "python": platform.python_version(),
        "executable": sys.executable,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "usable_cores": _usable_cores(),
        "instructions": _core.cpu_isa(),
        "memory_bytes": memory,
        "free_memory_bytes": free,
    }


def _usable_cores() -> int:
    """Returns the number of cores of this process: the engine's default number of threads."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    names = re.findall(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> tuple[int, int | None]:
    """Bytes that there are and bytes that are free; None where the system does not say it."""
    free = re.search(r"^MemAvailable:\s*(\d+) kB$", _text(Path("/proc/meminfo")), re.MULTILINE)
    return process_memory()[2], int(free[1]) * 1024 if free else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# --- compilers -----------------------------------------------------------------------------------


def compilers() -> list[dict[str, str]]:
    """The compilers on the path, each with the first line of what it says of its version."""
    paths = {name: shutil.which(name) for name in _COMPILERS}
    return [{"name": name, "path": path, "version": _version(path)}
            for name, path in paths.items() if path]  # fmt: skip


def _version(path: str) -> str:
    try:
        out = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    lines = [line for line in (out.stdout or out.stderr).splitlines() if line.strip()]
    if out.returncode:
        return f"does not run: {lines[0] if lines else f'status {out.returncode}'}"
    told = [line for line in lines if "release" in line]  # nvcc begins with its name alone
    return next(iter([*told, *lines]), "")


# --- variables -----------------------------------------------------------------------------------


def variables(environment: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """Each variable that is set and named ``MITHRIL_…``, with what is wrong with it, or ""."""
    table = {name: values for name, values, _ in _core.env_table()}
    return [{"name": name, "value": environment[name],
             "problem": _problem(name, environment[name], table)}
            for name in sorted(environment) if name.startswith("MITHRIL_")]  # fmt: skip


def _problem(name: str, value: str, table: Mapping[str, str]) -> str:
    if name not in table:
        return f"has no effect: there is no such variable{suggestion(name, table)}"
    values = table[name]
    if values == "path":
        return "" if "/" not in value or Path(value).exists() else "there is no such file"
    if values == "folder":
        return "is no folder" if Path(value).exists() and not Path(value).is_dir() else ""
    return "" if _is_among(value, values) else f"has no effect: {values} is required"


def _is_among(value: str, values: str) -> bool:
    """Tells whether a value is one of those that the table of variables allows."""
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", values)
    if numbers:
        return value.isdecimal() and int(numbers[1]) <= int(value) <= int(numbers[2])
    if values in ("0", "1"):
        return value in ("", "0", "1", "true", "false", "on", "off")
    return "…" in values or value in values.split(" | ")


# --- folders -------------------------------------------------------------------------------------


def caches() -> dict[str, Any]:
    """The folder of what was compiled, with the files and bytes of each kind."""
    folders = [ObjectCache.of_user(kind).folder for kind in ("c", "cuda")]
    found = [folder for folder in folders if folder is not None]
    return {"folder": str(found[0].parent), "most_bytes": MOST_BYTES,
            "kinds": {folder.name: _folder(folder) for folder in found}}  # fmt: skip


def _folder(folder: Path) -> dict[str, Any]:
    try:
        sizes = [entry.stat().st_size for entry in folder.iterdir()]
    except FileNotFoundError:
        return {"files": 0, "bytes": 0, "problem": ""}
    except OSError as error:
        return {"files": 0, "bytes": 0, "problem": f"is not used: {error.strerror}"}
    problem = not_ours(folder)
    told = f"is not used: {problem}" if problem else ""
    return {"files": len(sizes), "bytes": sum(sizes), "problem": told}


__all__ = ["caches", "compilers", "machine", "variables"]
