"""Random models of rows and lanes: values that stand once for each column, reductions to them, and
what is computed of both, in several passes of one fused loop.

Values and gradients of NumPy, line by line, are the oracle; gradients there are held against
central differences by test_random_models.py. A quarter of `--graphs`.
"""

import mithril as ml
import numpy as np
import pytest

POINTWISE = (ml.Tanh, ml.Sine, ml.Sigmoid)
PAIRS = (ml.Add, ml.Multiply, ml.Subtract, ml.Minimum, ml.Maximum)
REDUCTIONS = (ml.Min, ml.Max, ml.Sum, ml.Mean)
CHUNKS = 4


class RandomRows:
    """A model whose wires are rows [1, n] or lanes [m, n]."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.model = ml.Model()
        m, n = int(self.random.integers(1, 70)), int(self.random.integers(1, 9))
        self.shapes = {"a": [3, n], "b": [5, n], "c": [m, 1], "d": [m, n]}
        self.rows, self.lanes = [], []
        self.add(ml.Max(axis=0, keepdim=True), self.rows, input="a")
        self.add(ml.Sum(axis=0, keepdim=True), self.rows, input="b")
        self.add(ml.Add(), self.lanes, left=self.rows[0], right="c")
        self.add(ml.Multiply(), self.lanes, left="d", right=self.rows[1])
        for _ in range(self.random.integers(4, 14)):
            self.add_any()
        self.outputs = sorted({self.rows[-1], self.lanes[-1], *map(self.pick, 3 * [self.rows])})
        self.model.expose_keys(*self.outputs)

    def pick(self, among):
        return among[self.random.integers(len(among))]

    def add(self, layer, to, **wires):
        name = f"w{len(self.rows) + len(self.lanes)}"
        self.model |= layer(**wires, output=name)
        to.append(name)

    def add_any(self):
        kind, both = self.random.integers(6), self.rows + self.lanes
        if kind < 2:
            reduction = self.pick(REDUCTIONS)(axis=0, keepdim=True)
            self.add(reduction, self.rows, input=self.pick(self.lanes))
        elif kind == 2:
            self.add(self.pick(POINTWISE)(), self.lanes, input=self.pick(self.lanes))
        elif kind == 3:
            self.add(self.pick(POINTWISE)(), self.rows, input=self.pick(self.rows))
        elif kind == 4:
            left, right = self.pick(self.lanes), self.pick(both)
            self.add(self.pick(PAIRS)(), self.lanes, left=left, right=right)
        else:
            left, right = self.pick(self.rows), self.pick(self.rows)
            self.add(self.pick(PAIRS)(), self.rows, left=left, right=right)

    def results(self, backend, passes):
        random = np.random.default_rng(1)
        pm = ml.compile(
            self.model, ml.get_backend(backend, dtype="float64"), passes=passes,
            shapes=self.shapes, trainable_keys=set(self.shapes),
        )  # fmt: skip
        params = {name: random.normal(size=shape) for name, shape in self.shapes.items()}
        params = {name: value for name, value in params.items() if name in pm.input_keys}
        shapes = dict(pm.shapes)
        cotangents = {name: random.normal(size=shapes[name]) for name in self.outputs}
        run = pm.evaluate(params, {}, output_gradients=cotangents)
        return {**run.outputs, **{f"gradient of {k}": v for k, v in run.gradients.items()}}


@pytest.mark.device
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_passes_of_a_loop(chunk, request):
    for seed in range(request.config.getoption("--graphs") // 4)[chunk::CHUNKS]:
        case = RandomRows(seed)
        wanted = case.results("numpy", ["-fuse"])
        for name, value in case.results("cpu", []).items():
            scale = max(1.0, float(np.abs(wanted[name]).max(initial=0.0)))
            np.testing.assert_allclose(
                value, wanted[name], rtol=1e-9, atol=1e-9 * scale, err_msg=f"{seed}: {name}"
            )
