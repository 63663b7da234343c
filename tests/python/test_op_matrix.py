# Covers: backends/cpu/structured/movement.cc backends/cpu/structured/gather.cc
# Covers: backends/cpu/conv/window_kernels.cc
# Covers: backends/cpu/target.cc
"""The op matrix: every op of the registry, on every backend, against the oracle.

Values in float32 and float64 (and integers and bools), gradients against central differences of
the oracle and against PyTorch's autograd, kinks in both modes of differentiation, second
derivatives, errors. What a backend does not support is a row of the table at the end of the run.
"""

import emulated_cuda
import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.cli._tables import built_in_ops
from mithril.errors import MithrilError, UnsupportedError
from mithril.testing import op_matrix
from mithril.testing.op_matrix import GRADIENT_BOUND, Case, cases, difference

OPS = {op["name"]: op for op in _core.ops() if op["samples"]}
BACKENDS = {
    "numpy": "NumpyBackend",
    "cpu": "CpuBackend",
    "c": "CBackend",
    "opencl": "OpenCLBackend",
    "cuda": "CudaBackend",
    "torch": "TorchBackend",
    "jax": "JaxBackend",
    "mlx": "MlxBackend",
}
MORE_BACKENDS = ("opencl", "cuda")
FRAMEWORKS = ("torch", "jax", "mlx")
DTYPES = ("float64", "float32")
# Eager JAX compiles every operation for every shape, C and devices every program: they get the
# first samples only.
MOST_SAMPLES = {"numpy": 99, "cpu": 99, "c": 1, "opencl": 1, "cuda": 1, "torch": 99, "jax": 2,
                "mlx": 99}  # fmt: skip
# Loops of devices and of C have one text for both; the tests of their backends have models in
# float32.
VALUE_DTYPES = dict.fromkeys(("c", "opencl", "cuda"), ("float64",))
GRADIENT_DTYPES = dict.fromkeys(("c", "jax"), ("float64",))

every_op = pytest.mark.parametrize("name", OPS)
# Those that run the engine's gradients only; the other backends run the same gradient programs.
engines = pytest.mark.parametrize("engine", ["numpy", "cpu"])


@pytest.fixture(scope="module")
def backends():
    """Constructs each backend once for each dtype."""
    made = {}

    def backend(name, dtype):
        if (name, dtype) not in made:
            made[name, dtype] = getattr(ml, BACKENDS[name])(dtype=dtype)
        return made[name, dtype]

    return backend


def modes(backend_name):
    return ("framework", "engine") if backend_name in FRAMEWORKS else ("engine",)


def title(backend_name):
    """The backend as the support table has it: a test double says that it is one."""
    is_double = backend_name == "cuda" and emulated_cuda.is_used()
    return "cuda (emulated)" if is_double else backend_name


def chosen(name, backend_name, dtype):
    """The cases that a backend runs in a dtype; integers and bools do not depend on it."""
    most = MOST_SAMPLES[backend_name]
    most = most if dtype == "float64" else (most + 1) // 2
    return [
        case
        for case in cases(OPS[name])
        if case.index < most
        and (case.kind == "float" or dtype == "float64")
        and not (backend_name == "jax" and dtype == "float32" and wants_64_bits(case))
    ]


def wants_64_bits(case):
    """JAX has no 64-bit types unless told to (K61), and quietly takes 32-bit ones."""
    return case.sample["attrs"].get("dtype") in ("float64", "int64")


def cotangents_of(model, outputs):
    random = np.random.default_rng(1)
    floats = {n: y for n, y in outputs.items() if getattr(y, "dtype", None) == np.float64}
    flags = dict(
        zip(model.output_keys, model._compilation.compiled.differentiable_outputs, strict=True)
    )
    return {n: random.standard_normal(y.shape) for n, y in floats.items() if n in flags}


def differentiable_cases(name, backend_name, dtype="float64"):
    op = OPS[name]
    if not (op["differentiable"] and op["has_gradient"]):
        return []
    float_cases = [case for case in chosen(name, backend_name, dtype) if case.kind == "float"]
    return [case for case in float_cases if case.differentiable]


# --- values --------------------------------------------------------------------------------------


