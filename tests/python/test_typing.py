# Covers: mithril/codegen/generate.py mithril/codegen/argument_types.py
# Covers: mithril/codegen/package_stubs.py
"""The types of the package: wrong programs that mypy and pyright refuse, and stubs that agree with
what is there. That right ones are taken is checked on README, docs and examples by `make lint`."""

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import mithril as ml
import pytest
from mithril.models import _generated

ROOT = Path(__file__).resolve().parent.parent.parent
GENERATED = Path(_generated.__file__).parent

START = """\
import mithril as ml
import numpy as np
model = ml.Model()
model |= ml.Linear(4)(input="x", output="h")
train = ml.TrainModel(model.clone())
x, w = ml.IOKey("x"), ml.IOKey("w")
backend = ml.CpuBackend()
"""
COMPILED = START + "pm = ml.compile(model, backend)\nparams = pm.randomize_params(0)\n"
WRONG = {
    "key of a layer": 'model |= ml.Linear(4)(inputs="h")',
    "key of connect": 'model |= ml.LayerNorm().connect(inpt="h")',
    "key of a layer by hand": 'model |= ml.MultiHeadAttention(2, 8)(quary="h")',
    "class": "ml.Liner(4)",
    "class of models": "ml.models.Convolution2d(3, 4)",
    "backend": "ml.TorchBakend()",
    "optimizer": "ml.optim.Adm(lr=0.1)",
    "argument of a layer": "ml.Dropout(rate=0.5)",
    "argument of an optimizer": "ml.optim.Adam(learning_rat=0.1)",
    "option of compile": "ml.compile(model, backend, shape={'x': [2]})",
    "option of evaluate": "pm.evaluate(params, {}, output_gradient=True)",
    "option of fetching": "pm.evaluate(params, fetsch=['h'])",
    "name of a mode": "ml.compile(model, backend, mode='training')",
    "name of a reduction": "ml.CrossEntropy(reduction='avg')",
    "name of an interpolation": "ml.Interpolate(size=4, mode='cubic')",
    "text for a number": 'ml.Linear("4")',
    "fraction for a size": "ml.Embedding(10, 2.5)",
    "number for a flag": "ml.Linear(4, use_bias='no')",
    "text for an axis": "ml.Softmax(axis='last')",
    "number for a name": "ml.Relu(name=3)",
    "set for a key": "model |= ml.Relu()(input={'h'})",
    "number for an output": "model |= ml.Relu()(input='h', output=3)",
    "no backend": "ml.compile(model)",
    "missing state of an optimizer": "pm.step(params)",
    "no number of chunks": "ml.Chunk()",
    "no head count": "ml.SplitHeads()",
    "class for a backend": "ml.compile(model, ml.CpuBackend)",
    "text for a backend": "ml.compile(model, 'cpu')",
    "number to extend with": "model |= 3",
    "text to add": "model += 'relu'",
    "member of a model": "model.sumary()",
    "member of a compiled model": "pm.evalute(params, {})",
    "member of a result": "pm.evaluate(params, {}, output_gradients=True).gradient",
    "dtype": "ml.CpuBackend(dtype=ml.flot32)",
    "dictionary for a number": "y = x + {}",
    "result of a model with gradients as a dictionary": (
        "pm.evaluate(params, {}, output_gradients=True)['y']"
    ),
}
RIGHT = {
    "values": 'model |= ml.Add()(left="h", right=ml.Tensor([1.0]), output="y")',
    "arrays": 'model |= ml.Add()(left="h", right=np.ones(4), output="y")',
    "expressions": "y = ml.Model.create(y=-(2 * x + w) @ w.T / np.ones(3) > 1.0)",
    "several": "values, places = ml.TopK(2)(x)",
    "types": "key = ml.IOKey('t', type=ml.Tensor[int | float], shape=['n', ('v', ...)])",
    "nested": "wide = ml.Model()\nwide |= model(x='x', h='y')\nwide += ml.Relu()(output='z')",
    "copies": "wide: ml.Model = model + ml.Relu()\nwide = model | ml.Relu()(input='h')",
    "results": (
        "outputs, gradients = pm.evaluate(params, {}, output_gradients=True)\n"
        "h: object = pm.evaluate(params, {'x': [1.0]})['h']\nboth = pm.predict(params)"
    ),
    "steps": "params, opt, state, outputs = pm.step(params, ml.optim.Adam().init(params), {})",
    "convolutions": "ml.Conv2d(3, 16, padding='same', stride=(2, 1))\nml.Conv2d(filters=3)",
    "sizes": "ml.Mean(axis=(0, 1), keepdim=True)\nml.Reshape((2, -1))\nml.Mean(axis=ml.TBD)",
    "options": "ml.compile(model, backend, jit=False, shapes={'x': [None, 3]}, check_nan='inf')",
    "models": "ml.MLP([ml.Relu(), ml.Softmax()], [8, 3])(input='x')",
    "dtypes": "ml.Cast(ml.float16)\nml.NumpyBackend(dtype='float64')",
    "modes": "ml.Dropout(0.5, mode='eval')\nml.BatchNorm2D(3, mode=None)",
}


