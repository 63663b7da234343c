"""The tree itself: who may include whom, a test for every source, one reader of the environment."""

import ast
import importlib.util
import re
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "python" / "mithril"
LONGEST_FILE = 600
LONGEST_PART = 300  # of compiled models, `mithril/physical`

# The include rule of docs/architecture.md, section 3; a folder may always include itself.
MAY_INCLUDE = {
    "core": set(),
    "tile": {"core"},
    "infer": {"core"},
    "ir": {"core", "tile", "infer"},
    "ops": {"core", "tile", "infer", "ir"},
    "model": {"core", "tile", "infer", "ir"},
    "passes": {"core", "tile", "infer", "ir"},
    "reference": set(),
    "plan": {"core", "tile", "ir"},
    "select": {"core", "tile", "ir", "plan", "reference"},
    "emit": {"core", "tile", "ir", "plan", "reference"},
    "runtime": {"core", "plan"},
    "specialize": {"core", "tile", "ir", "passes", "plan", "select", "runtime"},
    "backends": {"core", "tile", "ir", "plan", "select", "runtime", "reference", "emit/c_"},
}
# Folders in folders, low to high; each includes itself and those before it. "" are the files beside
# them.
ROOMS = {
    "backends/cpu": (
        "machine", "reference", "schedule", "jit", "loops", "gemm", "conv", "attention",
        "structured", "",
    ),
    "model": ("outline", "tree", "explain", "edit", "", "flatten", "files"),
}  # fmt: skip
INTERFACES = {"model/model.h"}  # every room may include them
DEVICES = {"opencl", "cuda"}  # folders of backends/ that stand on backends/device
EVERYTHING = {"compile", "bindings"}  # may include all of it; csrc/ itself counts as "compile"
VENDOR_HEADERS = {
    "pybind11": {"bindings"},
    "Python": {"bindings"},
    "xbyak": {"backends/cpu"},
    "CL": {"backends/opencl"},
    "cuda": {"backends/cuda"},
    "cblas": {"backends/cpu"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)


def cpp_files(*roots: Path) -> list[Path]:
    return sorted(p for root in roots for p in root.rglob("*") if p.suffix in {".h", ".cc", ".c"})


def python_files(*roots: Path) -> list[Path]:
    return sorted(p for root in roots for p in root.rglob("*.py") if "_generated" not in p.parts)


def includes(path: Path) -> list[tuple[str, str]]:
    return INCLUDE.findall(path.read_text())


def folder(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else "compile"


def may_include(source: Path, target: Path) -> bool:
    """Both relative to csrc/."""
    own, other = folder(source), folder(target)
    if own in EVERYTHING:
        return True
    if own == "backends" and other == "backends":
        return source.parts[1] == target.parts[1] or (
            source.parts[1] in DEVICES and target.parts[1] == "device"
        )
    if own == other:
        return True
    allowed = MAY_INCLUDE[own]
    stem = target.with_suffix("").as_posix()
    return other in allowed or any("/" in a and stem.startswith(a) for a in allowed)


def may_include_room(source: Path, target: Path) -> bool:
    """Both relative to csrc/."""
    for house, rooms in ROOMS.items():
        if target.as_posix() in INTERFACES or not (
            source.is_relative_to(house) and target.is_relative_to(house)
        ):
            continue
        own, other = (
            "" if path.parent == Path(house) else path.relative_to(house).parts[0]
            for path in (source, target)
        )
        return rooms.index(other) <= rooms.index(own)
    return True


def vendor_owners(header: str) -> set[str] | None:
    name = re.split(r"[/.]", header)[0]
    return VENDOR_HEADERS.get(name)


def test_every_folder_has_a_rule():
    folders = {path.name for path in CSRC.iterdir() if path.is_dir()}
    assert folders <= set(MAY_INCLUDE) | EVERYTHING
    for house, rooms in ROOMS.items():
        assert {p.name for p in (CSRC / house).iterdir() if p.is_dir()} == {*rooms} - {""}


def test_the_root_has_one_source():
    assert {path.name for path in CSRC.iterdir() if path.is_file()} == {"compile.cc", "compile.h"}


def test_includes_follow_the_rule():
    broken = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in cpp_files(CSRC)
        for mark, name in includes(path)
        if mark == '"'
        and not (
            may_include(path.relative_to(CSRC), Path(name))
            and may_include_room(path.relative_to(CSRC), Path(name))
        )
    ]
    assert not broken, "\n".join(broken)


def test_own_headers_are_named_from_csrc():
    broken = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in cpp_files(CSRC)
        for mark, name in includes(path)
        if mark == '"' and not (CSRC / name).is_file()
    ]
    assert not broken, "\n".join(broken)