@every_op
def test_values(name, backend_name, backends, support_table):
    """In 64 bits, float32 and bool; the other element types are those of test_op_dtypes.py."""
    problems = []
    for dtype in VALUE_DTYPES.get(backend_name, DTYPES):
        backend = backends(backend_name, dtype)
        for case in chosen(name, backend_name, dtype):
            # JAX compiles a program sooner than each of its ops: op by op in the first case, and
            # for bools, where XLA 0.10 makes 0 of the compiled quotient False / False.
            jit = backend_name == "jax" and case.index > 0 and case.kind != "bool"
            try:
                model = op_matrix.compiled(case, backend, jit=jit)
                got = op_matrix.evaluate(model, case, case.inputs)
            except UnsupportedError as error:
                how, of = f"unsupported: {first_line(error)}", op_matrix.dtype_of(case, backend)
                support_table.note(name, title(backend_name), of, how)
                continue
            of = op_matrix.dtype_of(case, backend, model)
            support_table.note(name, title(backend_name), of, op_matrix.way(model, OPS[name]))
            want = op_matrix.expected(model, case, case.inputs, dtype)
            pairs = [(key, got.outputs[key], value) for key, value in want.outputs.items()]
            pairs += [
                (key, as_words(key, got.states[key]), as_words(key, value))
                for key, value in want.states.items()
            ]
            assert pairs
            support_table.checks["values of ops"] += len(pairs)
            for key, found, value in pairs:
                problem = difference(found, value, op_matrix.value_bound(backend, case))
                if problem:
                    problems.append(f"{case.label} {dtype} {key}: {problem}")
    assert not problems, "\n".join(problems)


def as_words(key, value):
    """Random keys are words of 32 bits, in whatever integers."""
    return np.asarray(value).astype(np.uint32) if key == "rng_key" else value


def first_line(error):
    return str(error).splitlines()[0]


# --- gradients -----------------------------------------------------------------------------------

ROUNDS = {"cast"}  # its value is a staircase; its gradient is that of the identity


@pytest.mark.device
@engines
@pytest.mark.parametrize("name", [name for name in OPS if name not in ROUNDS])
def test_gradients_are_slopes(name, engine, backends, check_counts):
    """The engine's gradients along a direction, against central differences of the oracle."""
    backend = backends(engine, "float64")
    for case in differentiable_cases(name, engine):
        inputs = case.draw(points=False)
        try:
            model = op_matrix.compiled(case, backend)
            weights = cotangents_of(
                model, op_matrix.expected(model, case, inputs, "float64").outputs
            )
            run = op_matrix.evaluate(model, case, inputs, weights)
        except UnsupportedError:
            continue

        def total(at, model=model, case=case, weights=weights):
            outputs = op_matrix.expected(model, case, at, "float64").outputs
            return sum(float((w * outputs[n]).sum()) for n, w in weights.items())

        random = np.random.default_rng(2)
        for key in case.differentiable:
            direction = random.uniform(-1.0, 1.0, inputs[key].shape)
            slope = op_matrix.central_difference(total, inputs, {key: direction}, 1e-5)
            got = float((run.gradients[key] * direction).sum())
            check_counts["gradients of ops"] += 1
            assert got == pytest.approx(slope, rel=1e-6, abs=1e-6), f"{case.label} {key}"


@pytest.mark.frameworks
@every_op
def test_gradients_are_those_of_torch(name, backend_name, backends, check_counts):
    torch_oracle = pytest.importorskip("mithril.testing.torch_oracle")
    problems = []
    for dtype in GRADIENT_DTYPES.get(backend_name, DTYPES):
        backend = backends(backend_name, dtype)
        for case in differentiable_cases(name, backend_name, dtype):
            if dtype == "float32" and case.index > 0:
                continue
            for mode in modes(backend_name):
                if backend_name == "jax" and case.index > (2 if mode == "framework" else 0):
                    continue
                found = against_torch(torch_oracle, case, backend, dtype, mode)
                check_counts["gradients of ops"] += len(found)
                problems += filter(None, found)
    assert not problems, "\n".join(problems)


