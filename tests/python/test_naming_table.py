"""Names of wires and submodels: every rule and worked example of reference 2.11.

A row is a construction with what the original shows for it. The numbers of rows are printed by
`pytest -v`; `test_every_rule_has_a_row` counts them against the table.
"""

from dataclasses import dataclass, field

import mithril as ml
import numpy as np
import pytest
from mithril.errors import KeyNotFound, WireNameError


@dataclass
class Row:
    """What a construction shows: keys by kind, canonical sets, generated names without `$`."""

    build: object
    inputs: list
    internals: list = field(default_factory=list)
    latent_outputs: list = field(default_factory=list)
    latent_inputs: list = field(default_factory=list)
    cins: list | None = None
    couts: list | None = None
    generated: dict = field(default_factory=dict)
    dag: list | None = None


def chain(m):
    m |= ml.Linear(10)
    m += ml.Relu()
    m += ml.Linear(2)


def named(m):
    m |= ml.Linear(10).connect(input="x", output="h")
    m += ml.Relu().connect(output="y")


def two_readers(m):
    m |= ml.Linear(10).connect(input="x")
    m |= ml.Linear(10).connect(input="x")


def value_at_connect(m):
    m |= ml.Add().connect(left="a", right=3.0)


def value_at_construction(m):
    m |= ml.Add(right=3.0).connect(left="a")


def expression(m):
    x = ml.IOKey("x")
    y = x.mean(axis=1) + 2 * x
    m |= ml.Buffer().connect(input=y, output="o")


# The worked examples, in the order of the table.
EXAMPLES = {
    "chain": Row(
        chain,
        inputs=["$1", "$2", "$3", "$6", "$7"],
        internals=["$4", "$5"],
        latent_outputs=["$8"],
        cins=["$2"],
        couts=["$8"],
        generated={
            "$1": "weight_0",
            "$2": "input",
            "$3": "bias_0",
            "$6": "weight_1",
            "$7": "bias_1",
            "$4": "_Linear_0_output",
            "$5": "_Relu_1_output",
            "$8": "_Linear_2_output",
        },
    ),
    "named": Row(
        named,
        inputs=["$1", "x", "$2"],
        internals=["h"],
        latent_outputs=["y"],
        generated={"$1": "weight", "$2": "bias"},
    ),
    "two readers": Row(
        two_readers,
        inputs=["$1", "x", "$2", "$4", "$5"],
        latent_outputs=["$3", "$6"],
        cins=["x"],
        couts=["$3", "$6"],
        generated={"$1": "weight_0", "$2": "bias_0", "$4": "weight_1", "$5": "bias_1"},
    ),
    "value at connect": Row(
        value_at_connect, inputs=["a", "$1"], latent_outputs=["$2"], generated={"$1": "right"}
    ),
    "value at construction": Row(
        value_at_construction,
        inputs=["a"],
        latent_inputs=["$1"],
        latent_outputs=["$2"],
        generated={"$1": "_Add_0_right"},
    ),
    "expression": Row(
        expression,
        inputs=["x"],
        internals=["$3", "$5", "$6"],
        latent_inputs=["$1", "$2", "$4"],
        latent_outputs=["o"],
        generated={
            "$1": "_Mean_0_axis",
            "$2": "_Mean_0_keepdim",
            "$3": "_Mean_0_output",
            "$4": "_Multiply_1_left",
            "$5": "_Multiply_1_output",
            "$6": "_Add_2_output",
        },
        dag=["Mean", "Multiply", "Add", "Buffer"],
    ),
}


