"""What goes wrong when a model is compiled and evaluated."""

from __future__ import annotations

from errors.case import Case

LINEAR = """
model |= ml.Linear(2)(input="x", output="y")  #1
pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [None, 3]})
params = pm.get_parameters()
"""

CASES = [
    Case(
        "data_of_another_width",
        LINEAR.replace("  #1", "")
        + """
pm.evaluate(params, {"x": np.ones((4, 5))})  #1
""",
        "ShapeError",
        "MTH108",
        ("'x'", "3]", "[4, 5]"),
    ),
    Case(
        "data_with_swapped_axes",
        LINEAR.replace("  #1", "")
        + """
pm.evaluate(params, {"x": np.ones((3, 4))})  #1
""",
        "ShapeError",
        "MTH108",
        ("3]", "[3, 4]", "other order: did you mean [4, 3]?"),
        (("np.ones((3, 4))", "np.ones((4, 3))"),),
    ),
    Case(
        "data_without_a_batch",
        LINEAR.replace("  #1", "")
        + """
pm.evaluate(params, {"x": np.ones(3)})  #1
""",
        "ShapeError",
        "MTH108",
        ("3]", "[3]", "a first axis is missing: [1, 3]"),
        (("np.ones(3)", "np.ones((1, 3))"),),
    ),
    Case(
        "two_batches",
        """
model |= ml.Add()(left="a", right="b", output="c")
model.set_shapes(a=["N", 3], b=["N", 3])  #1
pm = ml.compile(model, ml.NumpyBackend(), data_keys={"a", "b"})
pm.evaluate({}, {"a": np.ones((4, 3)), "b": np.ones((5, 3))})  #2
""",
        "ShapeError",
        "MTH108",
        ("'b'", "[N, 3]", "[5, 3]", "N is 4", "[4, 3] goes with the other inputs"),
        (("np.ones((5, 3))", "np.ones((4, 3))"),),
    ),
    Case(
        "a_mask_in_a_branch_of_a_plan",
        """
v = IOKey("v", shape=[3])
taken = ml.Model.create(s=v[v > 0].sum())  #1
model = ml.Model()
model |= ml.Cond(taken, ml.Model.create(s=IOKey("v").sum()))(predicate="p", v="x", s="y")
pm = ml.compile(model, ml.CpuBackend(), data_keys={"x", "p"})
pm.evaluate({}, {"x": np.ones(3, "float32"), "p": np.array(True)})
""",
        "UnsupportedError",
        "MTH801",
        ("the size of a result depends on the data, in a loop or a branch", "NumPy backend"),
        (("CpuBackend", "NumpyBackend"),),
    ),
    Case(
        "text_as_data",
        LINEAR.replace("  #1", "")
        + """
pm.evaluate(params, {"x": np.array([["a", "b", "c"]])})
""",
        "DTypeError",
        "MTH203",
        ("'x'", "requires"),
    ),
    Case(
        "floats_as_indices",
        """
model |= ml.Embedding(10, 4)(input="tokens", output="e")
pm = ml.compile(model, ml.NumpyBackend(), data_keys={"tokens"}, shapes={"tokens": [2]})
pm.evaluate(pm.get_parameters(), {"tokens": np.array([0.0, 1.0])})
""",
        "DTypeError",
        "MTH203",
        ("'tokens'", "integers", "float64", "cast the data"),
        (("np.array([0.0, 1.0])", "np.array([0.0, 1.0]).astype(int)"),),
    ),
    Case(
        "missing_data",
        LINEAR
        + """
pm.evaluate(params, {})
""",
        "KeyNotFound",
        "MTH402",
        ("'x'", "read by 'input' of Linear"),
        (("pm.evaluate(params, {})", 'pm.evaluate(params, {"x": np.ones((4, 3))})'),),
    ),
    Case(
        "misspelt_data",
        LINEAR
        + """
pm.evaluate(params, {"X": np.ones((4, 3))})
""",
        "KeyNotFound",
        "MTH402",
        ("'x'", "'X' is given, did you mean 'x'?"),
        (('{"X":', '{"x":'),),
    ),
    Case(
        "a_near_miss_of_a_wire",
        """
model |= ml.Exponential()(input="x", output="hidden")  #1
model |= ml.Relu()(input="hiden", output="y")  #2
pm = ml.compile(model, ml.NumpyBackend())
pm.evaluate({}, {"x": np.ones(3)})
""",
        "KeyNotFound",
        "MTH402",
        ("'hiden'", "read by 'input' of Relu", "written by 'output' of Exponential", "'hidden'"),
        (('"hiden"', '"hidden"'),),
    ),
    Case(
        "missing_parameters",
        LINEAR.replace("  #1", "")
        + """
pm.evaluate({"weight": params["weight"]}, {"x": np.ones((4, 3))})
""",
        "KeyNotFound",
        "MTH402",
        ("'bias'",),
    ),
    Case(
        "gradients_of_an_inference_model",
        """
model |= ml.Linear(2)(input="x", output="y")
pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [4, 3]}, inference=True)
pm.evaluate(pm.get_parameters(), {"x": np.ones((4, 3))}, output_gradients={"y": np.ones((4, 2))})
""",
        "UnsupportedError",
        "MTH801",
        ("inference=True",),
    ),
    Case(
        "a_backend_that_cannot_differentiate",
        """
model |= ml.Relu()(input="x", output="y")
ml.compile(model, ml.NumpyBackend(), autodiff="framework")
""",
        "UnsupportedError",
        "MTH801",
        ("NumpyBackend", 'autodiff="engine"'),
        (('autodiff="framework"', 'autodiff="engine"'),),
    ),
    Case(
        "an_unknown_size",
        """
model |= ml.Linear(10)(input="x", output="y")
pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"})
np.asarray(pm.get_parameters()["weight"])
""",
        "ShapeNotKnown",
        "MTH105",
        ("'weight'",),
        (('data_keys={"x"}', 'data_keys={"x"}, shapes={"x": [2, 3]}'),),
    ),
    Case(
        "a_class_as_backend",
        """
model |= ml.Relu()(input="x", output="y")
ml.compile(model, ml.NumpyBackend)
""",
        "SignatureError",
        "MTH301",
        ("NumpyBackend itself",),
    ),
    Case(
        "a_part_compiled",
        """
inner = ml.Model()
inner |= ml.Relu()(input="x", output="y")
model |= inner(x="x", y="y")
ml.compile(inner, ml.NumpyBackend())
""",
        "ArgumentError",
        "MTH301",
        ("part of another model", "compile the outermost"),
        (("ml.compile(inner", "ml.compile(model"),),
    ),
    Case(
        "an_index_out_of_bounds",
        """
model |= ml.Embedding(10, 4)(input="tokens", output="e")
pm = ml.compile(model, ml.CpuBackend(), data_keys={"tokens"}, shapes={"tokens": [3]})
pm.evaluate(pm.get_parameters(), {"tokens": np.array([1, 2, 10])})
""",
        "DataIndexError",
        "MTH701",
        ("10", "out of bounds"),
    ),
    Case(
        "a_number_too_large",
        """
model |= ml.Embedding(10, 4)(input="tokens", output="e")
pm = ml.compile(model, ml.CpuBackend(), data_keys={"tokens"}, shapes={"tokens": [1]})
pm.evaluate(pm.get_parameters(), {"tokens": np.array([2**63], np.uint64)})
""",
        "DataOverflowError",
        "MTH702",
        ("'tokens'", str(2**63)),
    ),
    Case(
        "malformed_text",
        """
ml.inspect.parse("graph g(")
""",
        "ParseError",
        "MTH601",
    ),
    Case(
        "a_search_that_stops",
        """
model |= ml.Relu()(input="x", output="y")
model.set_shapes(x=["N", "M"])
model.solve(steps=3)
""",
        "UnsupportedError",
        "MTH803",
        ("solve", "larger steps="),
        (("steps=3", "steps=100000, at_most=4"),),
    ),
    Case(
        "memory_that_is_not_there",
        """
model |= ml.BroadcastTo(shape=(2**40, 2**40))(input="x", output="y")
pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [1]})
pm.evaluate({}, {"x": np.ones(1)})
""",
        "OutOfMemoryError",
        "MTH703",
    ),
]
