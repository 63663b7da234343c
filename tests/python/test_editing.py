"""Editing from Python: numbers, handles, memory, refusals. The laws of facts: tests/cpp/model."""

import copy
import gc
import random
import runpy
import threading
import weakref
from pathlib import Path

import mithril as ml
import numpy as np
import pytest
from formats.loading import SANITIZED
from mithril.errors import (
    ArgumentError,
    FrozenModelError,
    InternalError,
    KeyNotFound,
    MithrilError,
    ShapeError,
    SignatureError,
)

ROOT = Path(__file__).resolve().parent.parent.parent


def chain(*layers, width=4):
    model = ml.Model()
    for i, layer in enumerate(layers):
        model |= layer(input=f"h{i}" if i else "x", output=f"h{i + 1}")
    model.set_shapes(x=[3, width])
    return model


def outputs(model, data):
    compiled = ml.compile(model, ml.NumpyBackend(), data_keys=set(data))
    rng = np.random.default_rng(0)
    params = {
        k: rng.normal(size=v.shape).astype("float32") for k, v in compiled.get_parameters().items()
    }
    return compiled.evaluate(params, data)


def same(edited, composed):
    data = {"x": np.random.default_rng(1).normal(size=(3, 4)).astype("float32")}
    found, wanted = outputs(edited, data), outputs(composed, data)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value)


# --- what an edited model computes ------------------------------------------------------------


def test_a_replaced_layer_computes_what_composing_it_does():
    edited = chain(ml.Linear(5), ml.Relu(name="act"), ml.Linear(2))
    edited.replace("act", ml.Tanh())
    same(edited, chain(ml.Linear(5), ml.Tanh(), ml.Linear(2)))


def test_a_removed_layer_is_bypassed_by_a_buffer():
    edited = chain(ml.Linear(5), ml.Relu(name="act"), ml.Linear(2))
    edited.replace("act", ml.Buffer())
    same(edited, chain(ml.Linear(5), ml.Buffer(), ml.Linear(2)))


def test_an_extracted_head_computes_what_it_did():
    model = chain(ml.Linear(5), ml.Relu(), ml.Linear(2))
    model.set_shapes(h1=[3, 5])
    whole = ml.compile(model, ml.NumpyBackend(), data_keys={"x"})
    params = whole.get_parameters()
    data = {"x": np.ones((3, 4), dtype="float32")}
    h1 = data["x"] @ np.asarray(params["weight_0"]).T + np.asarray(params["bias_0"])
    head = model.extract(inputs={"features": "h1"}, outputs=["h3"])
    compiled = ml.compile(head, ml.NumpyBackend(), data_keys={"features"})
    part = {"weight": params["weight_1"], "bias": params["bias_1"]}
    found = compiled.evaluate(part, {"features": h1})["h3"]
    np.testing.assert_allclose(found, whole.evaluate(params, data)["h3"], rtol=1e-5)


def test_an_extracted_submodel_has_a_named_boundary():
    block = ml.Model()
    block += ml.Linear(4)
    block += ml.Relu()
    model = ml.Model()
    model |= block
    part = model.extract("model")
    assert part.input_keys == ["$1", "input", "$3"]
    assert part.output_keys == ["output"]
    assert part.parent is None and model.get_submodel("model") is block


def test_shared_parameters_are_one_in_both_uses():
    layer = ml.Linear(4)
    model = chain(layer, layer.clone(share=True))
    compiled = ml.compile(model, ml.NumpyBackend(), data_keys={"x"})
    params = compiled.get_parameters()
    assert set(params) == {"weight", "bias"}
    w, b = (np.asarray(params[k]) for k in ("weight", "bias"))
    x = np.ones((3, 4), dtype="float32")
    found = compiled.evaluate(params, {"x": x})["h2"]
    np.testing.assert_allclose(found, (x @ w.T + b) @ w.T + b, rtol=1e-5)


def test_shared_blocks_and_functional_use():
    block = ml.Model()
    block |= ml.Linear(4)(input="a", output="m")
    block |= ml.Linear(4)(input="m", output="z")
    block.expose_keys("z")
    x = ml.IOKey("x")
    model = ml.Model()
    model |= ml.Buffer()(input=block.clone(share=True)(a=block(a=x)), output="y")
    assert len(model.input_keys) == 5  # x, and the parameters once


