"""Cases of the original library: models, inputs, outputs and gradients as its users know them.

They lie beside the documents and bring their own runner. Cases that a resolution of a conflict or
a decision contradicts are in `tests/data/original_deviations.json` with it; one of them that passes
is warned of. So are cases whose numbers float32 does not hold: they run once more, in float64.
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


def wide_cases(backend: str) -> set[str]:
    """Those that need float64 where the backend runs in float32."""
    wide = read("original_deviations.json")["float64"]
    return set(wide["cases"]) if backend in wide["backends"] else set()


def environment() -> dict[str, str]:
    """Imports this project from where it is imported here."""
    import mithril

    path = [str(Path(mithril.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def failures(folder: Path, report: Path, backend: str, *options: str) -> tuple[dict, int]:
    """Case -> why it fails, and how many there are."""
    command = [sys.executable, str(folder / "run.py"), "--accepted", "--timeout=120"]
    ran = subprocess.run(
        [*command, f"--backend={backend}", f"--out={report}", *options],
        env=environment(),
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
        pytest.skip(f"cases of the original: {backend_name} has not all of their ops")
    is_whole = backend_name not in SLOW or request.config.getoption("--backends") == backend_name
    if not is_whole:
        if options:
            pytest.skip(f"cases of the original: {backend_name} runs them once")
        options = SOME
    failed, count = failures(cases, tmp_path / "report.json", backend_name, *options)
    differing, wide = deviations(backend_name), wide_cases(backend_name)
    known = differing | wide
    with capsys.disabled():
        print(
            f"\ncases of the original on {backend_name}{''.join(f' {o}' for o in options)}:"
            f" {count - len(failed)} of {count} pass, {len(differing & set(failed))} deviate,"
            f" {len(wide & set(failed))} need float64"
        )
    new = {name: why for name, why in failed.items() if name not in known}
    assert not new, "\n".join(f"{name}: {why}" for name, why in new.items())
    for name in sorted(known - set(failed)) if is_whole else ():
        warnings.warn(f"{backend_name}: {name} passes, take it from the list", stacklevel=1)


WIDE = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import names, run
backend, *cases = sys.argv[2:]
class_name, needs, _, extra = names.BACKENDS[backend]
names.BACKENDS[backend] = class_name, needs, "float64", extra
bench = run.Bench(backend)
for name in cases:
    file, _, case = name.partition("::")
    check = {"numeric": run.run_numeric, "primitive": run.run_primitive}[run.FILES[file]]
    check(bench, json.loads((run.HERE / f"{file}.json").read_text())[case], run.Outcome(bench))
    print("passed", name)
"""


def test_cases_that_need_float64(cases, backend_name, capsys):
    names = sorted(wide_cases(backend_name))
    if not names:
        pytest.skip(f"cases of the original: {backend_name} runs them in float64 anyway")
    command = [sys.executable, "-c", WIDE, str(cases), backend_name, *names]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True)
    passed = ran.stdout.count("passed")
    assert (ran.returncode, passed) == (0, len(names)), ran.stdout + ran.stderr
    with capsys.disabled():
        print(
            f"\ncases of the original on {backend_name} in float64: {passed} of {len(names)} pass"
        )


def test_deviations_name_their_resolution(request):
    data = read("original_deviations.json")
    listed = data["cases"] | {"float64": data["float64"]}
    differing = set().union(*(deviations(backend) for backend in COUNTED))
    assert len({name.partition("::")[2] for name in differing}) <= MOST_DEVIATIONS
    surface = Path(request.config.getoption("--documents")) / "surface.md"
    if not surface.is_file():
        pytest.skip(f"resolutions: not found ({surface})")
    resolutions = set(re.findall(r"^\| (K\d+) \|", surface.read_text(), re.MULTILINE))
    for name, entry in listed.items():
        assert entry["resolution"] in resolutions | {"docs/decisions.md"}, name
        assert entry["reason"], name


def test_no_case_is_listed_twice():
    for backend in COUNTED:
        assert not deviations(backend) & wide_cases(backend)
