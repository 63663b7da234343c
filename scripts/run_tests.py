"""`make test`, `check`, `fuzz`, `mutants`: runs every group to its end, prints seconds per group.

Uses nothing but the standard library: it runs before the virtual environment exists.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PY = str(ROOT / ".venv" / "bin" / "python")
SUPPORT = "build/support"  # what groups found of ops: printed at the end, all of it together
OCLGRIND = "tests/python/backends/test_oclgrind.py"
NVRTC = "tests/python/backends/test_nvrtc.py"
DEVICES = "models_side_by_side"  # the tests of random models on devices
NO_TESTS = 5  # pytest's status when nothing was collected


@dataclass
class Group:
    name: str
    command: list
    env: dict = field(default_factory=dict)
    needed: bool = False  # nothing after it makes sense when it fails


def make(*targets):
    return ["make", "--no-print-directory", *targets]


def pytest(group, *options):
    documents = os.environ.get("DOCUMENTS", "../shared/mission")
    wanted = ["--group=" + group, "--documents=" + documents, f"--support={SUPPORT}/{group}.json"]
    return [PY, "-m", "pytest", "-q", *wanted, *options, "tests/python"]


def at_once():
    """A process for each core; who has none left takes from the others."""
    return ["-n", os.environ.get("JOBS", str(os.cpu_count())), "--dist=worksteal"]


def test_groups():
    verify = {"MITHRIL_VERIFY": "1"}
    return [
        Group("set-up", make("setup-test"), needed=True),
        Group("build release", make("extension"), needed=True),
        Group("build debug", make("cpp-debug"), needed=True),
        Group("c++", ["scripts/cpp_tests.sh", "build/debug"]),
        Group("python pure", pytest("pure", *at_once()), verify),
        # The op matrix runs on arenas full of NaN: nothing may be read before it is written.
        Group("python device", pytest("device", *at_once()), {**verify, "MITHRIL_POISON": "1"}),
        Group("python frameworks", pytest("frameworks", *at_once()), verify),
        Group("python documents", pytest("documents"), verify),
    ]


def compiler_file(name):
    return subprocess.check_output(["g++", "-print-file-name=" + name], text=True).strip()


def check_groups():
    seen = ["--capture=sys"]  # what a sanitizer writes before it ends the process
    yield Group("set-up", make("setup-check"), needed=True)
    yield Group("build asan", make("cpp-asan"), needed=True)
    yield Group("c++ asan", ["scripts/cpp_tests.sh", "build/asan"])
    asan = asan_environment()
    yield Group("python pure asan", pytest("pure", *seen, *at_once()), asan)
    # Oclgrind has a group of its own, without a sanitizer around the simulator.
    device = pytest("device", *seen, *at_once(), "--backends=cpu", "--ignore=" + OCLGRIND)
    yield Group("python device asan", device, asan)
    yield Group("build tsan", make("cpp-tsan"))
    yield Group("c++ tsan", ["scripts/cpp_tests.sh", "build/tsan"])
    yield Group("build release", make("extension"))
    matrix = {"MITHRIL_OCLGRIND_MATRIX": "1"}
    yield Group("kernels in oclgrind", [PY, "-m", "pytest", "-q", OCLGRIND], matrix)
    kernels = [PY, "-m", "pytest", "-q", "-kof_ops", f"--support={SUPPORT}/nvrtc.json", NVRTC]
    yield Group("kernels by nvrtc", [*kernels, *at_once()], {"MITHRIL_NVRTC_MATRIX": "1"})


def asan_environment():
    """Returns what Python needs to load the ASan build; the set-up has installed it by then."""
    libraries = map(str, ROOT.glob(".venv/lib/*/site-packages/nvidia/*/lib"))
    return {
        "LD_PRELOAD": compiler_file("libasan.so") + ":" + compiler_file("libstdc++.so"),
        # CPython keeps memory at exit; a size that cannot be had is tested.
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        # libasan opens libraries in the name of others, which then are not found beside them.
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PYTHONPATH": str(ROOT / "build" / "asan" / "python"),
        "MITHRIL_VERIFY": "1",
    }


def fuzz_groups():
    names = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*.cc"))
    return [
        Group("set-up", make("setup-check"), needed=True),
        Group("build release", make("extension"), needed=True),
        Group("build fuzz", make("cpp-fuzz"), needed=True),
        Group("seeds", [PY, "scripts/fuzz_seeds.py", "build/fuzz/corpus"], needed=True),
        *(Group(name, fuzzer(name)) for name in names),
        Group("mutated models", [PY, "scripts/fuzz_models.py", f"--mutants={mutants()}"]),
        Group(
            "random models",
            pytest("device", "--graphs=20000", f"-krandom_models and not {DEVICES}", *at_once()),
        ),
        Group(
            "models on devices",
            pytest("device", "--device-graphs=1000", f"-k{DEVICES}", "--durations=5", *at_once()),
        ),
        *(
            Group(
                f"all types, {group}", pytest(group, "--all-types", "-kelement_types", *at_once())
            )
            for group in ("device", "frameworks")
        ),
    ]


def mutants_groups():
    return [
        Group("set-up", make("setup-test"), needed=True),
        Group("mutants", [PY, "scripts/mutants.py"]),
    ]


def mutants():
    return os.environ.get("MUTANTS", "100000")


def fuzzer(name):
    limits = [f"-max_total_time={os.environ.get('SECONDS', '60')}", "-timeout=10"]
    found = f"-artifact_prefix=build/fuzz/{name}-"
    return [f"build/fuzz/fuzz_{name}", "-print_final_stats=1", "-verbosity=0", *limits,
            "-rss_limit_mb=2048", found, f"build/fuzz/corpus/{name}"]  # fmt: skip


def run(group):
    print(f"\n== {group.name}", flush=True)
    start = time.monotonic()
    try:
        status = subprocess.call(group.command, cwd=ROOT, env={**os.environ, **group.env})
    except FileNotFoundError as error:
        print(error)
        status = 127
    return status, time.monotonic() - start


def print_support():
    """The support table of all groups that ran, the number of their checks, and the table of
    kernels for CUDA."""
    files = sorted(str(path) for path in (ROOT / SUPPORT).glob("*.json"))
    if files:
        print("\n== support of ops", flush=True)
        subprocess.call([PY, "-m", "mithril.testing._support", *files], cwd=ROOT)
    for path in sorted((ROOT / SUPPORT).glob("*.kernels")):
        print(f"\n== kernels\n{path.read_text()}", end="", flush=True)


def outcome(group, status):
    if status == NO_TESTS and "pytest" in group.command:
        return "no tests"
    return "ok" if status == 0 else f"FAILED ({status})"


KINDS = {
    "test": test_groups,
    "check": check_groups,
    "fuzz": fuzz_groups,
    "mutants": mutants_groups,
}


def main():
    shutil.rmtree(ROOT / SUPPORT, ignore_errors=True)
    rows = []
    for group in KINDS[sys.argv[1]]():
        status, seconds = run(group)
        rows.append((group.name, seconds, outcome(group, status)))
        if group.needed and status != 0:
            break
    print_support()
    print(f"\n{'group':<20} {'seconds':>8}")
    for name, seconds, text in rows:
        print(f"{name:<20} {seconds:>8.1f}  {text}")
    print(f"{'all':<20} {sum(row[1] for row in rows):>8.1f}")
    return any(row[2].startswith("FAILED") for row in rows)


if __name__ == "__main__":
    sys.exit(main())
