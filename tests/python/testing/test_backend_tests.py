"""The conformance suite sees what is wrong with a backend, and survives all that one can do."""

import itertools
import types

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.backends.with_manualgrad.numpy_backend import ops as numpy_ops
from mithril.errors import ArgumentError, KeyNotFound, SignatureError, UnsupportedError
from mithril.testing import backend_tests, op_dtypes, op_matrix, oracle_ops, run_backend_tests
from mithril.testing._report import BackendReport, Row

SOME = ["add", "matmul", "relu", "softmax", "sum", "max", "linear", "reshape", "cast", "split"]


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    """What is right is not too slow under a sanitizer, or beside other work."""
    monkeypatch.setattr(backend_tests, "_SECONDS", 60.0)


def with_ops(**changed):
    """A NumPy backend whose table of functions has other ones in some places."""
    table = types.SimpleNamespace(**{**vars(numpy_ops), **changed})
    return type("Changed", (ml.NumpyBackend,), {"ops": table})()


# --- backends that are right ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy_passes_every_op(dtype):
    report = run_backend_tests(ml.NumpyBackend(dtype=dtype), samples=1 + (dtype == "float32"))
    assert report, str(report)
    assert report.passed == report.native == report.total
    assert report.fallback == report.failed == report.skipped == 0
    assert report.total == len(backend_tests.op_names()) + 3  # tensor, zeros, ones
    assert report.checks > 2 * report.total


@pytest.mark.device
def test_the_engine_passes_every_op_or_says_that_it_cannot():
    report = run_backend_tests(ml.CpuBackend())
    assert report, str(report)
    assert {row.name for row in report.rows if row.outcome == "skipped"} == {
        "item",
        "tensor_to_list",
    }
    assert report.row("linear").runs == "decomposed"
    assert all(row.reasons for row in report.rows if row.outcome == "skipped")


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_frameworks_pass(name):
    pytest.importorskip(name)
    report = run_backend_tests(ml.get_backend(name, dtype="float64"), ops=SOME, samples=2)
    assert report.passed == report.total == report.native == len(SOME), str(report)


@pytest.mark.frameworks
def test_jax_compiles_each_check_as_one_program():
    """Line by line each function would be compiled by itself. What a class brings runs as it is."""
    pytest.importorskip("jax")

    class Own(ml.JaxBackend):
        def tanh(self, input):
            return np.tanh(np.asarray(input))

    case = op_matrix.cases(_core.find_op("tanh"))[0]
    jits = [op_dtypes.quickly_compiled(case, b).jit for b in (ml.JaxBackend(), Own())]
    assert jits == [True, False]
    assert run_backend_tests(Own(), ops=["tanh"], dtypes=[]).row("tanh").checks


def test_jax_in_32_bits_has_no_64():
    """Its programs quietly take 32-bit types there; the suite says so."""
    pytest.importorskip("jax")
    report = run_backend_tests(
        ml.JaxBackend(), ops=["add", "power", "full", "argmax"], thorough=True
    )
    assert report.passed == report.total == 4, str(report)
    assert report.row("add").dtypes == {
        "float16": "native", "bfloat16": "native", "float32": "native", "int8": "native",
        "int16": "native", "int32": "native", "uint8": "native", "bool": "native",
        "float64": "unsupported: float64: it computes in float32",
        "int64": "unsupported: int64: it computes in int32",
    }  # fmt: skip
    assert run_backend_tests(ml.JaxBackend(), ops=["next_key"]).passed == 1
    cast = run_backend_tests(ml.JaxBackend(), ops=["cast"], thorough=True).row("cast")
    assert any("unsupported dtype float64" in reason for reason in cast.reasons)


