"""What a compiled model says of the memory it takes, against sums made by hand."""

# Covers: mithril/execution/memory.py
# Covers: mithril/inspection/formula.py
# Covers: mithril/physical/sizes.py

import re

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    OutOfMemoryError,
    ShapeError,
    SignatureError,
    UnsupportedError,
)
from mithril.execution.memory import parse_size
from mithril.inspection.formula import fit

device = pytest.mark.device
LIMIT = 16 * 2**40  # more than the machine has that runs this


def two_products(rows="batch", optimizer=None, **options):
    """x [rows, 16] times [16, 512] times [512, 256]: both products are in use at once."""
    model = ml.Model(name="net")
    model |= ml.Linear(512, use_bias=False, name="first")(input="x", output="h")
    model |= ml.Linear(256, use_bias=False, name="second")(input="h", output="y")
    model |= ml.Mean(name="mean")(input="y", output="cost")
    model.expose_keys("cost")
    backend = options.pop("backend", None) or ml.CpuBackend()
    return ml.compile(
        model,
        backend,
        shapes={"x": [rows, 16]},
        data_keys={"x"},
        optimizer=optimizer,
        **options,
    )


@device
def test_the_peak_is_what_is_in_use_at_once():
    plan = two_products(100).memory_plan()["evaluate"]
    assert plan.live == 4 * 100 * (512 + 256)
    rounded = -(-4 * 100 * 512 // 64) * 64 + -(-4 * 100 * 256 // 64) * 64
    assert plan.peak == rounded
    assert plan.inputs == 4 * 100 * 16
    assert plan.parameters == 4 * (512 * 16 + 256 * 512)
    assert (plan.outputs, plan.optimizer) == (4, 0)
    first, second = plan.contributors
    assert (first.bytes, first.kernel, first.path) == (4 * 100 * 512, "gemm", "net.first")
    assert (first.dtype, first.shape) == (ml.float32, (100, 512))
    assert (second.bytes, second.path) == (4 * 100 * 256, "net.second")
    held = plan.inputs + plan.parameters + plan.constants
    assert plan.total == held + plan.outputs + plan.peak + plan.scratch


@device
def test_dtypes_count():
    wide = two_products(100, backend=ml.CpuBackend(dtype="float64")).memory_plan()["evaluate"]
    assert wide.live == 8 * 100 * (512 + 256)
    assert wide.contributors[0].dtype == ml.float64


@device
def test_every_way_to_run_the_model_has_a_plan():
    plan = two_products(8, ml.optim.Adam(0.1)).memory_plan()
    assert list(plan.programs) == ["evaluate", "gradient", "step"]
    parameters = 4 * (512 * 16 + 256 * 512)
    assert plan["gradient"].outputs == 4 + parameters
    assert plan["step"].outputs == 4 + 3 * parameters + 8  # with two moments and the counter
    assert plan["step"].optimizer == 2 * parameters + 8 + 4  # and the counter and the rate
    assert plan["gradient"].peak >= plan["evaluate"].peak
    for name in ("peak", "total", "inputs", "parameters", "optimizer", "outputs", "contributors"):
        assert getattr(plan, name) == getattr(plan["step"], name)
    assert list(two_products(8, inference=True).memory_plan().programs) == ["evaluate"]
    for ask in (plan.__getitem__, plan.formula_of):
        with pytest.raises(KeyNotFound, match="did you mean 'gradient'"):
            ask("gradients")


@device
def test_cotangents_of_outputs_that_are_no_cost_count_as_inputs():
    model = ml.Model()
    model |= ml.Linear(8)(input="x", output="y")
    pm = ml.compile(model, ml.CpuBackend(), shapes={"x": [4, 2]}, data_keys={"x"})
    plan = pm.memory_plan()
    assert plan["gradient"].inputs == plan["evaluate"].inputs + 4 * 4 * 8


@device
def test_open_sizes_have_a_formula():
    plan = two_products().memory_plan()
    assert plan.assumed == ("batch",)
    formula = plan.formula_of("evaluate")
    assert str(formula.inputs) == "64*batch"
    assert str(formula.intermediates) == "3072*batch"
    assert str(formula.parameters) == str(4 * (512 * 16 + 256 * 512))
    for size in (1, 7, 1000):
        exact = two_products(size).memory_plan()["evaluate"]
        assert formula.intermediates({"batch": size}) == exact.live
    assert formula.note.startswith("exact at batch=1")
    assert formula.total({"batch": 3}) == 64 * 3 + 3072 * 3 + 557056 + 4 + exact.constants
    assert plan.formula is not None and "batch" in str(plan.formula)
    alone = two_products().memory_plan({"x": [1, 16]})
    assert str(alone.formula_of("evaluate").intermediates) == "3072*batch"
    assert "batch=1" in alone.formula_of("evaluate").note
    assert two_products(8).memory_plan().formula_of("evaluate").total.names == ()


@device
def test_formulas_over_several_sizes():
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="c")  # [batch, seq, seq]
    model |= ml.Softmax()(input="c", output="d")
    model |= ml.MatrixMultiply()(left="d", right="a", output="y")
    model.expose_keys("y")
    shapes = {"a": ["batch", "seq", 8], "b": ["batch", 8, "seq"]}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys={"a", "b"})
    plan = pm.memory_plan({"a": [2, 100, 8], "b": [2, 8, 100]})
    assert plan.sizes == {"batch": 2, "seq": 100}
    assert str(plan.formula.intermediates) == "4*batch*seq**2"
    assert str(plan.formula.outputs) == "32*batch*seq"
    assert plan.peak == 4 * 2 * 100 * 100
    assert plan.assumed == ()


