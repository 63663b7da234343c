# Covers: backends/device/*.cc backends/opencl/*.cc
"""No kernel reads or writes outside of its arrays, and no two items race: Oclgrind, which runs
OpenCL C instruction by instruction, has nothing to say of small models and their gradients.

`make check` runs the matrix of all ops in it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = "lib/oclgrind/liboclgrind-rt-icd.so"
MATRIX = Path(__file__).parents[1] / "test_op_matrix.py"


def driver():
    command = shutil.which("oclgrind")
    found = command and Path(command).resolve().parents[1] / DRIVER
    return found if found and found.exists() else None


pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(driver() is None, reason="there is no Oclgrind: apt-get install oclgrind"),
]


def run_within(folder, *command):
    """Runs Python on a loader that has no other driver; what Oclgrind says goes to folder/log."""
    (folder / "oclgrind.icd").write_text(str(driver()))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OCL_ICD_VENDORS": str(folder),
        "OCLGRIND_LOG": str(folder / "log"),
        "OCLGRIND_DATA_RACES": "1",
        # It takes vectors of bools for minus ones, which the optimizer makes of neighbours.
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
    }
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True,
                          timeout=1500)  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_small_models(device, tmp_path):
    out = run_within(tmp_path, "-m", "backends.oclgrind_cases", str(tmp_path / "log"), device)
    assert "attention: shared heads" in out and "convolution by tiles, huge" in out
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.skipif("MITHRIL_OCLGRIND_MATRIX" not in os.environ, reason="make check runs it")
def test_the_matrix_of_ops(tmp_path):
    out = run_within(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(MATRIX),
                     "--backends=opencl", f"--rootdir={MATRIX.parents[2]}")  # fmt: skip
    assert " passed" in out and (tmp_path / "log").read_text() == ""