def test_sharing_with_a_model_of_elsewhere_is_refused():
    layer = ml.Linear(4)
    other = chain(layer)
    model = chain(ml.Linear(4))
    before = model._node.dump()
    with pytest.raises(KeyNotFound):
        model |= layer.clone(share=True)(input="h1", output="y")
    assert model._node.dump() == before
    del other


def test_one_instance_in_many_places_has_parameters_of_each_place():
    layer = ml.Linear(4)
    model = chain(layer, layer, layer)
    assert len(model.input_keys) == 7
    assert list(model.submodels) == ["Linear_0", "Linear_1", "Linear_2"]
    same(model, chain(ml.Linear(4), ml.Linear(4), ml.Linear(4)))
    assert model.submodels["Linear_0"] is layer
    named = ml.Relu(name="act")
    assert list(chain(named, named, named).submodels) == ["act", "act_1", "act_2"]


def test_a_model_may_be_trained_under_two_losses():
    model = chain(ml.Linear(1))
    for loss in (ml.SquaredError(), ml.AbsoluteError()):
        train = ml.TrainModel(model)
        train.add_loss(loss, input="h1", target="t")
        ml.compile(train, ml.NumpyBackend(), data_keys={"x", "t"}, shapes={"t": [3, 1]})


# --- copies -----------------------------------------------------------------------------------


def test_clone_copies_structure_names_and_facts():
    model = chain(ml.Linear(5, name="a"), ml.Relu())
    twin = model.clone("twin")
    assert twin.name == "twin" and list(twin.submodels) == list(model.submodels)
    assert twin.shapes == model.shapes
    twin.remove("a")
    assert "a" in model.submodels and "a" not in twin.submodels
    assert type(ml.Linear(3).clone()) is ml.Linear
    assert copy.deepcopy(model).shapes == model.shapes
    assert copy.copy(model).shapes == model.shapes


def test_unfreeze_opens_and_keeps_the_canonical_output():
    model = ml.Model()
    model |= ml.Linear(4)(input="x")
    model._freeze()
    with pytest.raises(FrozenModelError):
        model += ml.Relu()
    assert model.unfreeze() is model
    model += ml.Relu()
    assert len(model.conns.couts) == 1


# --- handles ----------------------------------------------------------------------------------


def test_handles_of_removed_parts_raise_and_others_stay():
    layer, head = ml.Linear(5), ml.Linear(2, name="head")
    model = chain(layer, ml.Relu(), head)
    h1, h2, weight = model["h1"], model["h2"], layer["weight"]
    model.remove(layer)
    for use in (
        lambda: layer.name,
        lambda: layer.input_keys,
        lambda: layer["input"],
        lambda: layer.summary(),
        lambda: layer.clone(),
        lambda: layer.set_shapes(input=[1]),
        lambda: weight.key,
        lambda: weight.set_shapes([1]),
        lambda: model.remove(layer),
        lambda: model.replace("head", layer),
        lambda: model.set_shapes({weight: [1]}),
        lambda: model.__ior__(layer(input="h2")),
        lambda: model.__ior__(ml.Relu()(input=weight)),
        lambda: ml.compile(layer, ml.NumpyBackend()),
        lambda: weight + 1,
    ):
        with pytest.raises(MithrilError) as caught:
            use()
        assert not isinstance(caught.value, InternalError)
    assert repr(layer) and repr(weight)
    assert (h1.key, h2.key) == ("h1", "h2") and model["h2"] is h2
    assert model.get_submodel("head") is head


def test_objects_of_submodels_are_kept_and_let_go():
    model = chain(ml.Linear(4, name="a"), ml.Linear(4, name="b"))
    kept, gone = (weakref.ref(model.get_submodel(name)) for name in ("b", "a"))
    model.replace("a", ml.Relu())
    gc.collect()
    assert gone() is None and kept() is not None
    tree = weakref.ref(model)
    del model
    gc.collect()
    assert tree() is None and kept() is None


def test_memory_does_not_grow_with_edits():
    import resource

    model = chain(ml.Linear(4, name="first"), ml.Relu(name="act"))
    wire = model["x"]

    def edit(count):
        nonlocal model
        for _ in range(count):
            model.replace("act", ml.Relu())
            model |= ml.Linear(2, name="last")(input="h2", output="y")
            model.remove("last")
            model.change("x", shape=[3, 4])

    edit(200)
    gc.collect()
    before, size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(model._node.dump())
    edit(2500)  # 10^4 edits
    gc.collect()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 * 1024 or SANITIZED  # KiB
    assert len(model._node.dump()) < 2 * size
    assert wire.key == "x"