def program(code: str) -> str:
    return (COMPILED if re.search(r"\bpm\b", code) else START) + code + "\n"


def checker():
    for tool in ("mypy", "basedpyright"):
        pytest.importorskip(tool, reason=f"{tool} is not installed (make lint does it)")
    spec = importlib.util.spec_from_file_location("check_types", ROOT / "scripts/check_types.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    """Program -> lines that each checker refuses."""
    folder = tmp_path_factory.mktemp("typing")
    check = checker()
    files = {}
    for name, code in {**WRONG, **RIGHT}.items():
        files[name] = folder / f"program_{re.sub(r'[^a-z]', '_', name)}.py"
        files[name].write_text(program(code))
    assert len(set(files.values())) == len(files)
    found: dict = {}
    for tool in (check.by_mypy, check.by_pyright):
        by_file: dict = {}
        for finding in tool(files.values(), folder):
            by_file.setdefault(Path(finding.file).name, []).append(finding)
        for name, file in files.items():
            found[name, tool.__name__] = by_file.get(file.name, [])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["by_mypy", "by_pyright"])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(findings, name, tool):
    first = program(WRONG[name]).count("\n") - WRONG[name].count("\n")
    assert findings[name, tool]
    assert all(finding.line >= first for finding in findings[name, tool])


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["by_mypy", "by_pyright"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_taken(findings, name, tool):
    assert not findings[name, tool]


def stub_classes() -> dict[str, dict[str, ast.FunctionDef]]:
    """Class -> the methods of its stub."""
    out: dict = {}
    for path in sorted(GENERATED.glob("*.pyi")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                out[node.name] = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
    return out


def names_of(function: ast.FunctionDef) -> tuple[list[str], list[str]]:
    a = function.args
    return [x.arg for x in (*a.posonlyargs, *a.args)][1:], sorted(x.arg for x in a.kwonlyargs)


def runtime_names(function) -> tuple[list[str], list[str]]:
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return (
        [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)],
        sorted(p.name for p in parameters if p.kind is kinds.KEYWORD_ONLY),
    )


def test_stubs_of_layers_have_the_parameters_that_layers_have():
    classes = stub_classes()
    assert len(classes) > 250
    for name, methods in classes.items():
        cls = getattr(ml.models, name)
        assert names_of(methods["__init__"]) == runtime_names(cls.__init__), name
        if "connect" in vars(cls):
            assert names_of(methods["connect"]) == runtime_names(cls.connect), name
            assert names_of(methods["__call__"]) == runtime_names(cls.connect), name


def test_stubs_of_packages_name_what_the_packages_offer():
    for module in (ml, ml.models, ml.backends):
        path = Path(module.__file__).with_suffix(".pyi")
        tree = ast.parse(path.read_text())
        names = {n.asname for f in tree.body if isinstance(f, ast.ImportFrom) for n in f.names}
        assert {*module.__all__} <= names, module.__name__
        assert not [f for f in tree.body if isinstance(f, ast.FunctionDef)]  # no `__getattr__`
        missing = [name for name in names if not hasattr(module, name)]
        assert not missing, module.__name__
