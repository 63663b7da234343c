"""Random models against the oracle: what flatten, fusing, merging, planning and in-place work do.

A seed is a model: 10 to 40 steps on tensors of floats, ints and bools of a few shapes, each an op,
or models in a model, that reads what is there already. The oracle reads the model's file, nesting
and all. Values of several results, with and without gradients, and the gradient along a direction;
then the same with one optimising pass off, which the seed draws (contracts 14). A third of the
models run in float32; in half of them some inputs are constants (`constant_keys=`). `--seed` gives
other models, `--graphs` more of them.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.testing import oracle
from mithril.testing.op_matrix import central_difference, difference

INPUTS = {"a": (4, 3), "b": (3,), "c": (4, 1), "w": (3, 3), "s": (), "i": (4, 3), "j": (3,),
          "m": (4, 1)}  # fmt: skip
KINDS = {"i": int, "j": int, "m": bool}  # the others are floats
STARTS = [f"{name}0" for name in INPUTS if name not in KINDS]
UNARY = [ml.Tanh, ml.Sigmoid, ml.Relu, ml.Absolute, ml.Softplus, ml.Gelu, ml.Negate, ml.Sine,
         ml.SiLU, ml.LeakyRelu]  # fmt: skip
BINARY = [ml.Add, ml.Subtract, ml.Multiply, ml.Maximum, ml.Minimum, ml.SquaredError]
PASSES = [
    "-canonicalize",
    "-merge_common",
    "-fold_constants",
    "-push_down_slices",
    "-fuse",
    "-epilogues",
]
REDUCTIONS = [ml.Sum, ml.Mean, ml.Max, ml.Min]
INT_BINARY = [ml.Add, ml.Subtract, ml.Maximum, ml.Minimum]
COMPARISONS = [ml.Less, ml.GreaterEqual, ml.NotEqual]
# Of values and slopes; float32 is held against numbers in float64.
BOUNDS = {"float64": (1e-11, 1e-9, 1e-6), "float32": (3e-4, 3e-3, 3e-3)}
ENGINES = {"cpu": "CpuBackend", "numpy": "NumpyBackend"}
FRAMEWORKS = {"torch": "TorchBackend", "jax": "JaxBackend", "mlx": "MlxBackend"}


class RandomModel:
    """Wires by name with their shapes and kinds; each step adds one op on random ones."""

    def __init__(self, seed, joins=True):
        self.seed, self.joins = seed, joins
        self.random = np.random.default_rng(seed)
        self.model = ml.Model()
        self.shapes = dict(INPUTS)
        self.kinds = {name: KINDS.get(name, float) for name in INPUTS}
        for name, shape in INPUTS.items():
            kind = self.kinds[name]
            key = ml.IOKey(name, shape=list(shape), type=ml.Tensor[kind])
            self.add(ml.Buffer(), shape, f"{name}0", kind=kind, input=key)
        for i in range(self.random.integers(10, 41)):
            self.step(f"v{i}")
        outputs = [n for n in self.shapes if n.startswith("v")]
        floats = [n for n in outputs if self.kinds[n] is float]
        self.outputs = sorted({floats[-1], *self.random.choice(outputs, 4)})
        self.model.expose_keys(*self.outputs)

    def constants(self):
        """Inputs that are constants in every second model; one input of floats stays one."""
        if self.seed % 2 == 0:
            return []
        random = np.random.default_rng([self.seed, 1])
        stays = random.choice([name for name in INPUTS if name not in KINDS])
        share = random.uniform(0.2, 1.0)
        return [name for name in INPUTS if name != stays and random.uniform() < share]

    def inputs(self):
        draw = {
            float: lambda shape: np.float64(np.float32(self.random.uniform(-1.0, 1.0, shape))),
            int: lambda shape: self.random.integers(-5, 6, shape),
            bool: lambda shape: self.random.integers(0, 2, shape).astype(bool),
        }
        return {name: draw[self.kinds[name]](shape) for name, shape in INPUTS.items()}

    def add(self, op, shape, name, key="output", kind=float, **wires):
        self.model |= op.connect(**wires, **{key: name})
        self.shapes[name], self.kinds[name] = shape, kind

    def pick(self, fits=lambda shape: True, kinds=(float,)):
        names = [
            name
            for name, shape in self.shapes.items()
            if name not in INPUTS and self.kinds[name] in kinds and fits(shape)
        ]
        return str(self.random.choice(names)) if names else None

    def pair(self, kinds=((float,), (float,))):
        """Two wires that broadcast, and their shape together."""
        left, right = (self.pick(kinds=allowed) for allowed in kinds)
        try:
            return left, right, np.broadcast_shapes(self.shapes[left], self.shapes[right])
        except ValueError:
            return None

    def one_of(self, ops):
        return ops[self.random.integers(len(ops))]

    def step(self, name):
        steps = [self.unary, self.binary, self.binary, self.reduce, self.move, self.structured,
                 self.nested, self.integers, self.compare, self.choose]  # fmt: skip
        steps += [self.join] if self.joins else []
        while not self.one_of(steps)(name):
            pass

    def unary(self, name):
        source = self.pick()
        self.add(self.one_of(UNARY)(), self.shapes[source], name, input=source)
        return True

    def binary(self, name):
        """Of floats, or a float and an int."""
        found = self.pair(((float,), (float, float, int)))
        if not found:
            return False
        left, right, shape = found
        op = self.one_of(BINARY)
        if op is ml.SquaredError:
            self.add(op(safe_shapes=False), shape, name, input=left, target=right)
        else:
            self.add(op(), shape, name, left=left, right=right)
        return True

    def integers(self, name):
        found = self.pair(((int,), (int, bool)))
        if not found:
            return False
        left, right, shape = found
        self.add(self.one_of(INT_BINARY)(), shape, name, kind=int, left=left, right=right)
        return True

    def compare(self, name):
        """Of inputs and ints: computed floats may differ by rounding alone, which says nothing."""
        sources = [
            n for n in self.shapes if n in STARTS or n not in INPUTS and self.kinds[n] is int
        ]
        left, right = (str(name) for name in self.random.choice(sources, 2))
        try:
            shape = np.broadcast_shapes(self.shapes[left], self.shapes[right])
        except ValueError:
            return False
        self.add(self.one_of(COMPARISONS)(), shape, name, kind=bool, left=left, right=right)
        return True

    def choose(self, name):
        found = self.pair()
        mask = self.pick(kinds=(bool,))
        try:
            left, right, shape = found
            shape = np.broadcast_shapes(shape, self.shapes[mask])
        except (TypeError, ValueError):
            return False
        self.add(ml.Where(), shape, name, cond=mask, input1=left, input2=right)
        return True

    def nested(self, name):
        """Models in a model that share a wire, under names that mean something else outside."""
        found = self.pair()
        if not found:
            return False
        left, right, shape = found
        inner = ml.Model()
        inner |= ml.Subtract()(left="a", right="b", output="c")
        inner |= self.one_of(UNARY)()(input="c", output="w")
        inner.expose_keys("w")
        again = inner.clone()
        middle = ml.Model(name=name)
        middle |= inner(a="b", b="a", w="s")
        middle |= again(a="s", b="a", w="c")
        middle.expose_keys("c")
        self.add(middle, shape, name, key="c", a=left, b=right)
        return True

    def reduce(self, name):
        source = self.pick(lambda s: len(s) > 0)
        shape = self.shapes[source]
        axis = int(self.random.integers(len(shape)))
        keep = bool(self.random.integers(2))
        op = self.one_of(REDUCTIONS)
        rest = list(shape)
        rest[axis : axis + 1] = [1] if keep else []
        self.add(op(axis=axis, keepdim=keep), tuple(rest), name, input=source)
        return True

    def move(self, name):
        source = self.pick(lambda s: len(s) == 2)
        if source is None:
            return False
        rows, columns = self.shapes[source]
        which = self.random.integers(4)
        if which == 0:
            self.add(ml.Transpose(), (columns, rows), name, input=source)
        elif which == 1:
            self.add(ml.Reshape(shape=(columns, rows)), (columns, rows), name, input=source)
        elif which == 2:
            self.add(ml.Softmax(axis=0), (rows, columns), name, input=source)
        else:
            part = self.model[source][::-1, 0:1]
            self.add(ml.Buffer(), (rows, 1), name, input=part)
        return True

    def join(self, name):
        """Two or three of one shape, behind each other or along a new axis that is summed."""
        first = self.pick(lambda s: len(s) == 2)
        if first is None:
            return False
        rows, columns = self.shapes[first]
        names = [first, first, self.pick(lambda s: s == (rows, columns))]
        names = names[int(self.random.integers(2)) :]
        sources = [self.model[source] for source in names]
        if self.random.integers(2):
            self.add(ml.Stack(axis=0), (len(names), rows, columns), f"{name}_all", input=sources)
            self.add(ml.Sum(axis=0), (rows, columns), name, input=f"{name}_all")
        else:
            self.add(ml.Concat(axis=0), (len(names) * rows, columns), name, input=sources)
        return True

    def structured(self, name):
        left = self.pick(lambda s: len(s) == 2)
        right = left and self.pick(lambda s: len(s) == 2 and s[0] == self.shapes[left][1])
        if not right:
            return False
        shape = (self.shapes[left][0], self.shapes[right][1])
        self.add(ml.MatrixMultiply(), shape, name, left=left, right=right)
        return True


class RandomModels:
    """Random models side by side in one: a backend that compiles does so once for all of them."""

    def __init__(self, seeds):
        self.made = {seed: RandomModel(seed) for seed in seeds}
        self.random = np.random.default_rng(list(seeds))
        self.model, self.kinds = ml.Model(), {}
        for seed, one in self.made.items():
            keys = {
                name: ml.IOKey(f"{name}_{seed}", shape=list(shape), type=ml.Tensor[one.kinds[name]])
                for name, shape in INPUTS.items()
            }
            outputs = {name: f"{name}_{seed}" for name in one.outputs}
            self.model |= one.model.connect(**keys, **outputs)
            self.model.expose_keys(*outputs.values())
            self.kinds |= {f"{n}_{seed}": one.kinds[n] for n in (*INPUTS, *one.outputs)}

    def constants(self):
        return [f"{name}_{seed}" for seed, one in self.made.items() for name in one.constants()]

    def inputs(self):
        return {f"{n}_{s}": x for s, one in self.made.items() for n, x in one.inputs().items()}


CHUNKS = 20


def seeds(config, graphs):
    first = config.getoption("--seed") * 10**6
    return range(first, first + graphs)


@pytest.mark.device
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_values_and_slopes(engine, chunk, request, check_counts):
    for seed in seeds(request.config, request.config.getoption("--graphs"))[chunk::CHUNKS]:
        trial = Trial(seed, ENGINES[engine], "float32" if seed % 3 == 0 else "float64")
        gradients = trial.check_values()
        off = PASSES[seed % len(PASSES)]
        trial.check_gradients(trial.check_values(passes=[off]), gradients)
        trial.check_slopes(gradients)
        check_counts[f"random models on {engine}"] += 1


@pytest.mark.device
@pytest.mark.parametrize("seed", [18909])  # a later output lay on an operand that was read after it
def test_models_that_were_wrong_once(seed):
    Trial(seed, "CpuBackend", "float64", joins=False).check_values()


@pytest.mark.device
@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_that_is_read_after_another_one_was_written(engine):
    """y·min(y + z) of a row y: a fused loop wrote the gradient's first term over the second."""
    model = ml.Model()
    model |= ml.Max(axis=0, keepdim=True)(input="w", output="y")
    model |= ml.Add()(left="y", right="z", output="x")
    model |= ml.Min(axis=0, keepdim=True)(input="x", output="least")
    model |= ml.Multiply()(left="y", right="least", output="o")
    model.expose_keys("o")
    backend = getattr(ml, ENGINES[engine])(dtype="float64")
    shapes = {"w": [3, 3], "z": [4, 1]}
    pm = ml.compile(model, backend, data_keys={"z"}, shapes=shapes, trainable_keys={"w"})
    w = np.array([[1.0, -2.0, 0.5], [3.0, -1.0, 0.25], [2.0, -3.0, 4.0]])
    z = np.array([[0.5], [-7.0], [2.0], [1.0]])
    run = pm.evaluate({"w": w}, {"z": z}, output_gradients={"o": np.ones((1, 3))})
    y = w.max(0)
    np.testing.assert_allclose(run.outputs["o"], [y * (y - 7)])
    np.testing.assert_allclose(run.gradients["w"], np.where(w == y, 2 * y - 7, 0))


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_values_and_gradients_of_frameworks(framework, chunk, request, check_counts):
    pytest.importorskip(framework if framework != "mlx" else "mlx.core")
    dtype = "float64" if framework == "torch" else "float32"
    for seed in seeds(request.config, request.config.getoption("--graphs") // 20)[chunk::CHUNKS]:
        trial = Trial(seed, FRAMEWORKS[framework], dtype)
        engine = Trial(seed, ENGINES["numpy"], "float64")
        trial.check_gradients(trial.check_values(), engine.check_values())
        check_counts[f"random models on {framework}"] += 1


def trials_of(seeds, name, dtype, **options):
    """Seeds of 25 models in one, their trial on a backend, and that on the engine."""
    for first in range(0, len(seeds), 25):
        some = seeds[first : first + 25]
        both = ((name, options), ("CpuBackend", {}))
        yield some, *(Trial(some[0], n, dtype, made=RandomModels(some), **o) for n, o in both)


class Trial:
    """A random model (or `made`) with its data on one backend, and what the oracle makes of it."""

    def __init__(self, seed, backend, dtype, joins=True, made=None, **options):
        self.made = made or RandomModel(seed, joins)
        self.backend, self.dtype = getattr(ml, backend)(dtype=dtype, **options), dtype
        self.told = f"--seed {seed // 10**6}, model {seed} on {backend} in {dtype}"
        self.text = self.made.model.to_json()
        self.constants = {}
        needed = self.compiled().input_keys
        given = {n: x for n, x in self.made.inputs().items() if n in needed}
        self.constants = {n: given[n] for n in self.made.constants() if n in given}
        self.inputs = {n: x for n, x in given.items() if n not in self.constants}
        self.wrt = [n for n in self.inputs if self.made.kinds[n] is float]
        self.want = self.expected(self.inputs)
        self.weights = {
            name: self.made.random.standard_normal(np.shape(value))
            for name, value in self.want.items()
            if self.made.kinds[name] is float
        }

    def compiled(self, **options):
        # JAX compiles whole models faster than their operations one by one.
        jit = self.backend.backend_type == "jax"
        constants = self.narrowed(self.constants)
        return ml.compile(
            self.made.model, self.backend, jit=jit, constant_keys=constants, **options
        )

    def expected(self, inputs):
        return oracle.evaluate(self.text, {**inputs, **self.constants}).outputs

    def narrowed(self, values):
        return {n: x.astype(self.dtype) if x.dtype.kind == "f" else x for n, x in values.items()}

    def arrays(self, values):
        return {name: self.backend.tensor(x) for name, x in self.narrowed(values).items()}

    def plain(self, values):
        return {name: np.asarray(self.backend.to_numpy(x)) for name, x in values.items()}

    def check_values(self, **options):
        """Compares values with and without gradients; returns the gradients."""
        pm, data = self.compiled(**options), self.arrays(self.inputs)
        given = self.arrays({n: np.asarray(w) for n, w in self.weights.items()})
        result = pm.evaluate({}, data, output_gradients=given, wrt=self.wrt)
        for got in (self.plain(result.outputs), self.plain(pm.evaluate({}, data))):
            for name, value in self.want.items():
                wanted = np.asarray(value)
                problem = difference(got[name].astype(wanted.dtype), wanted, BOUNDS[self.dtype][0])
                assert problem is None, f"{self.told}, {options}, {name}: {problem}"
        return self.plain(result.gradients)

    def check_gradients(self, found, wanted):
        for name, value in wanted.items():
            got = found[name].astype(value.dtype)
            problem = difference(got, value, BOUNDS[self.dtype][1])
            assert problem is None, f"{self.told}, gradient of {name}: {problem}"

    def check_slopes(self, gradients):
        random = self.made.random
        direction = {n: random.uniform(-1.0, 1.0, self.inputs[n].shape) for n in self.wrt}

        def total(at):
            outputs = self.expected(at)
            return sum(float((w * outputs[n]).sum()) for n, w in self.weights.items())

        got = sum(float((gradients[n] * d).sum()) for n, d in direction.items())
        scale = max(1.0, sum(float(np.abs(g).sum()) for g in gradients.values()))
        slopes = []
        for step in (1e-6, 1e-7, 1e-8):  # one in ten thousand models has a kink that near
            slopes.append(central_difference(total, self.inputs, direction, step))
            if abs(got - slopes[-1]) <= BOUNDS[self.dtype][2] * scale:
                return
        pytest.fail(f"{self.told}: {got}, not {slopes}")