def built(row):
    model = ml.Model()
    row.build(model)
    return model


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name):
    row = EXAMPLES[name]
    model = built(row)
    conns = model.conns
    assert model.input_keys == row.inputs
    assert conns.internal_keys == row.internals
    assert conns.latent_output_keys == row.latent_outputs
    assert conns.latent_input_keys == row.latent_inputs
    if row.cins is not None:
        assert [wire.key for wire in conns.cins] == row.cins
    if row.couts is not None:
        assert [wire.key for wire in conns.couts] == row.couts
    if row.dag is not None:
        assert [child.default_name for child in model.dag] == row.dag
    generated = model.generate_keys(symbolic=False, include_outputs=True)
    assert {key: generated[key] for key in row.generated} == row.generated
    unnamed = [key for key in conns.all if key.startswith("$")]
    assert list(generated) == unnamed  # every unnamed wire, in the order of creation


def test_symbolic_names_begin_with_a_dollar():
    model = built(EXAMPLES["chain"])
    plain = model.generate_keys(symbolic=False)
    assert model.generate_keys() == {key: f"${name}" for key, name in plain.items()}


def test_what_generate_keys_leaves_out():
    model = built(EXAMPLES["chain"])
    assert "$8" not in model.generate_keys()
    assert "$4" in model.generate_keys()
    assert list(model.generate_keys(include_internals=False)) == ["$1", "$2", "$3", "$6", "$7"]


# --- numbers of unnamed wires ---------------------------------------------------------------------


def test_numbers_are_per_model():
    inner, outer = ml.Model(), ml.Model()
    inner |= ml.Linear(3)
    outer |= inner
    assert inner.input_keys == ["$1", "$2", "$3"]
    assert outer.input_keys == ["$1", "$2", "$3"]


def test_a_number_is_never_reused():
    model = ml.Model()
    model |= ml.Relu()
    model.merge_connections("$1", "$1", name="x")
    model |= ml.Relu()
    assert model.input_keys == ["x", "$3"]


def test_a_failed_call_uses_no_number():
    model = ml.Model()
    model |= ml.Relu()(output="y")
    with pytest.raises(ml.errors.MultiWriteError):
        model |= ml.Relu()(output="y")
    model |= ml.Relu()
    assert model.input_keys == ["$1", "$2"]


def test_numbers_follow_the_order_of_keys():
    model = ml.Model()
    model |= ml.Convolution2D(3, 8)
    origins = [model.conns.get_key_origin(f"${i}") for i in range(1, 5)]
    assert origins[0] == "weight"
    assert list(model.dag.values())[0]["weight"].key == "$1"


@pytest.mark.parametrize("name", ["$", "$1", "$x", "$weight", ""])
def test_names_that_users_cannot_give(name):
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    before = model._node.dump()
    with pytest.raises(KeyError):
        model.rename_key("x", name)
    assert model._node.dump() == before
    if name:
        with pytest.raises(WireNameError, match="generated"):
            model |= ml.Relu()(input=name.replace("$1", "$77"))
        assert model._node.dump() == before


@pytest.mark.parametrize("name", ["$01", "$0", "$+1", "$ 1", "$1x", "$99"])
def test_what_no_generated_name_is(name):
    model = ml.Model()
    model |= ml.Relu()
    with pytest.raises(KeyNotFound):
        model[name]


# --- names of submodels ---------------------------------------------------------------------------


def names(*children):
    model = ml.Model()
    for child in children:
        model |= child
    return list(model.get_unique_submodel_names().values())


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        ([ml.Relu], ["Relu"]),
        ([ml.Relu, ml.Tanh], ["Relu", "Tanh"]),
        ([ml.Relu, ml.Tanh, ml.Relu], ["Relu_0", "Tanh", "Relu_1"]),
        ([lambda: ml.Relu(name="act"), ml.Relu], ["act", "Relu"]),
        ([lambda: ml.Relu(name="Relu"), ml.Relu], ["Relu", "Relu_0"]),
        ([lambda: ml.Relu(name="Relu_0"), ml.Relu, ml.Relu], ["Relu_0", "Relu_1", "Relu_2"]),
        ([ml.Model, ml.Model], ["Model_0", "Model_1"]),
    ],
)
def test_submodels(children, expected):
    assert names(*(child() for child in children)) == expected


