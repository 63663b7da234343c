"""Model files with mistakes in them: each is refused by a typed error, or it loads, compiles, runs
and is differentiated. Anything else is a finding: a signal, a hang, an error without a type.

    python scripts/fuzz_models.py --mutants=100000 --seed=0 --workers=2

Mutants are numbered; `--only=N` runs one of them here. Findings are kept in build/fuzz.
"""

import argparse
import copy
import json
import math
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
FOUND = ROOT / "build" / "fuzz"
SECONDS = 30  # for one mutant; then it is interrupted
PATIENCE = 15  # seconds that an interrupted mutant has to end: no fault of a large one
MEMORY = 6 * 2**30  # address space of a worker
CHUNK = 500
NUMBERS = [0, 1, -1, 2, 3, 7, 12, 13, 16, 17, 64, 65, 2**31 - 1, 2**31, 2**40, 2**60, 2**62,
           2**63 - 1, -(2**63), 2**64, 0.5, -0.0, 1e308, True, False, None, "", "x", "$1", "same",
           [], {}, [1, 2], [0, -1], {"tuple": []}, {"slice": [1, None, 2**62]},
           {"float": "nan"}, {"dtype": "float16"}]  # fmt: skip


def seed_files():
    """Kept files, then random models; they are small, so that a change means something."""
    from test_random_models import RandomModel

    for name in ("models_1_2.json", "models_1_1.json", "models_1_0.json"):
        kept = json.loads((ROOT / "tests" / "data" / name).read_text(encoding="utf-8"))
        yield from kept.values()
    yield from (json.loads(model().to_json()) for model in small_models())
    for seed in range(20):
        yield json.loads(RandomModel(seed).model.to_json())


def small_models():
    """Layers with sizes, axes, indices and loops among their arguments."""
    import mithril as ml

    def layer(make, **wires):
        def made():
            model = ml.Model()
            model |= make().connect(**wires)
            return model

        return made

    yield layer(lambda: ml.Convolution2D(3, 2, stride=2, padding=1), input="x")
    yield layer(lambda: ml.MaxPool2D(2, stride=1), input="x")
    yield layer(lambda: ml.AvgPool1D(3), input="x")
    yield layer(lambda: ml.TopK(2), input="x")
    yield layer(lambda: ml.Pad(((1, 2), (0, 1))), input="x")
    yield layer(lambda: ml.Attention(is_causal=True), query="q", key="k", value="v")
    yield layer(lambda: ml.LayerNorm(), input="x")
    yield layer(lambda: ml.Interpolate(size=(4, 6)), input="x")
    yield layer(lambda: ml.Diagonal(offset=1), input="x")

    def sliced():
        model = ml.Model()
        model |= ml.Buffer()(input="x", output="b")
        model |= ml.Buffer()(input=model.b[1:5:2, None, ..., -1], output="y")
        model.expose_keys("y")
        return model

    yield sliced

    def looped():
        step = ml.Model()
        step |= ml.Add()(left="h", right="t", output="h1")
        step.expose_keys("h1")
        model = ml.Model()
        model |= ml.Scan(step, carry={"h": "h1"}, xs=["t"])(h="x", t="xs", h1="y")
        return model

    yield looped


def places(value, path=()):
    """Every place in a document, without recursion."""
    out, stack = [], [(path, value)]
    while stack:
        at, found = stack.pop()
        out.append(at)
        if isinstance(found, dict | list):
            items = found.items() if isinstance(found, dict) else enumerate(found)
            stack += [((*at, key), item) for key, item in items]
    return out


def holder(document, path):
    for key in path[:-1]:
        document = document[key]
    return document, path[-1]


def mutated(files, random):
    """One to four changes of one file; some take their pieces from another one."""
    document = copy.deepcopy(files[random.integers(len(files))])
    other = files[random.integers(len(files))]
    for _ in range(random.integers(1, 5)):
        found = [path for path in places(document) if path]
        if not found:
            return document
        parent, key = holder(document, found[random.integers(len(found))])
        change_one(parent, key, document, other, random)
    return document


def change_one(parent, key, document, other, random):
    which = random.integers(8)
    value = parent[key]
    if which == 0:
        parent[key] = copy.deepcopy(NUMBERS[random.integers(len(NUMBERS))])
    elif which == 1 and isinstance(parent, list):
        parent.insert(random.integers(len(parent) + 1), copy.deepcopy(value))
    elif which == 1:
        parent[str(key) + "_"] = copy.deepcopy(value)
    elif which == 2:
        del parent[key]
    elif which in (3, 4):  # a piece of the same or the other file
        source = document if which == 3 else other
        path = places(source)[1:]
        where, name = holder(source, path[random.integers(len(path))])
        parent[key] = copy.deepcopy(where[name])
    elif which == 5 and isinstance(value, list) and len(value) > 1:
        i, j = random.integers(len(value), size=2)
        value[i], value[j] = value[j], value[i]
    elif isinstance(value, bool):
        parent[key] = not value
    elif isinstance(value, int):
        parent[key] = value + int(random.integers(-3, 4))
    elif isinstance(value, str) and value:
        at = random.integers(len(value))
        parent[key] = value[:at] + chr(random.integers(32, 127)) + value[at + 1 :]


def try_one(text, random):
    """What became of a file; raises what is a finding."""
    import mithril as ml
    from mithril.errors import InternalError, MithrilError

    stage = "refused"
    try:
        model = ml.Model.from_json(text)
        stage = "loaded"
        for make in (ml.CpuBackend, ml.NumpyBackend):
            pm = ml.compile(model, make())
            stage = "compiled"
            run(pm, random)
            stage = "run"
    except InternalError:
        raise
    except (MithrilError, MemoryError):
        pass
    return stage


