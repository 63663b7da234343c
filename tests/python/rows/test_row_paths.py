"""Rows P1–P23: import paths and the layout of packages."""

import importlib
import importlib.util
import re
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from mithril.backends.backend import Backend

from tests.python.rows.common import ROOT, attribute, close, compiled

pytestmark = pytest.mark.documents
WITH = "mithril.backends.with_autograd."
WITHOUT = "mithril.backends.with_manualgrad."


def test_P1():
    assert Backend.__abstractmethods__ == {"tensor", "zeros", "ones"}
    with pytest.raises(TypeError, match="abstract"):
        Backend()


def test_P2():
    base = attribute(WITH + "backend.AutogradBackend")
    assert issubclass(base, Backend) and base is not Backend
    assert callable(base.grad) and callable(base.value_and_grad)
    for name in ("JaxBackend", "TorchBackend", "MlxBackend"):
        assert issubclass(getattr(ml, name), base)
    assert not issubclass(ml.NumpyBackend, base)


def test_P3():
    numpy_backend = attribute(WITHOUT + "numpy_backend.NumpyBackend")

    class Own(numpy_backend):
        pass

    got = compiled(backend=Own()).evaluate({"w": np.eye(2, 3), "b": [0.0, 1.0]}, {"x": [[1, 2, 3]]})
    close(got["y"], [[1.0, 3.0]])
    for part in ("backend", "ops", "utils"):
        importlib.import_module(f"{WITHOUT}numpy_backend.{part}")


def test_P4():
    assert attribute(WITHOUT + "c_backend.CBackend") is ml.CBackend
    assert issubclass(ml.CBackend, Backend)


