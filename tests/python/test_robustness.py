"""What evaluating does to a process: threads, forks, signals, memory, and other people's state."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.device

# A small model, its parameters and data, and one whose evaluation takes about a second.
SET_UP = """
import gc, os, signal, sys, threading, time, warnings
import mithril as ml, numpy as np

def mlp():
    m = ml.Model()
    m |= ml.Linear(64)(input="x", weight="w1", bias="b1", output="h")
    m += ml.Tanh()
    m += ml.Linear(3)(weight="w2", bias="b2", output="y")
    return m

def compiled():
    return ml.compile(mlp(), backend, data_keys={"x"}, shapes={"x": [None, 4]})

def chain(length, backend):
    m = ml.Model()
    m |= ml.MatrixMultiply()(left="a", right="b", output="c")
    for _ in range(length):
        m += ml.MatrixMultiply()(right="b")
    return ml.compile(m, backend, inference=True, data_keys={"a", "b"})

def squares(n):
    return {k: np.ones((n, n), np.float32) for k in "ab"}

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4  # KiB

backend = ml.CpuBackend()
pm = compiled()
params = pm.randomize_params(0)
rng = np.random.default_rng(0)
data = {"x": rng.normal(size=(700, 4)).astype(np.float32)}
few = {"x": data["x"][:5].copy()}
"""


def run(code: str, timeout: float = 120) -> list[str]:
    """The words that the code prints in a process of its own."""
    out = subprocess.run(
        [sys.executable, "-c", SET_UP + code], capture_output=True, text=True, timeout=timeout
    )
    assert out.returncode == 0, out.stderr[-3000:]
    return out.stdout.split()


def test_sixteen_threads_are_bit_identical():
    assert run("""
inputs = [{"x": rng.normal(size=(n, 4)).astype(np.float32)} for n in (1, 5, 700, 4000)]
gradient = [{"y": np.ones((len(x["x"]), 3), np.float32)} for x in inputs]

def answer(i):
    result = pm.evaluate(params, inputs[i], output_gradients=gradient[i])
    arrays = [pm.evaluate(params, inputs[i])["y"], *result.gradients.values()]
    return [a.tobytes() for a in arrays]

wanted = [answer(i) for i in range(4)]
fresh, wrong = compiled(), []
pm = fresh  # whose programs no thread has made yet
start = threading.Barrier(16)

def work(number):
    start.wait()
    for i in range(20):
        if answer((number + i) % 4) != wanted[(number + i) % 4]:
            wrong.append(number)

threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(wrong))
""") == ["0"]


def test_a_fork_after_evaluate_evaluates():
    words = run("""
warnings.simplefilter("ignore")
big = chain(2, backend)
wanted = pm.evaluate(params, data)["y"].tobytes()
big.evaluate({}, squares(300))  # starts the threads
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        big.evaluate({}, squares(300))
        again = compiled().evaluate(params, data)["y"].tobytes()
        os._exit(0 if pm.evaluate(params, data)["y"].tobytes() == again == wanted else 1)
    print(os.waitpid(child, 0)[1])
big.evaluate({}, squares(300))
""")
    assert words == ["0"] * 20


def test_an_interrupt_is_prompt():
    """The limit is ten times the contract's 200 ms."""
    word, again = run("""
slow = chain(400, backend)
data, small = squares(1000), squares(3)
wanted = slow.evaluate({}, small)
sent = []

def send():
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
threading.Timer(0.5, send).start()
try:
    slow.evaluate({}, data)
    print("never")
except KeyboardInterrupt:
    print("prompt" if time.perf_counter() - sent[0] < 2 else "late")
after = slow.evaluate({}, small)
print(all(np.array_equal(after[k], wanted[k], equal_nan=True) for k in wanted))
""")
    assert (word, again) == ("prompt", "True")


