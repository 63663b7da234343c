"""Code of a newer instruction set is never what an older CPU runs: whatever the objects of a set
share with the rest of the binary (inline functions, templates) stands in the baseline's too, which
the linker meets first (cmake/isa.cmake)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SETS = ("avx2", "avx512")


def shared_functions(objects: list[Path]) -> set[str]:
    """Names of the weak functions and unique data that the objects define."""
    listing = subprocess.run(
        ["nm", "--defined-only", *map(str, objects)], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split() for line in listing.splitlines())
    return {row[2] for row in rows if len(row) == 3 and row[1] in "WVu"}


def objects_of(build: Path, name: str) -> list[Path]:
    return sorted((build / "CMakeFiles" / f"mithril_isa_{name}.dir").rglob("*.o"))


@pytest.mark.parametrize("preset", ["release", "debug"])
@pytest.mark.parametrize("isa", SETS)
def test_nothing_shared_is_newer_than_the_baseline(preset, isa):
    build = ROOT / "build" / preset
    objects = objects_of(build, isa)
    if not objects or shutil.which("nm") is None:
        pytest.skip(f"no objects of {isa} in {build}")
    baseline = shared_functions(objects_of(build, "generic"))
    own = f"{len(isa)}{isa}"  # its namespace, mangled: nobody else uses those
    shared = {name for name in shared_functions(objects) if own not in name}
    assert shared <= baseline


@pytest.mark.parametrize("wanted", ["generic", ""])
def test_the_backend_says_which_set_its_kernels_use(wanted):
    script = "import mithril as ml; print(ml.CpuBackend().isa)"
    environment = {**os.environ, "MITHRIL_CPU_ISA": wanted}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    said = done.stdout.decode().strip()
    assert said == wanted or (not wanted and said in ("generic", *SETS)), done.stderr.decode()
