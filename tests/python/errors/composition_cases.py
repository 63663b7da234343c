# Covers: mithril/base/corrected_line.py
"""Names, types, values and structure: what goes wrong while a model is composed."""

from __future__ import annotations

from errors.case import Case

TYPES = [
    Case(
        "tokens_as_floats",
        """
model |= ml.Embedding(10, 4)(input="tokens", output="e")  #1
model.set_types(tokens=ml.Tensor[float])  #2
""",
        "DTypeError",
        "MTH201",
        ("'tokens'", "int tensor", "float tensor"),
        (("Tensor[float]", "Tensor[int]"),),
    ),
    Case(
        "floats_as_tokens",
        """
x = IOKey("x", differentiable=True)  #1
model |= ml.Embedding(10, 4)(input=x, output="e")  #2
""",
        "DTypeError",
        "MTH201",
        ("'x'", "int tensor", "float tensor"),
        (('IOKey("x", differentiable=True)', 'IOKey("x")'),),
    ),
    Case(
        "two_types",
        """
model |= ml.Relu()(input="x", output="y")
model.set_types(x=ml.Tensor[int])  #1
model.set_types(y=ml.Tensor[float])  #2
""",
        "DTypeError",
        "MTH201",
        ("int tensor", "float tensor"),
        (("y=ml.Tensor[float]", "y=ml.Tensor[int]"),),
    ),
    Case(
        "text_as_operand",
        """
s = IOKey("s", type=str)  #1
model |= ml.Add()(left=s, right="b", output="c")  #2
""",
        "DTypeError",
        "MTH201",
        ("'s'", "str", "tensor or bool or int or float"),
        (('IOKey("s", type=str)', 'IOKey("s")'),),
    ),
    Case(
        "one_of_two_new_layers",
        """
x = IOKey("x")
model = ml.Model.create(i=ml.Where()(x > 0, x, None), j=x.sum())  #1
""",
        "DTypeError",
        "MTH201",
        ("Where cannot take 'input2'", "none      <- input2 of Where"),
        (("None)", "0.0)"),),
    ),
    Case(
        "a_shape_for_a_number",
        """
IOKey("n", value=3, shape=[2])  #1
""",
        "ArgumentError",
        "MTH301",
        ("'n'", "no tensor"),
    ),
]

NAMES = [
    Case(
        "misspelt_keyword",
        """
model |= ml.Relu()(inptu="x", output="y")  #1
""",
        "UnexpectedKeyError",
        "MTH401",
        ("'inptu'", "did you mean 'input'?"),
        (("inptu", "input"),),
    ),
    Case(
        "misspelt_keyword_of_a_model",
        """
inner = ml.Model()
inner |= ml.Relu()(input="features", output="y")
model |= inner.connect(feature="x")  #1
""",
        "UnexpectedKeyError",
        "MTH401",
        ("'feature'", "did you mean 'features'?"),
        (("feature=", "features="),),
    ),
    Case(
        "unknown_wire",
        """
model |= ml.Relu()(input="x", output="hidden")
model["hiden"]
""",
        "KeyNotFound",
        "MTH401",
        ("'hiden'", "did you mean 'hidden'?"),
        (('model["hiden"]', 'model["hidden"]'),),
    ),
    Case(
        "unknown_wire_in_a_setter",
        """
model |= ml.Relu()(input="pixels", output="y")
model.set_shapes(pixel=[2, 3])  #1
""",
        "KeyNotFound",
        "MTH401",
        ("'pixel'", "did you mean 'pixels'?"),
        (("pixel=[", "pixels=["),),
    ),
    Case(
        "submodel_name_taken",
        """
model |= ml.Relu(name="a")(input="x", output="y")  #1
model |= ml.Tanh(name="a")(input="y", output="z")  #2
""",
        "WireNameError",
        "MTH403",
        ("'a'", "Relu 'a'", "Tanh 'a'", "choose another name"),
        (('Tanh(name="a")', 'Tanh(name="b")'),),
    ),
    Case(
        "generated_name",
        """
model |= ml.Relu()(input="x", output="$y")  #1
""",
        "WireNameError",
        "MTH404",
        ("'$y'", "'$'"),
    ),
    Case(
        "output_called_input",
        """
model |= ml.Relu()(input="x", output="input")  #1
""",
        "WireNameError",
        "MTH404",
        ("'input'", "reserved"),
    ),
    Case(
        "renamed_to_a_taken_name",
        """
model |= ml.Relu()(input="x", output="y")
model.rename_key("x", "y")  #1
""",
        "WireNameError",
        "MTH403",
        ("'y'",),
    ),
    Case(
        "unnamed_data_input",
        """
model |= ml.Exponential()(input="x", output="y")
model |= ml.Add()(left="y", output="z")  #1
ml.compile(model, ml.NumpyBackend())  #2
""",
        "KeyNotFound",
        "MTH406",
        ("'right'", 'write model |= ml.Add()(left="y", output="z", right="right")'),
        (('(left="y", output="z")', '(left="y", output="z", right="right")'),),
    ),
    Case(
        "unnamed_data_input_of_a_bare_layer",
        """
model |= ml.Relu()(input="x", output="y")
model |= ml.Multiply()  #1
ml.compile(model, ml.NumpyBackend())  #2
""",
        "KeyNotFound",
        "MTH406",
        ("'left'", 'write model |= ml.Multiply()(left="left")'),
        (("ml.Multiply()", 'ml.Multiply()(left="left", right="right")'),),
    ),
]

