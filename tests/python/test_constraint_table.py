"""The constraint functions of the original (reference/logical-api.md 3.6), each one forward,
backward and in a clash. What one of them does in one direction only is one case less; an operator
that the catalogue does not have yet is skipped with its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import mithril as ml
import pytest
from inference_cases import Case, use
from mithril.errors import MithrilError

Tensor = ml.Tensor
TENSORS = {"left": Tensor, "right": Tensor}
PAIR = {"input": lambda: [ml.IOKey("a"), ml.IOKey("b")], "output": "out"}


@dataclass(frozen=True)
class Clash:
    """A model that takes its first facts and refuses the last ones, unchanged."""

    make: Callable[[], ml.Model]
    error: type[Exception]
    message: str
    shapes: dict = field(default_factory=dict)
    types: dict = field(default_factory=dict)
    last_shapes: dict = field(default_factory=dict)
    last_types: dict = field(default_factory=dict)

    def check(self) -> None:
        model = self.make()
        if self.types:
            model.set_types(self.types)
        if self.shapes:
            model.set_shapes(self.shapes)
        before = model._node.dump()
        with pytest.raises(self.error, match=self.message) as caught:
            if self.last_types:
                model.set_types(self.last_types)
            model.set_shapes(self.last_shapes)
        assert isinstance(caught.value, MithrilError)
        assert model._node.dump() == before


@dataclass(frozen=True)
class Refused:
    """A model that cannot be made."""

    make: Callable[[], ml.Model]
    error: type[Exception]
    message: str

    def check(self) -> None:
        with pytest.raises(self.error, match=self.message) as caught:
            self.make()
        assert isinstance(caught.value, MithrilError)


def chain(*steps: Callable[[ml.Model], None]):
    """A model that several operators make."""

    def make() -> ml.Model:
        model = ml.Model()
        for step in steps:
            step(model)
        return model

    return make


def op(name: str, *args, wires: dict, **kwargs):
    """One step of `chain`; `wires` may hold functions that make what is connected."""

    def step(model: ml.Model) -> None:
        cls = getattr(ml.models, name, None)
        if cls is None:
            pytest.skip(f"no operator {name} yet (the catalogue)")
        given = {k: v() if callable(v) else v for k, v in wires.items()}
        model |= cls(*args, **kwargs).connect(**given)

    return step


def length_of(wire: str, length: str = "length"):
    """Makes the int on a wire the length of a tensor, so that the tensor's shape tells it."""
    return op("Arange", start=0, step=1, wires={"stop": wire, "output": length})


def filled_by(wire: str, filled: str = "filled"):
    """Makes the tuple on a wire the shape of a tensor."""
    return op("BroadcastTo", wires={"input": f"in_{filled}", "shape": wire, "output": filled})


def int_key(name: str):
    return lambda: ml.IOKey(name, type=int)


CONV2D = {"kernel_size": 3, "out_channels": 8}
SUM_OF_INTS = chain(
    op("Add", wires={"left": 2, "right": int_key("r"), "output": "s"}), length_of("s")
)
SHAPE_OF_X = chain(op("Shape", wires={"input": "x", "output": "s"}), filled_by("s"))
PARTS = chain(
    op("ToTuple", n=2, wires={"input1": int_key("a"), "input2": int_key("b"), "output": "t"}),
    filled_by("t"),
)
LISTED = chain(
    op("ToList", n=2, wires={"input1": int_key("a"), "input2": int_key("b"), "output": "t"}),
    filled_by("t"),
)


def sliced(start, stop, step):
    return chain(
        op("Slice", wires={"start": start, "stop": stop, "step": step, "output": "s"}),
        op(
            "Indexer",
            wires={"input": lambda: ml.IOKey("x", type=Tensor), "index": "s", "output": "y"},
        ),
    )