def test_other_threads_run_during_a_long_evaluate():
    (share,) = run("""
slow = chain(6, ml.CpuBackend(threads=1))
data = squares(1000)
slow.evaluate({}, data)
count, stop = 0, False

def counter():
    global count
    while not stop:
        count += 1

def rate(work):
    global count, stop
    count, stop = 0, False
    thread = threading.Thread(target=counter)
    thread.start()
    start = time.perf_counter()
    work()
    rate = count / (time.perf_counter() - start)
    stop = True
    thread.join()
    return rate

idle = rate(lambda: time.sleep(0.3))
print(rate(lambda: slow.evaluate({}, data)) / idle)
""")
    print(f"a counter keeps {float(share):.0%} of its rate")
    assert float(share) > 0.1


@pytest.mark.memory
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize(
    ("what", "warm_up", "times"),
    [
        ("pm.evaluate(params, few)", 500, 10**5),
        ("pm.evaluate(params, few, output_gradients=ones)", 200, 10**4),
        ("compiled().evaluate(params, few)", 100, 1000),
        ("fail()", 200, 10**4),
    ],
)
def test_memory_does_not_grow(what, warm_up, times):
    (growth,) = run(f"""
ones = {{"y": np.ones((5, 3), np.float32)}}
wrong = {{"x": np.ones((5, 3), np.float32)}}
m = mlp()

def fail():
    for bad in (lambda: pm.evaluate(params, wrong), lambda: m.set_shapes(w1=[3, 3])):
        try:
            bad()
        except ml.errors.ShapeError:
            continue
        raise AssertionError

def go(times):
    for _ in range(times):
        {what}
    gc.collect()

go({warm_up})
before = resident()
go({times})
print(resident() - before)
""")
    assert int(growth) < 1024


def test_memory_that_does_not_exist():
    words = run("""
for engine in (backend, ml.NumpyBackend()):
    for shape in ((2**20, 2**20), (2**31, 2**31), (2**40, 2**30), (2**62, 4)):
        m = ml.Model()
        m |= ml.BroadcastTo(shape)(input="x", output="h")
        m += ml.Add()(right="x", output="y")
        huge = ml.compile(m, engine, data_keys={"x"}, inference=True)
        try:
            huge.evaluate({}, {"x": np.ones((1, 1), np.float32)})
            print("taken")
        except MemoryError:
            print("refused")
pm.evaluate(params, data)
""")
    assert words == ["refused"] * 8


def test_the_state_of_the_process_is_left_alone():
    code = """
import locale, os, random, signal, sys, threading, warnings
import numpy as np

def state():
    handlers = [signal.getsignal(n) for n in signal.valid_signals()]
    streams = random.getstate(), np.random.get_state()[1].tobytes()
    numpy = np.geterr(), np.get_printoptions(), np.geterrcall()
    return (dict(os.environ), handlers, streams, numpy, list(warnings.filters),
        locale.setlocale(locale.LC_ALL), sys.excepthook, sys.getswitchinterval(),
        sys.getrecursionlimit(), os.getcwd(), os.umask(18), signal.pthread_sigmask(0, ()),
        threading.excepthook, float(np.float32(1e-45)) * 1.0, np.float64(5e-324) / 1)

os.umask(18)
before = state()
import mithril as ml
for backend in (ml.CpuBackend(), ml.NumpyBackend()):
    m = ml.Model()
    m |= ml.Linear(4)(input="x", output="y")
    pm = ml.compile(m, backend, data_keys={"x"}, shapes={"x": [None, 3]})
    params = pm.randomize_params(1)
    x = np.full((500, 3), np.inf, np.float32)
    pm.evaluate(params, {"x": x}, output_gradients={"y": np.ones((500, 4), np.float32)})
    assert state() == before
print("alone")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout.split() == ["alone"], out.stderr


def test_evaluate_leaves_subnormals_alone():
    """Flushing them would show in everybody's arithmetic, in this thread and later ones."""
    assert run("""
tiny = np.full(64, 1e-40, np.float32)
wanted = (tiny * np.float32(0.5)).tobytes()
for _ in range(3):
    pm.evaluate(params, data)
found = []
thread = threading.Thread(target=lambda: found.append((tiny * np.float32(0.5)).tobytes()))
thread.start()
thread.join()
print((tiny * np.float32(0.5)).tobytes() == wanted == found[0], np.any(tiny * np.float32(0.5)))
""") == ["True", "True"]
