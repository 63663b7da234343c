"""What was compiled stays as it was, whatever becomes of the model."""

import contextlib
import gc
import io
import random
import weakref

import mithril as ml
import numpy as np
import pytest
from formats.loading import SANITIZED
from mithril.errors import KeyNotFound, MithrilError

BACKENDS = [ml.CpuBackend, ml.NumpyBackend]
X = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
FETCHES = (["h"], ["block.inner"], ["act"], ["block"], ["weight_0"])


def network():
    block = ml.Model(name="block")
    block |= ml.Linear(4, name="inner")(input="input", output="mid")
    block |= ml.Tanh(name="bend")(input="mid", output="output")
    block.expose_keys("output")
    model = ml.Model(name="net")
    model |= block(input="x", output="h")
    model |= ml.Relu(name="act")(input="h", output="a")
    model |= ml.Linear(2, name="head")(input="a", weight="w", bias="b", output="y")
    model |= ml.Mean(name="mean")(input="y", output="cost")
    model.expose_keys("y", "cost")
    return model


def said(function, *arguments, **options):
    """What a call returns, prints or raises, as text; arrays in full."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), np.printoptions(precision=9):
            result = function(*arguments, **options)
    except MithrilError as error:
        message = str(error).partition("\n  at ")[0]
        return f"{type(error).__name__}: {message.splitlines()[0]}"
    return f"{result!r}{printed.getvalue()}"


def results(pm):
    """Every public result of a compiled model."""
    params, data = pm.randomize_params(3), {"x": X}
    bound = pm.bind({"w": params["w"]})
    rest = {name: value for name, value in params.items() if name != "w"}
    tables = {"verbose": True, "symbolic": True, "types": True, "alternative_shapes": True}
    out = {
        "evaluate": said(pm.evaluate, params, data),
        "call": said(pm, params=params, **data),
        "gradient": said(pm.evaluate, params, data, output_gradients={"cost": np.float32(1)}),
        "wrt": said(pm.evaluate, params, data, output_gradients={"cost": 1.0}, wrt=["x"]),
        "bind": said(bound.evaluate, rest, data),
        "bind fetch": said(bound.evaluate, rest, data, fetch=["block.mid"]),
        "parameters": said(pm.get_parameters),
        "init": said(pm.init, data, 2),
        "shapes": said(pm.get_shapes),
        "summary": said(pm.summary, **tables),
        "html": said(pm._repr_html_),
        "explain": said(pm.explain, shapes={"x": [5, 4]}),
        "explain act": said(pm.explain, "act", {"x": [5, 4]}),
        "memory": said(pm.memory_plan, {"x": [5, 4]}),
        "source": said(lambda: pm.source),
        "graph": said(lambda: str(pm.graph)),
        "missing": said(pm.evaluate, {"w": params["w"]}, {"xx": X}),
        "misfit": said(pm.evaluate, params, {"x": X[:, :3]}),
        "no such wire": said(pm.evaluate, params, data, fetch=["blok.inner"]),
        "repr": said(repr, pm),
    }
    for fetch in FETCHES:
        out[f"fetch {fetch}"] = said(pm.evaluate, params, data, fetch=fetch)
    return out


def grow(model, rng):
    layer = rng.choice([ml.Sine, ml.Exponential, ml.Relu])()
    model |= layer(input=rng.choice(["x", "y", "h"]), output=f"new{rng.random()}"[:9])


def rename(model, rng):
    key = rng.choice([key for key in model.conns.all if not key.startswith("$")])
    model.rename_key(key, f"r{rng.randrange(10**6)}")


def merge(model, rng):
    model |= ml.Sine()(input="second")
    model.merge_connections("x", "second", name="x")


def part(model, rng):
    paths = ["block", "block.inner", "block.bend", "act", "head", "mean"]
    return rng.choice(paths)


EDITS = {
    "extend": grow,
    "append": lambda model, rng: model.__iadd__(ml.Sine()),
    "prepend": lambda model, rng: model.extend(ml.Linear(4), output="x"),
    "replace": lambda model, rng: model.replace(part(model, rng), rng.choice([ml.Sine, ml.Gelu])()),
    "replace layer": lambda model, rng: model.replace("head", ml.Linear(3)),
    "rename": rename,
    "set_shapes": lambda model, rng: model.set_shapes(x=[rng.randrange(1, 9), 4]),
    "set_values": lambda model, rng: model.set_values(b=ml.Tensor([1.0, 2.0])),
    "set_types": lambda model, rng: model.set_types(x=ml.Tensor[float]),
    "set_differentiability": lambda model, rng: model.set_differentiability(w=False),
    "remove": lambda model, rng: model.remove(part(model, rng)),
    "clear": lambda model, rng: model.clear("x"),
    "change": lambda model, rng: model.change("x", shape=[7, 4]),
    "expose": lambda model, rng: model.expose_keys("h"),
    "couts": lambda model, rng: model.set_cout("h"),
    "merge": merge,
    "freeze": lambda model, rng: model._freeze(),
    "unfreeze": lambda model, rng: model.unfreeze(),
    "constraint": lambda model, rng: model.add_constraint(lambda x: None, ["x"]),
    "nest": lambda model, rng: ml.Model().extend(model, x="outer"),
}


def compiled(model, backend):
    return ml.compile(model, backend(), data_keys={"x"}, trainable_keys={"w"})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(12))
def test_no_edit_changes_a_compiled_model(backend, seed):
    rng = random.Random(seed)
    model = network()
    wanted, pm = results(compiled(model, backend)), compiled(model, backend)
    done = []
    for name in rng.sample(sorted(EDITS), 6):
        with contextlib.suppress(MithrilError):  # some do not fit after others
            EDITS[name](model, rng)
            done.append(name)
    assert done
    found = results(pm)
    for what, value in wanted.items():
        assert found[what] == value, (what, done)


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_does_something_and_leaves_a_compiled_model(name):
    model = network()
    before = model._node.dump()
    wanted, pm = results(compiled(model, ml.CpuBackend)), compiled(model, ml.CpuBackend)
    if name == "unfreeze":
        model._freeze()
    EDITS[name](model, random.Random(1))
    assert model._node.dump() != before or name in ("unfreeze", "set_types")
    assert results(pm) == wanted


# --- what is compiled again -----------------------------------------------------------------------


def open_model():
    model = ml.Model()
    model |= ml.Relu(name="act")(input="x", output="y")
    model.expose_keys("y")
    return model


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_of_a_new_rank_runs_what_was_compiled(backend):
    model = open_model()
    pm = ml.compile(model, backend(), data_keys={"x"})
    model.replace("act", ml.Sigmoid())
    for shape in [(3,), (2, 3), (2, 1, 3)]:
        np.testing.assert_array_equal(
            pm.evaluate({}, {"x": np.full(shape, -1.0, "float32")})["y"], np.zeros(shape, "float32")
        )


def test_keys_that_were_given_as_connections_are_those_of_the_snapshot():
    model = network()
    x, w = model["x"], model["w"]
    ones = np.ones((2, 4), "float32")
    options = {"data_keys": {x}, "constant_keys": {w: ones}, "shapes": {x: [None, 4]}}
    wanted, pm = (ml.compile(model, ml.CpuBackend(), **options) for _ in range(2))
    params = pm.randomize_params(0)
    model.replace("head", ml.Linear(3), keys={"weight": None, "bias": None})
    for fetch in FETCHES:
        a, b = (one.evaluate(params, {"x": X}, fetch=fetch) for one in (wanted, pm))
        assert all(np.array_equal(a[key], b[key]) for key in a)


def test_fetch_takes_connections_of_the_model_after_an_edit():
    model = network()
    pm = compiled(model, ml.CpuBackend)
    params, h = pm.randomize_params(0), model["h"]
    model.replace("act", ml.Sine())
    model.rename_key("h", "hidden")
    late = model | ml.Sine()(input="hidden", output="late")
    np.testing.assert_array_equal(
        pm.evaluate(params, {"x": X}, fetch=[h])["h"], pm.evaluate(params, {"x": X}, fetch="h")["h"]
    )
    with pytest.raises(
        KeyNotFound, match="'late' does not belong to Model 'net' as it was compiled"
    ):
        pm.evaluate(params, {"x": X}, fetch=[late["late"]])


def test_lists_that_compile_was_given_may_change_later():
    sizes, ones = [None, 4], np.ones((2, 4), "float32")
    model = network()
    pm = ml.compile(
        model, ml.CpuBackend(), data_keys=["x"], constant_keys={"w": ones}, shapes={"x": sizes}
    )
    params = pm.randomize_params(0)
    wanted = pm.evaluate(params, {"x": X})
    sizes[1], ones[:] = 7, 0
    found = pm.evaluate(params, {"x": X}, fetch="h")
    np.testing.assert_array_equal(found["y"], wanted["y"])


def test_a_training_model_may_be_edited_after_compile():
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), input="y", target="t", reduce_steps=[ml.Mean()])
    pm = ml.compile(train, ml.CpuBackend(), shapes={"x": [5, 4]}, data_keys={"x"})
    params = pm.randomize_params(0)
    data = {"x": X, "t": np.zeros((5, 2), "float32")}
    wanted = said(pm.evaluate, params, data, output_gradients=True)
    other = ml.compile(train, ml.CpuBackend(), shapes={"x": [5, 4]}, data_keys={"x"})
    train.set_shapes(x=[9, 4])
    assert said(other.evaluate, params, data, output_gradients=True) == wanted
    assert "net.act" in other.evaluate(params, data, fetch="net.act")


def test_a_clone_of_a_compiled_model_is_a_model_of_its_own():
    model = network()
    pm = compiled(model, ml.CpuBackend)
    wanted = results(pm)
    copy = model.clone()
    copy.replace("act", ml.Sine())
    again = compiled(model, ml.CpuBackend)
    assert results(again) == wanted


# --- what it costs --------------------------------------------------------------------------------


def test_a_compiled_model_does_not_keep_the_python_model():
    model = network()
    pm = compiled(model, ml.CpuBackend)
    seen = weakref.ref(model)
    del model
    gc.collect()
    assert seen() is None
    assert "h" in pm.evaluate(pm.randomize_params(0), {"x": X}, fetch="h")


def test_compiling_and_editing_by_turns_does_not_grow(memory_growth=256 * 1024):
    import resource

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    model = network()

    def turn(layer):
        pm = compiled(model, ml.NumpyBackend)
        model.replace("act", layer(name="act"))
        return pm

    for _ in range(200):
        turn(ml.Sine)
    gc.collect()
    before = resident()
    for i in range(1000):
        turn((ml.Relu, ml.Sine)[i % 2])
    gc.collect()
    assert resident() - before < memory_growth or SANITIZED