@device
def test_a_formula_says_where_it_is_wrong():
    """Of two branches of the model another one is the peak for other sizes."""
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="x", right="w", output="h")  # [n, 10000]
    model |= ml.MatrixMultiply()(left="h", right="v", output="y")  # [n, 4]
    model |= ml.MatrixMultiply()(left="y", right="u", output="s")  # [n, n]
    model |= ml.Sum()(input="s", output="t")
    model.expose_keys("t")
    shapes = {"x": ["n", 4], "w": [4, 10_000], "v": [10_000, 4], "u": [4, "n"]}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes))
    plan = pm.memory_plan({"x": [800, 4], "u": [4, 800]})
    assert str(plan.formula.intermediates) == "40016*n"
    assert plan.formula.note.startswith("right near n=800; off at n=25600 (-")
    assert "off at n=25600" in str(plan)


@device
def test_largest_is_found_by_planning():
    pm = two_products()
    plan = pm.memory_plan()
    for memory in ("2MB", 1_500_000, "3MiB"):
        found = plan.largest("batch", memory, program="evaluate")
        eights = plan.largest("batch", memory, program="evaluate", multiple_of=8)
        assert eights % 8 == 0 and eights - found < 8
        # Blocks of products follow from the sizes: a few rows more may take less scratch memory.
        limit = parse_size(memory)
        for count, step in ((found, 1), (eights, 8)):
            assert two_products(count).memory_plan()["evaluate"].total <= limit
            assert two_products(count + step).memory_plan()["evaluate"].total > limit
    assert plan.largest("batch", "100kB") == 0
    assert plan.largest("batch", "8GB") < plan.largest("batch", "8GB", program="evaluate")


@device
def test_largest_takes_no_nonsense():
    plan = two_products().memory_plan()
    with pytest.raises(KeyNotFound, match="did you mean 'batch'"):
        plan.largest("bath", "1GB")
    with pytest.raises(KeyNotFound, match="no program named 'train'"):
        plan.largest("batch", "1GB", program="train")
    for memory in ("much", "", "nanGB", "infGB", -1, "-1GB"):
        with pytest.raises(ArgumentError, match="a size of memory"):
            plan.largest("batch", memory)
    for memory in (None, 1.5, True, ["1GB"]):
        with pytest.raises(SignatureError, match="a size of memory"):
            plan.largest("batch", memory)
    for multiple in (0, -1, 1.5, True, "8"):
        with pytest.raises(ArgumentError, match="multiple_of"):
            plan.largest("batch", "1GB", multiple_of=multiple)