def against_torch(torch_oracle, case, backend, dtype, mode):
    """For each gradient what is wrong with it, or None."""
    try:
        # JAX compiles once at this shape, not op by op; its values are computed op by op above.
        jit = backend.backend_type == "jax"
        model = op_matrix.compiled(case, backend, autodiff=mode, jit=jit)
        outputs = op_matrix.expected(model, case, case.inputs, dtype).outputs
        weights = {
            n: w.astype(np.float32).astype(np.float64)
            for n, w in cotangents_of(model, outputs).items()
        }
        run = op_matrix.evaluate(model, case, case.inputs, weights)
    except UnsupportedError:
        return []
    inputs = op_matrix.all_inputs(model, case, case.inputs)
    want = torch_oracle.gradients(
        case.text, inputs, weights, case.differentiable, float_dtype=dtype
    )
    found = {key: difference(run.gradients[key], want[key], GRADIENT_BOUND[dtype]) for key in want}
    return [what and f"{case.label} {dtype} {mode} {key}: {what}" for key, what in found.items()]


SMOOTH = [name for name, op in OPS.items() if op["differentiable"] and not op["has_kinks"]]


@pytest.mark.frameworks
@engines
@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_are_those_of_torch(name, engine, backends, check_counts):
    """The engine's gradient program, differentiated once more and run in float64."""
    torch_oracle = pytest.importorskip("mithril.testing.torch_oracle")
    problems = []
    for case in differentiable_cases(name, engine)[:4]:
        inputs = case.draw(points=False)
        model = op_matrix.compiled(case, backends(engine, "float64"))
        outputs = op_matrix.expected(model, case, inputs, "float64").outputs
        weights = cotangents_of(model, outputs)
        random = np.random.default_rng(3)
        directions = {n: random.standard_normal(inputs[n].shape) for n in case.differentiable}
        try:
            got = op_matrix.second_derivative(model, case, inputs, weights, directions)
        except UnsupportedError:
            continue
        given = op_matrix.all_inputs(model, case, inputs)
        _, want = torch_oracle.second_gradients(case.text, given, weights, directions)
        for key, value in want.items():
            check_counts["second derivatives of ops"] += 1
            problem = difference(got[key], value, 1e-10)
            if problem:
                problems.append(f"{case.label} {key}: {problem}")
    assert not problems, "\n".join(problems)


# Ops whose gradient cuts or joins along an axis, with sizes that are known when data come.
OPEN = {
    "concat": ("concat", {"axis": 0}, [("input", (2, 3)), ("input", (4, 3))]),
    "concat, last axis": ("concat", {"axis": -1}, [("input", (2, 3)), ("input", (2, 1))]),
    "pad": ("pad", {"pad_width": ((1, 2), (0, 3))}, [("input", (2, 3))]),
    "pad, batch alone": ("pad", {"pad_width": ((0, 0), (1, 1))}, [("input", (2, 3))]),
    "matmul": ("matmul", {}, [("left", (2, 4, 3)), ("right", (3, 5))]),
    "add": ("add", {}, [("left", (2, 3)), ("right", (1, 3))]),
    "softmax": ("softmax", {"axis": 1}, [("input", (2, 3, 2))]),
    "variance": ("variance", {"axis": 0}, [("input", (4, 3))]),
    "cumsum": ("cumsum", {"axis": 0}, [("input", (4, 3))]),
    "max_pool2d": (
        *("max_pool2d", {"kernel_size": (2, 2), "stride": (2, 1)}),
        [("input", (1, 2, 5, 4))],
    ),
    "max_pooling3d": (
        *("max_pooling3d", {"kernel_size": 2, "stride": 1}),
        [("input", (1, 2, 3, 3, 4))],
    ),
    "convolution1d": (
        *("convolution1d", {"stride": 2, "padding": 1, "use_bias": False}),
        [("weight", (4, 2, 3)), ("input", (2, 2, 7))],
    ),
    "group_norm, one sample": (
        *("group_norm", {"num_groups": 1, "use_scale": False, "use_bias": False}),
        [("input", (1, 4, 3))],
    ),
    "instance_norm": (
        *("instance_norm", {"use_scale": False, "use_bias": False}),
        [("input", (2, 3, 4))],
    ),
    "rms_norm": ("rms_norm", {"use_scale": False}, [("input", (2, 3))]),
    "global_avg_pool": ("global_avg_pool", {}, [("input", (2, 3, 4, 2))]),
    "irfft": ("irfft", {}, [("real", (2, 4)), ("imag", (2, 4))]),
    "irfft, n": ("irfft", {"axis": 0, "n": 5}, [("real", (2, 4)), ("imag", (2, 4))]),
    "fftshift": ("fftshift", {}, [("input", (5, 4))]),
    "constantpad": ("constantpad", {"pad_width": (1, 2), "value": 3.0}, [("input", (2, 3))]),
}