class Opaque:
    """An array that shows nothing but its values."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype)

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)


class ThreeMethods(ml.Backend):
    """The smallest backend; dtypes arrive as strings."""

    NAMES = {str(d): d.numpy() for d in ml.Dtype if d != "bfloat16"}

    def tensor(self, data, dtype=None):
        return Opaque(np.array(data, self.NAMES.get(dtype, np.float32)))

    def zeros(self, shape, dtype=None):
        return Opaque(np.zeros(shape, self.NAMES.get(dtype, np.float32)))

    def ones(self, shape, dtype=None):
        return Opaque(np.ones(shape, self.NAMES.get(dtype, np.float32)))


def test_three_methods_run_every_op_by_fallback():
    report = run_backend_tests(ThreeMethods(), samples=1)
    assert report, str(report)
    assert report.passed == report.total
    # What makes arrays, and what needs no function at run time.
    assert {row.name for row in report.rows if row.runs != "fallback"} == {
        *backend_tests.CREATION,
        *("known_sizes", "slice", "buffer", "shape", "size", "length", "dtype"),
        *("padding_converter_1d", "padding_converter_2d", "stride_converter", "tuple_converter"),
    }
    assert report.row("matmul").runs == report.row("linear").runs == "fallback"
    assert report.fallback > 100 and report.native == report.total - report.fallback


def test_a_dtype_that_is_not_kept_is_unsupported():
    row = backend_tests.check(ThreeMethods(), "Backend.zeros")
    assert row.outcome == "passed"
    assert row.reasons == ("bfloat16: unsupported dtype bfloat16: zeros gave float32",)


def test_arrays_of_wrong_values_are_found():
    class Ones(ThreeMethods):
        def zeros(self, shape, dtype=None):
            return self.ones(shape, dtype)

    row = backend_tests.check(Ones(), "Backend.zeros")
    assert row.outcome == "failed" and "wrong" in row.reasons[0]


def test_methods_of_the_class_count_as_own():
    class WithTanh(ThreeMethods):
        def tanh(self, x):
            return Opaque(np.tanh(np.asarray(x)))

        def backward_sin(self, grad_output, inputs, outputs):
            return Opaque(np.asarray(grad_output) * np.cos(np.asarray(inputs[0])))

    report = run_backend_tests(WithTanh(), ops=["tanh", "gelu", "sin"], dtypes=["float32"])
    assert [row.runs for row in report.rows] == ["own", "fallback", "fallback"], str(report)
    assert (report.passed, report.native, report.own, report.fallback) == (3, 1, 1, 2)
    assert "3 of 3 passed (1 native, 1 of them own, 2 by fallback)" in str(report)
    assert report.row("tanh").dtypes["float32"] == "own"

    class OfNumpy(ml.NumpyBackend):
        def tanh(self, input):
            return np.tanh(input)

    report = run_backend_tests(OfNumpy(), ops=["tanh", "gelu"], samples=1, dtypes=["int8"])
    assert [row.runs for row in report.rows] == ["own", "native"]
    assert report.row("tanh").dtypes["int8"] == "own"


def test_the_report_tells_of_misspelt_methods():
    class Misspelt(ml.NumpyBackend):
        def backward_tahn(self, grad_output, inputs, outputs):
            return grad_output

        def backward_nothing_known(self, grad_output, inputs, outputs):
            return grad_output

    report = run_backend_tests(Misspelt(), ops=["tanh"], samples=1, dtypes=["float32"])
    said = (
        "backward_tahn: no op has this name; did you mean backward_tanh?",
        "backward_nothing_known: no op or registered function is called like that",
    )
    assert report.notes == said
    for text in (str(report), report.to_markdown(), report.to_html()):
        assert all(note in text for note in said)
    assert run_backend_tests(ml.NumpyBackend(), ops=["tanh"], samples=1).notes == ()


def test_rows_tell_element_types():
    report = run_backend_tests(ml.NumpyBackend(), ops=["exp", "logical_not"], samples=1)
    assert report.row("exp").dtypes == dict.fromkeys(map(str, ml.Dtype), "native")
    assert set(report.row("logical_not").dtypes) == {str(d) for d in ml.Dtype if not d.is_float}
    assert "| exp | passed | native | native all |" in report.to_markdown()
    assert "<td>native all</td>" in report.to_html()
    fewer = run_backend_tests(ml.NumpyBackend(), ops=["exp"], samples=1, dtypes=[ml.float16])
    assert set(fewer.row("exp").dtypes) == {"float16", "float32", "int64", "bool"}


def test_what_is_wrong_in_one_element_type_only():
    def exp(input):
        return (np.exp(input) * (1.01 if input.dtype == np.float16 else 1)).astype(input.dtype)

    row = run_backend_tests(with_ops(exp=exp), ops=["exp"], samples=1).row("exp")
    assert row.outcome == "failed" and row.reasons[0].startswith("exp[0, float16] output: ")
    assert row.dtypes["float16"].startswith("wrong: ") and row.dtypes["bfloat16"] == "native"


# --- backends that are wrong ---------------------------------------------------------------------

# Each wrong in its own way.
WRONG = {
    "add": lambda left, right: left - right,
    "exp": lambda input: np.exp(input) * input.dtype.type(1.0001),
    "relu": lambda input: np.maximum(input, 0.1).astype(input.dtype),
    "matmul": lambda left, right: np.matmul(left, right)[..., :0],  # the shape
    "tanh": lambda input: np.tanh(input).astype(np.float16),  # the width
    "sigmoid": lambda input: None,
    "sum": lambda input, **_: np.float32(np.nan),
    "transpose": lambda input, **_: input,
    "maximum": lambda left, right: np.fmax(left, right) + 0 * left * right + 1,
    "greater": lambda left, right: (left >= right).astype(np.int64),  # the dtype
}


def test_all_of_ten_wrong_ops_are_reported_by_name():
    right = run_backend_tests(ml.NumpyBackend(), ops=list(WRONG))
    assert right.failed == 0
    report = run_backend_tests(with_ops(**WRONG), samples=1)
    assert set(WRONG) <= set(report.failures)
    assert not report
    for name in WRONG:
        assert report.row(name).reasons and f"failed {name}: " in str(report)
    # Others fail only where their program calls a wrong one.
    assert report.passed > 60 and report.row("log").outcome == "passed"


def test_a_wrong_gradient_is_found():
    class Wrong(ml.NumpyBackend):
        """Its `greater` is right; the gradient of relu asks for it."""

        ops = types.SimpleNamespace(**{**vars(numpy_ops), "where": lambda cond, a, b: a})

    report = run_backend_tests(Wrong(), ops=["relu"])
    assert "gradient" in report.row("relu").reasons[0]
    assert "slope" in report.row("relu").reasons[0]


def test_a_wrong_slope_at_a_kink_is_found():
    def greater(left, right):
        return left >= right

    report = run_backend_tests(with_ops(greater=greater), ops=["relu"])
    assert [r for r in report.row("relu").reasons if r.startswith("kinks (engine): at [0.0]")]


def test_a_wider_float_is_found():
    """Its values are right, and it is not what the graph says."""
    report = run_backend_tests(
        with_ops(tanh=lambda input: np.tanh(np.float64(input))), ops=["tanh"]
    )
    assert "tanh[0, float] value: output: dtype float64, not float32" in report.row("tanh").reasons


def test_a_wrong_state_is_found():
    """Dropout's next key is made of words that are cut to 32 bits."""
    report = run_backend_tests(with_ops(bitwise_and=lambda left, right: left + 1), ops=["dropout"])
    reasons = report.row("dropout").reasons
    assert any("value: state rng_key: " in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda key: key, "passed"),
        (lambda key: key.astype(np.uint32).view(np.int32).astype(key.dtype), "passed"),
        (lambda key: key ^ 1, "failed"),
    ],
)
def test_random_keys_are_words(change, outcome):
    """JAX without 64-bit types has their upper half as negative integers."""
    backend = with_ops(next_key=lambda *words: change(oracle_ops.next_key(*words)))
    report = run_backend_tests(backend, ops=["next_key"], dtypes=[ml.int64])
    assert report.row("next_key").outcome == outcome