def test_vendor_headers_stay_in_their_folder():
    broken = []
    for path in cpp_files(CSRC):
        inside = path.relative_to(CSRC).as_posix()
        for _, name in includes(path):
            owners = vendor_owners(name)
            if owners and not any(inside.startswith(owner + "/") for owner in owners):
                broken.append(f"{inside}: {name}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("core/dtype.cc", "core/dtype.h", True),
        ("core/dtype.cc", "ir/graph.h", False),
        ("ops/conv.cc", "passes/fuse.h", False),
        ("reference/matmul.c", "core/dtype.h", False),
        ("backends/cpu/gemm/gemm.cc", "backends/cpu/gemm/gemm.h", True),
        ("backends/cpu/gemm/gemm.cc", "backends/opencl/queue.h", False),
        ("backends/cuda/device.cc", "backends/device/driver.h", True),
        ("backends/cuda/device.cc", "backends/opencl/api.h", False),
        ("backends/device/driver.cc", "backends/cuda/api.h", False),
        ("backends/cpu/gemm/gemm.cc", "emit/c_like.h", True),
        ("backends/cpu/gemm/gemm.cc", "emit/python.h", False),
        ("backends/cpu/gemm/gemm.cc", "reference/matmul.h", True),
        ("compile.cc", "emit/python.h", True),
        ("specialize/program.cc", "passes/fuse.h", True),
        ("specialize/program.cc", "backends/cpu/select.h", False),
        ("passes/fuse.cc", "compile.h", False),
        ("bindings/module.cc", "model/model.h", True),
    ],
)
def test_the_rule_itself(source, target, allowed):
    assert may_include(Path(source), Path(target)) is allowed


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("backends/cpu/gemm/gemm.cc", "backends/cpu/machine/cpuid.h", True),
        ("backends/cpu/machine/cpuid.cc", "backends/cpu/gemm/gemm.h", False),
        ("backends/cpu/jit/lower.cc", "backends/cpu/target.h", False),
        ("backends/cpu/select.cc", "backends/cpu/loops/interpreter.h", True),
        ("model/tree/tree.h", "model/model.h", True),
        ("model/tree/tree.cc", "model/snapshot.h", False),
        ("model/keys.cc", "model/flatten/flatten.h", False),
        ("ir/graph.cc", "core/dtype.h", True),
    ],
)
def test_the_rule_of_rooms_itself(source, target, allowed):
    assert may_include_room(Path(source), Path(target)) is allowed


def needs_cpp_test(path: Path) -> bool:
    """Sources but the ops (the matrix tests them) and the bindings (Python does)."""
    return path.suffix != ".h" and path.parts[0] not in {"ops", "bindings"}


def cpp_test_of(path: Path) -> Path:
    return ROOT / "tests" / "cpp" / path.parent / f"{path.stem}_test.cc"


COVERS = re.compile(r"^(?://|#) Covers: (.+)$", re.MULTILINE)


def covered_by_others() -> set[Path]:
    """Sources without a test of their own, whose tests are in a file that says so:
    `// Covers: infer/cells.cc infer/propagators/*.cc` (# in Python), one line or several.
    Modules of the package are named with its folder: `mithril/physical/inputs.py`."""
    found: set[Path] = set()
    for path in cpp_files(ROOT / "tests" / "cpp") + python_files(ROOT / "tests" / "python"):
        for line in COVERS.findall(path.read_text()):
            for pattern in line.split():
                root = PACKAGE.parent if pattern.startswith("mithril/") else CSRC
                matches = list(root.glob(pattern))
                assert matches, f"{path.relative_to(ROOT)} covers {pattern}, which is not there"
                found.update(match.relative_to(root) for match in matches)
    return found