def sizes_of(text, sizes):
    """Numbers for a shape such as `[n, 2*u1, 3]`: the same for the same symbol."""
    shown = re.sub(r"\([^()]*\.\.\.\)", "", text.strip("[]"))
    out = []
    for part in filter(None, (part.strip() for part in shown.split(","))):
        terms = re.fullmatch(r"(?:(\d+)\*)?(\w+)(?:([+-]\d+))?", part)
        if terms is None:
            out.append(4)
            continue
        factor, name, more = terms.groups()
        size = int(name) if name.isdigit() else sizes.setdefault(name, 2 + len(sizes) % 5)
        out.append(int(factor or 1) * size + int(more or 0))
    return out


def run(pm, random):
    import numpy as np

    arrays, sizes = {}, {}
    for key in pm._compilation.keys:
        shape = [3, 4] if key.shape_text == "[...]" else sizes_of(key.shape_text, sizes)
        if math.prod(map(float, shape)) > 1e6:
            return
        if not key.is_tensor:
            continue
        values = random.uniform(-3.0, 3.0, shape)
        kind = "int64" if "int" in key.type else "bool" if "bool" in key.type else "float32"
        arrays[key.name] = values.astype(kind)
    params = {name: x for name, x in arrays.items() if name in pm.param_keys}
    data = {name: x for name, x in arrays.items() if name in pm.data_keys}
    state = pm.initial_state(sample=data) if pm.state_keys else None

    def ones(outputs):
        floats = {n: y for n, y in outputs.items() if getattr(y, "dtype", None) == np.float32}
        return {name: np.ones_like(y) for name, y in floats.items()}

    pm.evaluate(params, data, state=state)
    pm.evaluate(params, data, output_gradients=ones, state=state)


# --- processes -----------------------------------------------------------------------------------


def work(files, first, stop, seed, pipe):
    """A worker tells the number of each mutant before it tries it, and what became of it."""
    import warnings

    import numpy as np

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in range(first, stop):
        os.write(pipe, f"at {number}\n".encode())
        random = np.random.default_rng([seed, number])
        try:
            stage = try_one(json.dumps(mutated(files, random)), random)
            os.write(pipe, f"{stage}\n".encode())
        except KeyboardInterrupt:
            os.write(pipe, b"interrupted\n")
        except BaseException as error:
            shown = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
            os.write(pipe, f"found {number} {shown}\n".encode())
    os._exit(0)


class Worker:
    """A process and the range of mutants that it tries; a new one goes on behind what ended it."""

    def __init__(self, files, first, stop, seed):
        self.files, self.first, self.stop, self.seed = files, first, stop, seed
        self.at, self.rest = None, b""
        read, write = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(read)
            work(files, first, stop, seed, write)
        os.close(write)
        os.set_blocking(read, False)
        self.pipe, self.heard, self.is_interrupted = read, time.monotonic(), False

    def lines(self):
        try:
            found = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return []
        if found:
            self.heard, self.is_interrupted = time.monotonic(), False
        *lines, self.rest = (self.rest + found).split(b"\n")
        return [line.decode() for line in lines]

    def is_late(self):
        """Tells whether a mutant has run past its time and its interrupt."""
        silent = time.monotonic() - self.heard
        if silent > SECONDS and not self.is_interrupted:
            self.is_interrupted = True
            os.kill(self.child, signal.SIGINT)
        return silent > SECONDS + PATIENCE

    def end(self):
        os.close(self.pipe)


def ended(worker):
    child, status = os.waitpid(worker.child, os.WNOHANG)
    return status if child else None


def fuzz(mutants, seed, workers):
    files = list(seed_files())
    counts, findings, running = {}, [], []
    chunks = [(first, min(first + CHUNK, mutants)) for first in range(0, mutants, CHUNK)][::-1]

    def read(worker):
        for line in worker.lines():
            if line.startswith("at "):
                worker.at = int(line[3:])
            elif line.startswith("found "):
                _, number, text = line.split(" ", 2)
                findings.append((int(number), text))
                print(f"mutant {number}: {text}", flush=True)
            else:
                counts[line] = counts.get(line, 0) + 1

    while chunks or running:
        while chunks and len(running) < workers:
            running.append(Worker(files, *chunks.pop(), seed))
        time.sleep(0.02)
        for worker in list(running):
            read(worker)
            if worker.is_late():
                os.kill(worker.child, signal.SIGKILL)
            status = ended(worker)
            if status is None:
                continue
            read(worker)
            worker.end()
            running.remove(worker)
            if status == 0:
                continue
            text = "hangs" if worker.is_late() else f"ends by signal {status & 127}"
            findings.append((worker.at, text))
            print(f"mutant {worker.at}: {text}", flush=True)
            if worker.at + 1 < worker.stop:
                chunks.append((worker.at + 1, worker.stop))
    return files, counts, findings


def mutant(files, number, seed):
    import numpy as np

    return json.dumps(mutated(files, np.random.default_rng([seed, number])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--only", type=int, help="the number of one mutant, which runs here")
    args = parser.parse_args()
    if args.only is not None:
        import numpy as np

        random = np.random.default_rng([args.seed, args.only])
        text = json.dumps(mutated(list(seed_files()), random))
        print(text)
        print(try_one(text, random))
        return 0
    start = time.monotonic()
    files, counts, findings = fuzz(args.mutants, args.seed, args.workers)
    FOUND.mkdir(parents=True, exist_ok=True)
    for number, text in findings:
        path = FOUND / f"mutant_{args.seed}_{number}.json"
        path.write_text(mutant(files, number, args.seed), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {text}")
    told = ", ".join(f"{count} {stage}" for stage, count in sorted(counts.items()))
    print(f"{sum(counts.values())} mutants in {time.monotonic() - start:.0f} s: {told}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
