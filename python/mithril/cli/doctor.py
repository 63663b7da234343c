"""`mithril doctor`: what is here, which backends work, and what the others lack.

Each backend is made and compared with NumPy in a process of its own, so one that ends its process,
or never ends, is a line of the report. The status is 0 where each backend that is here computes
right values and gradients, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mithril.cli import _doctor_machine as here
from mithril.cli._names import backends_of

_MARKS = {"right": "ok", "absent": "--", "wrong": "WRONG", "broken": "BROKEN"}
_GIB = 2.0**30


def run(arguments: Sequence[str]) -> int:
    """Prints the report; returns 1 where an installed backend fails, 2 for unknown names."""
    options = _parser().parse_args(list(arguments))
    names = backends_of(options.backends)
    if isinstance(names, str):
        print(f"mithril doctor: {names}", file=sys.stderr)
        return 2
    report = examined(names, options.timeout)
    print(json.dumps(report, indent=1) if options.json else text(report))
    return int(any(found["state"] in ("wrong", "broken") for found in report["backends"].values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "mithril doctor", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--backends", default="all", help="names by comma, or all (default)")
    parser.add_argument("--timeout", type=_seconds, default=180.0,
                        help="seconds for each backend (default: 180)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def examined(names: Sequence[str], seconds: float) -> dict[str, Any]:
    """Examines the machine and the named backends; returns the whole report."""
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        backends = list(pool.map(lambda name: _in_its_own_process(name, seconds), names))
    return {
        "machine": here.machine(),
        "backends": dict(zip(names, backends, strict=True)),
        "compilers": here.compilers(),
        "variables": here.variables(),
        "caches": here.caches(),
    }


def _in_its_own_process(name: str, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "mithril.cli._doctor_backend", name]
    try:
        out = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return {"state": "broken", "error": f"did not end within {seconds:g} s", "help": ""}
    try:
        found: dict[str, Any] = json.loads(out.stdout.strip().splitlines()[-1])
        if out.returncode == 0:
            return found
    except (IndexError, ValueError):
        pass
    return {"state": "broken", "error": _ending(out.returncode, out.stderr), "help": ""}


def _ending(status: int, said: str) -> str:
    """Describes how a process ended, with the last line of its output."""
    ended = f"its process ended with status {status}"
    if status < 0:
        ended = f"its process was ended by {_signal_name(-status)}"
    lines = said.strip().splitlines()
    return f"{ended}: {lines[-1]}" if lines else ended


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --- text ----------------------------------------------------------------------------------------


def text(report: dict[str, Any]) -> str:
    """Formats the report as text."""
    parts = [
        _machine_text(report["machine"]),
        "\n".join(["backends", *_backend_lines(report["backends"])]),
        "\n".join(["compilers", *_compiler_lines(report["compilers"])]),
        "\n".join(["variables of the environment", *_variable_lines(report["variables"])]),
        "\n".join(["compiled objects", *_cache_lines(report["caches"])]),
        _verdict(report["backends"]),
    ]
    return "\n\n".join(parts)


def _machine_text(found: dict[str, Any]) -> str:
    free = found["free_memory_bytes"]
    memory = f"{found['memory_bytes'] / _GIB:.1f} GiB"
    rows = [
        ("mithril", f"{found['mithril']}, in {found['folder']}"),
        ("Python", f"{found['python']}, {found['executable']}"),
        ("NumPy", found["numpy"]),
        ("system", found["platform"]),
        ("processor", found["processor"]),
        ("cores", f"{found['cores']}, of which this process may use {found['usable_cores']}"),
        ("kernels", f"for {found['instructions']}"),
        ("memory", memory if free is None else f"{memory}, {free / _GIB:.1f} GiB free"),
    ]
    return "\n".join(f"{title:<10} {value}" for title, value in rows)


def _backend_lines(backends: dict[str, dict[str, Any]]) -> list[str]:
    width = max(map(len, backends), default=0)
    lines = []
    for name, found in backends.items():
        first, *others = _backend_texts(found)
        lines.append(f"  {_MARKS[found['state']]:<6} {name:<{width}}  {first}")
        lines += [" " * (width + 11) + other for other in others]
    return lines


def _backend_texts(found: dict[str, Any]) -> list[str]:
    """Returns the lines that stand to the right of the backend's name."""
    lines = []
    if "backend" in found:
        lines.append(found["backend"])
    if found.get("versions"):
        lines.append(", ".join(f"{name} {version}" for name, version in found["versions"].items()))
    if "devices" in found:
        lines.append("devices: " + (", ".join(found["devices"]) or "none"))
    lines += [f"{key}: {value}" for key, value in found.get("facts", {}).items()]
    if found["state"] == "right":
        lines.append(f"values and gradients as NumPy's, to {found['largest_error']:.1g}")
    lines += found.get("error", "").splitlines()
    if found.get("help"):
        lines.append(f"to get it: {found['help']}")
    return lines


def _compiler_lines(found: list[dict[str, str]]) -> list[str]:
    if not found:
        return ["  none: CBackend requires one (apt-get install gcc libc6-dev)"]
    return [f"  {compiler['path']}: {compiler['version']}" for compiler in found]


def _variable_lines(found: list[dict[str, str]]) -> list[str]:
    if not found:
        return ["  none of mithril is set"]
    return [f"  {variable['name']}={variable['value']}"
            + (f"  <- {variable['problem']}" if variable["problem"] else "")
            for variable in found]  # fmt: skip


def _cache_lines(found: dict[str, Any]) -> list[str]:
    most = found["most_bytes"] / 2**20
    rows = [f"  in {found['folder']}, at most {most:.0f} MiB of each kind"]
    for kind, facts in found["kinds"].items():
        problem = f"  <- {facts['problem']}" if facts["problem"] else ""
        rows.append(f"  {kind}: {facts['files']} files, {facts['bytes'] / 2**20:.1f} MiB{problem}")
    return rows


def _verdict(backends: dict[str, dict[str, Any]]) -> str:
    states = {name: found["state"] for name, found in backends.items()}
    here = [name for name, state in states.items() if state != "absent"]
    failed = [name for name in here if states[name] != "right"]
    if failed:
        return f"{len(failed)} of {len(here)} backends here do not work: {', '.join(failed)}"
    return f"all {len(here)} backends here work"


__all__ = ["examined", "run", "text"]
