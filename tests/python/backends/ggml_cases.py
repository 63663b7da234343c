"""Random calls of the functions that ggml may compute itself: shapes of any rank, sizes of 0 and 1,
element types and layouts beside those that it takes.

A case is (name, arrays, function of a table of ops and these arrays).
"""

import numpy as np

UNARY = ("exp sin cos abs floor ceil trunc tanh negate sigmoid relu silu gelu gelu_tanh sqrt log"
         " rsqrt")  # fmt: skip
KINDS = ["f4", "f4", "f4", "f8", "i4", "?"]


class Cases:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.makers = [getattr(self, name) for name in vars(Cases) if name.startswith("make_")]

    def __iter__(self):
        return self

    def __next__(self):
        return self.makers[self.random.integers(len(self.makers))]()

    # --- parts --------------------------------------------------------------------------------

    def number(self, low, high):
        return int(self.random.integers(low, high))

    def numbers(self, low, high, count):
        return tuple(self.number(low, high) for _ in range(count))

    def is_so(self, share=0.5):
        return bool(self.random.random() < share)

    def shape(self, low=0, high=6):
        shares = [0.04, 0.3, 0.3, 0.26, 0.1]
        sizes = self.random.choice(len(shares), self.number(low, high + 1), p=shares)
        return tuple(int(n) for n in sizes)

    def part_of(self, shape):
        """What broadcasts to a shape."""
        ones = tuple(n if self.is_so(0.6) else 1 for n in shape)
        return ones[self.number(0, len(ones) + 1) :]

    def floats(self, shape):
        return np.asarray(3 * self.random.standard_normal(shape), "float32")

    def array(self, shape):
        return self.floats(shape).astype(self.random.choice(KINDS))

    def pairs(self, high, count):
        return tuple((self.number(0, high), self.number(0, high)) for _ in range(count))

    # --- calls --------------------------------------------------------------------------------

    def make_unary(self):
        name = str(self.random.choice(UNARY.split()))
        return name, [self.floats(self.shape())], lambda ops, x: getattr(ops, name)(x)

    def make_binary(self):
        name = str(self.random.choice(["add", "subtract", "multiply", "divide", "maximum"]))
        shape = self.shape()
        arrays = [self.floats(self.part_of(shape)), self.floats(shape)]
        if self.is_so():
            arrays.reverse()
        return name, arrays, lambda ops, x, y: getattr(ops, name)(x, y)

    def make_with_number(self):
        name = str(self.random.choice(["add", "subtract", "multiply", "divide"]))
        number = float(self.random.choice([0.5, -3.7, 2.0, 1e-20]))
        return name, [self.floats(self.shape())], lambda ops, x: getattr(ops, name)(x, number)

    def make_transpose(self):
        x = self.array(self.shape())
        axes = tuple(int(i) for i in self.random.permutation(x.ndim))
        return "transpose", [x], lambda ops, x: ops.transpose(x, axes)

    def make_swap(self):
        x = self.array(self.shape(2))
        i, j = self.numbers(-x.ndim, x.ndim, 2)
        return "swapaxes", [x], lambda ops, x: ops.swapaxes(x, i, j)

    def make_sum(self):
        x = self.floats(self.shape(1))
        count = self.number(1, x.ndim + 1)
        axes = tuple(int(i) for i in self.random.choice(x.ndim, count, replace=False))
        name, keep = ("sum", "mean")[self.number(0, 2)], self.is_so()
        return name, [x], lambda ops, x: getattr(ops, name)(x, axes, keep)

    def make_sum_to(self):
        x = self.floats(self.shape())
        like = np.zeros(self.part_of(x.shape), "float32")
        return "sum_to", [x, like], lambda ops, x, like: ops.sum_to(x, like)

    def make_broadcast(self):
        shape = self.shape()
        x = self.array(self.part_of(shape))
        return "broadcast_to", [x], lambda ops, x: ops.broadcast_to(x, shape)

    def make_concat(self):
        shape = list(self.shape(1))
        axis, pieces = self.number(-len(shape), len(shape)), []
        for _ in range(self.number(1, 12)):
            shape[axis] = self.number(0, 4)
            pieces.append(self.floats(tuple(shape)))
        return "concat", pieces, lambda ops, *pieces: ops.concat(list(pieces), axis)

    def make_pad(self):
        x = self.array(self.shape(1))
        widths = self.pairs(3, x.ndim)
        return "pad", [x], lambda ops, x: ops.pad(x, widths)

    def make_index(self):
        x = self.array(self.shape(1))
        items = []
        for size in x.shape[: self.number(0, x.ndim + 1)]:
            if size and self.is_so(0.3):
                items.append(self.number(-size, size))
            else:
                ends = [None if self.is_so(0.4) else self.number(-3, 4) for _ in range(2)]
                items.append(slice(*ends, (None, 1, 2, -1)[self.number(0, 4)]))
                items += [None] if self.is_so(0.1) else []
        return "index", [x], lambda ops, x: ops.index(x, index=tuple(items))

    def make_matmul(self):
        m, k, n = self.numbers(0, 12, 3)
        batch = self.shape(0, 3)
        batches = [self.part_of(batch), batch]
        if self.is_so():
            batches.reverse()
        shapes = [(*batches[0], m, k), (*batches[1], k, n)]
        turned = [self.is_so(0.4) for _ in shapes]
        arrays = [
            self.floats((*s[:-2], s[-1], s[-2]) if turns else s)
            for s, turns in zip(shapes, turned, strict=True)
        ]

        def product(ops, *arrays):
            pairs = zip(arrays, turned, strict=True)
            return ops.matmul(*(ops.swapaxes(x, -2, -1) if turns else x for x, turns in pairs))

        return "matmul", arrays, product

    def make_linear(self):
        n, k = self.numbers(0, 9, 2)
        arrays = [self.floats((n, k)), self.floats((*self.shape(0, 4), k)), self.floats((n,))]
        return "linear", arrays, lambda ops, w, x, b: ops.linear(w, x, b)

    def make_softmax(self):
        x = self.floats(self.shape(1))
        axis = self.number(-x.ndim, x.ndim)
        return "softmax", [x], lambda ops, x: ops.softmax(x, axis)

    def make_gather(self):
        table = self.array((self.number(1, 6), *self.shape(0, 3)))
        places = self.random.integers(-len(table), len(table), self.shape(0, 3))
        arrays = [table, places.astype(("int32", "int64")[self.number(0, 2)])]
        return "gather", arrays, lambda ops, t, i: ops.gather(t, i)

    def make_convolution(self):
        groups, rows, columns = self.number(1, 3), *self.numbers(5, 9, 2)
        channels, filters = (groups * self.number(1, 4) for _ in range(2))
        x = self.floats((self.number(0, 3), channels, rows, columns))
        w = self.floats((filters, channels // groups, *self.numbers(1, 4, 2)))
        stride, dilation = self.numbers(1, 3, 2), self.numbers(1, 3, 2)
        options = (stride, self.pairs(3, 2), dilation, groups)
        return "conv2d", [x, w], lambda ops, x, w: ops.conv2d(x, w, *options)

    def make_pooling(self):
        x = self.floats((*self.shape(0, 3), *self.numbers(3, 8, 2)))
        options = self.numbers(1, 4, 2), self.numbers(1, 4, 2), self.pairs(2, 2)
        return "avg_pool2d", [x], lambda ops, x: ops.avg_pool2d(x, *options)

    def make_norm(self):
        x = self.floats(self.shape(1))
        name = ("layer_norm", "rms_norm")[self.number(0, 2)]
        arrays = [x, self.floats(x.shape[-1:])]
        return name, arrays, lambda ops, x, w: getattr(ops, name)(x, 1e-5, w)
