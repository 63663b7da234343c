"""What MITHRIL_DEBUG, MITHRIL_DUMP, MITHRIL_PROFILE and MITHRIL_LOG print, each in a process of its
own (variables are read once), held against the facts that they promise (style.md, 2.6)."""

# Covers: mithril/base/logging.py

import os
import re
import subprocess
import sys
from pathlib import Path

import mithril as ml
import pytest

pytestmark = pytest.mark.device

PROGRAM = """
import numpy as np
import mithril as ml
model = ml.Model(name="net")
model |= ml.Linear(4, name="first")(input="x", output="h")
model |= ml.Relu(name="act")(input="h", output="a")
model |= ml.Sum(name="total")(input="a", output="y")
model.expose_keys("y")
pm = ml.compile(model, ml.{backend}(), data_keys={{"x"}}, shapes={{"x": ["n", 3]}})
params = pm.get_parameters()
for n in (2, 5, 2):
    pm.evaluate(params, {{"x": np.ones((n, 3), np.float32)}}, output_gradients=True)
"""
PASSES = ("decompose", "canonicalize", "merge_common", "remove_dead")


def run(backend="CpuBackend", program=PROGRAM, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MITHRIL_")}
    return subprocess.run(
        [sys.executable, "-c", program.format(backend=backend)],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def stderr_of(*args, **variables):
    done = run(*args, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_nothing_is_said_unless_asked_for():
    assert stderr_of() == ""


def test_level_1_names_the_backend_and_times_every_stage():
    text = stderr_of(MITHRIL_DEBUG="1")
    assert "compile 'net' for cpu (f32, i64)" in text
    for stage in ("flatten", "assign_dtypes", "optimize", "autodiff", "specialize"):
        assert re.search(rf"mithril: {stage} +\d+\.\d+ ms", text), stage
    # Two shapes, three calls: the third one is looked up.
    assert re.findall(r"specialize for x\[(\d), 3\]", text) == ["2", "5"]
    assert "unchanged" not in text and "%0" not in text


def test_level_2_says_what_each_pass_did():
    text = stderr_of(MITHRIL_DEBUG="2")
    for name in PASSES:
        assert re.search(rf"  {name} +\d+\.\d+ ms  (un)?changed\n", text), name
    assert re.search(r"decompose +\S+ ms  changed", text)  # linear is a composite
    assert re.search(r"merge_common +\S+ ms  unchanged", text)
    assert "graph net" not in text


def test_level_3_shows_the_graph_after_changed_passes_only():
    text = stderr_of(MITHRIL_DEBUG="3")
    blocks = text.split("mithril: ")
    for block in blocks:
        if re.match(r"  \w+ +\S+ ms  ", block):
            assert ("graph net" in block) == ("unchanged" not in block), block
    assert "linear(" in text and "matmul(" in text


def test_level_4_shows_generated_source():
    assert "def evaluate(v0" in stderr_of("NumpyBackend", MITHRIL_DEBUG="4")
    text = stderr_of(MITHRIL_DEBUG="4")
    assert "program(f32" in text and "arena" not in text


def test_level_5_shows_plan_and_rewrites():
    text = stderr_of(MITHRIL_DEBUG="5")
    assert re.search(r"plan: \d+ steps, arena \d+ bytes", text)
    assert re.search(r"rewrite sum_to of net\.first", text)  # the gradient of the bias
    assert re.search(r"output0\+0\[4\]", text)  # y: one float32


def test_dump_writes_every_stage(tmp_path):
    folder = tmp_path / "a" / "b"
    assert stderr_of(MITHRIL_DUMP=str(folder)) == ""
    names = sorted(p.name for p in folder.iterdir())
    graphs = [n for n in names if n.endswith(".ir")]
    assert graphs[:2] == ["00_flatten.ir", "01_assign_dtypes.ir"]
    assert [n[:2] for n in graphs] == [f"{i:02}" for i in range(len(graphs))]
    assert {f"{n[:-3]}.dot" for n in graphs} <= set(names)
    assert any("autodiff" in n for n in graphs) and any("bind_sizes" in n for n in graphs)
    flat = ml.inspect.parse((folder / "00_flatten.ir").read_text())
    assert {name for name, *_ in flat.inputs} == {"x", "weight", "bias"}
    assert "linear" in (folder / "00_flatten.dot").read_text()
    assert "arena" in (folder / "plan.txt").read_text()
    assert (folder / "plan_2.txt").exists()
    assert "program(" in (folder / "kernel_1.tile").read_text()


def test_plans_are_cut_for_the_threads_of_the_backend(tmp_path):
    program = (
        "import numpy as np; import mithril as ml\n"
        "model = ml.Linear(512, use_bias=False)\n"
        "pm = ml.compile(model, ml.CpuBackend(threads={backend}), shapes={{'input': [512, 512]}},\n"
        "                data_keys={{'input'}})\n"
        "pm.evaluate(pm.get_parameters(), {{'input': np.ones((512, 512), np.float32)}})\n"
    )
    units = {}
    for threads in (1, 4):
        folder = tmp_path / str(threads)
        assert stderr_of(threads, program, MITHRIL_DUMP=str(folder)) == ""
        units[threads] = int(re.search(r"gemm.* (\d+) units", (folder / "plan.txt").read_text())[1])
    assert units[1] == 1 and units[4] >= 4


def test_the_second_compile_gets_a_folder_of_its_own(tmp_path):
    program = PROGRAM + "ml.compile(model, ml.NumpyBackend(), shapes={{'x': ['n', 3]}})\n"
    assert stderr_of("NumpyBackend", program, MITHRIL_DUMP=str(tmp_path)) == ""
    source = (tmp_path / "kernel_1.py").read_text()
    compile(source, "kernel_1.py", "exec")
    assert (tmp_path / "2" / "00_flatten.ir").exists()
    assert not (tmp_path / "3").exists()


def test_a_folder_that_cannot_be_written_is_said_once_and_stops_nothing(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    text = stderr_of(MITHRIL_DUMP=str(file / "inside"))
    assert text.count("MITHRIL_DUMP: cannot write") == 1


def rows_of(text):
    lines = text.splitlines()
    assert re.match(r"kernel +count +ms +% +MB +GB/s", lines[0])
    assert lines[-1].startswith("total ")
    return {line.split()[0]: line.split()[1:] for line in lines[1:-1]}


def test_profile_counts_kernels():
    rows = rows_of(stderr_of(MITHRIL_PROFILE="1"))
    assert rows and all(float(row[1]) >= 0 for row in rows.values())
    program = PROGRAM.replace(", output_gradients=True", "")
    rows = rows_of(stderr_of("CpuBackend", program, MITHRIL_PROFILE="1"))
    assert {int(row[0]) for row in rows.values()} == {3}  # three calls, every kernel once in each


def test_profile_counts_bytes():
    """x + x over 1,000 float32: a buffer read and one written, 4,000 bytes each."""
    program = """
import numpy as np, mithril as ml
model = ml.Model()
model |= ml.Add()(left="x", right="x", output="y")
pm = ml.compile(model, ml.{backend}(), data_keys={{"x"}}, shapes={{"x": [1000]}}, jit=False)
for _ in range(125):
    pm.evaluate(data={{"x": np.ones(1000, np.float32)}})
"""
    rows = rows_of(stderr_of("CpuBackend", program, MITHRIL_PROFILE="1"))
    assert rows["add"][0] == "125" and rows["add"][3] == "1.000"
    rows = rows_of(stderr_of("NumpyBackend", program, MITHRIL_PROFILE="1"))
    assert rows["numpy.add"][0] == "125" and rows["numpy.add"][3] == "1.500"  # both operands


def test_profile_is_printed_when_the_program_dies():
    done = run(program=PROGRAM + "raise SystemError('boom')\n", MITHRIL_PROFILE="1")
    assert done.returncode == 1
    assert "boom" in done.stderr and re.search(r"^total ", done.stderr, re.MULTILINE)


def test_log_shows_the_topics_asked_for():
    text = stderr_of(MITHRIL_LOG="recompile:info,memory:info")
    names = {line.split()[0] for line in text.splitlines()}
    assert names == {"mithril.recompile", "mithril.memory"}
    assert "mithril.recompile INFO: specialize for x[2, 3]" in text
    assert re.search(r"mithril\.memory INFO: \d+ steps, arena \d+ bytes", text)


@pytest.mark.parametrize(
    ("wanted", "topics"),
    [
        ("passes:debug", {"passes"}),
        ("codegen:debug", {"codegen"}),
        ("kernels:debug", {"kernels"}),
        ("debug", {"passes", "memory", "codegen", "recompile", "kernels"}),
        ("info", {"passes", "memory", "recompile"}),
        ("nonsense:debug,passes:loud", set()),
    ],
)
def test_log_levels(wanted, topics):
    text = stderr_of(MITHRIL_LOG=wanted)
    assert {line.split()[0] for line in text.splitlines()} == {f"mithril.{t}" for t in topics}


def test_a_program_may_set_up_logging_itself(caplog):
    model = ml.Model(name="own")
    model |= ml.Relu()(input="x", output="y")
    with caplog.at_level("INFO", logger="mithril.passes"):
        ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [2]})
    assert any("compile 'own' for cpu" in r.message for r in caplog.records)
    caplog.clear()
    ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [2]})
    assert not caplog.records


def test_a_sink_that_fails_stops_nothing():
    program = "import sys\nsys.stderr = None\n" + PROGRAM
    assert run(program=program, MITHRIL_DEBUG="5", MITHRIL_PROFILE="1").returncode == 0
    program = (
        "import logging\n"
        "class Bad(logging.Handler):\n    def emit(self, record): raise ValueError('bad')\n"
        "logging.getLogger('mithril').addHandler(Bad())\n"
        "logging.getLogger('mithril').setLevel('DEBUG')\n" + PROGRAM
    )
    assert run(program=program).returncode == 0


def test_the_package_reads_its_variables_in_one_place():
    """But for the doctor, which says what is set and acts on nothing of it."""
    readers = [p.name for p in Path(ml.__file__).parent.rglob("*.py")
               if "MITHRIL_" in p.read_text() and "environ" in p.read_text()]  # fmt: skip
    assert readers == ["_doctor_machine.py"]