def test_every_cpp_source_has_its_test():
    elsewhere = covered_by_others()
    missing = [
        path.as_posix()
        for path in (file.relative_to(CSRC) for file in cpp_files(CSRC))
        if needs_cpp_test(path) and path not in elsewhere and not cpp_test_of(path).is_file()
    ]
    assert not missing, "\n".join(missing)


def test_every_cpp_test_is_in_a_folder_of_the_engine():
    tests = ROOT / "tests" / "cpp"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("*_test.cc")}
    assert not [folder.as_posix() for folder in folders if not (CSRC / folder).is_dir()]


# The device tests run the backends; test_namespaces.py has the original's import paths.
TESTED_ELSEWHERE = {"backends", "cores", "framework", "utils"}


def needs_python_test(path: Path) -> bool:
    """Modules but the private ones and those that are tested as a whole."""
    within = path.relative_to(PACKAGE)
    tested = within.parts[0] in TESTED_ELSEWHERE or within.as_posix() == "models/primitives.py"
    return not path.name.startswith("_") and not tested


def test_every_python_module_has_its_test():
    tests = {path.name for path in (ROOT / "tests" / "python").rglob("test_*.py")}
    elsewhere = covered_by_others()
    missing = [
        path.relative_to(PACKAGE).as_posix()
        for path in python_files(PACKAGE)
        if needs_python_test(path) and f"test_{path.name}" not in tests
        if path.relative_to(PACKAGE.parent) not in elsewhere
    ]
    assert not missing, "\n".join(missing)


def test_the_environment_has_one_reader():
    reader = CSRC / "core" / "env.cc"
    pattern = re.compile(r"\b(secure_)?getenv\b")
    broken = [p for p in cpp_files(CSRC) if p != reader and pattern.search(p.read_text())]
    # Assignments are no reading: XLA takes one option from the environment only.
    python = re.compile(
        r"\bos\.(environ|getenv)\b(?!\[[^]]+\] = )|\bfrom os import .*\b(environ|getenv)\b"
    )
    tells = PACKAGE / "cli" / "_doctor_machine.py"  # what is set, and acts on none of it
    broken += [p for p in python_files(PACKAGE) if p != tells and python.search(p.read_text())]
    assert not broken, "\n".join(str(p.relative_to(ROOT)) for p in broken)


def test_doc_comments_are_sentences():
    """They say with a verb what a thing does: no "What …", no "Whether …"."""
    broken = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in cpp_files(CSRC)
        for line in path.read_text().splitlines()
        if re.match(r"\s*/// (What|Of|Whether|How|Which|Who|Why)\b", line)
    ]
    assert not broken, "\n".join(broken)


def test_docstrings_are_sentences():
    """A docstring begins with a verb ("Returns …") or says what a thing is ("The …")."""
    broken = []
    for path in python_files(PACKAGE):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if re.match(r"(What|Whether|How|Where|Of|Which|Who)\b", text):
                    broken.append(f"{path.relative_to(ROOT)}: {text.splitlines()[0]}")
    assert not broken, "\n".join(broken)


def test_long_files_are_reported():
    """Sizes are to feel, not to obey: a long file is shown, not refused."""
    roots = [CSRC, ROOT / "tests" / "cpp"]
    files = cpp_files(*roots) + python_files(PACKAGE, ROOT / "tests" / "python")
    for path in files:
        lines = path.read_text().count("\n")
        if lines > LONGEST_FILE:
            warnings.warn(f"{path.relative_to(ROOT)} has {lines} lines", stacklevel=1)


def test_parts_of_compiled_models_are_short():
    lengths = {
        path.name: path.read_text().count("\n") for path in python_files(PACKAGE / "physical")
    }
    assert lengths and not {name: n for name, n in lengths.items() if n > LONGEST_PART}


def test_planted_faults_are_where_they_are_said_to_be():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    mutants = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = mutants  # dataclasses look their module up
    spec.loader.exec_module(mutants)
    faults = mutants.read_faults()
    assert len(faults) >= 100
    for file in {fault.file for fault in faults}:
        mutants.plant((ROOT / file).read_text(), [f for f in faults if f.file == file])