def test_errors_are_compared_with_their_text():
    op = dict(_core.find_op("matmul"))
    (sample, _), *_ = op["error_samples"]
    backend = ml.NumpyBackend()
    other = "no such text"  # errors show the line that calls, which must not have it
    said = backend_tests._error_problem(backend, op, sample, other)
    assert said.startswith("said ") and said.endswith("not 'no such text'")
    taken = backend_tests._error_problem(backend, op, op["samples"][0], "inner")
    assert taken == "was taken, not refused with 'inner'"


@pytest.mark.parametrize("result", [None, "text", [], object(), 3, np.zeros(0), (1, 2), {}])
def test_any_result_becomes_a_row(result):
    report = run_backend_tests(with_ops(tanh=lambda input: result), ops=["tanh", "exp"])
    assert report.row("tanh").outcome == "failed"
    assert report.row("exp").outcome == "passed"


def test_a_backend_that_raises_at_random():
    random = np.random.default_rng(5)
    kinds = [ValueError, RuntimeError, MemoryError, RecursionError, AssertionError, OSError]
    raised = []

    def shaky(name, function):
        def call(*args, **kwargs):
            if random.random() < 0.3:
                raised.append(name)
                raise kinds[len(raised) % len(kinds)](f"{name} gave up")
            return function(*args, **kwargs)

        return call

    names = [n for n in backend_tests.op_names() if callable(getattr(numpy_ops, n, None))]
    backend = with_ops(**{name: shaky(name, getattr(numpy_ops, name)) for name in names})
    report = run_backend_tests(backend, samples=1)
    assert report.total == len(backend_tests.op_names()) + 3
    assert report.failed > 30
    assert len(raised) > 60
    said = [reason for reasons in report.failures.values() for reason in reasons]
    assert all("raised" in reason and "gave up" in reason for reason in said)
    told = {kind.__name__ for kind in kinds} - {"MemoryError"} | {"OutOfMemoryError"}
    assert told <= {word for reason in said for word in reason.replace(":", " ").split()}


