"""Every public name from every import path that the documents, the reference and the package itself
have promised: `tests/data/public/paths.json` has the names of each path, and only grows."""

import importlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import mithril as ml
import numpy as np
import pytest

DATA = Path(__file__).resolve().parent.parent / "data" / "public"
PATHS = json.loads((DATA / "paths.json").read_text())
FRAMEWORKS = ("torch", "jax", "mlx", "tpu")


def group(path: str):
    needs_framework = any(name in path.split(".")[-1] for name in FRAMEWORKS) or "jax" in path
    marks = (
        [pytest.mark.frameworks]
        if needs_framework or path in ("mithril", "mithril.backends")
        else []
    )
    return pytest.param(path, marks=marks, id=path)


@pytest.mark.parametrize("path", [group(path) for path in PATHS])
def test_every_name_is_there(path):
    module = importlib.import_module(path)
    missing = [name for name in PATHS[path].split() if not hasattr(module, name)]
    assert not missing


def test_one_class_under_all_paths():
    from mithril.compile import compile as by_path
    from mithril.model import Model
    from mithril.physical import PhysicalModel
    from mithril.train_model import TrainModel

    assert Model is ml.Model and TrainModel is ml.TrainModel and PhysicalModel is ml.PhysicalModel
    assert by_path is ml.compile or by_path is ml.compile.compile


@pytest.mark.parametrize("first", ["", "ml.compile", "import mithril.compile"])
def test_compile_stays_callable_whatever_is_imported(first):
    code = (
        f"import mithril as ml\n{first}\nimport mithril.compile\n"
        "from mithril import compile as taken\n"
        "for one in (ml.compile, taken):\n"
        "    print(one(ml.Relu(), ml.NumpyBackend()).output_keys)\n"
    )
    run = [sys.executable, "-c", code]
    out = subprocess.run(run, capture_output=True, text=True, check=False)
    assert out.stdout == "['output']\n" * 2, out.stderr


@pytest.mark.device
def test_pickles_of_older_files_load():
    """Written by version 0.1, whose modules had other places."""
    things = pickle.loads((DATA / "objects_0_1.pickle").read_bytes())
    compiled, x = things["compiled"], np.ones((2, 3), "float32")
    params = compiled.randomize_params(0)
    expected = np.maximum(x @ params["weight"].T + params["bias"], 0)
    np.testing.assert_allclose(compiled.evaluate(params, {"x": x})["y"], expected, rtol=1e-6)
    assert things["half"]._compilation.options.loss_scale.fixed == 64.0
    classes = {"training": ml.TrainModel, "model": ml.Model, "layer": ml.Linear, "key": ml.IOKey}
    for name, cls in classes.items():
        assert type(things[name]) is cls
    assert all(isinstance(one, ml.Uninitialized) for one in things["uninitialized"].values())
    assert isinstance(things["optimizer"], ml.optim.Adam)
