"""Ctrl-C while the engine compiles and computes, and threads that evaluate while Python ends.

Each case runs in a process of its own. Limits on waiting are ten times the contract's 200 ms."""

import subprocess
import sys

import pytest

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
