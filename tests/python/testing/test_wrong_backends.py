"""The suite finds custom backends that are wrong, and says of which op by its smallest sample."""

import contextlib
import gc
import io
import time

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ShapeError, SignatureError
from mithril.testing import _time_limit, backend_tests, run_backend_tests
from mithril.testing._progress import Progress
from mithril.testing._time_limit import OutOfTime, within


class Right(ml.Backend):
    """The documents' backend: three methods over NumPy."""

    NAMES = {"float32": np.float32, "float64": np.float64, "int32": np.int32, "int64": np.int64,
             "bool": np.bool_}  # fmt: skip

    def tensor(self, data, dtype=None):
        return np.array(data, self.NAMES.get(dtype))

    def zeros(self, shape, dtype=None):
        return np.zeros(shape, self.NAMES.get(dtype))

    def ones(self, shape, dtype=None):
        return np.ones(shape, self.NAMES.get(dtype))


def row_of(cls, op, **options):
    report = run_backend_tests(cls(), ops=[op], **options)
    return report.row(op)


def test_the_right_one_passes():
    ops = ["add", "tanh", "exp", "sin", "cos", "Backend.tensor", "Backend.zeros", "Backend.ones"]
    report = run_backend_tests(Right(), ops=ops)
    assert report.passed == len(ops), str(report)


def test_add_that_subtracts():
    class Wrong(Right):
        def add(self, left, right):
            return left - right

    row = row_of(Wrong, "add")
    assert row.outcome == "failed"
    first = row.reasons[0]
    assert "wrong, at" in first and " for left = " in first and "right = " in first
    others = run_backend_tests(Wrong(), ops=["multiply", "exp"])
    assert others.passed == 2  # by op


def test_zeros_without_their_dtype():
    class Wrong(Right):
        def zeros(self, shape, dtype=None):
            return np.zeros(shape, np.float32)

    row = row_of(Wrong, "Backend.zeros")
    assert row.outcome == "failed"
    assert row.reasons[0] == "int32: ignores dtype: gave float32, and tensor makes int32"
    # What no method makes is unsupported.
    assert any("int8: unsupported dtype int8" in reason for reason in row.reasons)


def test_a_gradient_of_the_wrong_sign():
    class Wrong(Right):
        def backward_tanh(self, grad_output, inputs, outputs):
            return -grad_output * (1 - outputs[0] ** 2)

    row = row_of(Wrong, "tanh")
    assert row.outcome == "failed"
    assert "gradient (engine): input: slope" in row.reasons[0]
    assert not [reason for reason in row.reasons if " value: " in reason]


def test_a_result_of_the_wrong_shape():
    class Wrong(Right):
        def exp(self, x):
            return np.exp(x)[..., None]

    row = row_of(Wrong, "exp")
    assert row.outcome == "failed"
    assert "shape (1,), not ()" in row.reasons[0]
    assert any("requires the shape [2, 3], got [2, 3, 1]" in reason for reason in row.reasons)
    model = ml.Model()
    model |= ml.Exponential()(input="x", output="y")
    pm = ml.compile(model, Wrong(), data_keys={"x"})
    with pytest.raises(ShapeError, match=r"y: requires the shape \[2\], got \[2, 1\]") as error:
        pm.evaluate({}, {"x": np.ones(2, np.float32)})
    assert "Wrong.exp" in str(error.value)


def test_a_result_of_another_element_type():
    class Wrong(ml.NumpyBackend):
        def matmul(self, left, right):
            return np.matmul(left, right)  # float32 of bfloat16

        def tanh(self, x):
            return np.tanh(x.astype(np.float64))

    report = run_backend_tests(Wrong(), ops=["matmul", "tanh"], samples=1, dtypes=["bfloat16"])
    cure = "the op's result has that type: cast what the method returns"
    assert f"dtype float32, not bfloat16; {cure}" in report.row("matmul").reasons[0]
    assert f"dtype float64, not float32; {cure}" in report.row("tanh").reasons[0]


