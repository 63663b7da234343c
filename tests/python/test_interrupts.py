"""Ctrl-C while the engine compiles and computes, and threads that evaluate while Python ends.

Each case runs in a process of its own. Limits on waiting are ten times the contract's 200 ms."""

import subprocess
import sys

import pytest
from formats.loading import SANITIZED

pytestmark = pytest.mark.device

SET_UP = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
import mithril as ml, numpy as np

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell

def interrupt(after, work):
    "Seconds from a Ctrl-C `after` seconds to its exception; None where `work` was done before."
    sent = []

    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, send)
    timer.start()
    try:
        work()
        timer.cancel()
        timer.join()
        if sent:
            time.sleep(5)  # raised here, if it was not lost
    except KeyboardInterrupt:
        return time.perf_counter() - sent[0]
    return "lost" if sent else None
"""


def run(code: str, timeout: float = 240) -> list[str]:
    """The lines that the code prints."""
    out = subprocess.run(
        [sys.executable, "-c", SET_UP + code], capture_output=True, text=True, timeout=timeout
    )
    assert out.returncode == 0, out.stderr[-3000:]
    return out.stdout.splitlines()


LONG_MODEL = """
model = ml.Model()
model |= ml.Tanh()(input="input", output="v0")
for _ in range(20_000):
    model += ml.Tanh()
model.set_shapes(input=[3])
backend = ml.CpuBackend()
compiles = lambda: ml.compile(model, backend, trainable_keys={"input"})
"""


def test_an_interrupt_stops_a_compile():
    (line,) = run(
        LONG_MODEL
        + """
waits = [interrupt(0.01 + 0.02 * i, compiles) for i in range(12)]
waits = [wait for wait in waits if wait is not None]
print("lost" in waits, len(waits), max(w for w in waits if w != "lost"))
"""
    )
    lost, stopped, longest = line.split()
    assert lost == "False"
    assert int(stopped) >= 3
    assert float(longest) < 2


def test_an_interrupt_of_a_listener_stops_the_compile():
    assert run("""
import logging
class Interrupting(logging.Handler):
    def emit(self, record):
        signal.raise_signal(signal.SIGINT)
log = logging.getLogger("mithril.passes")
log.setLevel("DEBUG")
log.addHandler(Interrupting())
try:
    ml.compile(ml.Tanh(), ml.CpuBackend())
    print("done")
except KeyboardInterrupt:
    print("stopped")
""") == ["stopped"]


def test_a_failing_listener_stops_nothing():
    assert run("""
import logging
class Failing(logging.Filter):
    def filter(self, record):
        raise ValueError("no")
log = logging.getLogger("mithril.passes")
log.setLevel("DEBUG")
log.addFilter(Failing())
sys.stderr = None
ml.compile(ml.Tanh(), ml.CpuBackend())
print("done")
""") == ["done"]


def test_a_handler_that_raises_nothing_stops_nothing():
    told, same = run("""
count = 0
def note(*_):
    global count
    count += 1
    pm.evaluate({}, few)  # within the one that it interrupts
m = ml.Model()
m |= ml.MatrixMultiply()(left="a", right="b", output="c")
for _ in range(40):
    m += ml.MatrixMultiply()(right="b")
pm = ml.compile(m, ml.CpuBackend(), inference=True, data_keys={"a", "b"})
rng = np.random.default_rng(0)
few = {k: np.ones((3, 3), np.float32) for k in "ab"}
many = {k: rng.normal(size=(700, 700), scale=0.03).astype(np.float32) for k in "ab"}
wanted = [a.tobytes() for a in pm.evaluate({}, many).values()]
signal.signal(signal.SIGALRM, note)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
got = [a.tobytes() for a in pm.evaluate({}, many).values()]
signal.setitimer(signal.ITIMER_REAL, 0)
print(count > 0)
print(got == wanted)
""")
    assert (told, same) == ("True", "True")


EVALUATING = """
m = ml.Model()
m |= ml.Linear(64)(input="x", weight="w", bias="b", output="y")
pm = ml.compile(m, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [None, 64]})
p, x = pm.randomize_params(0), {"x": np.ones((20000, 64), np.float32)}
def loop():
    while True:
        pm.evaluate(p, x)
"""


@pytest.mark.parametrize("threads", [1, 4])
def test_the_program_ends_while_daemon_threads_evaluate(threads):
    for _ in range(5):
        run(
            EVALUATING
            + f"""
for _ in range({threads}):
    threading.Thread(target=loop, daemon=True).start()
time.sleep(0.2)
"""
        )


def test_the_program_ends_while_a_daemon_thread_compiles():
    for _ in range(3):
        run(
            LONG_MODEL
            + """
import logging
logging.getLogger("mithril").setLevel("DEBUG")
def loop():
    while True:
        compiles()
threading.Thread(target=loop, daemon=True).start()
time.sleep(0.3)
"""
        )


def test_the_program_ends_while_a_daemon_thread_is_in_python_code_that_the_core_called():
    # Python unwinds the thread where it wants the lock, below frames that hold objects.
    for _ in range(8):
        run("""
class Slow:
    def __index__(self):
        time.sleep(0.001)
        return 3
def loop():
    while True:
        ml.Tanh().set_shapes(input=[Slow(), Slow(), 3])