def test_names_of_models_side_by_side():
    given = [ml.Relu(), ml.Relu(), ml.Tanh(), ml.Relu(name="Relu_0")]
    found = ml.models.define_unique_names(given)
    assert list(found.values()) == ["Relu_1", "Relu_2", "Tanh", "Relu_0"]


# --- generated names ------------------------------------------------------------------------------


def generated(build, **options):
    model = ml.Model()
    build(model)
    return model.generate_keys(symbolic=False, **options)


def test_the_one_canonical_input_is_called_input():
    assert generated(lambda m: m.extend(ml.Relu()))["$1"] == "input"


def test_but_not_where_the_user_has_that_name():
    def build(m):
        m |= ml.Relu()(input="input")
        m.set_cin()
        m |= ml.Relu()

    assert generated(build)["$2"] == "_input"


def test_an_input_that_is_not_canonical():
    def build(m):
        m |= ml.Relu()
        m.set_cin()

    assert generated(build)["$1"] == "_input"


def test_a_clash_with_a_name_of_the_user():
    def build(m):
        m |= ml.Linear(2)(input="weight")
        m |= ml.Relu()(input="_bias")
        m |= ml.Relu()(input="bias")

    found = generated(build)
    assert found["$1"] == "_weight"
    assert found["$2"] == "__bias"


def test_repeated_origins_are_numbered_and_a_lone_one_is_not():
    def build(m):
        m |= ml.Linear(2)(input="x")
        m |= ml.Linear(2, use_bias=False)(input="x")

    found = generated(build, include_internals=False)
    assert list(found.values()) == ["weight_0", "bias", "weight_1"]


def test_the_origin_is_the_innermost_name():
    inner, outer = ml.Model(), ml.Model()
    inner |= ml.Linear(2)(weight="kernel")
    outer |= inner
    assert outer.conns.get_key_origin("$1") == "weight"


# --- reserved -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exposed", [False, True])
def test_input_is_no_name_of_an_output(exposed):
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    if exposed:
        model.expose_keys("y")
    before = model._node.dump()
    with pytest.raises(KeyError, match="reserved"):
        model.rename_key("y", "input")
    with pytest.raises(KeyError, match="reserved"):
        model |= ml.Relu()(output="input")
    with pytest.raises(KeyError, match="reserved"):
        model.expose_keys(input="y")
    assert model._node.dump() == before


def test_an_input_wire_called_input_is_never_written():
    model = ml.Model()
    model |= ml.Relu()(input="input", output="y")
    before = model._node.dump()
    with pytest.raises(KeyError, match="reserved"):
        model |= ml.Relu()(input="x", output="input")
    assert model._node.dump() == before


# --- names of a compiled model --------------------------------------------------------------------


def compiled(model, **options):
    shapes = options.pop("shapes", {})
    return ml.compile(model, ml.NumpyBackend(), shapes=shapes, inference=True, **options)