VALUES = [
    Case(
        "two_values",
        """
model |= ml.Power()(base="x", exponent="e", output="y")
model.set_values(e=2.0)  #1
model.set_values(e=3.0)  #2
""",
        "ArgumentError",
        "MTH303",
        ("'e'", "2.0", "3.0", "leave one of them out"),
        (("model.set_values(e=3.0)", ""),),
    ),
    Case(
        "a_number_outside_of_an_interval",
        """
rate = IOKey("rate", type=float, interval=(0, 1))  #1
model |= ml.Power()(base="x", exponent=rate, output="y")
model.set_values(rate=1.5)  #2
""",
        "ArgumentError",
        "MTH303",
        ("'rate' cannot be 1.5", "expected a number in [0, 1], got 1.5    <- key 'rate'"),
        (("rate=1.5", "rate=0.5"),),
    ),
    Case(
        "a_size_outside_of_an_interval",
        """
count = IOKey("count", type=int, interval=(1, 8))  #1
model |= ml.Arange()(stop=count, output="p")
model.set_values(count=9)  #2
""",
        "ArgumentError",
        "MTH303",
        ("count : int in [1, 8]    <- key 'count'", "expected a number in [1, 8], got 9"),
        (("count=9", "count=8"),),
    ),
    Case(
        "two_values_merged",
        """
a = IOKey("a", value=1.0)  #1
model |= ml.Power()(base="x", exponent=a, output="y")
b = IOKey("b", value=2.0)
model |= ml.Power()(base="y", exponent=b, output="z")
model.merge_connections("a", "b", name="a")  #2
""",
        "ArgumentError",
        "MTH303",
        ("1.0", "2.0"),
        (('b = IOKey("b", value=2.0)', 'b = IOKey("b", value=1.0)'),),
    ),
    Case(
        "a_value_for_an_output",
        """
model |= ml.Relu()(input="x", output=3.0)  #1
""",
        "KeyNotFound",
        "MTH301",
        ("'output'", "value"),
    ),
    Case(
        "a_value_inside",
        """
model |= ml.Relu()(input="x", output="h")
model |= ml.Tanh()(input="h", output="y")
model.set_values(h=Tensor([1.0]))  #1
""",
        "ArgumentError",
        "MTH301",
        ("'h'",),
    ),
    Case(
        "stated_both_ways",
        """
model |= ml.Relu()(input="x", output="y")
model.set_differentiability(x=True)  #1
model.set_differentiability(x=False)  #2
""",
        "ArgumentError",
        "MTH506",
        ("'x'", "differentiable", "not differentiable"),
        (("model.set_differentiability(x=False)", ""),),
    ),
    Case(
        "stated_both_ways_and_merged",
        """
a = IOKey("a", differentiable=True)  #1
b = IOKey("b", differentiable=False)  #2
model |= ml.Relu()(input=a, output="y")
model |= ml.Relu()(input=b, output="z")
model.merge_connections("a", "b", name="a")  #3
""",
        "ArgumentError",
        "MTH506",
        ("differentiable", "not differentiable"),
        (("differentiable=False", "differentiable=True"),),
    ),
    Case(
        "a_constant_to_train",
        """
model |= ml.Relu()(input="x", output="y")
model.set_values(x=Tensor([1.0, 2.0]))  #1
model.set_differentiability(x=True)  #2
""",
        "ArgumentError",
        "MTH506",
        ("'x'", "fixed value", "initial=True"),
        (("Tensor([1.0, 2.0]))", "Tensor([1.0, 2.0]), initial=True)"),),
    ),
    Case(
        "axis_out_of_range",
        """
x = IOKey("x", shape=[4, 4])  #1
model |= ml.Softmax(axis=2)(input=x, output="y")  #2
""",
        "ArgumentError",
        "MTH302",
        ("[4, 4]", "axis: 2", "the axes of 'x' are -2 to 1"),
        (("axis=2", "axis=1"),),
    ),
    Case(
        "stride_of_nothing",
        """
model |= ml.Convolution2D(3, 8, stride=0)(input="x", output="y")  #1
model.set_shapes(x=["N", 1, 28, 28])
""",
        "ArgumentError",
        "MTH301",
        ("stride must be positive", "0"),
    ),
    Case(
        "a_name_as_operand",
        """
x = IOKey("x")
y = x + "b"
""",
        "ArgumentError",
        "MTH301",
        ("a name is no operand", "model[name] or an IOKey"),
        (('x + "b"', 'x + IOKey("b")'),),
    ),
    Case(
        "a_tensor_used_twice",
        """
t = Tensor([1.0, 2.0])
model |= ml.Add()(left=t, right=t, output="y")
""",
        "ArgumentError",
        "MTH301",
        ("one place only",),
    ),
    Case(
        "nothing_as_a_connection",
        """
model |= ml.Relu()(input=ml.TBD, output="y")
""",
        "NotAConnectionError",
        "MTH301",
        ("TBD",),
        (("input=ml.TBD, ", ""),),
    ),
    Case(
        "an_object_as_a_connection",
        """
model |= ml.Relu()(input=print, output="y")
""",
        "NotAConnectionError",
        "MTH301",
        ("print",),
    ),
]