# --- what was said ----------------------------------------------------------------------------


def test_clear_and_change():
    model = chain(ml.Linear(5))
    with pytest.raises(ShapeError):
        model.set_shapes(x=[7, 9])
    model.change("x", shape=[7, 9])
    assert model.shapes["h1"] == [7, 5]
    model.clear("x", shape=True)
    assert model.shapes["h1"] == ["(V1, ...)", 5]
    before = model._node.dump()
    with pytest.raises(ShapeError) as caught:
        model.change("h1", shape=[2, 6])
    assert "test_editing.py" in str(caught.value)
    assert model._node.dump() == before
    model.change("linear.weight", differentiable=False)
    model.clear(model["h1"], "x")


def test_changed_values_are_computed_with():
    model = ml.Model()
    model |= ml.Add()(left="x", right=ml.IOKey("c", value=ml.Tensor([1.0])), output="y")
    for value in (2.0, 5.0):
        model.change("c", value=ml.Tensor([value]))
        found = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}).evaluate(
            {}, {"x": np.zeros(1, dtype="float32")}
        )
        np.testing.assert_array_equal(found["y"], [value])
    model.clear("c", value=True)
    assert "c" in model.input_keys and not model._node.is_valued("c")


# --- refusals ---------------------------------------------------------------------------------


def test_what_cannot_be_edited_is_refused_and_nothing_changes():
    model = chain(ml.Linear(5, name="a"), ml.Relu(), ml.Linear(2, name="b"))
    stranger = chain(ml.Linear(3, name="c"))
    before = model._node.dump()
    cases = [
        (lambda: model.remove(model), ArgumentError, "the model itself"),
        (lambda: model.remove("aa"), KeyNotFound, "did you mean 'a'"),
        (lambda: model.remove("a.x"), KeyNotFound, "no submodel 'x'"),
        (lambda: model.remove(""), KeyNotFound, ""),
        (lambda: model.remove(stranger.get_submodel("c")), KeyNotFound, "is not in"),
        (lambda: model.remove(3), SignatureError, "a submodel or its path"),
        (lambda: model.remove("a", None), SignatureError, "None"),
        (lambda: model.get_submodel("a").remove(model), KeyNotFound, "is not in"),
        (lambda: model.replace("a", "b"), SignatureError, "requires a model"),
        (lambda: model.replace("a", ml.Add()), KeyNotFound, "keys={"),
        (lambda: model.replace("a", ml.Relu(), keys=[1]), SignatureError, "dictionary"),
        (lambda: model.replace("a", ml.Relu(), keys={"z": "input"}), KeyNotFound, "'z'"),
        (lambda: model.replace("a", ml.Relu(), keys={1: "input"}), SignatureError, "string"),
        (lambda: model.replace("a", model), ArgumentError, ""),
        (lambda: model.replace("a", ml.Linear(6, name="b")), KeyError, "'b'"),
        (lambda: model.extract(), ArgumentError, "at least one output"),
        (lambda: model.extract("a", outputs=["h1"]), SignatureError, "not both"),
        (lambda: model.extract(outputs=["x"]), ArgumentError, "no output"),
        (lambda: model.extract(inputs=["h2"], outputs=["h1"]), ArgumentError, "do not depend"),
        (lambda: model.extract(outputs={"h1": "h3"}), KeyError, "taken"),
        (lambda: model.extract(outputs=[stranger["h1"]]), KeyNotFound, ""),
        (lambda: model.extract(outputs=7), SignatureError, "wires"),
        (lambda: model.clear("zz"), KeyNotFound, "no key 'zz'"),
        (lambda: model.clear("x", value="yes"), SignatureError, "True or False"),
        (lambda: model.clear(stranger["x"]), KeyNotFound, ""),
        (lambda: model.change("h1", value=3.0), ArgumentError, "inputs of the outermost"),
        (lambda: model.change("x", shape=[-1]), ShapeError, "negative"),
        (lambda: model["a.wieght"], KeyNotFound, "did you mean 'weight'"),
        (lambda: model["b.nope.weight"], KeyNotFound, "nope"),
        (lambda: model.get_submodel(4), SignatureError, "string"),
        (lambda: model.get_submodel("a").unfreeze(), FrozenModelError, "submodel"),
        (lambda: ml.Relu().unfreeze(), FrozenModelError, "one op"),
        (lambda: model.clone(name=3), SignatureError, "string"),
        (lambda: model.clone(share="x"), SignatureError, "True or False"),
    ]
    for bad, error, part in cases:
        with pytest.raises(error) as caught:
            bad()
        assert isinstance(caught.value, MithrilError) and part in str(caught.value)
        assert not isinstance(caught.value, InternalError)
        assert model._node.dump() == before
    model._freeze()
    for bad in (lambda: model.remove("a"), lambda: model.replace("a", ml.Linear(5))):
        with pytest.raises(FrozenModelError, match="unfreeze"):
            bad()


