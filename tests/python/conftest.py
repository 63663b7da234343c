"""Options and groups of the Python tests.

A test belongs to one group: `frameworks` or `documents` by its folder or marker, `device` by its
marker, `pure` otherwise. `--group` runs one of them, and folders of other groups are not even
imported, so no framework is in the process unless it is asked for. A test that takes `backend_name`
runs once for every backend of `--backends`.
"""

import importlib.util
import os
import shutil
from pathlib import Path

import hypothesis
import pytest
from emulated_cuda import NO_CUDA
from frameworks import parity_table
from kernel_table import KernelTable
from mithril import _core
from mithril.errors import DeviceNotAvailable
from mithril.testing._support import Support

# The same examples in every run; the examples of one test may take as long as they need together.
hypothesis.settings.register_profile("mithril", derandomize=True, deadline=None)
# pytest reads this file before it takes `--hypothesis-profile`.
hypothesis.settings.register_profile(
    "thorough", derandomize=True, deadline=None, max_examples=3000, print_blob=True
)
hypothesis.settings.load_profile("mithril")

GROUPS = ("pure", "device", "frameworks", "documents")
NATIVE = ("cpu", "numpy", "c")
FRAMEWORKS = ("torch", "jax", "mlx")
BACKENDS = ",".join(NATIVE + FRAMEWORKS)  # a module's MORE_BACKENDS are those that it adds
BLOCK = 10  # random models that a device compiles as one: a test of seconds, not of minutes
HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def pytest_configure(config):
    config.pluginmanager.register(parity_table)


def pytest_addoption(parser):
    parser.addoption("--group", choices=GROUPS, help="run this group only")
    parser.addoption(
        "--backends", default=BACKENDS, help="backends to run, by comma; the default: all of them"
    )
    parser.addoption("--seed", type=int, default=0, help="of the random gradient checks and graphs")
    parser.addoption("--support", help="file for the support table, which else is printed")
    parser.addoption("--graphs", type=int, default=2000, help="number of random models")
    parser.addoption(
        "--device-graphs", type=int, default=50, help="of random models side by side, on a device"
    )
    parser.addoption(
        "--all-types", action="store_true",
        help="every op in all element types also where each program is compiled (C, JAX)",
    )  # fmt: skip
    parser.addoption(
        "--documents",
        default=os.environ.get("MITHRIL_DOCUMENTS", str(ROOT.parent / "shared" / "mission")),
        help="folder of the documents whose blocks are run",
    )


def folder_group(path: Path) -> str | None:
    """The group that a file's folder fixes, if it does."""
    parts = path.relative_to(HERE).parts if path.is_relative_to(HERE) else ()
    return parts[0] if parts and parts[0] in GROUPS else None


def group_of(item) -> str:
    fixed = folder_group(item.path)
    if fixed:
        return fixed
    marked = {mark.name for mark in item.iter_markers()}
    return next(
        (group for group in ("documents", "frameworks", "device") if group in marked), "pure"
    )


def pytest_ignore_collect(collection_path, config):
    wanted = config.getoption("--group")
    fixed = folder_group(collection_path)
    return True if wanted and fixed and fixed != wanted else None


def pytest_runtest_setup(item):
    sanitized = "libasan" in os.environ.get("LD_PRELOAD", "")
    if sanitized and item.get_closest_marker("memory") is not None:
        pytest.skip("AddressSanitizer keeps freed memory")


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--group")
    if not wanted:
        return
    chosen = [item for item in items if group_of(item) == wanted]
    config.hook.pytest_deselected(items=[item for item in items if group_of(item) != wanted])
    items[:] = chosen


def has_opencl() -> bool:
    try:
        return bool(_core.opencl_devices())
    except DeviceNotAvailable:
        return False


def backend_param(name: str):
    marks = [pytest.mark.frameworks if name in FRAMEWORKS else pytest.mark.device]
    if name in FRAMEWORKS and importlib.util.find_spec(name) is None:
        marks.append(pytest.mark.skip(reason=f"{name} is not installed"))
    if name == "c" and shutil.which("cc") is None:
        marks.append(pytest.mark.skip(reason="there is no C compiler"))
    if name == "opencl" and not has_opencl():
        marks.append(pytest.mark.skip(reason="there is no device of OpenCL"))
    if name == "cuda" and NO_CUDA:
        marks.append(pytest.mark.skip(reason=NO_CUDA))
    return pytest.param(name, marks=marks)