STRUCTURE = [
    Case(
        "two_writers",
        """
model |= ml.Relu()(input="x", output="y")  #1
model |= ml.Tanh()(input="x", output="y")  #2
""",
        "MultiWriteError",
        "MTH503",
        ("'y'", "Relu", "Tanh", "another name"),
        (('Tanh()(input="x", output="y")', 'Tanh()(input="x", output="z")'),),
    ),
    Case(
        "a_writer_of_a_value",
        """
model |= ml.Relu()(input="x", output="h")
model.set_values(x=Tensor([1.0]))  #1
model |= ml.Tanh()(input="h", output="x")  #2
""",
        "MultiWriteError",
        "MTH503",
        ("'x'", "has a value", "Tanh"),
        (('output="x"', 'output="z"'),),
    ),
    Case(
        "a_cycle",
        """
model |= ml.Relu()(input="a", output="b")  #1
model |= ml.Tanh()(input="b", output="a")  #2
""",
        "CycleError",
        "MTH502",
        ("'a'", "Relu", "Tanh", "another name than 'a'"),
        (('output="a"', 'output="c"'),),
    ),
    Case(
        "a_cycle_of_one",
        """
model |= ml.Add()(left="a", right="b", output="a")  #1
""",
        "CycleError",
        "MTH502",
        ("'a'", "Add"),
        (('output="a"', 'output="c"'),),
    ),
    Case(
        "extended_while_inside",
        """
inner = ml.Model(name="inner")
inner |= ml.Relu()(input="x", output="y")
model |= inner(x="x", y="y")
inner |= ml.Tanh()(input="y", output="z")  #1
""",
        "FrozenModelError",
        "MTH501",
        ("Model 'inner' is a submodel", "extend it before"),
        (
            ('inner |= ml.Tanh()(input="y", output="z")', ""),
            (
                'model |= inner(x="x", y="y")',
                'inner |= ml.Tanh()(input="y", output="z")\nmodel |= inner(x="x", z="y")',
            ),
        ),
    ),
    Case(
        "a_primitive_extended",
        """
relu = ml.Relu()
relu |= ml.Tanh()(input="output", output="y")  #1
""",
        "SealedModelError",
        "MTH501",
        ("Relu is frozen", "put it into a new model"),
        (("relu |= ml.Tanh()(", 'model |= relu(input="x", output="output")\nmodel |= ml.Tanh()('),),
    ),
    Case(
        "extended_with_itself",
        """
model |= model
""",
        "WireNameError",
        "MTH501",
        ("itself",),
    ),
    Case(
        "a_foreign_wire",
        """
other = ml.Model()
other |= ml.Relu()(input="x", output="h")
model |= ml.Tanh()(input=other["h"], output="y")  #1
""",
        "KeyNotFound",
        "MTH504",
        ("'h'", "does not belong to Model", "use a wire of this model"),
        (
            (
                'model |= ml.Tanh()(input=other["h"]',
                'model |= other(x="x", h="h")\nmodel |= ml.Tanh()(input="h"',
            ),
        ),
    ),
    Case(
        "two_open_models",
        """
other = ml.Model()
other |= ml.Relu()(input="x", output="h")
model |= ml.Relu()(input="x", output="h")
y = model["h"] + other["h"]  #1
""",
        "ArgumentError",
        "MTH504",
        ("two models",),
    ),
    Case(
        "nothing_to_chain_to",
        """
model |= ml.Relu()(input="x", output="a")
model |= ml.Relu()(input="x", output="b")
model += ml.Tanh()(output="y")  #1
""",
        "KeyNotFound",
        "MTH505",
        ("`+=` needs one canonical output", "got 2", "set_cout"),
        (("model += ml.Tanh()", 'model.set_cout("b")\nmodel += ml.Tanh()'),),
    ),
    Case(
        "two_free_inputs",
        """
model |= ml.Relu()(input="x", output="a")
model += ml.Add()(output="y")  #1
""",
        "KeyNotFound",
        "MTH505",
        ("'left', 'right'", "give all but one"),
        (('ml.Add()(output="y")', 'ml.Add()(right="b", output="y")'),),
    ),
    Case(
        "a_training_model_inside",
        """
model |= ml.Relu()(input="x", output="y")
trained = ml.TrainModel(model)
outer = ml.Model()
outer |= trained
""",
        "FrozenModelError",
        "MTH501",
        ("TrainModel", "put the model that it trains in"),
        (("trained = ml.TrainModel(model)\n", ""), ("outer |= trained", "outer |= model")),
    ),
]

CASES = [*TYPES, *NAMES, *VALUES, *STRUCTURE]
