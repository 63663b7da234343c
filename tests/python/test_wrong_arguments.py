"""Everything that users call, found by introspection, with every kind of wrong argument.

A call succeeds or raises a typed error that names the call or the argument, and leaves models as
they were. Calls run in processes of their own, so that one that kills its process is named, too.
"""

# Covers: mithril/base/checks.py

import itertools
import os
import subprocess
import sys
from pathlib import Path

import mithril as ml
import pytest
import wrong_arguments
from mithril.errors import MithrilError, SignatureError

SCRIPT = Path(wrong_arguments.__file__)
LONGEST = 900  # seconds of a group: many times what it takes, also under a sanitizer
COMPILING = ("compile", "modules", "running")  # these need a backend


def marked(group):
    return pytest.param(group, marks=[pytest.mark.device] if group in COMPILING else [])


def run(group, folder, script=SCRIPT):
    """(first line of the output, findings)."""
    progress = folder / "progress"
    command = [sys.executable, str(script), group, str(progress)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the same mithril as here
    with (folder / "out").open("w+") as out:
        try:
            code = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=env, timeout=LONGEST
            ).returncode
        except subprocess.TimeoutExpired:
            code = "no end"
        out.seek(0)
        lines = out.read().splitlines()
    if code != 0:
        last = progress.read_bytes().rstrip(b"\0 ").decode() if progress.exists() else "no call"
        return f"{group} ends with {code}", [f"in {last}", *lines[-5:]]
    return lines[0], [line for line in lines[1:] if line]


@pytest.mark.parametrize("group", [marked(group) for group in wrong_arguments.GROUPS])
def test_wrong_arguments(group, tmp_path):
    head, findings = run(group, tmp_path)
    print(head)
    assert not findings, "\n".join([head, *findings[:40]])


def test_a_call_that_kills_its_process_is_named(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "import wrong_arguments as sweep\n"
        "deadly = sweep.Subject('deadly', [], lambda: sweep.Call(os.abort))\n"
        "sweep.GROUPS['deadly'] = lambda: iter([deadly])\n"
        "sweep.main(*sys.argv[1:])\n"
    )
    head, findings = run("deadly", tmp_path, script)
    assert head == "deadly ends with -6"
    assert findings[0] == "in deadly with nothing"


def test_every_model_is_swept():
    from mithril.models import _generated

    titles = {subject.title for subject in wrong_arguments.constructors()}
    assert {getattr(ml, name).__name__ for name in _generated.FAMILIES} <= titles
    assert {"Model", "TrainModel", "Connection", "Tensor", "Lambda", "Adam"} <= titles
    methods = {subject.title for subject in wrong_arguments.of_models()}
    assert {"Model.connect", "Model.replace", "TrainModel.add_loss"} <= methods


# --- calls that do not fit the parameters ---------------------------------------------------------

MISFITS = {
    "an unknown key": (
        lambda: ml.Relu().connect(inptu="x"),
        "Relu.connect: has no argument 'inptu', did you mean 'input'?\n"
        "  help: its arguments are (input, output)",
    ),
    "an unknown argument": (
        lambda: ml.Linear(dimensoin=3),
        "Linear: has no argument 'dimensoin', did you mean 'dimension'?\n"
        "  help: its arguments are (dimension, use_bias, input, weight, bias, name=, init=)",
    ),
    "too many arguments": (
        lambda: ml.Model().unfreeze(1, 2),
        "Model.unfreeze: takes at most 0 arguments by position, got 2\n"
        "  help: it takes no arguments",
    ),
    "an argument twice": (
        lambda: ml.Linear(3, dimension=3),
        "Linear: 'dimension' is given twice\n"
        "  help: its arguments are (dimension, use_bias, input, weight, bias, name=, init=)",
    ),
    "no argument": (
        lambda: ml.Model().rename_key(),
        "Model.rename_key: requires 'connection' and 'key'\n"
        "  help: its arguments are (connection, key)",
    ),
    "one of two": (
        lambda: ml.Model().rename_key(key="k"),
        "Model.rename_key: requires 'connection'\n  help: its arguments are (connection, key)",
    ),
    "of evaluate": (
        lambda: wrong_arguments.physical().evaluate({}, {}, {}, wrth=["x"]),
        "PhysicalModel.evaluate: has no argument 'wrth', did you mean 'wrt'?\n"
        "  help: its arguments are (params, data, output_gradients=, state=, wrt=, fetch=, "
        "donate_state=, lazy=)",
    ),
    "of evaluate by position": (
        lambda: wrong_arguments.physical().evaluate({}, {}, {}),
        "PhysicalModel.evaluate: takes at most 2 arguments by position, got 3\n"
        "  help: its arguments are (params, data, output_gradients=, state=, wrt=, fetch=, "
        "donate_state=, lazy=)",
    ),
    "of a function": (
        lambda: ml.load(),
        "load: requires 'path'\n  help: its arguments are (path)",
    ),
    "of a function that became a model": (
        lambda: ml.models.functional(lambda x, y: x + y)(ml.IOKey("a"), z=1),
        "<lambda>: has no argument 'z'\n  help: its arguments are (x, y)",
    ),
}