@pytest.mark.device
class TestPhysicalNames:
    def test_short(self):
        model = built(EXAMPLES["chain"])
        pm = compiled(model, data_keys={"input"}, shapes={"input": [4, 3]})
        assert set(pm.input_keys) == {"weight_0", "input", "bias_0", "weight_1", "bias_1"}

    def test_a_key_takes_the_name_of_its_origin(self):
        model = ml.Model()
        model += ml.Add()(right="b")
        model.set_cin("$1")
        assert model.generate_keys() == {"$1": "$input"}
        assert compiled(model, safe_names=False).input_keys == {"left", "b"}

    def test_keys_that_share_an_origin_are_numbered(self):
        """The named one counts, and keeps its name."""
        model = ml.Model()
        model |= ml.Buffer()(input="_input")
        model |= ml.Buffer()
        model |= ml.Buffer()
        pm = compiled(model, safe_names=False)
        assert list(pm.data_keys) == ["_input", "input_0", "input_1"]

    def test_numbers_pass_over_names_of_the_user(self):
        model = ml.Model()
        for i in range(6):
            named = {2: {"weight": "weight_2"}, 3: {"bias": "bias_3"}}.get(i, {})
            model += ml.Linear(2)(**named, **({} if i else {"input": "x"}))
        pm = compiled(model, data_keys={"x"}, shapes={"x": [1, 2]})
        assert list(pm.param_keys) == [f"{k}_{i}" for i in range(6) for k in ("weight", "bias")]
        train = ml.TrainModel(model)
        train.add_loss(ml.SquaredError(), input=model.cout, target="t")
        assert compiled(train, data_keys={"x", "t"}).param_keys == pm.param_keys

    def test_a_name_of_another_key_is_passed_over(self):
        model = ml.Model()
        model |= ml.Linear(2)(input="weight")
        pm = compiled(model, data_keys={"weight"}, shapes={"weight": [1, 2]})
        assert pm.input_keys == {"weight", "weight_0", "bias"}

    def test_a_named_key_of_the_same_origin_numbers_the_others(self):
        model = ml.Model()
        model |= ml.Linear(2)(input="x", weight="w", output="h")
        model |= ml.Linear(2)(input="h", output="y")
        pm = compiled(model, data_keys={"x"}, shapes={"x": [1, 2]})
        assert list(pm.param_keys) == ["w", "bias_0", "weight_0", "bias_1"]

    def test_options_know_both_names(self):
        model = ml.Model()
        model += ml.MatrixMultiply()(right="b")
        for name in ("left", "input"):  # compiled, and as generate_keys has it
            pm = compiled(model, data_keys={"b"}, shapes={name: [2, 3], "b": [3, 3]})
            assert pm.shapes["left"] == [2, 3]

    def test_names_at_a_level_stand_for_all_below(self):
        inner = ml.Model(name="Enc")
        inner |= ml.Linear(3)(input="x", weight="Kernel", output="h")
        model = ml.Model()
        model |= inner(x="x", h="h")
        model |= ml.models.MLP([ml.Relu(), ml.Tanh()], [2, 2])(input="h", output="y")
        pm = compiled(model, data_keys={"x"}, shapes={"x": [4, 3]}, use_short_namings=False)
        assert list(pm.param_keys) == [
            "enc_Kernel", "enc_linear_bias",
            "mlp_weight0", "mlp_bias0", "mlp_weight1", "mlp_bias1",
        ]  # fmt: skip

    def test_named_ones_keep_their_names(self):
        model = built(EXAMPLES["named"])
        pm = compiled(model, data_keys={"x"}, shapes={"x": [4, 3]})
        assert set(pm.input_keys) == {"weight", "x", "bias"}
        assert list(pm.evaluate(pm.get_parameters(), {"x": np.ones((4, 3))})) == ["y"]

    def test_long(self):
        inner = ml.Model()
        inner |= ml.Linear(3)(input="x", output="h")
        model = ml.Model()
        model |= inner(x="x", h="h")
        model |= ml.Linear(2, name="head")(input="h", output="y")
        pm = compiled(model, data_keys={"x"}, shapes={"x": [4, 3]}, use_short_namings=False)
        assert set(pm.input_keys) == {
            "model_linear_weight",
            "x",
            "model_linear_bias",
            "head_weight",
            "head_bias",
        }

    @pytest.mark.parametrize("options", [{"use_short_namings": False}, {"naming": "path"}, {}])
    def test_training_models_name_keys_as_their_model_does(self, options):
        def network():
            inner = ml.Model(name="body")
            inner |= ml.Linear(3)(input="x", output="h")
            inner |= ml.LayerNorm()(input="h", output="n")
            model = ml.Model()
            model |= inner(x="x", n="n")
            model |= ml.Linear(2)(input="n", weight="w", output="y")
            return model

        train = ml.TrainModel(network())
        train.add_loss(ml.SquaredError(), input="y", target="t")
        shapes = {"x": [4, 3]}
        alone = compiled(network(), data_keys={"x"}, shapes=shapes, **options)
        pm = compiled(train, data_keys={"x", "t"}, shapes=shapes, **options)
        assert pm.param_keys == alone.param_keys
        params = pm.randomize_params(0)
        data = {"x": np.ones((4, 3), np.float32)}
        both = pm.evaluate(params, data | {"t": np.ones((4, 2), np.float32)})
        np.testing.assert_array_equal(alone.evaluate(params, data)["y"], both["y"])

    def test_options_know_long_names(self):
        options = {"data_keys": {"x"}, "use_short_namings": False}
        pm = compiled(built(EXAMPLES["chain"]), data_keys={"linear_0_input"},
                      shapes={"linear_0_input": [4, 3]}, use_short_namings=False)  # fmt: skip
        assert pm.data_keys == ("linear_0_input",)
        model = ml.Model()
        model |= ml.Linear(3)(input="x", output="y")
        pm = compiled(model, shapes={"x": [4, 3]}, trainable_keys={"linear_bias"}, **options)
        assert set(pm.trainable_keys) == {"linear_weight", "linear_bias"}

    def test_long_names_are_numbered_like_submodels(self):
        model = built(EXAMPLES["chain"])
        pm = compiled(
            model, data_keys={model.cin}, shapes={model.cin: [4, 3]}, use_short_namings=False,
            safe_names=False,
        )  # fmt: skip
        assert set(pm.input_keys) == {
            "linear_0_weight",
            "linear_0_input",
            "linear_0_bias",
            "linear_1_weight",
            "linear_1_bias",
        }

    def test_canonical_outputs_are_called_after_their_keys(self):
        model = ml.Model()
        for op in (ml.Relu, ml.Tanh, ml.Sigmoid):
            model |= op()(input="x")
        pm = compiled(model, shapes={"x": [2]})
        assert list(pm.evaluate({}, {"x": np.ones(2)})) == ["output", "_output", "__output"]

    def test_and_give_way_to_names_of_the_user(self):
        model = ml.Model()
        model |= ml.Relu()(input="output")
        pm = compiled(model, shapes={"output": [2]})
        assert list(pm.evaluate({}, {"output": np.ones(2)})) == ["_output"]

    def test_safe_names(self):
        model = ml.Model()
        model |= ml.Add()(left="a")
        with pytest.raises(KeyError, match="'right' has no name"):
            compiled(model, shapes={"a": [2]})
        pm = compiled(model, shapes={"a": [2]}, safe_names=False)
        assert set(pm.input_keys) == {"a", "right"}

    def test_dollars_are_no_keys_of_compile(self):
        model = built(EXAMPLES["chain"])
        with pytest.raises(KeyError, match="generated name"):
            compiled(model, data_keys={"$2"})

    def test_a_name_may_be_any_text(self):
        for name in ("名", "a b", "class", "x" * 10**6, "a\0b", "'\"\\"):
            model = ml.Model()
            model |= ml.Relu()(input=name, output="y")
            pm = compiled(model, shapes={name: [2]})
            assert list(pm.input_keys) == [name]
            assert pm.evaluate({}, {name: np.ones(2)})["y"].tolist() == [1.0, 1.0]


def test_every_rule_has_a_row():
    assert len(EXAMPLES) == 6  # the worked examples of the table


def test_generated_names_avoid_each_other():
    floats = ml.Tensor[float]
    other = ml.models.CustomPrimitiveModel(
        "named_like_a_repeat",
        left_0=ml.IOKey(type=floats),
        output=ml.IOKey(type=floats),
    )
    model = ml.Model()
    model |= ml.Add()
    model |= ml.Add()
    model |= other
    names = list(model.generate_keys().values())
    assert names == ["$left_0", "$right_0", "$left_1", "$right_1", "$_left_0"]