def random_call(rng, model, old):
    part = rng.choice([*model.submodels, *old, "zz", model, 3])
    wire = rng.choice([*model._node.all_keys, *old, "zz", "Relu.input", None])
    made = rng.choice([ml.Relu, ml.Tanh, lambda: ml.Linear(4), ml.Add, lambda: model])
    size = rng.randint(3, 4)
    return rng.choice(
        [
            lambda: model.remove(part),
            lambda: model.replace(part, made()),
            lambda: model.clear(wire),
            lambda: model.change(wire, shape=[3, size]),
            lambda: model.extract(outputs=[wire]),
            lambda: model.extract(part),
            lambda: model.__ior__(made()(input=wire)),
            lambda: model.__ior__(part),
        ]
    )


def test_random_calls_never_crash_and_failed_ones_change_nothing():
    failed = worked = 0
    for seed in range(120):
        rng = random.Random(seed)
        model = chain(ml.Linear(4), ml.Relu(), ml.Linear(4))
        old: list = [*model.submodels.values(), model["x"], model["h1"]]
        for _ in range(12):
            call = random_call(rng, model, old)
            before = model._node.dump()
            try:
                call()
                worked += 1
            except MithrilError as error:
                failed += 1
                assert not isinstance(error, InternalError)
                assert model._node.dump() == before, f"seed {seed}"
            model.shapes  # noqa: B018 (solves)
            old += list(model.submodels.values())[-1:]
    assert failed > 200 and worked > 200


# --- size -------------------------------------------------------------------------------------


def test_long_chains_and_deep_nests_on_a_small_stack():
    problems = []

    def work():
        try:
            model = ml.Model()
            for i in range(3000):
                model |= ml.Relu(name=f"r{i}")(input=f"w{i}", output=f"w{i + 1}")
            model.replace("r1500", ml.Sigmoid())
            model.remove("r100", "r200")
            assert model.input_keys == ["w0", "w101", "w201"]
            nest = ml.Relu(name="r")
            for i in range(1000):
                outer = ml.Model(name="n")
                key = "x" if i else "input"
                outer |= nest.connect(**{key: "x", "y" if i else "output": "y"})
                nest = outer
            path = ".".join(["n"] * 999 + ["r"])
            nest.replace(path, ml.Sigmoid())
            assert nest.clone()[path + ".input"].key == "input"
            nest.remove(path)
            assert nest._node.all_keys == []
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    assert not problems, problems[0]


def test_the_example_runs():
    shapes = runpy.run_path(str(ROOT / "examples" / "edit_a_model.py"))["main"]()
    assert shapes == {"model.probabilities": [4, 3], "body.embedding": [4, 16]}


def test_replace_joins_no_output_to_an_input_of_its_name():
    old, new = ml.Model(), ml.Model()
    old |= ml.Relu()(input="a", output="b")
    new |= ml.Tanh()(input="b", output="a")
    for inner, output in ((old, "b"), (new, "a")):
        inner.expose_keys(output)
    model = ml.Model()
    model |= old(a="x", b="y")
    model.replace(old, new)
    outputs = ml.compile(model, ml.NumpyBackend()).evaluate({}, {"x": np.ones(1)})
    np.testing.assert_allclose(outputs["y"], np.tanh(1.0))


def test_first_values_stay_first_values_when_what_reads_them_is_replaced():
    model = ml.Model()
    model |= ml.Multiply(name="a")(left="x", right="w", output="h")
    model |= ml.Multiply(name="b")(left="h", right="w", output="y")
    model.expose_keys("y")
    model.set_values(w=ml.Tensor([2.0, 3.0]), initial=True)
    model.replace("b", ml.Add())
    pm = ml.compile(model, ml.NumpyBackend(), trainable_keys={"w"}, data_keys={"x"})
    np.testing.assert_array_equal(pm.randomize_params(0)["w"], [2.0, 3.0])
