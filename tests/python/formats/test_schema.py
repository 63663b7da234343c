"""The published schema of model files: what is written fits it, and it refuses what loading does.

Where the loader must be stricter than a schema can be, the case is listed with what it says.
"""

import copy
import functools
import json
import pathlib
import re
import zipfile

import jsonschema
import mithril as ml
import pytest
import test_model_file as written
from formats.test_training import network
from mithril import _core
from mithril.errors import MithrilError
from mithril.testing.op_matrix import cases
from mithril.training import model_file

ROOT = pathlib.Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "python/mithril/formats/model_file.schema.json").read_text())
DATA = ROOT / "tests" / "data"
OPS = {op["name"]: op for op in _core.ops() if op["samples"]}
validator = jsonschema.Draft202012Validator(SCHEMA)


def fits(text):
    """Asserts that a text fits, with the place that does not."""
    for error in validator.iter_errors(json.loads(text)):
        raise AssertionError(f"{'/'.join(map(str, error.absolute_path))}: {error.message}")


def trained():
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), input="output", target="target", coef=0.5)
    train.add_loss(ml.AbsoluteError(), [ml.Sum()], "extra", input="output", target="target2")
    train.add_regularization(ml.Sum(), ml.Tensor([0.25]), input=re.compile("^[wb]"))
    train.add_regularization(ml.Mean(), 2, key_name="term", input="w")
    train.add_metric(ml.Absolute(), input="output")
    train.set_loss_combiner(ml.Max())
    return train


# --- the schema itself ---------------------------------------------------------------------------


def test_the_schema_is_one():
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    broken = copy.deepcopy(SCHEMA)
    broken["$defs"]["model"]["properties"]["wires"]["type"] = "arrray"
    with pytest.raises(jsonschema.SchemaError):
        jsonschema.Draft202012Validator.check_schema(broken)