def test_creation_that_raises_is_reported():
    class Broken(ThreeMethods):
        def tensor(self, data, dtype=None):
            raise ZeroDivisionError("no arrays today")

    row = backend_tests.check(Broken(), "Backend.tensor")
    assert (row.outcome, row.checks) == ("failed", len(ml.Dtype))
    assert row.reasons[0] == "uint8: raised ZeroDivisionError: no arrays today"
    report = run_backend_tests(Broken(), ops=SOME)
    assert report.failed == report.total == len(SOME)


def test_a_stop_by_the_user_goes_through():
    def stop(left, right):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_backend_tests(with_ops(add=stop), ops=["add"])


def test_unsupported_is_skipped_and_not_failed():
    def cannot(input):
        raise UnsupportedError("erf: not on this device")

    row = run_backend_tests(with_ops(erf=cannot), ops=["erf"]).row("erf")
    assert row.outcome == "skipped"
    assert "not on this device" in row.reasons[0]


# --- arguments -----------------------------------------------------------------------------------


def test_bad_arguments():
    backend = ml.NumpyBackend()
    with pytest.raises(SignatureError, match="requires an instance of a backend"):
        run_backend_tests(ml.NumpyBackend)
    with pytest.raises(KeyNotFound, match="no op named 'relux', did you mean 'relu'"):
        run_backend_tests(backend, ops=["relux"])
    with pytest.raises(SignatureError, match="names of ops"):
        run_backend_tests(backend, ops="relu")
    backend.register_function("swish_of_tests", lambda x: x)
    with pytest.raises(KeyNotFound) as error:
        run_backend_tests(backend, ops=["swish_of_tests"])
    assert error.value.hint == "it is a registered function: ml.verify checks models that call it"
    with pytest.raises(ArgumentError, match="samples"):
        run_backend_tests(backend, samples=0)
    with pytest.raises(UnsupportedError, match="float32 or float64"):
        run_backend_tests(ml.NumpyBackend(dtype="float16"))


# --- the report ----------------------------------------------------------------------------------

HOSTILE = "a|b <script>alert(1)</script>\nsecond & line"


def test_counts_agree():
    outcomes = ["passed", "failed", "skipped"]
    ways = ["native", "decomposed", "fallback"]
    rows = [Row(f"{o}.{w}", o, w, 2) for o, w in itertools.product(outcomes, ways)]
    report = BackendReport("B", rows)
    assert (report.passed, report.failed, report.skipped, report.total) == (3, 3, 3, 9)
    assert (report.native, report.fallback) == (2, 1)
    assert report.checks == 18


def test_markdown():
    report = BackendReport("B", [Row("add", "failed", "native", 1, (HOSTILE,), 0.25)])
    assert report.to_markdown() == (
        "B: 0 of 1 passed (0 native, 0 by fallback), 1 failed, 0 skipped, 1 checks\n\n"
        "| op | outcome | runs | element types | checks | seconds | reasons |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| add | failed | native | - | 1 | 0.25 |"
        " a\\|b &lt;script&gt;alert(1)&lt;/script&gt;<br>second &amp; line |\n"
    )


def test_html():
    report = BackendReport("<B>", [Row("add", "failed", "native", 1, (HOSTILE,))])
    text = report.to_html()
    assert text.startswith("<p>&lt;B&gt;: 0 of 1 passed")
    assert "<script>" not in text and "&lt;script&gt;" in text
    assert text.count("<tr>") == text.count("</tr>") == 2
    assert report._repr_html_() == text


def test_long_lists_of_reasons_are_cut_in_tables_only():
    row = Row("add", "failed", "native", 9, tuple(f"reason {i}" for i in range(9)))
    text = BackendReport("B", [row]).to_markdown()
    assert "reason 4" in text and "reason 5" not in text and "and 4 more" in text