@pytest.mark.device
@engines
@pytest.mark.parametrize("label", OPEN)
def test_gradients_with_open_sizes(label, engine, backends):
    name, attrs, shapes = OPEN[label]
    case = Case(OPS[name], 0, "float", {"shapes": shapes, "attrs": attrs, "integers": []})
    inputs = case.draw(points=False)
    backend = backends(engine, "float64")
    fixed = op_matrix.compiled(case, backend)
    weights = cotangents_of(fixed, op_matrix.expected(fixed, case, inputs, "float64").outputs)
    want = op_matrix.evaluate(fixed, case, inputs, weights)
    model = case.model(open_sizes=True)
    shapes = ml.compile(model, backend).shapes
    assert all(None in shapes[key] for key in shapes if shapes[key])
    got = op_matrix.evaluate(ml.compile(model, backend), case, inputs, weights)
    for key in want.gradients:
        assert difference(got.gradients[key], want.gradients[key], 1e-14) is None, key
    assert difference(got.outputs["output"], want.outputs["output"], 1e-14) is None


# --- kinks (contracts 12) ------------------------------------------------------------------------


def gradients_at(case, backend, mode, inputs, cotangent=None):
    model = op_matrix.compiled(case, backend, autodiff=mode)
    outputs = op_matrix.expected(model, case, inputs, "float64").outputs
    weight = np.ones(outputs["output"].shape) if cotangent is None else np.array(cotangent)
    return op_matrix.evaluate(model, case, inputs, {"output": weight}).gradients


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op["kinks"]])
def test_kinks_of_one_operand(name, backend_name, backends, check_counts):
    op = OPS[name]
    points, slopes = (np.array(column) for column in zip(*op["kinks"], strict=True))
    sample = {
        "shapes": [("input", points.shape)],
        "attrs": op["samples"][0]["attrs"],
        "integers": [],
    }
    case = Case(op, 0, "float", sample)
    for dtype in DTYPES:
        for mode in modes(backend_name):
            found = gradients_at(case, backends(backend_name, dtype), mode, {"input": points})
            check_counts["kinks of ops"] += points.size
            np.testing.assert_array_equal(
                found["input"], slopes.astype(found["input"].dtype), err_msg=f"{dtype} {mode}"
            )