@device
def test_a_size_that_the_model_refuses_is_told():
    model = ml.Model()
    model |= ml.Add()(left="x", right="z", output="y")
    shapes = {"x": ["n", 5], "z": ["m", 1]}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes))
    plan = pm.memory_plan({"x": [8, 5], "z": [8, 1]})
    with pytest.raises(ShapeError):
        plan.largest("n", "1MB")  # m stays 8


@device
def test_sizes_that_are_too_small_for_the_model_do_not_count():
    model = ml.Model()
    model |= ml.MaxPool2D(kernel_size=(40, 1), stride=1)(input="x", output="y")
    pm = ml.compile(model, ml.CpuBackend(), shapes={"x": [1, 1, "n", 10]}, data_keys={"x"})
    plan = pm.memory_plan({"x": [1, 1, 100, 10]})
    assert plan.inputs + plan.outputs == 4 * (1000 + 610)
    assert plan.largest("n", 4 * (600 + 210) + plan.scratch) == 60
    assert plan.largest("n", 4 * (400 + 10) - 1) == 0


@device
def test_shapes_are_checked():
    pm = two_products()
    assert pm.memory_plan({"x": [10, 16]}).sizes == {"batch": 10}
    with pytest.raises(KeyNotFound, match="did you mean 'x'"):
        pm.memory_plan({"xx": [10, 16]})
    for shape in (5, "ab", [1.5, 2], [-1, 16], [None, 16], [True, 16], [2**63, 16]):
        for look in (pm.memory_plan, lambda shapes: pm.explain(shapes=shapes)):
            with pytest.raises(ArgumentError, match="requires a list of sizes"):
                look({"x": shape})
    with pytest.raises(ShapeError, match="no valid value"):  # more bytes than 64 bits count
        pm.memory_plan({"x": [2**62, 16]})
    assert pm.memory_plan().largest("batch", 2**50) > 2**37
    with pytest.raises(ShapeError):
        pm.memory_plan({"x": [10, 17]})
    with pytest.raises(SignatureError):
        pm.memory_plan(3)


@device
def test_ranks_that_compile_was_not_told_are_those_of_the_shapes():
    pm = ml.compile(ml.Linear(4), ml.CpuBackend())
    with pytest.raises(UnsupportedError, match="the shapes of input are open"):
        pm.memory_plan()
    assert pm.memory_plan({"input": [5, 3]})["evaluate"].inputs == 4 * 15


@device
def test_loops_show_what_their_steps_take():
    cell = ml.Model()
    cell |= ml.MatrixMultiply()(left="h", right="w", output="p")
    cell |= ml.MatrixMultiply()(left="p", right="w", output="h_next")
    cell |= ml.Add()(left="h_next", right="x", output="y")
    cell.expose_keys("h_next", "y")
    model = ml.Model(name="net")
    model |= ml.Scan(cell, carry={"h": "h_next"}, xs=["x"], ys=["y"], name="loop")(
        x="x", h="h", w="w", y="ys"
    )
    model.expose_keys("ys")
    shapes = {"x": [9, 5, 64], "h": [5, 64], "w": [64, 64]}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes))
    plan = pm.memory_plan()["evaluate"]
    inside = [one for one in plan.contributors if one.dtype is None]
    assert inside and inside[0].kernel == "scan"
    assert inside[0].bytes >= 4 * 5 * 64 * 2  # p, and the second place of h
    assert "its own steps of scan" in str(pm.memory_plan())


@device
def test_models_that_are_watched_for_nan_have_plans():
    plan = two_products(8, check_nan=True).memory_plan()
    assert plan["evaluate"].outputs > 4  # with the counts