def pytest_generate_tests(metafunc):
    if "device_graphs" in metafunc.fixturenames:
        count = metafunc.config.getoption("--device-graphs")
        blocks = [range(i, min(i + BLOCK, count)) for i in range(0, count, BLOCK)]
        metafunc.parametrize("device_graphs", blocks, ids=lambda some: f"{some[0]}-{some[-1]}")
    if "backend_name" in metafunc.fixturenames:
        given = metafunc.config.getoption("--backends")
        more = getattr(metafunc.module, "MORE_BACKENDS", ())
        names = [*given.split(","), *(more if given == BACKENDS else ())]
        metafunc.parametrize("backend_name", [backend_param(name) for name in names])


@pytest.fixture(scope="session")
def documents(request) -> Path:
    """The folder of documents; the test is skipped where there is none."""
    folder = Path(request.config.getoption("--documents")).resolve()  # tests change the folder
    if not folder.is_dir():
        pytest.skip(f"documents: folder not found, 0 of 75 blocks ({folder})")
    return folder


# How each backend runs each op in each element type, as the op matrix found it, and how many checks
# of a kind the tests made; written and printed at the end of the run.
SUPPORT = pytest.StashKey[Support]()


@pytest.fixture(scope="session")
def support_table(request) -> Support:
    return request.config.stash.setdefault(SUPPORT, Support())


@pytest.fixture(scope="session")
def check_counts(support_table):
    return support_table.checks


# What a compiler made of kernels for CUDA; printed at the end of the run, or put beside the file of
# the support table.
KERNELS = pytest.StashKey[KernelTable]()


@pytest.fixture(scope="session")
def kernel_table(request) -> KernelTable:
    return request.config.stash.setdefault(KERNELS, KernelTable())


# Runs by several processes (`-n`): each tells the first one what its tests found.
def pytest_sessionfinish(session):
    told = getattr(session.config, "workeroutput", None)
    if told is None:
        return
    stash = session.config.stash
    table = stash.get(SUPPORT, Support())
    told["found"] = (table.rows, dict(table.checks), stash.get(DOCUMENT_MARKS, {}))
    if KERNELS in stash:
        told["kernels"] = stash[KERNELS].to_json()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    rows, counts, marks = getattr(node, "workeroutput", {}).get("found", ({}, {}, {}))
    stash = node.config.stash
    if rows or counts:
        stash.setdefault(SUPPORT, Support()).merge(rows, counts)
    if marks:
        stash.setdefault(DOCUMENT_MARKS, {}).update(marks)
    kernels = getattr(node, "workeroutput", {}).get("kernels")
    if kernels is not None:
        stash.setdefault(KERNELS, KernelTable()).merge(KernelTable.of_json(kernels))


@pytest.fixture(scope="session")
def seed(request) -> int:
    return request.config.getoption("--seed")


def pytest_terminal_summary(terminalreporter, config):
    table = config.stash.get(SUPPORT, None)
    if table is not None:
        path = config.getoption("--support")
        terminalreporter.section(f"checks and support of ops, --seed {config.getoption('--seed')}")
        lines = [table.checked(), *([f"ops: {path}"] if path else table.lines())]
        for line in lines:
            terminalreporter.write_line(line)
        if path:
            table.write(Path(path))
    kernels = config.stash.get(KERNELS, None)
    if kernels is not None:
        path = config.getoption("--support")
        if path:
            kernels.write(Path(path).with_suffix(".kernels"))
        else:
            terminalreporter.section("kernels for CUDA")
            terminalreporter.write_line(str(kernels))
    marks = config.stash.get(DOCUMENT_MARKS, {})
    if marks:
        terminalreporter.section("blocks of the documents")
        kinds = [mark.split(": ")[0] for mark in marks.values()]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
        terminalreporter.write_line(f"{len(marks)} of 75 blocks: {counts}")
        for label, mark in sorted(marks.items()):
            if "fail" in mark:
                terminalreporter.write_line(f"{label} {mark}")


# Block -> its mark, as the runner of the documents found it; counted at the end of the run.
DOCUMENT_MARKS = pytest.StashKey[dict]()


@pytest.fixture(scope="session")
def document_marks(request) -> dict:
    return request.config.stash.setdefault(DOCUMENT_MARKS, {})