def references(node):
    if isinstance(node, dict):
        yield from [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        node = list(node.values())
    for item in node if isinstance(node, list) else []:
        yield from references(item)


def test_every_definition_is_used_and_there():
    named = {ref.removeprefix("#/$defs/") for ref in references(SCHEMA)}
    assert named - {"#"} == SCHEMA["$defs"].keys()


# --- what is written -----------------------------------------------------------------------------


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("make", [*written.MODELS, trained])
def test_every_model_fits(make, history):
    fits(make().to_json(history=history))


def test_a_finished_training_fits():
    train = trained()
    ml.compile(train, ml.NumpyBackend(), shapes={"input": [3, 4]})
    fits(train.to_json(history=True))


@pytest.mark.parametrize("name", OPS)
def test_every_op_fits(name):
    for case in cases(OPS[name]):
        fits(case.text)


def test_every_kept_file_fits():
    """Files of every version."""
    texts = []
    for file in sorted(DATA.iterdir()):
        if file.is_dir() or file.name.startswith("original_"):  # no models
            continue
        if file.suffix == ".mithril":
            with zipfile.ZipFile(file) as archive:
                texts.append(archive.read("model.json"))
        elif file.name.startswith("models_"):
            texts += [json.dumps(kept) for kept in json.loads(file.read_text()).values()]
        else:
            texts.append(file.read_text())
    assert len(texts) >= 10
    for text in texts:
        fits(text)


# --- broken by hand ------------------------------------------------------------------------------


def base():
    """A file with something of everything."""
    inner = ml.Model()
    inner |= ml.Linear(3)(input="a", weight="w", output="b")
    model = ml.Model()
    model |= inner(a="x", w="weight", b="y")
    model |= ml.Add()(left="y", right="old", output="z")
    model |= ml.Mean(axis=(0, 1))(input="z", output="m")
    model |= ml.Cast(dtype=ml.float16)(input="z", output="half")
    part = model["z"][1:2, ...]
    model |= ml.Multiply()(left=part, right=ml.Tensor([0.5, float("inf"), 1.0]), output="p")
    model |= ml.Add()(left="p", right=float("inf"), output="q")
    model.bind_state_keys("old", "z", 0.0)
    model.expose_keys("z", "m", "half", "q")
    model.set_shapes(x=["n", ("rest", ...), 4])
    model.set_types(x=ml.Tensor[float])
    model.set_values({"weight": ml.Tensor([[1.0] * 4] * 3)}, initial=True)
    model.set_differentiability(weight=True)
    return json.loads(model.to_json(history=True))


def trained_base():
    return json.loads(trained().to_json(history=True))


def find(document, test):
    """The first object of a document, in depth, for which a test holds."""
    rest = [document]
    while rest:
        at = rest.pop(0)
        if isinstance(at, dict) and test(at):
            return at
        values = at.values() if isinstance(at, dict) else at
        rest += [value for value in values if isinstance(value, dict | list)]
    raise AssertionError("nothing like that in the document")


def having(*keys):
    return lambda document: find(document, lambda at: all(key in at for key in keys))


def put(where, **values):
    """A change: the object that `where` finds gets values; ... takes a key away."""

    def change(document):
        at = where(document)
        for key, value in values.items():
            at.pop(key.strip("_")) if value is ... else at.update({key.strip("_"): value})

    return change


def in_place(where, index, value):
    """A change: the list that `where` finds has another item."""

    def change(document):
        where(document)[index] = value

    return change


def top(document):
    return document


def model(document):
    return document["model"]


def fact(key):
    return lambda document: find(document["facts"], lambda at: key in at and "wire" in at)


def shape(document):
    return fact("shape")(document)["shape"]


def of_op(document, op):
    return find(document["model"], lambda at: at.get("op") == op)


tensor = having("dtype", "shape")
loss = having("result", "steps")
penalty = having("coef")
state = having("input", "output", "initial")
op_part = having("op", "wires", "attrs")
model_part = having("model", "wires")
history = having("order")

# Both refuse these.
BROKEN = {
    "format": put(top, format="other"),
    "format missing": put(top, format=...),
    "version missing": put(top, version=...),
    "version of no file": put(top, version="one"),
    "version as number": put(top, version=1.0),
    "version of the future": put(top, version="2.0"),
    "model missing": put(top, model=...),
    "model is a list": put(top, model=[]),
    "submodels are a list": put(top, submodels=[]),
    "submodel is text": put(lambda d: d["submodels"], other="x"),
    "facts are an object": put(top, facts={}),
    "a statement is text": in_place(lambda d: d["facts"], 0, "x"),
    "says is an object": put(lambda d: d["facts"][0], says={}),
    "by is a number": put(lambda d: d["facts"][0], by=3),
    "history is a list": put(top, history=[]),
    "training is a number": put(top, training=3),
    "a wire is a number": in_place(lambda d: d["model"]["wires"], 0, 3),
    "wires are an object": put(model, wires={}),
    "wires missing": put(model, wires=...),
    "a wire twice": in_place(lambda d: d["model"]["wires"], 0, "y"),
    "name is a number": put(model, name=3),
    "class is null": put(model, class_=None),
    "frozen is text": put(model, frozen="yes"),
    "numbered is negative": put(model, numbered=-1),
    "numbered is a fraction": put(model, numbered=1.5),
    "numbered is huge": put(model, numbered=1 << 40),
    "outputs is text": put(model, outputs="z"),
    "an input is null": put(model, cins=[None]),
    "an output is a list": put(model, couts=[["z"]]),
    "latent is an object": put(model, latent={"x": True}),
    "differentiable is a list": put(model, differentiable=["weight"]),
    "differentiable is null": put(model, differentiable={"weight": None}),
    "initial is a list": put(model, initial=[]),
    "labels of a number": put(model, labels={"x": 1}),
    "origins of null": put(model, origins={"x": None}),
    "readers of text": put(model, readers={"x": "y"}),
    "a reader of three": put(model, readers={"x": [0, "a", "b"]}),
    "a reader of no part": put(model, readers={"x": ["a", 0]}),
    "a reader is negative": put(model, readers={"x": [-1, "a"]}),
    "states are an object": put(model, states={}),
    "a state without input": put(state, input=...),
    "a state without output": put(state, output=...),
    "a state of no value": put(state, initial={"none": 0}),
    "parts are an object": put(model, parts={}),
    "a part is text": in_place(lambda d: d["model"]["parts"], 0, "x"),
    "a part of nothing": put(model_part, model=...),
    "a part of two": put(model_part, op="relu"),
    "a part without wires": put(op_part, wires=...),
    "wires of a part are a list": put(op_part, wires=[]),
    "a key is a number": put(lambda d: op_part(d)["wires"], output=3),
    "op is a number": put(op_part, op=3),
    "attrs are a list": put(op_part, attrs=[]),
    "an attr of no kind": put(op_part, attrs={"dimension": {"none": 1}}),
    "values are a list": put(op_part, values=[]),
    "items are negative": put(op_part, items=-1),
    "items are many": put(op_part, items=1 << 30),
    "a fact of nothing": put(fact("shape"), shape=...),
    "a fact of two": put(fact("shape"), type=["tensor_float"]),
    "a fact of no wire": put(fact("shape"), wire=...),
    "a fact of a numbered wire": put(fact("shape"), wire=3),
    "a fact of a model that is null": put(fact("shape"), model=None),
    "no type": put(fact("type"), type=[]),
    "a type that is none": put(fact("type"), type=["complex"]),
    "a type that is text": put(fact("type"), type="tensor_float"),
    "a shape is text": put(fact("shape"), shape="n"),
    "a size is negative": in_place(shape, -1, -4),
    "a size is a fraction": in_place(shape, -1, 4.5),
    "a size is a bool": in_place(shape, -1, True),
    "a size is a list": in_place(shape, -1, [4]),
    "a size is too large": in_place(shape, -1, 1 << 63),
    "no variadic": in_place(shape, -1, {"many": "n"}),
    "an empty variadic": in_place(shape, -1, {}),
    "a variadic of two": in_place(shape, 1, {"variadic": "v", "more": 1}),
    "two variadics": in_place(shape, -1, {"variadic": "v"}),
    "scope is text": put(fact("shape"), scope="a"),
    "scope is a fraction": put(fact("shape"), scope=1.5),
    "next is a number": put(fact("shape"), shape=..., next=3),
    "a value of no kind": put(fact("value"), value={"complex": 1}),
    "a value of nothing": put(fact("value"), value={}),
    "a value of two": put(fact("value"), value={"tuple": [1], "dtype": "float32"}),
    "a tuple is text": put(fact("value"), value={"tuple": "x"}),
    "a slice of two": put(fact("value"), value={"slice": [None, 1]}),
    "a slice of four": put(fact("value"), value={"slice": [None, 1, 2, 3]}),
    "a slice of text": put(fact("value"), value={"slice": [None, "1", None]}),
    "a dtype that is none": put(fact("value"), value={"dtype": "float12"}),
    "a dtype that is a number": put(fact("value"), value={"dtype": 1}),
    "no ellipsis": put(fact("value"), value={"ellipsis": False}),
    "a float that is none": put(fact("value"), value={"float": "infinity"}),
    "a float that is a number": put(fact("value"), value={"float": 1.0}),
    "a tensor of a dtype that is none": put(tensor, dtype="float12"),
    "a tensor of no dtype": put(tensor, dtype=...),
    "a tensor of no shape": put(tensor, shape=...),
    "a tensor of a negative size": put(tensor, shape=[-1]),
    "a tensor of no data": put(tensor, data=...),
    "a tensor of data and bytes": put(tensor, bytes=""),
    "a tensor of more": put(tensor, layout="C"),
    "an element that is nan": put(tensor, data=["nan", 1.0, 1.0]),
    "an element that is null": put(tensor, data=[None, 1.0, 1.0]),
    "an element that is a list": put(tensor, data=[[1.0], 1.0, 1.0]),
    "bytes that are a list": put(tensor, data=..., bytes=[]),
    "order is text": put(history, order="ops"),
    "order of other things": put(history, order=["models", 0, 1]),
    "order is negative": put(history, order=["ops", -1, 1]),
    "files are numbers": put(history, files=[1]),
    "a place is a fraction": put(history, models=[0.5]),
    "a place is negative": put(history, facts=[-1, 1]),
    "stops are text": put(history, stops=["1"]),
    "nested text for a submodel's id": put(model_part, model=["x"]),
}  # fmt: skip
TRAINING = {
    "final is a number": put(lambda d: d["training"], final=0),
    "final missing": put(lambda d: d["training"], final=...),
    "losses are an object": put(lambda d: d["training"], losses={}),
    "losses missing": put(lambda d: d["training"], losses=...),
    "penalties are text": put(lambda d: d["training"], penalties="w"),
    "metrics are an object": put(lambda d: d["training"], metrics={}),
    "outputs is text": put(lambda d: d["training"], outputs="output"),
    "an output is null": put(lambda d: d["training"], outputs=[None]),
    "the combiner is null": put(lambda d: d["training"], combiner=None),
    "the combiner is no file": put(lambda d: d["training"], combiner={}),
    "the text of a loss is null": put(loss, text=None),
    "a loss without steps": put(loss, steps=...),
    "the result of a loss is a number": put(loss, result=3),
    "steps are an object": put(loss, steps={}),
    "a step of one": put(loss, steps=[["output"]]),
    "a step of three": put(loss, steps=[["output", 1, 1]]),
    "a step that is a bool": put(loss, steps=[["output", True]]),
    "a step before the first": put(loss, steps=[["output", -1]]),
    "a step that is text": put(loss, steps=[["output", "1"]]),
    "a coefficient is text": put(penalty, coef="0.5"),
    "a coefficient is a bool": put(penalty, coef=True),
    "a coefficient is null": put(penalty, coef=None),
    "a coefficient is a tuple": put(penalty, coef={"tuple": [1]}),
    "a coefficient of null": put(penalty, coef={"tensor": {"dtype": "float", "shape": [1],
                                                           "data": [None]}}),
    "a coefficient of a size that is text": put(
        penalty, coef={"tensor": {"dtype": "float", "shape": "1", "data": [1.0]}}),
    "a term without target": put(penalty, target=...),
    "the key of a metric is a number": put(lambda d: d["training"]["metrics"][0], key=1),
}  # fmt: skip


def verdicts(document):
    """Whether the schema and the loader take a document."""
    try:
        ml.Model.from_json(json.dumps(document))
    except MithrilError as error:
        return validator.is_valid(document), str(error)
    return validator.is_valid(document), ""


@functools.cache
def text_of(make):
    return json.dumps(make())


@pytest.mark.parametrize(
    ("make", "change"),
    [
        pytest.param(make, change, id=label)
        for make, changes in ((base, BROKEN), (trained_base, TRAINING))
        for label, change in changes.items()
    ],
)
def test_both_refuse_what_is_broken(make, change):
    document = json.loads(text_of(make))
    assert verdicts(document) == (True, "")
    change(document)
    taken, problem = verdicts(document)
    assert problem, "the loader takes it"
    assert not taken, f"the schema takes it, the loader says: {problem}"


# What no schema says: names that must be there, what ops take, numbers of 64 bits, counts.
STRICTER = {
    "a wire that is not there": (put(model, couts=["gone"]), "has no wire 'gone'"),
    "a submodel that is not there": (put(model_part, model="gone"), "there is no submodel 'gone'"),
    "a submodel of two models": (
        lambda d: d["model"]["parts"].append(copy.deepcopy(model_part(d))), "a part of two models"),
    "a submodel of no model": (
        put(lambda d: d["submodels"], lost={"wires": []}), "a part of no model"),
    "an op that is not there": (put(op_part, op="gone"), "no op named 'gone'"),
    "an argument that is not there": (put(op_part, attrs={"gone": 1}), "argument"),
    "a key that an op lacks": (put(lambda d: op_part(d)["wires"], gone="x"), "has no key 'gone'"),
    "a wire that two write": (
        put(lambda d: of_op(d, "mean")["wires"], output="z"), "written twice"),
    "an output that nothing writes": (put(model, outputs=["x"]), "nothing writes it"),
    "elements that do not fill the shape": (put(tensor, shape=[7]), "do not fill its shape"),
    "a tensor of bools in a float": (put(tensor, data=[True, 1.0, 1.0]), "requires a number"),
    "bytes that are no base64": (put(tensor, data=..., bytes="%%%%"), "base64"),
    "data before its dtype": (
        lambda d: tensor(d).update(dtype=tensor(d).pop("dtype")), "a tensor has dtype, shape"),
    "an integer of more than 64 bits": (put(fact("value"), value=10**30), "64 bits"),
    "an integer with a point": (in_place(shape, -1, 4.0), "requires an integer"),
    "facts that clash": (put(fact("shape"), shape=[]), "shape"),
    "a value that the op refuses": (
        put(lambda d: of_op(d, "mean")["values"], axis="x"), "axis must be none, an int or ints"),
    "the version behind the model": (
        lambda d: d.update(version=d.pop("version")), "begins with 'format' and 'version'"),
    "a history of other facts": (put(history, order=["ops", 0, 1]), "history"),
    "a history of no file": (put(history, files=[]), "files"),
    "an order of two": (put(history, order=["ops", 0]), "a count"),
    "more numbers than wires": (put(model, numbered=100_000), "numbered wires"),
    "a name that is none": (lambda d: d["model"]["wires"].__setitem__(0, ""), "name"),
}  # fmt: skip


@pytest.mark.parametrize("label", STRICTER)
def test_where_the_loader_is_stricter(label):
    change, text = STRICTER[label]
    document = json.loads(text_of(base))
    change(document)
    taken, problem = verdicts(document)
    assert taken, "the schema knows this"
    assert text in problem and problem


def test_keys_that_stand_twice_and_numbers_that_are_none_are_no_matter_of_a_schema():
    text = text_of(base)
    for broken in (text.replace('"wires":', '"wires": [], "wires":', 1), text + "x", text[:-1]):
        with pytest.raises(MithrilError):
            ml.Model.from_json(broken)


# --- what is read --------------------------------------------------------------------------------


def functions(path, owner):
    """Name -> text of the methods that a C++ source defines."""
    text = (ROOT / "csrc" / path).read_text()
    starts = list(re.finditer(rf"^[\w:<>,*& ]*{owner}::(\w+)\(", text, re.M))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    return {s[1]: text[s.start() : end] for s, end in zip(starts, ends, strict=True)}


def keys_in(text):
    return set(re.findall(r'\b(?:key|tag) [!=]= "(\w+)"', text))


def properties(*path):
    at = SCHEMA
    for name in path:
        at = at[name]
    return set(at["properties"])


def test_the_reader_and_the_schema_know_the_same_keys():
    reader = functions("model/files/read.cc", "RecordReader")
    values = functions("model/files/value.cc", "ValueReader")
    of_op = keys_in(reader["op_field"])
    definitions = SCHEMA["$defs"]
    tags = {tag for kind in definitions["value"]["anyOf"] for tag in kind.get("properties", {})}
    read = {
        "file": (keys_in(reader["file"]), properties()),
        "model": (keys_in(reader["model"]) | of_op, properties("$defs", "model")),
        "part": (keys_in(reader["part"]) | of_op, properties("$defs", "part")),
        "fact": (keys_in(reader["said"]), properties("$defs", "fact")),
        "state": (
            keys_in(reader["state"]),
            properties("$defs", "model", "properties", "states", "items"),
        ),
        "statement": (keys_in(reader["statement"]), properties("properties", "facts", "items")),
        "constraint": (keys_in(reader["constraint"]), properties("$defs", "constraint")),
        "history": (keys_in(reader["history"]), properties("$defs", "history")),
        "merge": (keys_in(reader["merge"]), properties("$defs", "merge")),
        "value": (keys_in(values["read_tagged"]), tags),
        "tensor": (keys_in(values["read_tensor"]), properties("$defs", "tensor")),
        "shape": (
            keys_in(values["read_shape"]),
            set(definitions["fact"]["properties"]["shape"]["items"]["anyOf"][-1]["properties"]),
        ),
    }
    for what, (found, known) in read.items():
        assert found, what
        assert found == known, what
    with_keys = {name for name, text in {**reader, **values}.items() if keys_in(text)}
    assert with_keys == {
        *("file", "model", "op_field", "part", "said", "state", "statement", "constraint"),
        *("history", "merge"),
        *("read_tagged", "read_tensor", "read_shape"),
    }


def test_training_reads_and_writes_the_keys_of_the_schema():
    state = json.loads(trained().to_json())["training"]
    parts = SCHEMA["$defs"]["training"]["properties"]
    assert state.keys() == parts.keys()
    source = pathlib.Path(model_file.__file__).read_text()
    for section, name in (("losses", "loss"), ("penalties", "term"), ("metrics", "metric")):
        known = parts[section]["items"]["properties"].keys()
        assert state[section][0].keys() == known
        assert set(re.findall(rf'\b{name}\["(\w+)"\]', source)) == known
    assert set(re.findall(r'\bstate\["(\w+)"\]', source)) == parts.keys()


def test_the_words_of_the_schema_are_those_of_the_engine():
    definitions = SCHEMA["$defs"]
    table = (ROOT / "csrc" / "core" / "dtype.cc").read_text()
    assert definitions["dtype"]["enum"] == re.findall(r'^    \{"(\w+)", "', table, re.M)
    kinds = definitions["kind"]["enum"]
    assert set(kinds) == set(_core.kinds())
