"""Random models against the oracle: what flatten, fusing, merging, planning and in-place work do.

A seed is a model: twenty steps on tensors of a few shapes, each an op, or models in a model, that
reads what is there already. The oracle reads the model's file, nesting and all. Values of several
results, with and without gradients, and the gradient along a direction; then the same with one
optimising pass off, which the seed draws (contracts 14).
"""

import mithril as ml
import numpy as np
import pytest
from mithril.testing import oracle
from mithril.testing.op_matrix import central_difference, difference

pytestmark = pytest.mark.device

INPUTS = {"a": (4, 3), "b": (3,), "c": (4, 1), "w": (3, 3), "s": ()}
UNARY = [ml.Tanh, ml.Sigmoid, ml.Relu, ml.Absolute, ml.Softplus, ml.Gelu, ml.Negate, ml.Sine,
         ml.SiLU, ml.LeakyRelu]  # fmt: skip
BINARY = [ml.Add, ml.Subtract, ml.Multiply, ml.Maximum, ml.Minimum, ml.SquaredError]
PASSES = ["-canonicalize", "-merge_common", "-fold_constants", "-fuse"]
REDUCTIONS = [ml.Sum, ml.Mean, ml.Max, ml.Min]


class RandomModel:
    """Wires by name with their shapes; each step adds one op on random ones."""

    def __init__(self, seed, steps=20):
        self.random = np.random.default_rng(seed)
        self.model = ml.Model()
        self.shapes = dict(INPUTS)
        keys = {n: ml.IOKey(n, shape=list(s), type=ml.Tensor[float]) for n, s in INPUTS.items()}
        for name, key in keys.items():
            self.add(ml.Buffer(), INPUTS[name], f"{name}0", input=key)
        for i in range(steps):
            self.step(f"v{i}")
        outputs = [n for n in self.shapes if n.startswith("v")]
        self.outputs = sorted({outputs[-1], *self.random.choice(outputs, 4)})
        self.model.expose_keys(*self.outputs)

    def add(self, op, shape, name, key="output", **wires):
        self.model |= op.connect(**wires, **{key: name})
        self.shapes[name] = shape

    def pick(self, fits=lambda shape: True):
        names = [n for n, s in self.shapes.items() if n not in INPUTS and fits(s)]
        return str(self.random.choice(names)) if names else None

    def step(self, name):
        kinds = [self.unary, self.binary, self.binary, self.reduce, self.move, self.structured,
                 self.nested]  # fmt: skip
        while not kinds[self.random.integers(len(kinds))](name):
            pass

    def unary(self, name):
        source = self.pick()
        op = UNARY[self.random.integers(len(UNARY))]
        self.add(op(), self.shapes[source], name, input=source)
        return True

    def binary(self, name):
        left, right = self.pick(), self.pick()
        try:
            shape = np.broadcast_shapes(self.shapes[left], self.shapes[right])
        except ValueError:
            return False
        op = BINARY[self.random.integers(len(BINARY))]
        if op is ml.SquaredError:
            self.add(op(safe_shapes=False), shape, name, input=left, target=right)
        else:
            self.add(op(), shape, name, left=left, right=right)
        return True

    def nested(self, name):
        """Models in a model that share a wire, under names that mean something else outside."""
        left, right = self.pick(), self.pick()
        try:
            shape = np.broadcast_shapes(self.shapes[left], self.shapes[right])
        except ValueError:
            return False
        inner = ml.Model()
        inner |= ml.Subtract()(left="a", right="b", output="c")
        inner |= UNARY[self.random.integers(len(UNARY))]()(input="c", output="w")
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
        op = REDUCTIONS[self.random.integers(len(REDUCTIONS))]
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

    def structured(self, name):
        left = self.pick(lambda s: len(s) == 2)
        right = left and self.pick(lambda s: len(s) == 2 and s[0] == self.shapes[left][1])
        if not right:
            return False
        shape = (self.shapes[left][0], self.shapes[right][1])
        self.add(ml.MatrixMultiply(), shape, name, left=left, right=right)
        return True


@pytest.mark.parametrize("engine", ["NumpyBackend", "CpuBackend"])
@pytest.mark.parametrize("first", range(0, 120, 20))
def test_values_and_slopes(engine, first):
    for seed in range(first, first + 20):
        made = RandomModel(seed)
        off = PASSES[seed % len(PASSES)]
        inputs = {n: made.random.uniform(-1.0, 1.0, s) for n, s in INPUTS.items()}
        pm = ml.compile(made.model, getattr(ml, engine)(dtype="float64"))
        text = made.model.to_json()
        used = {n: x for n, x in inputs.items() if n in pm.input_keys}
        want = oracle.evaluate(text, used).outputs
        weights = {n: made.random.standard_normal(np.shape(y)) for n, y in want.items()}
        result = pm.evaluate({}, used, output_gradients=weights, wrt=list(used))
        other = ml.compile(made.model, getattr(ml, engine)(dtype="float64"), passes=[off])
        less = other.evaluate({}, used, output_gradients=weights, wrt=list(used))
        runs = (result.outputs, pm.evaluate({}, used), less.outputs, other.evaluate({}, used))
        for name, value in want.items():
            for got in runs:
                problem = difference(np.asarray(got[name]), value, 1e-11)
                assert problem is None, f"seed {seed}, {off}, {name}: {problem}\n{text}"
        for name, value in result.gradients.items():
            problem = difference(less.gradients[name], value, 1e-9)
            assert problem is None, f"seed {seed}, {off}, gradient of {name}: {problem}\n{text}"
        direction = {n: made.random.uniform(-1.0, 1.0, x.shape) for n, x in used.items()}

        def total(at, text=text, weights=weights):
            outputs = oracle.evaluate(text, at).outputs
            return sum(float((w * outputs[n]).sum()) for n, w in weights.items())

        slope = central_difference(total, used, direction, 1e-6)
        got = sum(float((result.gradients[n] * d).sum()) for n, d in direction.items())
        scale = max(1.0, sum(float(np.abs(g).sum()) for g in result.gradients.values()))
        assert abs(got - slope) <= 1e-6 * scale, f"seed {seed}: {got}, not {slope}\n{text}"
