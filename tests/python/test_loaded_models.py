"""A loaded model is the model that was saved, on the models of the tests: outputs, gradients and
states bit for bit, summary and `why` letter by letter.
"""
# Covers: model/files/read.cc model/files/build.cc

import collections
import contextlib
import io

import mithril as ml
import numpy as np
import pytest
import test_constraint_table
import test_inference_table
import test_model_file as files
from errors.test_scripts import CASES as SCRIPTS
from formats.test_schema import trained
from mithril.errors import MithrilError, UnsupportedError
from test_random_models import RandomModel

SIZE = 3  # of what nothing gives a size
SHAPES = {
    "valued": {"b": [2, 2]},
    "initial": {"x": [3, 2]},
    "one_op": {"input": [3, 5]},
    "branching": {"x": [4, 4], "b": [3, 2]},
    "leaf_with_facts": {"input": [2]},
    "BroadcastTo": {"input": [1, 3]},
    "merged": {"ab2": [2, 3]},
}


def script(case):
    """The model of a script whose hint is applied."""

    def make():
        scope = {"__name__": "script"}
        exec(compile(case.fixed, f"<{case.name}>", "exec"), scope)
        return scope["model"].parent or scope["model"]

    return make


def counter():
    """State that is bound, inside a model that does not see it."""
    inner = ml.Model()
    inner |= ml.Add()(left="x", right="old", output="new")
    inner |= ml.Multiply()(left="new", right="w", output="y")
    inner.bind_state_keys("old", "new", ml.Tensor([0.25, 1.0, -1.0]))
    inner.expose_keys("new", "y")
    inner.set_shapes(x=[3], w=[3], old=[3])
    inner.set_differentiability(w=True)
    model = ml.Model()
    model |= inner(x="x", w="w", new="now", y="y")
    model.expose_keys("now", "y")
    return model


def statistics():
    """State that ops have: moving statistics and random keys."""
    model = ml.Model()
    model |= ml.BatchNorm2D(3)(input="x", output="h")
    model |= ml.Dropout(0.5)(input="h", output="y")
    model.expose_keys("y")
    return model


def rows(cases):
    """Models of the tables of inference; rows may have equal names."""
    return {f"{i} {case.row}": case.state for i, case in enumerate(cases) if hasattr(case, "found")}


GROUPS = {
    "files": {make.__name__: make for make in [*files.MODELS, trained, counter, statistics]},
    "scripts": {case.name: script(case) for case in SCRIPTS if case.fix},
    "inference": rows([*test_inference_table.OBSERVED, *test_inference_table.BACKWARD]),
    "constraints": rows([case for param in test_constraint_table.CASES for case in param.values]),
    "random": {f"seed {i}": lambda i=i: RandomModel(i).model for i in range(20)},
}


# --- what is seen --------------------------------------------------------------------------------


def tree(model):
    """A model and all that is in it."""
    rest, out = [model], []
    while rest:
        at = rest.pop()
        out.append(at)
        rest += reversed(list(at.submodels.values()))
    return out


def seen(model):
    facts = []
    for at in tree(model):
        with contextlib.redirect_stdout(io.StringIO()) as summary:
            at.summary(types=True, symbolic=True, alternative_shapes=True)
        why = [at.why(key) for key in at._node.all_keys]
        facts.append((at.name, summary.getvalue(), why))
    return facts


# --- what is computed ----------------------------------------------------------------------------


def compiled(model, backend, mode, shapes):
    """Inputs of which nothing gives even the rank are matrices."""
    options = {"mode": mode, "jit": False}
    pm = ml.compile(model, backend, shapes=shapes, **options)
    unknown = {key: [SIZE, SIZE] for key in pm._compilation.compiled.unknown_ranks}
    return ml.compile(model, backend, shapes={**unknown, **shapes}, **options) if unknown else pm


def drawn(pm):
    """Values for the inputs that are tensors."""
    random = np.random.default_rng(0)
    values = {}
    for name, role, dtype, shape in pm._compilation.compiled.graph.inputs:
        if role == "state" or shape is None:
            continue
        sizes = [size if isinstance(size, int) else SIZE for size in shape]
        if "int" in str(dtype):
            values[name] = random.integers(0, 2, sizes)
        elif str(dtype) == "bool":
            values[name] = random.integers(0, 2, sizes).astype(bool)
        else:
            values[name] = random.standard_normal(sizes)
    return values


def is_float(value):
    return getattr(value, "dtype", np.dtype(bool)).kind == "f"


def results(model, backend, mode, shapes):
    """What running gives, by what it is; or the error."""
    try:
        pm = compiled(model, backend, mode, shapes)
        values = drawn(pm)
        params = {name: values[name] for name in pm.param_keys}
        data = {name: values[name] for name in pm.data_keys if name in values}
        state = pm.initial_state(0) or None
        plain = pm.evaluate(params, data, state=state)
    except MithrilError as error:
        return {"error": [type(error), error.message]}
    found = {
        "outputs": getattr(plain, "outputs", plain),
        "state": getattr(plain, "state", {}),
        "first": dict(pm.get_parameters()),
        "graph": str(pm._compilation.compiled.graph),
    }
    ones = {
        name: np.ones_like(value) for name, value in found["outputs"].items() if is_float(value)
    }
    wrt = [name for name, value in values.items() if is_float(value)]
    if not (ones and wrt):
        return found
    try:
        again = pm.evaluate(params, data, state=state, output_gradients=ones, wrt=wrt)
        found["gradients"] = again.gradients
    except MithrilError as error:
        found["no gradients"] = [type(error), error.message]
    return found


def loaded(model, path):
    """The model after it was saved; None for what files cannot hold."""
    try:
        model.save(path)
    except UnsupportedError:
        return None
    return ml.load(path).model


# At least so many models run, and have gradients.
LEAST = {
    "files": (18, 16),
    "scripts": (60, 55),
    "inference": (45, 30),
    "constraints": (70, 50),
    "random": (20, 20),
}


@pytest.mark.device
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.filterwarnings("ignore")
def test_loaded_models_are_those_that_were_saved(group, tmp_path):
    counts = collections.Counter()
    for name, make in GROUPS[group].items():
        with contextlib.suppress(pytest.skip.Exception):  # operators that are not there yet
            model = make()
            again = loaded(model, tmp_path / "m")
            if again is None:
                counts["not written"] += 1
                continue
            assert seen(again) == seen(model), name
            for engine in ("NumpyBackend", "CpuBackend"):
                for mode in ("eval", "train"):
                    backend = getattr(ml, engine)(dtype="float64")
                    shapes = SHAPES.get(name.lstrip("0123456789 "), {})
                    want, got = (results(each, backend, mode, shapes) for each in (model, again))
                    assert files.same(got, want), (name, engine, mode)
                    counts.update((engine, mode, what) for what in want)
    print(f"{group}: {dict(counts)}")
    for engine in ("NumpyBackend", "CpuBackend"):
        for mode in ("eval", "train"):
            run, differentiated = (counts[engine, mode, w] for w in ("outputs", "gradients"))
            least = LEAST[group]
            assert run >= least[0] and differentiated >= least[1], (engine, mode, counts)