threading.Thread(target=loop, daemon=True).start()
time.sleep(0.1)
""")


# What of each kind takes seconds in one piece: (layer, {key: array}).
KERNELS = {
    "eigh": ("ml.Eigh()", "{'input': symmetric(3000)}"),
    "svd": ("ml.SVD()", "{'input': matrix(2500)}"),
    "qr": ("ml.QR()", "{'input': matrix(4000)}"),
    "cholesky": ("ml.Cholesky()", "{'input': positive(6000)}"),
    "solve": ("ml.Solve()", "{'matrix': positive(5000), 'right': matrix(5000)}"),
    "determinant": ("ml.Determinant()", "{'input': positive(6000)}"),
    "sort": ("ml.Sort()", "{'input': vector(20_000_000)}"),
    "scan": ("ml.CumProd()", "{'input': vector(100_000_000)}"),
    "transform": ("ml.RFFT()", "{'input': vector(15_485_863)}"),
    "product": ("ml.MatrixMultiply()", "{'left': matrix(5000), 'right': matrix(5000)}"),
    "row": ("ml.Softmax()", "{'input': vector(100_000_000)}"),
}


@pytest.mark.parametrize("kind", KERNELS)
def test_an_interrupt_stops_a_kernel_of_one_piece(kind):
    layer, data = KERNELS[kind]
    wait, same = run(
        f"""
rng = np.random.default_rng(0)
def vector(n): return rng.random(n, dtype=np.float32)
def matrix(n): return rng.random((n, n), dtype=np.float32)
def symmetric(n): return (lambda a: a + a.T)(matrix(n))
def positive(n): return matrix(n) / n + 2 * np.eye(n, dtype=np.float32)
def few(a): return (a[:3, :3] if a.ndim == 2 else a[:8]).copy()
layer, data = {layer}, {data}
model = ml.Model()
model |= layer.connect(**{{key: key for key in data}})
pm = ml.compile(model, ml.CpuBackend(threads=1), data_keys=set(data), inference=True)
small = {{key: few(value) for key, value in data.items()}}
first = pm.evaluate({{}}, small)
print(interrupt(0.15, lambda: pm.evaluate({{}}, data)))
again = pm.evaluate({{}}, small)
print(all(np.array_equal(first[key], again[key]) for key in first))
"""
    )
    assert same == "True"
    if wait == "None":
        pytest.skip("done before the interrupt")
    assert float(wait) < 2


# Counts from which tables are made when a model is compiled.
TABLES = {
    "places": "ml.PositionalEncoding(hidden_dim=4, max_len=2**31)(input='x', output='y')",
    "more places": "ml.PositionalEncoding(hidden_dim=4, max_len=2**62)(input='x', output='y')",
    "heads": "ml.Alibi(2**31)(query_places=3, key_places=3, output='y')",
    "columns": "ml.PositionalEncoding(hidden_dim=2**31)(input='x', output='y')",
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_is_too_large_is_refused_at_once(kind):
    (told,) = run(
        f"""
model = ml.Model()
model |= {TABLES[kind]}
try:
    shapes = {{"x": [None, None]}} if "x" in model.input_keys else {{}}
    ml.compile(model, ml.NumpyBackend(), data_keys=set(shapes), shapes=shapes, inference=True)
    print("compiled")
except ml.errors.ArgumentError as error:
    print(error.message.splitlines()[0])
""",
        timeout=60,
    )
    assert "a table of at most 134217728 numbers" in told


def test_places_far_beyond_a_table_of_them():
    """Only those that the data have are made; expected values by NumPy."""
    assert run("""
width, most = 6, 2**63 - 1
model = ml.Model()
model |= ml.PositionalEncoding(hidden_dim=width, max_len=2**31)(input="x", output="y")
model |= ml.RotaryEmbedding(max_len=most, width=width)(input="x", output="z")
model.expose_keys("y", "z")
pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [5, width]}, inference=True)
x = np.random.default_rng(0).normal(size=(5, width)).astype(np.float32)
got = pm.evaluate({}, {"x": x})
column, place = np.arange(width), np.arange(5)[:, None]
angle = place / 10000 ** ((column - column % 2) / width)
print(np.allclose(got["y"], x + np.where(column % 2, np.cos(angle), np.sin(angle)), atol=1e-6))
turn = place * 10000.0 ** (-2 * np.arange(width // 2) / width)
a, b = np.split(x.astype(float), 2, axis=1)
wanted = [a * np.cos(turn) - b * np.sin(turn), b * np.cos(turn) + a * np.sin(turn)]
print(np.allclose(got["z"], np.concatenate(wanted, axis=1), atol=1e-6))
""") == ["True", "True"]


def test_interrupted_runs_give_their_memory_back():
    first, last, stopped = run("""
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 // 1024  # MiB

model = ml.Model()
model |= ml.Eigh()(input="x", values="w", vectors="v")
model |= ml.MatrixMultiply()(left="v", right="v", output="y")
model.expose_keys("w", "y")
pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, inference=True)
x = np.random.default_rng(0).random((1000, 1000), dtype=np.float32)
waits, sizes = [], []
def threads():
    return len(os.listdir("/proc/self/task"))
pm.evaluate({}, {"x": x})  # starts all threads that stay
before = threads()
for _ in range(20):
    waits.append(interrupt(0.05, lambda: pm.evaluate({}, {"x": x})))
    until = time.monotonic() + 30
    while threads() > before and time.monotonic() < until:
        time.sleep(0.01)  # LAPACK's calls go on for a while
    sizes.append(resident())
print(sizes[4])
print(sizes[-1])
print(all(isinstance(wait, float) and wait < 2 for wait in waits))
""")
    assert stopped == "True"
    assert int(last) < int(first) + 12 or SANITIZED  # a run takes 16 MiB