def test_a_foreign_array():
    class Foreign:
        """It looks like an array, and shows its values."""

        shape, dtype = (2,), np.dtype(np.float32)

        def __array__(self, dtype=None, copy=None):
            return np.zeros(2, np.float32)

    class Wrong(Right):
        def sin(self, x):
            return Foreign()

    row = row_of(Wrong, "sin")
    assert row.outcome == "failed"
    assert "Wrong.sin: requires an array of the backend" in row.reasons[0]
    assert "(numpy.ndarray), got " in row.reasons[0] and "Foreign" in row.reasons[0]


@pytest.mark.frameworks
def test_an_array_of_another_framework():
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")

    class Wrong(ml.JaxBackend):
        def sin(self, x):
            return torch.zeros(tuple(x.shape))

    row = row_of(Wrong, "sin", samples=1, dtypes=[])
    assert row.outcome == "failed"
    assert "got torch.Tensor" in row.reasons[0]


def test_a_list_is_no_array():
    class Wrong(Right):
        def sin(self, x):
            return [1.0, 2.0]

    assert "Wrong.sin: requires an array as its result, got list" in row_of(Wrong, "sin").reasons[0]


def test_one_that_raises():
    class Wrong(Right):
        def cos(self, x):
            raise RuntimeError("the chip is hot")

    row = row_of(Wrong, "cos")
    assert row.outcome == "failed"
    assert "raised RuntimeError: the chip is hot for input = " in row.reasons[0]


def test_one_that_lacks_a_method():
    class Lacking(ml.Backend):
        def tensor(self, data, dtype=None):
            return np.array(data)

    with pytest.raises(TypeError, match="ones.*zeros"):
        run_backend_tests(Lacking())
    with pytest.raises(SignatureError, match="an instance of a backend"):
        run_backend_tests(Lacking)

    class Dark(Right):
        """Its arrays show nothing, and it has no `to_numpy`."""

        def tensor(self, data, dtype=None):
            return object()

    report = run_backend_tests(Dark(), ops=["Backend.tensor", "add"])
    assert report.failed == 2
    told = report.row("Backend.tensor").reasons
    assert told[0] == "makes arrays of no element type" and "define to_numpy" in told[1]


def test_a_scalar_keeps_its_element_type():
    """What NumPy gives of arrays of rank 0 is a float of Python's by class, too."""

    class Good(ml.NumpyBackend):
        def add(self, left, right):
            return np.add(left, right)

    report = run_backend_tests(Good(), ops=["logsumexp", "slogdet"], samples=1)
    assert report.passed == 2, str(report)


def test_the_smallest_sample_comes_first():
    class Wrong(ml.NumpyBackend):
        def exp(self, x):
            return np.exp(x) * (2 if x.size > 1 else 1)

    first = row_of(Wrong, "exp").reasons[0]
    assert "[2, 3]" in first or first.count(",") >= 2  # no sample of one element fails


# --- how much is run ------------------------------------------------------------------------------


def test_compilers_run_few_samples_by_default(monkeypatch):
    seen = []

    def noted(backend, name, samples, dtypes, make, limit):
        seen.append((samples, tuple(dtypes)))
        return ml.testing.backend_tests.Row(name, "passed")

    monkeypatch.setattr(backend_tests, "check", noted)
    everything = tuple(backend_tests.DTYPES)
    for backend, few in ((ml.NumpyBackend(), (None, everything)), (Right(), (None, everything)),
                         (ml.CBackend(), (1, ("float16",)))):  # fmt: skip
        run_backend_tests(backend, ops=["add"])
        run_backend_tests(backend, ops=["add"], thorough=True)
        run_backend_tests(backend, ops=["add"], samples=3, dtypes=["int8"])
        assert seen == [few, (None, everything), (3, ("int8",))]
        seen.clear()


# --- what does not end ----------------------------------------------------------------------------


class Sleepless(ml.NumpyBackend):
    """Its numbers are all less than others: `while` of an op's body never ends."""

    def less(self, left, right):
        return np.ones(np.broadcast(left, right).shape, bool)


