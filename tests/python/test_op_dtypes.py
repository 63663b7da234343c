"""Every op in every element type, on every backend, against the oracle in float64; promotion.

float64, float32, int64 and bool, with all samples, are those of test_op_matrix.py. `--all-types`
(`make fuzz`) leaves out none on C and JAX.
"""

import itertools

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.errors import UnsupportedError
from mithril.testing import op_constants, op_dtypes, op_halves, op_matrix
from mithril.testing._support import DTYPES, Support, cell

OPS = {op["name"]: op for op in _core.ops() if op["samples"]}
NARROW = ("float16", "bfloat16", "uint8", "int8", "int16", "int32")
COMPILE = ("c", "jax")  # each program, which takes a while


@pytest.fixture(scope="module")
def backends():
    """Constructs each backend once, in float32."""
    made = {}
    return lambda name: made.setdefault(name, ml.get_backend(name))


def narrow_types(name, backend_name, all_types):
    """A half and an integer type of each op in turn, where each program is compiled for a while."""
    if all_types or backend_name not in COMPILE:
        return NARROW
    at = list(OPS).index(name)
    return NARROW[at % 2], NARROW[2 + at // 2 % 4]


def test_all_types_take_their_turn():
    assert {t for name in OPS for t in narrow_types(name, "c", False)} == set(NARROW)
    assert narrow_types("add", "cpu", False) == narrow_types("add", "c", True) == NARROW


@pytest.mark.parametrize("name", OPS)
def test_element_types(name, backend_name, backends, support_table, request):
    problems = []
    types = narrow_types(name, backend_name, request.config.getoption("--all-types"))
    for dtype, found in op_dtypes.check(backends(backend_name), OPS[name], types).items():
        support_table.note(name, backend_name, dtype, found.told)
        support_table.checks["values of ops in narrow types"] += found.values
        support_table.checks["gradients of ops in halves"] += found.gradients
        problems += found.problems
    assert not problems, "\n".join(problems)


# --- halves near the ends of their range ----------------------------------------------------------

FAR = {name: op for name, op in OPS.items() if list(op_halves.cases(op))}
# What is further off than two units, and why: of all backends, of frameworks, of PyTorch.
CANCELS = {
    "tanh_shrink": "x - tanh(x) has lost its digits in float32 where x is small, as in PyTorch",
}
FRAMEWORKS_CANCEL = {
    "cosh": "the slope exp(x) - exp(-x) of the formula, near 0",
    "softsign": "the slope 1 / (1 + |x|) - |x| / (1 + |x|)**2 of the formula, far out",
}
OF_PYTORCH = {
    "softmax": "its kernel takes the rounded result for the gradient",
    "layer_norm": "its kernel sums the gradients of scale and bias in float16",
    "conv2d": "its kernel sums in float16",
    "conv2d_dx": "its kernel sums in float16",
    "conv2d_dw": "its kernel sums in float16",
    "conv2d_channels_last": "its kernel sums in float16",
}
POINTWISE = 2  # the only ops that JAX compiles here: each takes a second


@pytest.mark.frameworks
@pytest.mark.parametrize("name", FAR)
def test_halves_are_near_the_exact_results(name, backend_name, backends, check_counts):
    """Values and gradients within two units, at both ends of the range and between."""
    wider = CANCELS | (FRAMEWORKS_CANCEL if backend_name in ("torch", "jax", "mlx") else {})
    wider |= OF_PYTORCH if backend_name == "torch" else {}
    if name in wider:
        pytest.skip(wider[name])
    options = {}
    chosen = list(op_halves.cases(OPS[name]))
    if backend_name == "jax":
        if OPS[name]["body"] != POINTWISE:
            pytest.skip("JAX compiles pointwise ops only here")
        chosen, options = chosen[:1], op_dtypes.quick_compile("jax")
    problems = []
    for case in chosen:
        try:
            model = op_matrix.compiled(case, backends(backend_name), **options)
            for place in op_halves.PLACES:
                told, count = op_halves.check(model, case, place)
                problems += told
                check_counts["halves near the ends of their range"] += count
        except UnsupportedError:
            continue
    assert not problems, "\n".join(problems)


# --- constants among the operands ---------------------------------------------------------------

CONSTANTS = {name: case for name, op in OPS.items() if (case := op_constants.sample(op))}


@pytest.mark.parametrize("name", CONSTANTS)
def test_types_beside_constants(name, backend_name, check_counts):
    """Floats have the backend's type, whichever operands are constants, and so have gradients."""
    case, problems = CONSTANTS[name], []
    chosen = list(op_constants.variants(case))
    compiles = backend_name in COMPILE
    if compiles:
        chosen = chosen[1:2] if OPS[name]["body"] == POINTWISE or backend_name == "c" else []
    for dtype in ("float16",) if compiles else ("float16", "float32"):
        backend = ml.get_backend(backend_name, dtype=dtype)
        for what, constants in chosen:
            found = op_constants.check(backend, case, constants) or {}
            check_counts["types of ops beside constants"] += len(found)
            result = op_matrix.float_result(OPS[name], dtype)
            for k, t in found.items():
                if t != (dtype if k.startswith("gradient of") else result):
                    problems.append(f"{dtype}, {what}: {k} is {t}")
    assert not problems, "\n".join(problems)


# --- promotion (contracts 11) ---------------------------------------------------------------------

ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


def promoted(a, b):
    """Of integers and bools NumPy's; a float wins; of two the wider, of the two halves float32."""
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    floats = [dtype for dtype in (a, b) if "float" in dtype]
    if not floats:
        return str(np.result_type(a, b))
    return max(floats, key=lambda dtype: (ml.Dtype(dtype).itemsize, dtype))


def all_pairs(count):
    """x + y of inputs of each two element types; `count` of the types."""
    kinds = {"bool": bool, **dict.fromkeys(op_dtypes.widths("int"), int)}
    model = ml.Model()
    keys = [
        ml.IOKey(dtype, shape=[3], type=ml.Tensor[kinds.get(dtype, float)])
        for dtype in DTYPES[:count]
    ]
    pairs = list(itertools.combinations_with_replacement(range(count), 2))
    for i, j in pairs:
        model |= ml.Add().connect(left=keys[i], right=keys[j], output=f"{i}_{j}")
    return model, pairs


def test_each_two_types_meet_in_one(backend_name):
    """In float64, where JAX has 64 bits, too."""
    backend = ml.get_backend(backend_name, dtype="float64")
    model, pairs = all_pairs(len(DTYPES))
    pm = ml.compile(model, backend, types={d: d for d in DTYPES}, data_keys=DTYPES, jit=False)
    data = {d: backend.array(np.array([0, 1, 1]), d) for d in DTYPES}
    out = pm.evaluate({}, data)
    for i, j in pairs:
        a, b = DTYPES[i], DTYPES[j]
        found = backend.to_numpy(out[f"{i}_{j}"])
        assert found.dtype == ml.Dtype(promoted(a, b)).numpy(), f"{a} + {b}"
        both = a == b == "bool"
        np.testing.assert_array_equal(found.astype(float), [0, 1, 1] if both else [0, 2, 2])


@pytest.mark.parametrize("source", DTYPES)
def test_casts_between_all_types(source, backend_name):
    """Integers wrap, floats saturate and are rounded once (docs/numerics.md)."""
    backend = ml.get_backend(backend_name, dtype="float64")
    floats = source.startswith(("f", "bf"))
    values = [0.0, 1.5, -2.75, 300.0, -40000.0, np.nan] if floats else [0, 1, 7, 100, 127, 77]
    x = np.array(values).astype(ml.Dtype(source).numpy())
    model = ml.Model()
    kind = bool if source == "bool" else float if floats else int
    key = ml.IOKey("x", shape=[6], type=ml.Tensor[kind])
    for dtype in DTYPES:
        model |= ml.Cast(ml.Dtype(dtype)).connect(input=key, output=f"to_{dtype}")
    pm = ml.compile(model, backend, types={"x": source}, data_keys=["x"], jit=False)
    out = pm.evaluate({}, {"x": backend.array(x, source)})
    for dtype in DTYPES:
        found = backend.to_numpy(out[f"to_{dtype}"])
        assert found.dtype == ml.Dtype(dtype).numpy()
        np.testing.assert_array_equal(
            found.astype(np.float64), converted(x, dtype).astype(np.float64), dtype
        )


def converted(x, dtype):
    """NumPy's conversion, but for floats to integers, which NumPy leaves open beyond the range."""
    if x.dtype.kind in "iub" or "int" not in dtype:
        return x.astype(np.float64).astype(ml.Dtype(dtype).numpy()) if x.dtype.kind not in "iub" \
            else x.astype(ml.Dtype(dtype).numpy())  # fmt: skip
    limits = np.iinfo(dtype)
    whole = np.nan_to_num(np.trunc(x.astype(np.float64)))
    return np.clip(whole, limits.min, limits.max).astype(dtype)


# --- what finds faults ----------------------------------------------------------------------------


def numpy_with(**functions):
    """NumPy's backend with other functions in some places."""
    import types

    from mithril.backends.with_manualgrad.numpy_backend import ops

    table = types.SimpleNamespace(**{**vars(ops), **functions})
    return type("Changed", (ml.NumpyBackend,), {"ops": table})()


# op, element type, a function that is wrong in that type only, what is said of it
WRONG = {
    "too coarse": ("exp", "float16", lambda x: (np.exp(x) * 1.01).astype(x.dtype), "wrong"),
    "too wide": ("tanh", "bfloat16", lambda x: np.tanh(x.astype("f4")), "dtype float32"),
    "saturating": ("negate", "int8", lambda x: np.maximum(-x.astype("i4"), -127).clip(-128, 127)
                   .astype(x.dtype), "wrong"),
    "of another width": ("abs", "int16", lambda x: np.abs(x).astype("i8"), "dtype int64"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_faults_are_found(fault):
    name, dtype, function, said = WRONG[fault]
    found = op_dtypes.check(numpy_with(**{name: function}), OPS[name], [dtype])[dtype]
    assert found.told.startswith("wrong: ") and said in found.problems[0]
    assert not op_dtypes.check(ml.NumpyBackend(), OPS[name], [dtype])[dtype].problems


def test_types_that_are_not_kept_are_unsupported():
    class Narrow(ml.NumpyBackend):
        def zeros(self, shape, dtype=None):
            if dtype == "bfloat16":
                raise ValueError("none of those")
            return super().zeros(shape, dtype)

    found = op_dtypes.check(Narrow(), OPS["exp"], ["bfloat16", "float16"])
    assert found["bfloat16"].told == "unsupported: bfloat16: none of those"
    assert found["float16"].told == "native"


def test_every_op_with_tensors_has_a_row():
    for name, op in OPS.items():
        kinds = {case.kind for _, case in op_dtypes.cases(op)}
        takes = any(i["kinds"] & _core.kinds()["tensor_float"] for i in op["inputs"])
        assert not takes or "float" in kinds, name


# --- the table ------------------------------------------------------------------------------------


def test_rows_that_are_equal_are_joined():
    table = Support()
    for op, backend in itertools.product(("exp", "log"), ("cpu", "numpy")):
        for dtype in DTYPES:
            table.note(op, backend, dtype, "native")
    table.note("add", "cpu", "int8", "wrong: 3 of 4")
    table.note("add", "cpu", "bool", "unsupported: no bools")
    table.note("add", "cpu", "float16", "native")
    table.note("add", "cpu", "float16", "unsupported: no loops")
    assert table.lines() == [
        "exp, log",
        "  cpu, numpy: native all",
        "add",
        "  cpu: wrong int8; partly native float16; unsupported bool",
        "unsupported:",
        "  no bools: add (cpu bool)",
        "  no loops: add (cpu float16)",
        "wrong:",
        "  3 of 4: add (cpu int8)",
        "3 ops, 2 backends, 10 element types: 41 native, 1 unsupported, 1 wrong",
    ]
    assert "| add | cpu |  | wrong |" in table.to_markdown()


def test_tables_of_several_runs_are_one(tmp_path):
    first, second = Support(), Support()
    first.note("exp", "cpu", "int8", "native")
    first.checks["values"] += 2
    second.note("exp", "cpu", "int8", "unsupported: odd ones")
    second.checks["values"] += 3
    for number, table in enumerate((first, second)):
        table.write(tmp_path / f"{number}.json")
    joined = Support()
    for number in range(2):
        joined.read(tmp_path / f"{number}.json")
    assert joined.rows["exp"]["cpu"]["int8"] == ["native", "unsupported: odd ones"]
    assert cell(joined.rows["exp"]["cpu"]["int8"]) == "partly native"
    assert joined.checked() == "5 checks: 5 values"