INF, NAN = np.inf, np.nan
# op, attributes, inputs, cotangent, gradients
KINKS = {
    "maximum ties": (
        *("maximum", {}, {"left": [1.0, 2.0, -0.0], "right": [1.0, 1.0, 0.0]}, [1.0, 1.0, 1.0]),
        {"left": [0.5, 1.0, 0.5], "right": [0.5, 0.0, 0.5]},
    ),
    "minimum ties": (
        *("minimum", {}, {"left": [1.0, 2.0], "right": [1.0, 1.0]}, [1.0, 1.0]),
        {"left": [0.5, 0.0], "right": [0.5, 1.0]},
    ),
    "max ties": ("max", {}, {"input": [3.0, 1.0, 3.0]}, 1.0, {"input": [0.5, 0.0, 0.5]}),
    "max ties, one axis": (
        *("max", {"axis": 1}, {"input": [[1.0, 1.0], [2.0, 3.0]]}, [1.0, 1.0]),
        {"input": [[0.5, 0.5], [0.0, 1.0]]},
    ),
    "max ties, two axes": (
        *("max", {"axis": (0, 2)}, {"input": np.ones((2, 1, 2))}, [1.0]),
        {"input": np.full((2, 1, 2), 0.25)},
    ),
    "min ties": ("min", {}, {"input": [1.0, 1.0, 3.0]}, 1.0, {"input": [0.5, 0.5, 0.0]}),
    "x ** 0 at 0": (
        *("power", {}, {"base": [0.0, 2.0], "exponent": [0.0, 0.0]}, [1.0, 1.0]),
        {"base": [0.0, 0.0], "exponent": [0.0, np.log(2.0)]},
    ),
    "0 ** 2": (
        *("power", {}, {"base": [0.0], "exponent": [2.0]}, [1.0]),
        {"base": [0.0], "exponent": [0.0]},
    ),
    "absolute error at equality": (
        *("absolute_error", {}, {"input": [1.0], "target": [1.0]}, [1.0]),
        {"input": [0.0], "target": [0.0]},
    ),
    "where, cotangents NaN and inf": (
        "where",
        {},
        {"cond": [True, False], "input1": [1.0, 1.0], "input2": [1.0, 1.0]},
        [NAN, INF],
        {"input1": [NAN, 0.0], "input2": [0.0, INF]},
    ),
    "pooling: the first maximum": (
        "max_pool2d",
        {"kernel_size": (2, 2), "stride": (2, 2)},
        {"input": np.ones((1, 2, 2))},
        [[[1.0]]],
        {"input": [[[1.0, 0.0], [0.0, 0.0]]]},
    ),
    "pooling: padding never wins": (
        "max_pool2d",
        {"kernel_size": (2, 2), "stride": (2, 2), "padding": ((1, 0), (1, 0))},
        {"input": np.full((1, 1, 1), -5.0)},
        [[[1.0]]],
        {"input": [[[1.0]]]},
    ),
    "pooling a sequence: the first maximum": (
        *("max_pooling1d", {"kernel_size": 2}, {"input": np.ones((1, 1, 4))}),
        *([[[1.0, 2.0]]], {"input": [[[1.0, 0.0, 2.0, 0.0]]]}),
    ),
    "pooling a volume: the first maximum": (
        *("max_pooling3d", {"kernel_size": 2}, {"input": np.ones((1, 1, 2, 2, 2))}),
        *([[[[[1.0]]]]], {"input": np.eye(1, 8).reshape(1, 1, 2, 2, 2)}),
    ),
    "minima: the first one": (
        *("min_pooling1d", {"kernel_size": 2, "padding": (1, 1)}, {"input": np.ones((1, 1, 2))}),
        *([[[1.0, 2.0]]], {"input": [[[1.0, 2.0]]]}),
    ),
    "adaptive pooling: the first maximum": (
        *("adaptivemaxpool1d", {"output_size": 2}, {"input": np.ones((1, 1, 3))}),
        *([[[1.0, 2.0]]], {"input": [[[1.0, 2.0, 0.0]]]}),
    ),
    "the largest of a channel: ties share": (
        *("global_max_pool", {}, {"input": np.ones((1, 1, 2, 2))}),
        *([[[[1.0]]]], {"input": np.full((1, 1, 2, 2), 0.25)}),
    ),
    "leaky_relu at -0": ("leaky_relu", {}, {"input": [-0.0, 0.0]}, [1.0, 1.0],
                         {"input": [0.01, 0.01]}),
    "softplus at 0": ("softplus", {}, {"input": [0.0]}, [1.0], {"input": [0.5]}),
    "hinge loss at the margin": (
        *("hinge_loss", {}, {"input": [0.5, 0.25], "target": [2.0, 2.0]}, [1.0, 1.0]),
        {"input": [-1.0, -2.0], "target": [-0.25, -0.25]},
    ),
    "quantile loss at equality": (
        *("quantile_loss", {"quantile": 0.75}, {"input": [1.0, 0.0], "target": [1.0, 1.0]}),
        *([1.0, 1.0], {"input": [-0.25, -0.75], "target": [0.25, 0.75]}),
    ),
    "order at the margin": (
        *("margin_ranking_loss", {"margin": 0.5}, {"input1": [1.0], "input2": [0.5],
          "target": [1.0]}, [1.0], {"input1": [-0.5], "input2": [0.5], "target": [-0.25]}),
    ),
    "a learned slope at 0": (
        *("prelu", {}, {"input": [0.0, -2.0], "weight": [0.25]}, [1.0, 1.0]),
        {"input": [0.25, 0.25], "weight": [-2.0]},
    ),
    "angles at their ends": ("asin", {}, {"input": [1.0, -1.0]}, [1.0, 1.0], {"input": [INF, INF]}),
    "reciprocal below the threshold": (
        *("stable_reciprocal", {"threshold": 0.5}, {"input": [0.0, -0.25, 4.0]}, [1.0, 1.0, 1.0]),
        {"input": [-4.0, -4.0, -0.0625]},
    ),
    "robust power, on the line": (
        *("robust_power", {"threshold": 0.5}, {"base": [0.0, -0.25], "exponent": [0.5, -1.0]}),
        *([1.0, 1.0], {"base": [0.0, -2.0], "exponent": [0.0, 0.0]}),
    ),
    "distances of equal coordinates": (
        "distance_matrix",
        {},
        {"left": [[1.0]], "right": [[1.0], [3.0]], "norm": 1.0},
        [[1.0, 1.0]],
        {"left": [[-1.0]], "right": [[0.0], [1.0]], "norm": 2.0 * np.log(2.0)},
    ),
    "peaks of the norm modifier": (
        *("norm_modifier", {}, {"input": 5.0}, 1.0, {"input": 0.0}),
    ),
    "NaN and infinities": (
        *("nan_to_num", {}, {"input": [NAN, INF, -INF, 1.0]}, [1.0, 1.0, 1.0, 1.0]),
        {"input": [0.0, 0.0, 0.0, 1.0]},
    ),
    "smooth distance without a parabola": (
        *("smooth_l1_loss", {"beta": 0.0}, {"input": [1.0, 3.0], "target": [1.0, 1.0]}),
        *([1.0, 1.0], {"input": [0.0, 1.0], "target": [0.0, -1.0]}),
    ),
    "prod with one zero": ("prod", {}, {"input": [0.0, 2.0, 3.0]}, 1.0, {"input": [6.0, 0.0, 0.0]}),
    "prod with two zeros": ("prod", {}, {"input": [0.0, 0.0, 3.0]}, 1.0,
                            {"input": [0.0, 0.0, 0.0]}),
}  # fmt: skip