def test_a_loop_without_end_is_left(monkeypatch):
    monkeypatch.setattr(backend_tests, "_SECONDS", 0.5)
    row = run_backend_tests(Sleepless(), ops=["matrix_exp"]).row("matrix_exp")
    assert row.outcome == "failed" and row.is_stopped
    assert "did not end within 0.5 s" in row.reasons[0]
    monkeypatch.undo()
    row = run_backend_tests(Sleepless(), ops=["less"]).row("less")
    assert "wrong, at" in row.reasons[0] and not row.is_stopped


def test_other_ops_are_not_run_after_a_few_that_do_not_end(monkeypatch):
    monkeypatch.setattr(backend_tests, "_SECONDS", 0.2)

    class Wrong(Right):
        def add(self, left, right):
            while True:
                pass

    ran = run_backend_tests(Wrong(), ops=["add"] * 5 + ["exp"], samples=1)
    assert [row.outcome for row in ran.rows] == ["failed"] * 4 + ["skipped"] * 2
    assert ran.rows[-1].reasons == ("not run, for add, add, add, add did not end",)
    assert str(ran).count("did not end within 0.2 s") == 4


def test_thorough_has_no_limit_and_neither_have_classes_of_this_package(monkeypatch):
    seen = []

    def noted(backend, name, samples, dtypes, make, limit):
        seen.append(limit)
        return ml.testing.backend_tests.Row(name, "passed")

    monkeypatch.setattr(backend_tests, "check", noted)
    run_backend_tests(Right(), ops=["add"])
    run_backend_tests(Right(), ops=["add"], thorough=True)
    run_backend_tests(ml.NumpyBackend(), ops=["add"])
    assert seen == [5.0, None, None]


def test_a_limit_on_time():
    assert within(None, lambda: 3) == within(5.0, lambda: 3) == 3

    def forever():
        while True:
            with contextlib.suppress(Exception):
                time.perf_counter()

    with pytest.raises(OutOfTime):
        within(0.05, forever)
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 / 0)
    for _ in range(50):  # ends just when its time is over: nothing is raised behind it
        with contextlib.suppress(OutOfTime):
            within(0.001, lambda: time.sleep(0.001))
    assert sum(range(1000)) == 499500


class Late(_time_limit._Clock):
    """It rings once more in the very line that stops it."""

    rings = 1

    @property
    def stop(self):
        if self.rings > 0:
            self.rings -= 1
            raise OutOfTime
        return super().stop


@pytest.mark.parametrize("seconds", [0.05, 60.0])
def test_a_limit_does_not_ring_later(seconds, monkeypatch):
    monkeypatch.setattr(_time_limit, "_Clock", Late)
    with contextlib.suppress(OutOfTime):
        assert within(seconds, lambda: time.sleep(0.06) or 3) == 3
        assert seconds == 60.0
    end = time.monotonic() + 3 * _time_limit._AGAIN
    while time.monotonic() < end:
        sum(range(100))


def test_a_limit_that_is_lost_once_comes_again():
    """Callbacks of the garbage collector lose what is raised in them; the test library has one."""
    lost, end = [], time.monotonic() + 5

    def collecting(phase, info):
        while not lost and time.monotonic() < end:
            try:
                time.sleep(0.001)
            except OutOfTime:
                lost.append(phase)

    def forever():
        gc.collect()
        while time.monotonic() < end:
            time.sleep(0.001)

    gc.callbacks.append(collecting)
    try:
        with pytest.raises(OutOfTime):
            within(0.05, forever)
    finally:
        gc.callbacks.remove(collecting)
    assert lost == ["start"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal_only():
    for stream, want in ((Terminal(), "[###############...............] 1/2, 1 failed  exp"),
                         (io.StringIO(), "")):  # fmt: skip
        with Progress(2, stream) as progress:
            progress.report("add", 0)
            progress.report("exp", 1)
            shown = stream.getvalue().rpartition("\x1b[K")[2]
        assert shown == want
        assert stream.getvalue().endswith("\r\x1b[K") or not want
