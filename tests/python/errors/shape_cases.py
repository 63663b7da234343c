"""Clashes of shapes while a model is composed."""

from __future__ import annotations

from errors.case import Case

CASES = [
    Case(
        "width_of_a_weight",
        """
model |= ml.Flatten(start_dim=1, name="flat")(input="pixels", output="features")
model.set_shapes(pixels=["N", 16, 32])  #1
W = IOKey("W", shape=[10, 784])
model |= ml.Linear(10, name="head")(input="features", weight=W)  #2
""",
        "ShapeError",
        "MTH101",
        (
            "'head' (Linear) cannot take 'features'",
            "[N, 512]",
            "[10, 784]",
            "'d_in' would have to be 512 and 784",
            "[N, 16, 32]",
        ),
        (("[10, 784]", "[10, 512]"),),
    ),
    Case(
        "another_wire_was_meant",
        """
model.set_shapes()
model |= ml.Relu()(input="pixels", output="shown")
model |= ml.Linear(512)(input="pixels", output="features")  #1
model.set_shapes(pixels=["N", 784])
W = IOKey("W", shape=[10, 784])
model |= ml.Linear(10, name="head")(input="features", weight=W)  #2
""",
        "ShapeError",
        "MTH101",
        ("[N, 512]", "[10, 784]", 'did you mean input="pixels"?'),
        (('input="features", weight', 'input="pixels", weight'),),
    ),
    Case(
        "stated_width_of_a_layer",
        """
model |= ml.Linear(10)(input="x", output="h")  #1
model.set_shapes(x=["N", 16])
model.set_shapes(h=["N", 11])  #2
""",
        "ShapeError",
        "MTH101",
        ("'h' cannot be [N, 11]", "[N, 10]", "Linear", "set_shapes"),
        (('h=["N", 11]', 'h=["N", 10]'),),
    ),
    Case(
        "swapped_weight",
        """
model |= ml.Linear(10)(input="x", weight="w", output="h")  #1
model.set_shapes(x=["N", 16])
model.set_shapes(w=[16, 10])  #2
""",
        "ShapeError",
        "MTH101",
        ("[10, 16]", "[16, 10]", "in another order: did you mean [10, 16]?"),
        (("w=[16, 10]", "w=[10, 16]"),),
    ),
    Case(
        "vector_for_a_matrix",
        """
model |= ml.Solve()(matrix="a", right="b", output="x")  #1
model.set_shapes(a=[3, 3], b=[3])  #2
""",
        "ShapeError",
        "MTH101",
        ("[3, u1]", "'b' lacks its last axis: one column is [3, 1]"),
        (("b=[3]", "b=[3, 1]"),),
    ),
    Case(
        "transposed_weight_given",
        """
model |= ml.Relu()(input="x", output="h")
model.set_shapes(x=["N", 16])  #1
w = IOKey("w", shape=[16, 10])  #2
model |= ml.Linear()(input="h", weight=w, output="y")
""",
        "ShapeError",
        "MTH101",
        ("[N, 16]", "[16, 10]", "in another order: did you mean [10, 16]?"),
        (("shape=[16, 10]", "shape=[10, 16]"),),
    ),
    Case(
        "kernel_with_swapped_axes",
        """
model |= ml.Convolution2D(3, 8)(input="x", weight="k", output="y")  #1
model.set_shapes(x=["N", 4, 28, 28])
model.set_shapes(k=[3, 3, 4, 8])  #2
""",
        "ShapeError",
        "MTH101",
        ("[8, 4, 3, 3]", "[3, 3, 4, 8]", "did you mean [8, 4, 3, 3]?"),
        (("k=[3, 3, 4, 8]", "k=[8, 4, 3, 3]"),),
    ),
    Case(
        "flatten_before_the_result",
        """
model |= ml.Convolution2D(3, 8)(input="x", output="y")
model |= ml.Linear(10)(input="y", output="z")  #1
model.set_shapes(x=["N", 1, 28, 28])
model.set_shapes(z=["N", 10])  #2
""",
        "ShapeError",
        "MTH101",
        ("[N, 10]", "8, 26, 10]", "ml.Flatten(start_dim=1)"),
        (
            (
                'model |= ml.Linear(10)(input="y", output="z")',
                'model |= ml.Flatten(start_dim=1)(input="y", output="f")\n'
                'model |= ml.Linear(10)(input="f", output="z")',
            ),
        ),
    ),
    Case(
        "weight_for_flattened_data",
        """
model |= ml.Relu()(input="x", output="y")
model.set_shapes(x=["N", 8, 5, 5])  #1
w = IOKey("w", shape=[10, 200])  #2
model |= ml.Linear(10)(input="y", weight=w, output="z")
""",
        "ShapeError",
        "MTH101",
        ("[N, 8, 5, 5]", "[10, 200]", "'w' is [10, 5] by Linear"),
        (("shape=[10, 200]", "shape=[10, 5]"),),
    ),
    Case(
        "image_without_channels",
        """
model |= ml.Convolution2D(3, 8)(input="x", weight="k", output="y")  #1
model.set_shapes(x=["N", 28, 28])  #2
""",
        "ShapeError",
        "MTH101",
        ("[N, 28, 28]", "'x' lacks its axis of channels: one channel is [None, 1, 28, 28]"),
        (('x=["N", 28, 28]', 'x=["N", 1, 28, 28]'),),
    ),
    Case(
        "image_smaller_than_its_kernel",
        """
model |= ml.Convolution2D(5, 8)(input="x", weight="k", output="y")  #1
model.set_shapes(x=["N", 1, 4, 4])  #2
""",
        "ShapeError",
        "MTH101",
        ("[N, 1, 4, 4]", "a window of 5 does not fit, got size 4"),
        (),
    ),
    Case(
        "channels_last",
        """
model |= ml.Convolution2D(3, 8)(input="x", weight="k", output="y")  #1
model.set_shapes(x=["N", 28, 28, 1])  #2
""",
        "ShapeError",
        "MTH101",
        ("[N, 28, 28, 1]", "images are [N, channels, height, width]", "(0, 3, 1, 2)"),
        (
            (
                'model |= ml.Convolution2D(3, 8)(input="x"',
                'model |= ml.Transpose(axes=(0, 3, 1, 2))(input="x", output="images")\n'
                'model |= ml.Convolution2D(3, 8)(input="images"',
            ),
        ),
    ),
    Case(
        "two_statements",
        """
model |= ml.Relu()(input="x", output="y")
model.set_shapes(x=[2, 3])  #1
model.set_shapes(y=[2, 4])  #2
""",
        "ShapeError",
        "MTH101",
        ("[2, 3]", "[2, 4]", "by set_shapes: state that here"),
        (("y=[2, 4]", "y=[2, 3]"),),
    ),
    Case(
        "two_numbers_of_axes",
        """
model |= ml.Relu()(input="x", output="y")
model.set_shapes(x=[2, 3])  #1
model.set_shapes(y=[2, 3, 4])  #2
""",
        "ShapeError",
        "MTH101",
        ("[2, 3]", "[2, 3, 4]"),
        (("y=[2, 3, 4]", "y=[2, 3]"),),
    ),
    Case(
        "shape_of_a_key",
        """
model |= ml.Linear(10)(input="x", output="h")  #1
h = IOKey("h", shape=["N", 12])  #2
model |= ml.Relu()(input=h, output="y")
""",
        "ShapeError",
        "MTH101",
        ("'h'", "12]", "10]"),
        (('["N", 12]', '["N", 10]'),),
    ),
    Case(
        "literal_of_another_width",
        """
model |= ml.Linear(3)(input="x", output="h")  #1
model.set_shapes(x=["N", 2])
model |= ml.Linear(4)(input="h", weight=Tensor([[1.0, 2.0]] * 4), output="y")  #2
""",
        "ShapeError",
        "MTH101",
        ("Linear cannot take 'h'", "[N, 3]", "[4, 2]", 'did you mean input="x"?'),
        (('input="h", weight', 'input="x", weight'),),
    ),
    Case(
        "broadcast",
        """
model |= ml.Add()(left="x", right="y", output="z")  #1
model.set_shapes(x=[2, 3])
model.set_shapes(y=[4, 5])  #2
""",
        "ShapeError",
        "MTH103",
        ("[2, 3]", "[4, 5]", "shapes must broadcast", "Add"),
    ),
    Case(
        "broadcast_needs_an_axis",
        """
model.set_shapes()
x = IOKey("x", shape=[5, 3])  #1
y = IOKey("y", shape=[5])  #2
model |= ml.Add()(left=x, right=y, output="z")
""",
        "ShapeError",
        "MTH103",
        ("[5, 3]", "[5]"),
    ),
    Case(
        "broadcast_in_a_nested_model",
        """
block = ml.Model(name="block")
block |= ml.Linear(5)(input="x", output="y")  #1
block |= ml.Add()(left="y", right="z", output="out")
block.set_shapes(z=[7])  #2
""",
        "ShapeError",
        "MTH103",
        ("5]", "[7]", "shapes must broadcast"),
    ),
    Case(
        "broadcast_of_expressions",
        """
x = IOKey("x", shape=[2, 3])  #1
y = IOKey("y", shape=[4, 3])  #2
model = ml.Model.create(out=x * y)  #3
""",
        "ShapeError",
        "MTH103",
        ("[2, 3]", "[4, 3]", "multiply: shapes must broadcast"),
    ),
    Case(
        "inner_sizes",
        """
model |= ml.MatrixMultiply()(left="a", right="b", output="c")
model.set_shapes(a=[2, 3])  #1
model.set_shapes(b=[5, 4])  #2
""",
        "ShapeError",
        "MTH104",
        ("[2, 3]", "[5, 4]", "inner dimensions must be equal"),
    ),
    Case(
        "inner_sizes_transposed",
        """
a = IOKey("a", shape=[2, 3])  #1
b = IOKey("b", shape=[4, 3])  #2
model = ml.Model.create(c=a @ b)
""",
        "ShapeError",
        "MTH104",
        ("[2, 3]", "[4, 3]", "multiply by the transposed 'b'"),
        (("a @ b", "a @ b.T"),),
    ),
    Case(
        "element_count",
        """
model |= ml.Reshape((3, 5))(input="x", output="y")  #1
model.set_shapes(x=[4, 4])  #2
""",
        "ShapeError",
        "MTH106",
        ("[4, 4]", "(3, 5)", "'x' has 16 elements", "multiply to 16"),
        (("Reshape((3, 5))", "Reshape((2, 8))"),),
    ),
    Case(
        "element_count_given_later",
        """
x = IOKey("x", shape=[6, 2])  #1
model |= ml.Reshape((5, -1))(input=x, output="y")  #2
""",
        "ShapeError",
        "MTH106",
        ("[6, 2]", "'x' has 12 elements", "multiply to 12"),
        (("(5, -1)", "(4, -1)"),),
    ),
    Case(
        "reduce_of_too_few_axes",
        """
model |= ml.Mean(axis=3)(input="x", output="h")  #1
model.set_shapes(x=[1, 2])  #2
""",
        "ShapeError",
        "MTH101",
        ("[1, 2]", "[u1, u2, u3, u4, (V1, ...)]", "Mean"),
        (("x=[1, 2]", "x=[1, 2, 3, 4]"),),
    ),
    Case(
        "rank_of_linear",
        """
x = IOKey("x", shape=[])  #1
model |= ml.Linear(10)(input=x, output="y")  #2
""",
        "ShapeError",
        "MTH101",
        ("x : []", "[(V1, ...), u1]"),
        (("shape=[]", "shape=[4]"),),
    ),
    Case(
        "flatten_needs_axes",
        """
x = IOKey("x", shape=[3])  #1
model |= ml.Flatten(start_dim=2)(input=x, output="y")  #2
""",
        "ShapeError",
        "MTH102",
        ("[3]", "at least 3 dimensions"),
    ),
    Case(
        "two_variadics",
        """
model |= ml.Relu()(input="x", output="y")
model.set_shapes(x=[("V1", ...), 3, ("V2", ...)])  #1
""",
        "ShapeError",
        "MTH107",
        ("at most one variadic",),
    ),
    Case(
        "negative_size",
        """
model |= ml.Relu()(input="x", output="y")
model.set_shapes(x=[2, -3])  #1
""",
        "ShapeError",
        "MTH107",
        ("must not be negative", "-3"),
    ),
    Case(
        "a_chain_of_layers",
        """
model |= ml.Linear(8, name="first")(input="x", output="a")  #1
model |= ml.Relu()(input="a", output="b")
model |= ml.Relu()(input="b", output="c")
w = IOKey("w", shape=[4, 9])  #2
model |= ml.Linear(name="last")(input="c", weight=w, output="y")
""",
        "ShapeError",
        "MTH101",
        (
            "'last' (Linear) cannot take 'w'",
            "'d_in' would have to be 8 and 9",
            "[4, 9]",
            "Linear 'first'",
            "'w' is [u1, 8]",
        ),
        (("shape=[4, 9]", "shape=[4, 8]"),),
    ),
    Case(
        "a_fact_of_an_inner_model",
        """
inner = ml.Model(name="inner")
inner |= ml.Linear(8)(input="x", output="y")  #1
model |= inner(x="x", y="h")
model.set_shapes(h=["N", 9])  #2
""",
        "ShapeError",
        "MTH101",
        ("8]", "[N, 9]", "Model 'inner'"),
        (('h=["N", 9]', 'h=["N", 8]'),),
    ),
    Case(
        "one_name_two_sizes",
        """
model |= ml.Relu()(input="x", output="a")
model |= ml.Relu()(input="y", output="b")
model.set_shapes(a=["N", "N"])  #1
model.set_shapes(x=[3, 4])  #2
""",
        "ShapeError",
        "MTH101",
        ("[3, 4]", "[N, N]"),
        (("x=[3, 4]", "x=[4, 4]"),),
    ),
    Case(
        "concat",
        """
x = IOKey("x", shape=[2, 3])  #1
y = IOKey("y", shape=[2, 3, 4])  #2
model |= ml.Concat()(input=[x, y], output="z")
""",
        "ShapeError",
        "MTH101",
        ("[2, 3]", "[2, 3, 4]"),
    ),
    Case(
        "shapes_of_compile",
        """
model |= ml.Linear(2)(input="x", weight="w", output="y")
model.set_shapes(w=[2, 7])  #1
ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [None, 3]})  #2
""",
        "ShapeError",
        "MTH101",
        ("7]", "3]", "compile"),
        (('"x": [None, 3]', '"x": [None, 7]'),),
    ),
    Case(
        "merged_weights",
        """
w1 = IOKey("w1", shape=[4, 3])  #1
model |= ml.Linear(4, use_bias=False)(input="x", weight=w1, output="h")
w2 = IOKey("w2", shape=[4, 5])  #2
model |= ml.Linear(4, use_bias=False)(input="z", weight=w2, output="k")
model.merge_connections("w1", "w2", name="w")  #3
""",
        "ShapeError",
        "MTH101",
        (
            "'w1' and 'w2' cannot be one wire\n",
            "w1 : [4, 3]    <- key 'w1', ",
            "w2 : [4, 5]    <- key 'w2', ",
        ),
    ),
    Case(
        "merged_weights_of_two_layers",
        """
model |= ml.Linear(4)(input=IOKey("x", shape=["N", 3]), weight="v", output="h")  #1
model |= ml.Linear(4)(input=IOKey("z", shape=["M", 5]), weight="w", output="k")  #2
model.merge_connections("v", "w", name="v")  #3
""",
        "ShapeError",
        "MTH101",
        (
            "'v' and 'w' cannot be one wire\n",
            "v   : [4, 3]    <- Linear, script.py:6\n      x : [N, 3]    <- key 'x'",
            "w   : [4, 5]    <- Linear, script.py:7\n      z : [M, 5]    <- key 'z'",
        ),
    ),
    Case(
        "size_outside_of_an_interval",
        """
count = IOKey("count", type=int, interval=(1, 8))  #1
model |= ml.Arange()(stop=count, output="p")  #2
model.set_shapes(p=[9])  #3
""",
        "ShapeError",
        "MTH101",
        (
            "'p' cannot be [9]",
            "count : int in [1, 8]    <- key 'count'",
            "u1 must be in [1, 8], got 9",
            "in place of 9 give a number in [1, 8]",
        ),
        (("p=[9]", "p=[8]"),),
    ),
    Case(
        "size_that_no_window_gives",
        """
model |= ml.MaxPool2D(2)(input="x", output="y")  #1
model.set_shapes(y=["N", "C", 5, 5])  #2
model.set_shapes(x=["N", "C", 9, 9])  #3
""",
        "ShapeError",
        "MTH101",
        ("y : [N, C, 5, 5]", "must be 10 or 11, got 9", "in place of 9 give 10 or 11"),
        (("9, 9]", "10, 11]"),),
    ),
    Case(
        "flatten_itself",
        """
model |= ml.Flatten(start_dim=1)(input="x", output="f")  #1
w = IOKey("w", shape=[10, 784])  #2
model |= ml.Linear(10)(input="f", weight=w, output="y")
model.set_shapes(x=["N", 16, 32])  #3
""",
        "ShapeError",
        "MTH106",
        ("Flatten cannot take 'x'", "[N, 16, 32]", "[N, 784]"),
    ),
    Case(
        "two_sizes_of_one_name",
        """
model |= ml.Relu()(input="x", output="y")
model.set_shapes(x=["N", 3, 4])  #1
model.set_shapes(x=["M", "N", "N"])  #2
""",
        "ShapeError",
        "MTH101",
        ("'x' cannot be [M, N', N']", "x : [N, 3, 4] "),
        (('["M", "N", "N"]', '["M", "N", "K"]'),),
    ),
    Case(
        "the_statement_and_not_a_reader",
        """
model |= ml.Linear(4)(input="x", output="h")
model.set_shapes(x=["N", 3])  #1
b = IOKey("b", shape=[2, 5])  #2
model |= ml.Add()(left="x", right=b, output="y")
""",
        "ShapeError",
        "MTH103",
        ("\n    x : [N, 3]    <- set_shapes, ",),
    ),
    Case(
        "a_name_for_any_number_of_axes",
        """
model |= ml.Relu()(input="x", output="h")
model.set_shapes(x=[("lead", ...), 3])  #1
w = IOKey("w", shape=[8, 4])  #2
model |= ml.Linear(8)(input="h", weight=w, output="y")
""",
        "ShapeError",
        "MTH101",
        ("x : [(lead, ...), 3]",),
        (("shape=[8, 4]", "shape=[8, 3]"),),
    ),
]