@pytest.mark.parametrize("kink", KINKS)
def test_kinks_of_several_elements(kink, backend_name, backends, check_counts):
    name, attrs, inputs, cotangent, slopes = KINKS[kink]
    inputs = {key: np.array(value) for key, value in inputs.items()}
    sample = {
        "shapes": [(key, value.shape) for key, value in inputs.items()],
        "attrs": attrs,
        "integers": [],
    }
    case = Case(OPS[name], 0, "float", sample)
    for mode in modes(backend_name):
        found = gradients_at(case, backends(backend_name, "float64"), mode, inputs, cotangent)
        for key, slope in slopes.items():
            check_counts["kinks of ops"] += np.size(slope)
            np.testing.assert_allclose(found[key], slope, rtol=1e-15, err_msg=f"{mode} {key}")


# --- edges of the number types (contracts 11) -----------------------------------------------------

LARGEST = np.iinfo(np.int64).max
# op, attributes, inputs, result
EDGES = {
    "integer // 0": ("floor_divide", {}, {"numerator": [7, -7, 0], "denominator": [0, 0, 0]},
                     [0, 0, 0]),
    "integer // rounds down": ("floor_divide", {}, {"numerator": [7, -7, 7], "denominator":
                               [2, 2, -2]}, [3, -4, -4]),
    "integer % 0": ("mod", {}, {"numerator": [7, -7], "denominator": [0, 0]}, [0, 0]),
    "% has the divisor's sign": ("mod", {}, {"numerator": [7.5, -7.5], "denominator": [-2.0, 2.0]},
                                 [-0.5, 0.5]),
    "integers wrap": ("add", {}, {"left": [LARGEST], "right": [1]}, [-LARGEST - 1]),
    "products wrap": ("multiply", {}, {"left": [LARGEST], "right": [2]}, [-2]),
    "shifts beyond the width": ("shift_left", {}, {"input": [1, 1, 1], "shift": [3, 64, 200]},
                                [8, 0, 0]),
    "right shifts keep the sign": ("shift_right", {}, {"input": [-8, -8, 8], "shift": [1, 64, 64]},
                                   [-4, -1, 0]),
    "division by 0": ("divide", {}, {"numerator": [1.0, -1.0, 0.0], "denominator": [0.0] * 3},
                      [INF, -INF, NAN]),
    "maximum of NaN": ("maximum", {}, {"left": [NAN, 1.0], "right": [1.0, NAN]}, [NAN, NAN]),
    "minimum of NaN": ("minimum", {}, {"left": [NAN, 1.0], "right": [1.0, NAN]}, [NAN, NAN]),
    "max of NaN": ("max", {}, {"input": [1.0, NAN, 3.0]}, NAN),
    "min of NaN": ("min", {}, {"input": [1.0, NAN, 3.0]}, NAN),
    "argmax takes the first": ("argmax", {}, {"input": [1.0, 3.0, 3.0]}, 1),
    "argmax takes NaN": ("argmax", {}, {"input": [INF, NAN, 3.0, NAN]}, 1),
    "argmin takes NaN": ("argmin", {}, {"input": [-INF, NAN, 3.0]}, 1),
    "clamp of NaN": ("clamp", {"min_val": 0.0, "max_val": 1.0}, {"input": [NAN, -INF]}, [NAN, 0.0]),
    "relu of NaN": ("relu", {}, {"input": [NAN, INF, -INF]}, [NAN, INF, 0.0]),
    "NaN equals nothing": ("equal", {}, {"left": [NAN], "right": [NAN]}, [False]),
    "NaN differs from all": ("not_equal", {}, {"left": [NAN], "right": [NAN]}, [True]),
    "x ** 0": ("power", {}, {"base": [0.0, NAN, -2.0], "exponent": [0.0] * 3}, [1.0, 1.0, 1.0]),
    "sigmoid does not overflow": ("sigmoid", {}, {"input": [-1000.0, 1000.0]}, [0.0, 1.0]),
    "softplus does not overflow": ("softplus", {}, {"input": [-1000.0, 1000.0]}, [0.0, 1000.0]),
    "softmax does not overflow": ("softmax", {}, {"input": [1000.0, 1000.0]}, [0.5, 0.5]),
    "log_softmax does not underflow": ("log_softmax", {}, {"input": [0.0, -2000.0]},
                                       [0.0, -2000.0]),
    "softmax leaves -inf out": ("softmax", {}, {"input": [-INF, 0.0]}, [0.0, 1.0]),
    "log of 0 and below": ("log", {}, {"input": [0.0, -1.0]}, [-INF, NAN]),
    "sqrt below 0": ("sqrt", {}, {"input": [-1.0, INF]}, [NAN, INF]),
    "log1p near 0": ("log1p", {}, {"input": [1e-20, -1.0]}, [1e-20, -INF]),
    "expm1 near 0": ("expm1", {}, {"input": [1e-20, -INF]}, [1e-20, -1.0]),
    "hyperbolic functions near 0": ("sinh", {}, {"input": [1e-20, -1e-20]}, [1e-20, -1e-20]),
    "asinh of large numbers": ("asinh", {}, {"input": [-1e300, 1e-20, INF]},
                               [-691.4686750787737, 1e-20, INF]),
    "acosh at its edges": ("acosh", {}, {"input": [1.0, 0.5, -1e20, 1e300]},
                           [0.0, NAN, NAN, 691.4686750787737]),
    "atanh at its edges": ("atanh", {}, {"input": [1.0, -1.0, 2.0, 1e-20]},
                           [INF, -INF, NAN, 1e-20]),
    "log_sigmoid does not underflow": ("log_sigmoid", {}, {"input": [-1000.0, 1000.0]},
                                       [-1000.0, 0.0]),
    "logsumexp does not overflow": ("logsumexp", {}, {"input": [1000.0, 1000.0]},
                                    1000.0 + np.log(2.0)),
    "logsumexp of -inf": ("logsumexp", {}, {"input": [-INF, -INF]}, -INF),
    "logsumexp of inf": ("logsumexp", {}, {"input": [INF, 0.0]}, INF),
    "mish does not overflow": ("mish", {}, {"input": [-1000.0, 1000.0]}, [0.0, 1000.0]),
    "reciprocal of 0": ("stable_reciprocal", {"threshold": 0.5}, {"input": [0.0, -0.25]},
                        [4.0, -3.0]),
    "divergence from nothing": ("kl_divergence", {}, {"input": [0.5], "target": [0.0]}, [0.0]),
    "halves go to the even integer": ("round", {}, {"input": [0.5, 1.5, -2.5]}, [0, 2, -2]),
    "sum of nothing": ("sum", {"axis": 0}, {"input": np.zeros((0, 2))}, [0.0, 0.0]),
    "prod of nothing": ("prod", {"axis": 0}, {"input": np.zeros((0, 2))}, [1.0, 1.0]),
    "mean of nothing": ("mean", {}, {"input": np.zeros(0)}, NAN),
    "any and all of nothing": ("all", {}, {"input": np.zeros(0)}, True),
    "out of range casts saturate": ("cast", {"dtype": ml.int32},
                                    {"input": [3e9, -3e9, NAN, 2.9, -2.9]},
                                    [2**31 - 1, -(2**31), 0, 2, -2]),
    "0 inf under a mask": ("where", {}, {"cond": [False, True], "input1": [INF, 1.0],
                                         "input2": [2.0, NAN]}, [2.0, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize("edge", EDGES)
def test_edges(edge, backend_name, backends, check_counts):
    name, attrs, inputs, result = EDGES[edge]
    inputs = {key: np.array(value) for key, value in inputs.items()}
    kinds = {value.dtype.kind for value in inputs.values()}
    kind = "float" if "f" in kinds else "int"
    shapes = [(key, value.shape) for key, value in inputs.items()]
    case = Case(OPS[name], 0, kind, {"shapes": shapes, "attrs": attrs, "integers": []})
    model = op_matrix.compiled(case, backends(backend_name, "float64"))
    got = op_matrix.evaluate(model, case, inputs).outputs["output"]
    check_counts["values of ops"] += 1
    assert difference(got, np.array(result), 1e-15) is None


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic_functions_overflow_no_sooner_than_they_must(name, backend_name, backends):
    """exp overflows at 709.8, these at 710.5."""
    x = np.array([-710.0, 1.0, 25.0, 710.0])
    case = Case(OPS[name], 0, "float", {"shapes": [("input", (4,))], "attrs": {}, "integers": []})
    model = op_matrix.compiled(case, backends(backend_name, "float64"))
    got = op_matrix.evaluate(model, case, {"input": x}).outputs["output"]
    np.testing.assert_allclose(got, getattr(np, name)(x), rtol=1e-13)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op["error_samples"]])
def test_error_samples(name, check_counts):
    op = OPS[name]
    for sample, message in op["error_samples"]:
        with pytest.raises(MithrilError) as failure:
            Case(op, 0, "float", sample).model()
        check_counts["errors of ops"] += 1
        # Clashes of two given shapes are told by the solver, which names the model by its class.
        text = str(failure.value).replace("_", "").lower()
        assert message.replace("_", "").lower() in text
        assert "bug in mithril" not in text


# --- the cases themselves ------------------------------------------------------------------------


def test_every_op_has_samples():
    """But for those that make containers of host values, which stand in no graph, loops, which no
    operands alone make (tests/python/models/test_control.py), products that only a pass makes
    (tests/python/backends/test_products_of_halves.py), and what other tests define."""
    own = {op["name"] for op in built_in_ops()}
    loops = {"scan", "scan_enter", "scan_slice", "scan_stack", "scan_exit"}
    loops |= {"cond", "cond_join", "while_loop", "while_exit"}
    of_halves = {"widening_matmul", "biased_matmul"}
    assert own - set(OPS) == {"to_tuple", "to_list", "union"} | loops | of_halves


def test_differences_are_found():
    assert difference(np.array([1.0, 2.0]), np.array([1.0, 2.0]), 1e-13) is None
    assert difference(np.array([1.0, NAN]), np.array([1.0, NAN]), 1e-13) is None
    assert "1 of 2 wrong, at (1,)" in difference(np.ones(2), np.array([1.0, 1.1]), 1e-3)
    assert "shape (2,)" in difference(np.ones(2), np.ones((2, 1)), 1.0)
    assert "dtype" in difference(np.ones(2), np.ones(2, int), 1.0)
    assert "wrong" in difference(np.array([INF]), np.array([-INF]), 1.0)
    assert difference(3, 3, 0.0) is None
    assert difference((3, 4), (3, 5), 0.0)
    assert difference(True, 1, 0.0)


def test_slopes_of_a_known_function():
    slope = op_matrix.central_difference(
        lambda at: float((at["x"] ** 3).sum()),
        {"x": np.array([1.0, 2.0])},
        {"x": np.array([1.0, 1.0])},
    )
    assert slope == pytest.approx(15.0, rel=1e-9)
