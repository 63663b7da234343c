"""Cases of the original library: models, inputs, outputs and gradients as its users know them.

They lie beside the documents and bring their own runner. Cases that a resolution of a conflict
contradicts are in `tests/data/original_deviations.json` with its number; what is not done yet is in
`tests/data/original_open.json`; a case of it that passes is warned of.
"""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

DATA = Path(__file__).parent.parent / "data"
MOST_DEVIATIONS = 12
COUNTED = ("numpy", "cpu", "torch", "jax", "mlx")
# They compile each case for minutes: all of it with --backends=jax, else some files once.
SLOW = ("jax", "mlx")
SOME = tuple(f"--file={name}" for name in ("integration_directed_test", "error_test"))


@pytest.fixture(scope="module")
def cases(request) -> Path:
    folder = Path(request.config.getoption("--documents")).parent / "cases"
    if not (folder / "run.py").is_file():
        pytest.skip(f"cases of the original: not found ({folder})")
    return folder


def read(name: str) -> dict:
    return json.loads((DATA / name).read_text())


def of_backend(cases: dict, backend: str) -> set[str]:
    return {name for name, entry in cases.items() if backend in entry.get("backends", [backend])}


def deviations(backend: str) -> set[str]:
    return of_backend(read("original_deviations.json")["cases"], backend)


def open_cases(backend: str) -> set[str]:
    return of_backend(read("original_open.json"), backend)


def failures(folder: Path, report: Path, backend: str, *options: str) -> tuple[dict, int]:
    """Case -> why it fails, and how many there are."""
    import mithril

    path = [str(Path(mithril.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, str(folder / "run.py"), "--accepted", "--timeout=120"]
    ran = subprocess.run(
        [*command, f"--backend={backend}", f"--out={report}", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
    )
    assert report.is_file(), ran.stdout + ran.stderr
    results = {
        f"{file}::{name}": result
        for file, found in json.loads(report.read_text())["files"].items()
        for name, result in found["cases"].items()
    }
    failed = {n: r["reason"] for n, r in results.items() if r["status"] in ("failed", "error")}
    return failed, len(results)


@pytest.mark.parametrize("options", [(), ("--round-trip",)], ids=["direct", "round_trip"])
def test_cases_of_the_original(request, cases, tmp_path, backend_name, options, capsys):
    if backend_name not in COUNTED:
        pytest.skip(f"cases of the original: what is open on {backend_name} is not listed yet")
    is_whole = backend_name not in SLOW or request.config.getoption("--backends") == backend_name
    if not is_whole:
        if options:
            pytest.skip(f"cases of the original: {backend_name} runs them once")
        options = SOME
    failed, count = failures(cases, tmp_path / "report.json", backend_name, *options)
    differing, unfinished = deviations(backend_name), open_cases(backend_name)
    known = differing | unfinished
    with capsys.disabled():
        print(
            f"\ncases of the original on {backend_name}{''.join(f' {o}' for o in options)}:"
            f" {count - len(failed)} of {count} pass, {len(differing & set(failed))} deviate,"
            f" {len(unfinished & set(failed))} are open"
        )
    new = {name: why for name, why in failed.items() if name not in known}
    assert not new, "\n".join(f"{name}: {why}" for name, why in new.items())
    for name in sorted(known - set(failed)) if is_whole else ():
        warnings.warn(f"{backend_name}: {name} passes, take it from the list", stacklevel=1)


def test_deviations_name_their_resolution(request):
    listed = read("original_deviations.json")["cases"]
    assert len(listed) <= MOST_DEVIATIONS
    surface = Path(request.config.getoption("--documents")) / "surface.md"
    if not surface.is_file():
        pytest.skip(f"resolutions: not found ({surface})")
    resolutions = set(re.findall(r"^\| (K\d+) \|", surface.read_text(), re.MULTILINE))
    for name, entry in listed.items():
        assert entry["resolution"] in resolutions, name
        assert entry["reason"], name


def test_no_case_is_open_and_a_deviation():
    for backend in COUNTED:
        assert not deviations(backend) & open_cases(backend)