def test_P5():
    """The class is there without ggml; only its constructor needs it, and names what to install."""
    code = (
        "import sys\n"
        "sys.modules['ggml'] = None\n"
        "import importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n.split('.')[0] == 'ggml' else found(n, *a)\n"
        "from mithril.backends.with_manualgrad.ggml_backend import GGMLBackend\n"
        "print(GGMLBackend.__name__)\n"
        "try: GGMLBackend()\n"
        "except RuntimeError as error: print('RuntimeError', 'pip install' in str(error))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["GGMLBackend", "RuntimeError", "True"]


def of_framework(row, name):
    found = attribute(f"{WITH}{row}_backend.{name}")
    assert isinstance(found, type) and issubclass(found, Backend) and found.__name__ == name
    assert found is getattr(ml, name)


def test_P6():
    of_framework("jax", "JaxBackend")


def test_P7():
    of_framework("torch", "TorchBackend")


def test_P8():
    of_framework("mlx", "MlxBackend")
    assert attribute(WITH + "mlx_backend.MLXBackend") is ml.MlxBackend


def test_P9():
    from mithril.backends import MLXBackend, MlxBackend

    assert MLXBackend is MlxBackend
    out = subprocess.run(
        [sys.executable, "-c", "import mithril.backends, sys; print('mlx' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert out.stdout.strip() == "False"  # lazily


def test_P10():
    from mithril.backends.registry import register_backend

    class Named(ml.NumpyBackend):
        pass

    register_backend("row_p10", Named)
    assert type(ml.get_backend("row_p10")) is Named
    with pytest.raises(TypeError):
        register_backend("row_p10", int)


def test_P11():
    from mithril.backends import get_backend, registry

    assert type(get_backend("numpy")) is ml.NumpyBackend
    assert get_backend is registry.get_backend and ml.get_backend is get_backend
    with pytest.raises(KeyError, match="did you mean 'numpy'"):
        get_backend("numppy")


def test_P12():
    from mithril.testing.backend_tests import run_backend_tests

    class Halved(ml.NumpyBackend):
        def relu(self, input):
            return np.maximum(input, 0) / 2

    assert run_backend_tests(ml.NumpyBackend(), ops=["relu"]).passed == 1
    assert run_backend_tests(Halved(), ops=["relu"]).failed == 1


@pytest.mark.limited("parallelism is a later feature")
def test_P13():
    from mithril.backends.with_autograd.jax_backend.parallel import data_parallel

    with pytest.raises(NotImplementedError, match="data_parallel"):
        data_parallel(lambda x: x, backend=ml.NumpyBackend(), num_devices=4)


def test_P14():
    from mithril.models import LogicalModel, Model

    assert LogicalModel is Model is ml.Model


def test_P15():
    """By the table of He et al. (2016): 11.7 million parameters, of which the last layer has
    513,000."""
    from mithril.models import resnet18

    pm = ml.compile(resnet18(num_classes=1000), ml.NumpyBackend(), inference=True,
                    shapes={"input": [1, 3, 224, 224]}, data_keys={"input"})  # fmt: skip
    trained = [key for key in pm.param_keys if "running" not in key and "num_batches" not in key]
    assert sum(int(np.prod(pm.shapes[key])) for key in trained) == 11_689_512
    assert pm.shapes["output"] == [1, 1000]


def runs_from_the_root(code):
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return out.stdout.split()


def test_P16():
    code = (
        "from examples.gpt.model import create_gpt\n"
        "from mithril.examples.gpt.model import create_gpt as same\n"
        "print(create_gpt is same)"
    )
    assert runs_from_the_root(code) == ["True"]


def test_P17():
    code = (
        "from examples.clip.model import clip\n"
        "import inspect; print(*inspect.signature(clip).parameters)"
    )
    names = "embed_dim image_resolution vision_layers vision_width vision_patch_size context_length"
    names += " vocab_size transformer_width transformer_heads transformer_layers"
    assert runs_from_the_root(code)[:10] == names.split()


def test_P18():
    """t5-small is 512 wide with 8 heads and has 32128 tokens (Raffel et al., 2020)."""
    code = (
        "import json, mithril as ml\n"
        "from examples.t5 import T5_CONFIGS, t5_encode, t5_decode\n"
        "c = T5_CONFIGS['t5-small']\n"
        "encoder, decoder = (ml.compile(f(c), ml.NumpyBackend(), data_keys=k, inference=True)\n"
        "    for f, k in ((t5_encode, {'input'}), (t5_decode, {'input', 'memory'})))\n"
        "print(encoder.shapes['output'][-1], decoder.shapes['output'][-1])\n"
        "print(sorted(encoder.data_keys), sorted(decoder.data_keys))"
    )
    wanted = "512 32128 ['input'] ['input', 'memory']"
    assert " ".join(runs_from_the_root(code)) == wanted


def test_P19(tmp_path):
    from mithril.cli.new_backend import write

    folder = write("row_chip", tmp_path) / "row_chip"
    parts = {"__init__.py", "backend.py", "ops.py", "utils.py"}
    assert parts <= {path.name for path in folder.iterdir()}
    package = ROOT / "python" / "mithril" / "backends"
    for kind, names in (("with_autograd", ("jax", "mlx")), ("with_manualgrad", ("numpy", "c"))):
        for name in names:
            assert parts <= {p.name for p in (package / kind / f"{name}_backend").iterdir()}


def test_P20():
    package = ROOT / "python" / "mithril" / "backends"
    for path in ("with_autograd/jax_backend", "with_autograd/torch_backend",
                 "with_manualgrad/numpy_backend"):  # fmt: skip
        text = (package / path / "backend.py").read_text()
        assert text.startswith('"""') and "class " in text and len(text.splitlines()) < 600


PAGES = ("jax-backend.md", "pytorch-backend.md", "mlx-backend.md", "performance-tuning.md")


def test_P21():
    docs = ROOT / "docs"
    missing = [page for page in PAGES if not (docs / page).is_file()]
    heads = re.findall(r"^#+ (.+)$", (docs / "backends.md").read_text(), re.MULTILINE)
    anchors = {head.lower().replace(" ", "-") for head in heads}
    assert not missing and "experimental-backends" in anchors


def test_P22():
    texts = [p.read_text() for p in (ROOT / "docs").glob("*.md")] + [
        (ROOT / "README.md").read_text()
    ]
    assert not [text for text in texts if "example/mithril" in text]
    assert any("examples/" in text for text in texts)
    scripts = [path for path in (ROOT / "examples").glob("*.py") if path.name != "__init__.py"]
    assert len(scripts) >= 5


def test_P23():
    names = ("JaxBackend", "TorchBackend", "MlxBackend", "NumpyBackend", "CBackend", "GGMLBackend")
    for name in (*names, "MLXBackend"):
        assert issubclass(getattr(ml, name), Backend)
    stub = (ROOT / "python" / "mithril" / "__init__.pyi").read_text()
    assert all(name in stub for name in names)
    code = "import mithril, sys; print(sorted({'torch','jax','mlx','numpy'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