def test_frameworks_plan_for_themselves():
    with pytest.raises(UnsupportedError) as info:
        two_products(8, backend=ml.NumpyBackend()).memory_plan()
    assert "there is no plan" in str(info.value)
    assert "ml.CpuBackend()" in str(info.value)


@device
def test_the_table_is_for_people():
    text = str(two_products(optimizer=ml.optim.SGD(0.1)).memory_plan())
    assert re.search(r"memory of step at batch = 24 \(assumed; shapes= tells others\)", text)
    assert re.search(r"\n  intermediates +73.7 kB   3072\*batch\n", text)
    assert "49.2 kB float32[24, 512] of gemm in net.first" in text
    assert "formula: exact at batch=1, batch=12, batch=96, batch=768" in text
    plan = two_products(8, inference=True).memory_plan()
    assert repr(plan) == str(plan)
    assert "assumed" not in str(plan)


# --- refusals -------------------------------------------------------------------------------------


@device
def test_what_no_machine_has_is_refused_before_it_is_allocated():
    model = ml.Model(name="net")
    model |= ml.MatrixMultiply(name="outer")(left="a", right="b", output="c")
    model |= ml.MatrixMultiply(name="back")(left="c", right="a", output="y")
    model.expose_keys("y")
    shapes = {"a": [None, 1], "b": [1, None]}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes))
    n = 3_000_000  # 36 TB
    a = np.ones((n, 1), np.float32)
    for _ in range(2):
        with pytest.raises(OutOfMemoryError) as info:
            pm.evaluate({}, {"a": a, "b": a.T})
        text = str(info.value)
        assert "takes 36.0 TB (36.0 TB of intermediates, 12.0 MB of outputs)" in text
        assert "\n  36.0 TB float32[3000000, 3000000] of gemm in 'net.outer'" in text
        assert "help: memory_plan(shapes).largest(" in text
        assert isinstance(info.value, MemoryError)
    small = pm.evaluate({}, {"a": a[:3], "b": a[:3].T})
    np.testing.assert_allclose(small["y"], np.full((3, 1), 3.0))
    plan = pm.memory_plan({"a": [n, 1], "b": [1, n]})
    assert plan.peak == 4 * n * n


@device
def test_outputs_count_too():
    model = ml.Model(name="net")
    model |= ml.MatrixMultiply(name="outer")(left="a", right="b", output="y")
    shapes = {"a": [None, 1], "b": [1, None]}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes))
    a = np.ones((3_000_000, 1), np.float32)
    with pytest.raises(OutOfMemoryError, match=r"\(0 bytes of intermediates|36.0 TB of outputs"):
        pm.evaluate({}, {"a": a, "b": a.T})


# --- polynomials ----------------------------------------------------------------------------------


def test_polynomials_are_found_exactly():
    found = fit(lambda s: [3 * s["n"] * s["t"] ** 2 + 5 * s["n"] + 7, 0], {"n": 5, "t": 7})
    assert [str(one) for one in found] == ["3*n*t**2 + 5*n + 7", "0"]
    assert found[0]({"n": 2, "t": 3}) == 71
    assert str(found[0] + found[0]) == "6*n*t**2 + 10*n + 14"
    (halves,) = fit(lambda s: [s["n"] // 2 * s["n"]], {"n": 5})
    assert str(halves) == "n**2/2 - n/2"
    (cube,) = fit(lambda s: [s["n"] ** 3 - 2 * s["n"]], {"n": 1})
    assert str(cube) == "n**3 - 2*n"
    assert str(fit(lambda s: [42], {})[0]) == "42"
    assert fit(lambda s: [s["n"] ** 4], {"n": 3}) is None
    assert fit(lambda s: None, {"n": 3}) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 10**9), ("512MiB", 2**29), ("1.5 kB", 1500), ("7", 7), ("7b", 7), (12, 12)],
)
def test_sizes_of_memory(text, size):
    assert parse_size(text) == size