ROWS: dict[str, list[Case | Clash | Refused]] = {
    "general_type_constraint": [
        Case(
            "forward",
            use("Add"),
            types={"left": Tensor[int], "right": Tensor[float]},
            kinds={"output": "float tensor"},
        ),
        Case(
            "backward",
            use("Add"),
            types={"output": Tensor[int]},
            kinds={"left": "bool tensor or int tensor or bool or int"},
        ),
        Clash(
            use("Add"),
            TypeError,
            "float tensor",
            types={"output": Tensor[int]},
            last_types={"left": Tensor[float]},
        ),
    ],
    "general_forward_constraint": [
        Case("forward", use("Multiply", left=3, right=4), known={"output": 12}),
        Case("backward", SUM_OF_INTS, shapes={"length": [5]}, known={"r": 3, "s": 5}),
        Clash(SUM_OF_INTS, ValueError, "size", last_shapes={"length": [1], "x": [-1]}),
    ],
    "bcast": [
        Case(
            "forward",
            use("Add"),
            types=TENSORS,
            shapes={"left": [3, 1], "right": [4]},
            found={"output": [3, 4]},
        ),
        Case(
            "backward",
            use("Add"),
            types=TENSORS,
            shapes={"left": [3, 1], "output": [2, 3, 4]},
            found={"right": [2, "u1", 4]},
        ),
        Clash(
            use("Add"),
            ValueError,
            r"(?s)\[3, 4\].*3, 5\]",
            types=TENSORS,
            shapes={"left": [3, 5]},
            last_shapes={"output": [3, 4]},
        ),
    ],
    "bcast_error_check": [
        Case(
            "forward",
            use("Add"),
            shapes={"left": [2, 3], "right": [2, "k"]},
            found={"output": [2, 3]},
        ),
        Clash(
            use("Add"),
            ValueError,
            r"broadcast.*\[2, 3\].*\[2, 4\]",
            shapes={"left": [2, 3]},
            last_shapes={"right": [2, 4]},
        ),
    ],
    "bcast_matrix_mult": [
        Case(
            "forward",
            use("MatrixMultiply"),
            shapes={"left": [2, 1, 3, 4], "right": [5, 4, 6]},
            found={"output": [2, 5, 3, 6]},
        ),
        Case(
            "backward",
            use("MatrixMultiply"),
            shapes={"left": ["b", 3, 4], "output": [7, 3, 5]},
            found={"right": ["(V1, ...)", 4, 5]},
        ),
        Clash(
            use("MatrixMultiply"),
            ValueError,
            r"\[3, 4\].*\[5, 6\]",
            shapes={"left": [3, 4]},
            last_shapes={"right": [5, 6]},
        ),
    ],
    "bcast_mat_mul_check": [
        Case(
            "forward",
            use("MatrixMultiply"),
            shapes={"left": [2, 3, 4], "right": [2, 4, 5]},
            found={"output": [2, 3, 5]},
        ),
        Clash(
            use("MatrixMultiply"),
            ValueError,
            r"\[2, 3, 4\].*\[3, 4, 5\]",
            shapes={"left": [2, 3, 4]},
            last_shapes={"right": [3, 4, 5]},
        ),
    ],
    "where_constrains": [
        Case(
            "forward",
            use("Where"),
            shapes={"cond": [3, 1], "input1": [4], "input2": []},
            found={"output": [3, 4]},
        ),
        Case(
            "backward",
            use("Where"),
            shapes={"cond": [3, 1], "input1": [1], "output": [3, 4]},
            found={"input2": ["(V1, ...)", 4]},
        ),
        Clash(
            use("Where"),
            ValueError,
            "broadcast",
            shapes={"cond": [3], "input1": [3]},
            last_shapes={"input2": [4]},
        ),
    ],
    "broadcast_to_constraints": [
        Case(
            "forward",
            use("BroadcastTo", shape=(2, 3)),
            shapes={"input": [3]},
            found={"output": [2, 3]},
        ),
        Case(
            "backward",
            use("BroadcastTo", wires={"input": "x", "shape": "s", "output": "y"}),
            types={"s": tuple},
            shapes={"y": [2, 3], "x": [None, 1]},
            found={"x": ["u1", 1]},
            known={"s": (2, 3)},
        ),
        Clash(use("BroadcastTo", shape=(2, 3)), ValueError, "3", last_shapes={"input": [4]}),
    ],
    "reduce_constraints": [
        Case(
            "forward",
            use("Max", axis=(0, -1)),
            shapes={"input": [2, 3, 4]},
            found={"output": [3]},
        ),
        Case("of everything", use("Max"), shapes={"input": [2, 3]}, found={"output": []}),
        Case(
            "kept",
            use("Max", axis=1, keepdim=True),
            shapes={"input": [2, 3, 4]},
            found={"output": [2, 1, 4]},
        ),
        Case(
            "backward",
            use("Max", axis=(0, -1)),
            shapes={"output": [3]},
            found={"input": ["u1", 3, "u2"]},
        ),
        Case(
            "keepdim",
            use("Max", axis=1, keepdim=ml.IOKey("keepdim")),
            shapes={"input": [2, 3], "output": [None, None]},
            found={"output": [2, 1]},
            known={"keepdim": True},
        ),
        Case(
            "no keepdim",
            use("Max", axis=1, keepdim=ml.IOKey("keepdim")),
            shapes={"input": [2, 3], "output": [None]},
            found={"output": [2]},
            known={"keepdim": False},
        ),
        Clash(use("Max", axis=2), ValueError, r"\[2, 3\]", last_shapes={"input": [2, 3]}),
        Clash(use("Max", axis=(0, -2)), ValueError, "ax", last_shapes={"input": [2, 3]}),
    ],
    "reduce_type_constraint": [
        Case("forward", use("Sum"), types={"input": Tensor[bool]}, kinds={"output": "int tensor"}),
        Case(
            "backward",
            use("Sum"),
            types={"output": Tensor[int]},
            kinds={"input": "bool tensor or int tensor"},
        ),
        Clash(use("Sum"), TypeError, "bool", last_types={"output": Tensor[bool]}),
    ],
    "concat_constraints": [
        Case(
            "forward",
            use("Concat", axis=-1, wires=PAIR),
            shapes={"a": [2, 3], "b": [2, 4]},
            found={"out": [2, 7]},
        ),
        Case(
            "flattened",
            use("Concat", axis=None, wires=PAIR),
            shapes={"a": [2, 3], "b": [4, 5]},
            found={"out": [26]},
        ),
        Case(
            "backward",
            use("Concat", axis=1, wires=PAIR),
            shapes={"a": [2, 3], "out": [2, 7]},
            found={"b": [2, 4]},
        ),
        Clash(
            use("Concat", axis=1, wires=PAIR),
            ValueError,
            "(?s)5, 4.*2, ",
            shapes={"a": [2, 3]},
            last_shapes={"b": [5, 4]},
        ),
    ],
    "pad_constraints": [
        Case(
            "forward",
            use("Pad", ((1, 1), (0, 2))),
            shapes={"input": [3, "N"]},
            found={"output": [5, "N+2"]},
        ),
        Case(
            "backward",
            use("Pad", ((1, 1), (0, 2))),
            shapes={"output": [5, 6]},
            found={"input": [3, 4]},
        ),
        Case(
            "the width",
            use(
                "Pad",
                wires={"input": "x", "pad_width": lambda: ((1, ml.IOKey("w")),), "output": "y"},
            ),
            shapes={"x": [3], "y": [6]},
            known={"w": 2},
        ),
        Clash(
            use("Pad", ((1, 1), (0, 2))),
            ValueError,
            r"(?s)\[1, 6\].*\+2",
            last_shapes={"output": [1, 6]},
        ),
    ],
    "reverse_constraints": [
        Case("forward", use("Transpose"), shapes={"input": [2, "N"]}, found={"output": ["N", 2]}),
        Case("backward", use("Transpose"), shapes={"output": [2, "N"]}, found={"input": ["N", 2]}),
        Refused(use("Transpose", axes=(0, 0), wires={}), ValueError, "axes must not repeat"),
    ],
    "swap_axes_constraints": [
        Case(
            "forward",
            use("SwapAxes", 0, -1),
            shapes={"input": [2, 3, 4]},
            found={"output": [4, 3, 2]},
        ),
        Case(
            "backward",
            use("SwapAxes", 0, -1),
            shapes={"output": [2, 3, 4]},
            found={"input": [4, 3, 2]},
        ),
        Clash(use("SwapAxes", 0, 2), ValueError, r"\[2, 3\]", last_shapes={"input": [2, 3]}),
    ],
    "flatten_constrains": [
        Case(
            "forward",
            use("Flatten", start_dim=1, end_dim=2),
            shapes={"input": [2, "H", "W", 5]},
            found={"output": [2, "H*W", 5]},
        ),
        Case(
            "backward",
            use("Flatten", start_dim=1),
            shapes={"input": [None, 3, "k"], "output": [5, 12]},
            found={"input": [5, 3, 4]},
        ),
        Clash(
            use("Flatten", start_dim=1),
            ValueError,
            "12|13",
            shapes={"input": [5, 3, 4]},
            last_shapes={"output": [5, 13]},
        ),
    ],
    "reshape_constraints": [
        Case(
            "forward",
            use("Reshape", (2, -1)),
            shapes={"input": ["N", 4]},
            found={"output": [2, "2*N"]},
        ),
        Case(
            "backward",
            use("Reshape", (2, -1)),
            shapes={"input": ["k", 4], "output": [2, 6]},
            found={"input": [3, 4]},
        ),
        Clash(
            use("Reshape", (2, 5)), ValueError, "number of elements", last_shapes={"input": [3, 4]}
        ),
    ],
    "squeeze_constraints": [
        Case(
            "forward",
            use("Squeeze"),
            shapes={"input": [2, 1, 3, 1]},
            found={"output": [2, 3]},
        ),
        Case(
            "backward",
            use("Squeeze"),
            shapes={"input": ["a", 1, 3], "output": [2, 3]},
            found={"input": [2, 1, 3]},
        ),
        Clash(
            use("Squeeze"),
            ValueError,
            r"(?s)\[2, 4\].*\[2, 3\]",
            shapes={"input": [2, 1, 3]},
            last_shapes={"output": [2, 4]},
        ),
    ],
    "shape_constraints": [
        Case("forward", SHAPE_OF_X, shapes={"x": [2, "a"]}, found={"filled": [2, "a"]}),
        Case(
            "backward",
            SHAPE_OF_X,
            shapes={"x": ["a", 3], "filled": [2, 3]},
            found={"x": [2, 3]},
            known={"s": (2, 3)},
        ),
        Clash(SHAPE_OF_X, ValueError, "2", shapes={"x": [2, 3]}, last_shapes={"filled": [4, 3]}),
    ],
    "size_constraints": [
        Case("forward", use("Size"), shapes={"input": [5, 3]}, known={"output": 15}),
        Case("of an axis", use("Size", dim=-1), shapes={"input": [5, 3]}, known={"output": 3}),
        Case(
            "of axes",
            use("Size", dim=(1, 0)),
            shapes={"input": [5, 3]},
            known={"output": (3, 5)},
        ),
        Case(  # forward only in the original
            "backward",
            chain(op("Size", wires={"input": "x", "output": "n"}), length_of("n")),
            shapes={"x": [3, "k"], "length": [12]},
            found={"x": [3, 4]},
        ),
        Clash(
            chain(op("Size", wires={"input": "x", "output": "n"}), length_of("n")),
            ValueError,
            "",
            shapes={"x": [3, "k"]},
            last_shapes={"length": [13]},
        ),
    ],
    "eye_constraints": [
        Case("forward", use("Eye", 3, 4), found={"output": [3, 4]}),
        Case(
            "backward",
            use("Eye", wires={"N": int_key("n"), "output": "out"}),
            shapes={"out": [3, None]},
            found={"out": [3, 3]},
            known={"n": 3},
        ),
        Clash(use("Eye", 3, 4), ValueError, "3", last_shapes={"output": [4, 4]}),
    ],
    "arange_constraints": [
        Case("forward", use("Arange", start=1, stop=10, step=3), found={"output": [3]}),
        Case("downwards", use("Arange", start=10, stop=0, step=-4), found={"output": [3]}),
        Case("of floats", use("Arange", start=0.0, stop=1.0, step=0.25), found={"output": [4]}),
        Case(
            "backward",
            use("Arange", start=2, step=1, wires={"stop": int_key("n"), "output": "out"}),
            shapes={"out": [5]},
            known={"n": 7},
        ),
        Clash(use("Arange", stop=10, step=3), ValueError, "4|5", last_shapes={"output": [5]}),
    ],
    "randn_constraints": [
        Case("Randn", use("Randn", shape=(2, 3)), found={"output": [2, 3]}),
        Case("Ones", use("Ones", shape=(2, 3)), found={"output": [2, 3]}),
        Case(
            "backward",
            use("Ones", wires={"shape": "s", "output": "out"}),
            types={"s": tuple},
            shapes={"out": [2, 3]},
            known={"s": (2, 3)},
        ),
        Clash(use("Ones", shape=(2, 3)), ValueError, "3", last_shapes={"output": [2, 4]}),
    ],
    "polynomial_features_constraints": [
        Case(
            "forward",
            use("PolynomialFeatures", degree=2),
            shapes={"input": [3, 2]},
            found={"output": [3, 5]},
        ),
        Case(
            "backward",
            use("PolynomialFeatures", degree=2),
            shapes={"output": [3, 5]},
            found={"input": [3, 2]},
        ),
    ],
    "pool_1d_constraints": [
        Case(
            "forward",
            use("PrimitiveMaxPool1D", kernel_size=2, stride=2, padding=(0, 0), dilation=1),
            shapes={"input": [2, 3, 32]},
            found={"output": [2, 3, 16]},
        ),
    ],
    "pool_2d_constraints": [
        Case(
            "forward",
            use("MaxPool2D", 2),
            shapes={"input": [2, 3, 32, "W"]},
            found={"output": [2, 3, 16, "floor(W/2)"]},
        ),
        Case(
            "backward",
            use("MaxPool2D", (2, 3), stride=1, padding=(0, 1)),
            shapes={"output": [2, 3, 31, 32]},
            found={"input": [2, 3, 32, 32]},
        ),
        Clash(
            use("MaxPool2D", 2),
            ValueError,
            "16|17",
            shapes={"input": [2, 3, 32, 32]},
            last_shapes={"output": [2, 3, 17, 16]},
        ),
    ],
    "conv_1d_constraints": [
        Case(
            "forward",
            use("Convolution1D", 3, 8, stride=2, padding=1),
            shapes={"input": [2, 3, 32]},
            found={"output": [2, 8, 16], "weight": [8, 3, 3], "bias": [1, 8, 1]},
        ),
        Case(
            "backward",
            use("Convolution1D", 3, 8),
            shapes={"output": [2, 8, 30]},
            found={"input": [2, "u1", 32]},
        ),
    ],
    "conv_2d_constraints": [
        Case(
            "forward",
            use("Convolution2D", groups=3, padding=1, **CONV2D | {"out_channels": 6}),
            shapes={"input": [2, 3, 32, 30]},
            found={"output": [2, 6, 32, 30], "weight": [6, 1, 3, 3]},
        ),
        Case(
            "backward",
            use("Convolution2D", **CONV2D),
            shapes={"output": [2, 8, 30, 28], "weight": [None, 3, None, None]},
            found={"input": [2, 3, 32, 30]},
        ),
        Clash(
            use("Convolution2D", **CONV2D),
            ValueError,
            "",
            shapes={"input": [2, 3, 32, 32]},
            last_shapes={"weight": [8, 4, 3, 3]},
        ),
    ],
    "padding_1d_constraint": [
        Case(
            "forward",
            use("Convolution1D", 3, 8, padding=ml.PaddingType.SAME),
            shapes={"input": [2, 3, 32]},
            found={"output": [2, 8, 32]},
        ),
    ],
    "padding_2d_constraint": [
        Case(
            "SAME",
            use("Convolution2D", padding=ml.PaddingType.SAME, **CONV2D),
            shapes={"input": [2, 3, 32, 30]},
            found={"output": [2, 8, 32, 30]},
        ),
        Case(
            "VALID",
            use("Convolution2D", padding=ml.PaddingType.VALID, **CONV2D),
            shapes={"input": [2, 3, 32, 30]},
            found={"output": [2, 8, 30, 28]},
        ),
        Case(
            "pairs",
            use("Convolution2D", padding=((1, 2), (0, 3)), **CONV2D),
            shapes={"input": [2, 3, 32, 30]},
            found={"output": [2, 8, 33, 31]},
        ),
        Case(
            "backward",
            use("Convolution2D", padding=((1, 2), (0, 3)), **CONV2D),
            shapes={"output": [2, 8, 33, 31]},
            found={"input": [2, "u1", 32, 30]},
        ),
        Refused(
            lambda: use("Convolution2D", padding=(1, 2, 3), **CONV2D)().set_shapes(
                input=[2, 3, 32, 30]
            ),
            ValueError,
            "padding",
        ),
    ],
    "stride_constraint": [
        Case(
            "forward",
            use("MaxPool2D", (2, 3)),
            shapes={"input": [2, 3, 8, 9]},
            found={"output": [2, 3, 4, 3]},
        ),
        Refused(
            lambda: use("MaxPool2D", 2, stride=0)().set_shapes(input=[2, 3, 8, 8]),
            ValueError,
            "stride",
        ),
    ],
    "tuple_converter_constraint": [
        Case(
            "forward",
            use("Convolution2D", dilation=2, **CONV2D),
            shapes={"input": [2, 3, 9, 11]},
            found={"output": [2, 8, 5, 7]},
        ),
        Case(
            "a pair",
            use("Convolution2D", dilation=(2, 3), **CONV2D),
            shapes={"input": [2, 3, 9, 11]},
            found={"output": [2, 8, 5, 5]},
        ),
        Refused(
            lambda: use("Convolution2D", dilation=(1, 2, 3), **CONV2D)().set_shapes(
                input=[2, 3, 9, 9]
            ),
            ValueError,
            "dilation",
        ),
    ],
    "to_tensor_constraints": [
        Case(
            "forward",
            use("ToTensor", [[1, 2.0], [3, 4]]),
            found={"output": [2, 2]},
            kinds={"output": "float tensor"},
        ),
        Case(
            "backward",
            use("ToTensor", wires={"input": int_key("n"), "output": "out"}),
            found={"out": []},
            kinds={"out": "int tensor"},
        ),
        Refused(use("ToTensor", [[1, 2], [3]]), ValueError, "even"),
        Clash(use("ToTensor", [1, 2]), ValueError, "2|3", last_shapes={"output": [3]}),
    ],
    "tensor_to_list_constraints": [
        Case(
            "forward",
            chain(
                op("TensorToList", wires={"input": "x", "output": "rows"}),
                op("Indexer", index=1, wires={"input": "rows", "output": "row"}),
            ),
            shapes={"x": [2, 3]},
            types={"rows": list},
            kinds={"rows": "list", "row": "tuple or list"},
        ),
        Case(
            "backward",
            chain(
                op("TensorToList", wires={"input": "x", "output": "list"}),
                filled_by("list"),
            ),
            types={"list": list},
            shapes={"filled": [4, 5]},
            found={"x": [2]},
            known={"list": [4, 5]},
        ),
    ],
    "tensor_to_list_type_constraint": [
        Case(
            "a number",
            use("TensorToList"),
            types={"input": Tensor[float]},
            shapes={"input": []},
            kinds={"output": "float"},
        ),
        Case(
            "backward",
            use("TensorToList"),
            types={"output": list},
            kinds={"output": "list"},
        ),
        Clash(
            use("TensorToList"),
            TypeError,
            "float|list",
            types={"input": Tensor[float]},
            shapes={"input": []},
            last_types={"output": list},
        ),
    ],
    "to_tuple_constraints": [
        Case(
            "forward",
            use("ToTuple", n=2, wires={"input1": 2, "input2": 3.5, "output": "t"}),
            known={"t": (2, 3.5)},
        ),
        Case("backward", PARTS, shapes={"filled": [4, 5]}, known={"a": 4, "b": 5, "t": (4, 5)}),
        Clash(PARTS, ValueError, "2|3", last_shapes={"filled": [4, 5, 6]}),
    ],
    "to_list_constraints": [
        Case(
            "forward",
            use("ToList", n=2, wires={"input1": 2, "input2": 3, "output": "t"}),
            known={"t": [2, 3]},
        ),
        Case("backward", LISTED, shapes={"filled": [4, 5]}, known={"a": 4, "b": 5, "t": [4, 5]}),
        Clash(LISTED, ValueError, "2|3", last_shapes={"filled": [4, 5, 6]}),
    ],
    "item_constraints": [
        Case("forward", use("Item"), types={"input": Tensor[float]}, kinds={"output": "float"}),
        Case("backward", use("Item"), shapes={"input": ["a", "b"]}, found={"input": [1, 1]}),
        Clash(use("Item"), ValueError, "one element", last_shapes={"input": [2]}),
    ],
    "indexer_initial_type_constraint": [
        Case("None", use("Indexer", index=(None, 0)), kinds={"input": "tensor"}),
        Case("an ellipsis", use("Indexer", index=...), kinds={"input": "tensor"}),
        Case("a list", use("Indexer", index=[0, 1]), kinds={"input": "tensor"}),
        Case(
            "a slice of a list",
            use("Indexer", index=slice(0, 1)),
            types={"output": list},
            kinds={"input": "list"},
        ),
        Case(
            "a slice of a tensor",
            use("Indexer", index=slice(0, 1)),
            shapes={"output": [1, 3]},
            kinds={"input": "tensor"},
        ),
        Case(
            "an int leaves it open",
            use("Indexer", index=0),
            kinds={"input": "tensor or tuple or list"},
        ),
        Clash(use("Indexer", index=...), TypeError, "tuple", last_types={"input": tuple}),
    ],
    "indexer_constraints": [
        Case(
            "of a tensor",
            use("Indexer", index=0),
            shapes={"input": [4, "N"]},
            found={"output": ["N"]},
        ),
        Case(
            "of a tuple",
            use("Indexer", index=0, wires={"input": lambda: (7, 8.5), "output": "out"}),
            known={"out": 7},
        ),
        Clash(use("Indexer", index=4), ValueError, "index must be", last_shapes={"input": [4]}),
    ],
    "tensor_item_constraints": [
        Case(
            "basic",
            use("Indexer", index=(slice(0, 2), None, ..., 1)),
            shapes={"input": [4, 5, 6]},
            found={"output": [2, 1, 5]},
        ),
        Case(
            "lists side by side",
            use("Indexer", index=(slice(None), [0, 1], [1, 2])),
            shapes={"input": [4, 5, 6]},
            found={"output": [4, 2]},
        ),
        Case(
            "lists apart",
            use("Indexer", index=([0, 1], slice(None), [1, 2])),
            shapes={"input": [4, "N", 6]},
            found={"output": [2, "N"]},
        ),
        Case(
            "symbols",
            use("Indexer", index=(slice(None, None, 2), slice(None, None, -1))),
            shapes={"input": ["N", "M"]},
            found={"output": ["floor((N+1)/2)", "M"]},
        ),
        Case(
            "backward",
            use("Indexer", index=(slice(2, None), slice(None, -3), 0)),
            shapes={"input": [None, None, None], "output": [3, 4]},
            found={"input": [5, 7, "u1"]},
        ),
        Clash(
            use("Indexer", index=slice(2, 4)),
            ValueError,
            "slice 2:4:1 of an axis of size N does not have length 3",
            shapes={"input": ["N"]},
            last_shapes={"output": [3]},
        ),
    ],
    "scalar_item_constraints": [
        Case(
            "forward",
            use("Indexer", index=-1, wires={"input": lambda: [1, 2, 3], "output": "out"}),
            known={"out": 3},
        ),
        Case(
            "backward",
            chain(
                op("ToTuple", n=2, wires={"input1": int_key("a"), "input2": 9, "output": "t"}),
                op("Indexer", index=0, wires={"input": "t", "output": "n"}),
                length_of("n"),
            ),
            shapes={"length": [6]},
            known={"a": 6},
        ),
        Refused(
            use("Indexer", index=3, wires={"input": lambda: [1, 2, 3], "output": "out"}),
            ValueError,
            r"index must be in \[-3, 3\), got 3",
        ),
    ],
    "indexer_type_constraint": [
        Case(
            "of a tuple",
            use("Indexer", index=1),
            types={"input": tuple[int, float]},
            kinds={"output": "float"},
        ),
        Case(
            "of a list",
            use("Indexer", index=1),
            types={"input": list[int]},
            kinds={"output": "int"},
        ),
        Case(
            "of a tensor",
            use("Indexer", index=...),
            types={"output": Tensor[int]},
            kinds={"input": "int tensor"},
        ),
        Clash(
            use("Indexer", index=2),
            (TypeError, ValueError),
            "index",
            last_types={"input": tuple[int, float]},
        ),
    ],
    "scalar_slice_type_constraint": [
        Case(
            "forward",
            use("Indexer", index=slice(1, None)),
            types={"input": tuple[int, float, bool]},
            kinds={"output": "tuple"},
        ),
        Case(
            "of values",
            use(
                "Indexer",
                index=slice(None, None, -2),
                wires={"input": lambda: [1, 2, 3], "output": "out"},
            ),
            known={"out": [3, 1]},
        ),
    ],
    "slice_constraints": [
        Case(
            "forward",
            use("Slice", start=1, stop=5, step=2),
            known={"output": slice(1, 5, 2)},
        ),
        Case(
            "of a tensor",
            sliced(1, 5, 2),
            shapes={"x": [9, "N"]},
            found={"y": [2, "N"]},
        ),
        Clash(
            sliced(1, 5, 2),
            ValueError,
            r"(?s)\[3\].*\[2\]",
            shapes={"x": [9]},
            last_shapes={"y": [3]},
        ),
    ],
    "buffer_constraint": [
        Case(
            "forward",
            use("Buffer"),
            types={"input": Tensor[int]},
            shapes={"input": [2, "N"]},
            found={"output": [2, "N"]},
            kinds={"output": "int tensor"},
        ),
        Case("a value", use("Buffer", input=(1, 2)), known={"output": (1, 2)}),
        Case(
            "backward",
            chain(op("Buffer", wires={"input": int_key("n"), "output": "m"}), length_of("m")),
            shapes={"length": [4]},
            known={"n": 4},
        ),
        Clash(
            use("Buffer"),
            TypeError,
            "int",
            types={"input": Tensor[int]},
            last_types={"output": Tensor[float]},
        ),
    ],
    "cross_entropy_constraint": [
        Case(
            "forward",
            use("CrossEntropy"),
            shapes={"input": [8, 10, 4]},
            found={"target": [8, 4], "output": [8, 4]},
        ),
        Case(
            "of shares",
            use("CrossEntropy", input_type="probs", categorical=False),
            shapes={"input": [8, 10]},
            found={"target": [8, 10], "output": [8]},
        ),
        Case(
            "backward",
            use("CrossEntropy"),
            shapes={"output": [8, 4], "input": [None, 10, None]},
            found={"input": [8, 10, 4], "target": [8, 4]},
        ),
        Clash(
            use("CrossEntropy"),
            ValueError,
            "",
            shapes={"input": [8, 10]},
            last_shapes={"target": [9]},
        ),
    ],
    "polynomial_kernel_constraint": [
        Case(
            "forward",
            use("PolynomialKernel", wires={"poly_coef": "c", "degree": "d", "output": "out"}),
            types={"c": Tensor, "d": Tensor},
            found={"c": [], "d": []},
        ),
    ],
}

CASES = [
    pytest.param(case, id=f"{name}: {getattr(case, 'row', 'clash')} {i}")
    for name, cases in ROWS.items()
    for i, case in enumerate(cases)
]


@pytest.mark.parametrize("case", CASES)
def test_constraint(case):
    case.check()


def test_every_constraint_has_its_cases():
    assert len(ROWS) == 47