@pytest.mark.device  # two of them compile
@pytest.mark.parametrize("what", MISFITS)
def test_calls_that_do_not_fit(what):
    call, text = MISFITS[what]
    with pytest.raises(SignatureError) as caught:
        call()
    error = caught.value
    assert str(error) == text
    assert isinstance(error, TypeError) and error.code == "MTH301"
    assert error.__suppress_context__ or error.__context__ is None


def test_errors_of_the_body_stay_as_they_are():
    """A TypeError of a function of the user's is no misfit of the call around it."""
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    with pytest.raises(TypeError, match="^boom$") as caught:
        model.add_constraint(lambda x: (_ for _ in ()).throw(TypeError("boom")), ["x"])
    assert not isinstance(caught.value, MithrilError)


def test_subclasses_of_users_have_their_own_signature():
    class Mine(ml.Model):
        def __init__(self, size):
            super().__init__()

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'size'"):
        Mine()


def test_tracebacks_end_in_the_code_of_the_user():
    with pytest.raises(SignatureError) as caught:
        ml.Relu().connect(inptu="x")
    assert [entry.path.name for entry in caught.traceback] == [Path(__file__).name]


# --- what the shared checks say -------------------------------------------------------------------

REFUSALS = {
    "a flag": (
        lambda m: m.set_cin("x", safe="no"),
        "set_cin: safe: requires True or False, got 'no'",
    ),
    "a flag of a table": (
        lambda m: m.summary(shapes=[]),
        "summary: shapes: requires True or False, got []",
    ),
    "text": (
        lambda m: m.rename_key("x", b"new"),
        "rename_key: key: requires a string, got b'new'",
    ),
    "text that cannot be encoded": (
        lambda m: m.rename_key("x", "\ud800"),
        "rename_key: key: text must be valid unicode, got '\\ud800'",
    ),
    "a dictionary": (
        lambda m: m.set_shapes([1, 2]),
        "set_shapes: config: requires a dictionary, got [1, 2]",
    ),
    "a key": (lambda m: m.set_cin(3), "set_cin: requires a name or a connection, got 3"),
    "a list": (
        lambda m: m.extract(outputs=3),
        "extract: outputs: requires wires, got 3",
    ),
    "a list that does not end": (
        lambda m: m.extract(outputs=itertools.repeat("x")),
        "extract: outputs: requires at most 1000000 items, got repeat('x')",
    ),
    "a number": (
        lambda m: m.summary(depth=True),
        "summary: depth: requires an integer of at least 0, got True",
    ),
    "a model": (
        lambda m: ml.models.define_unique_names([m, "m"]),
        "define_unique_names: requires models, got 'm'",
    ),
    "a value": (
        lambda m: m.extend(ml.Add(), left="x", right={1}),
        "'right' of Add(): requires a name, a connection or a value, got {1}",
    ),
    "a value in a list": (
        lambda m: m.extend(ml.Add(), left="x", right=[1, b"2"]),
        "'right' of Add(): requires a name, a connection or a value, got b'2'",
    ),
    "an attribute": (
        lambda m: ml.Linear(2**70),
        "Linear: dimension: requires an integer of 64 bits, got a larger one",
    ),
    "a dtype": (
        lambda m: ml.Cast(complex),
        "Cast: dtype: requires one of uint8, int8, int16, int32, int64, float16, bfloat16,"
        " float32, float64, bool, got <class 'complex'>",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_refusals_say(what):
    call, text = REFUSALS[what]
    model = wrong_arguments.small()
    before = model.to_json()
    with pytest.raises(MithrilError) as caught:
        call(model)
    assert caught.value.message == text
    assert model.to_json() == before
