"""Runs the Python blocks of the five documents, read from their folder, each as one test case.

The blocks of a document share one namespace, in order, as in a notebook. A prelude gives a block
only names that the document leaves to its reader; nothing is patched and every block runs byte for
byte. Each block has a mark: it runs, it runs with the additions of `mithril.compat.mlx`
("runs:shim"), it needs a device or package, it is history (section 2.1 of the list of obligations:
its replacement stands beside it and must run), or it fails: then the reason is told, and the test
is an expected failure until the block runs. A block that would fail on its device, too, says both.
"""

import contextlib
import importlib.util
import re
import textwrap
from typing import NamedTuple

import mithril as ml
import numpy as np
import pytest
from mithril.backends.backend import Backend

pytestmark = pytest.mark.documents

FILES = {
    "S0": "000_1f5169a89b720e8c.txt",
    "S1": "001_ed99f8d9fdc3c934.txt",
    "S2": "002_5004d3ad7bae61b8.txt",
    "S3": "003_bd51cbcb25ec2f61.txt",
    "S4": "004_3e080101f721a96f.txt",
}
COUNTS = {"S0": 11, "S1": 11, "S2": 7, "S3": 35, "S4": 13}
NO_PYTHON = {"S0.4", "S3.1"}  # a tree of folders, a shell command
LABELS = [f"{d}.{i}" for d, n in COUNTS.items() for i in range(1, n + 1)]
LABELS = [label for label in LABELS if label not in NO_PYTHON]

_FENCE = re.compile(r"^[ \t]*```(\w*)\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    label: str
    language: str
    source: str


def read_blocks(folder, document):
    text = (folder / FILES[document]).read_text(encoding="utf-8")
    return [
        Block(f"{document}.{i}", language, textwrap.dedent(body))
        for i, (language, body) in enumerate(_FENCE.findall(text), 1)
    ]


# --- what the documents leave undefined ----------------------------------------------------------

MODEL = """
import mithril as ml
model = ml.Model()
model |= ml.Linear(4)(input="input", output="hidden")
model += ml.Relu()(input="hidden", output="hidden_act")
model += ml.Linear(2)(input="hidden_act", output="output")
model.set_shapes({"input": [None, 3]})
"""
TRAINING = """
import numpy as np
from mithril.training import train_model
jax_input = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)
training_data = [(jax_input[:2], np.ones((2, 2))), (jax_input[2:], np.zeros((2, 2)))]
"""
# One linear layer on MLX, a loss and a batch, which S3 leaves to its reader.
MLX_TRAINING = """
import numpy as np
model = ml.Model()
model |= ml.Linear(2)(input="input", output="output")
model.expose_keys("output")
backend = MLXBackend()
compiled_model = ml.compile(model, backend, data_keys={"input"}, shapes={"input": [4, 3]})
params = compiled_model.randomize_params(0)
inputs, targets = backend.ones(4, 3), backend.zeros(4, 2)
loss_gradients = backend.ones(4, 2)
compute_loss = lambda output, target: ((output - target) ** 2).mean()
num_epochs, learning_rate, data_loader = 2, 0.1, [(inputs, targets)]
"""
MLX_FUNCTIONS = """
as_function = compiled_model.as_function()
model_fn = lambda params, inputs: as_function(params, {"input": inputs})["output"].sum()
loss_fn = lambda output, target: (output - target).square().mean()
"""
PRELUDES = {
    "S0.9": "import numpy as framework",
    "S0.10": "import numpy as framework",
    "S1.3": "from abc import ABC, abstractmethod",
    "S1.4": "import numpy as np\ninput_data = np.ones((2, 3))",
    "S1.8": "tensor = backend.tensor([[1.0, 2.0], [3.0, 4.0]])",
    "S1.10": MODEL + "fn, data_batch = (lambda x: x), __import__('numpy').ones((4, 3))",
    "S2.3": MODEL + TRAINING,
    "S2.4": MODEL,
    "S2.5": MODEL,
    "S2.6": "import torch",
    "S2.7": "config = __import__('examples.t5').t5.T5_CONFIGS['t5-small']",
    "S3.4": "import mlx.core as mx",
    "S3.9": MLX_TRAINING,
    "S3.11": MLX_FUNCTIONS,
    "S3.14": "params_before = dict(params)",  # for `check_adam`
    "S3.15": "model = ml.Model()",
    "S3.25": "large_tensor = backend.ones(4)",
    "S3.28": "tensor = backend.ones(2, 3)",
    "S3.33": "mean, std = inputs.mean(), 2.0",
    "S4.1": MODEL,
    "S4.2": MODEL,
    "S4.3": MODEL,
    "S4.4": MODEL,
    "S4.5": MODEL,
    "S4.12": MODEL,
    "S4.13": MODEL,
}

# --- marks ---------------------------------------------------------------------------------------


def has_module(name):
    return importlib.util.find_spec(name) is not None


def has_cuda():
    if not has_module("torch"):
        return False
    import torch

    return torch.cuda.is_available()


def has_jax_gpu():
    if not has_module("jax"):
        return False
    import jax

    return any(device.platform == "gpu" for device in jax.devices())


def has_mlx():
    return has_module("mlx")


def has_mlx_gpu():
    if not has_mlx():
        return False
    import mlx.core as mx

    return mx.device_count(mx.gpu) > 0


PRESENT = {"CUDA": has_cuda, "a GPU for JAX": has_jax_gpu, "mlx": has_mlx,
           "a GPU for MLX": has_mlx_gpu,
           "coremltools": lambda: has_module("coremltools"),
           "ggml": lambda: has_module("ggml")}  # fmt: skip
MLX_BLOCKS = [f"S3.{i}" for i in range(2, 36)] + ["S2.6", "S2.7", "S4.3", "S4.8", "S4.13"]
NEEDS = {
    **dict.fromkeys(MLX_BLOCKS, "mlx"),
    **dict.fromkeys(("S2.1", "S2.3", "S2.5", "S4.2", "S4.7", "S1.5"), "CUDA"),
    **dict.fromkeys(("S1.6", "S4.1", "S4.6"), "a GPU for JAX"),
    **dict.fromkeys(("S3.3", "S3.5"), "a GPU for MLX"),
    "S3.19": "coremltools",
    **dict.fromkeys(("S4.5", "S4.10"), "ggml"),
}
SHIM = {"S3.3", "S3.5", "S3.14"}
HISTORY = {"S0.6": "jax.config is no module of JAX any more"}
FAILING = {
    "S2.5": "parallel_strategy: one device computes yet",
    "S4.6": "device_mesh is not there yet",
    "S4.7": "device_mesh is not there yet",
    "S1.10": "data_parallel is not there yet",
    "S2.2": "a block without `import mithril as ml`, that runs ResNet-18 hundreds of times",
}


def mark_of(label):
    """The mark that is counted and printed."""
    if label in HISTORY:
        return "history"
    need = NEEDS.get(label)
    if need and not PRESENT[need]():
        missing = FAILING.get(label)
        return f"needs:{need}" + (f" and fails there: {missing}" if missing else "")
    if label in FAILING:
        return "failing"
    return "runs:shim" if label in SHIM else "runs"


def additions(label):
    """What a block has around it."""
    if label not in SHIM:
        return contextlib.nullcontext()
    from mithril.compat.mlx import install

    return install()


# --- what must be true afterwards: no expected value comes from mithril ---------------------------


def check_numbers(ns):
    to = ns["backend"].to_numpy
    np.testing.assert_allclose(to(ns["z"]), [5.0, 7.0, 9.0])
    assert to(ns["w"]).shape == ()
    assert float(to(ns["w"])) == 32.0
    np.testing.assert_allclose(to(ns["a"]), [5.0, 7.0, 9.0])
    sigmoid = 1.0 / (1.0 + np.exp(-32.0))
    assert float(to(ns["b"])) == pytest.approx(sigmoid, rel=1e-6)
    assert float(to(ns["c"])) == 21.0
    assert float(to(ns["d"])) == pytest.approx(sigmoid, rel=1e-6)


def check_conversion(ns):
    np.testing.assert_array_equal(ns["np_array"], [[1.0, 2.0], [3.0, 4.0]])
    assert isinstance(ns["np_array"], np.ndarray)
    assert ns["shape"] == (2, 2)
    assert ns["dtype"] == "float32"
    drawn = ns["backend"].to_numpy(ns["random_tensor"])
    assert drawn.shape == (3, 4)
    assert 0.2 < drawn.std() < 2.0


def check_empty_model(ns):
    import mithril.models as models

    assert ns["model"].__class__ is models.Model
    assert ns["output"] == {}


def check_custom_backend(ns):
    backend = ns["MyCustomBackend"]()
    assert isinstance(backend, Backend)
    assert backend.tensor([1, 2], "float64").dtype == np.float64
    assert backend.zeros((2, 3), "int32").dtype == np.int32
    assert backend.ones(2).tolist() == [1.0, 1.0]
    model = ml.Model()
    model |= ml.Relu()(input="input", output="output")
    pm = ml.compile(model, backend, data_keys={"input"})
    assert np.asarray(pm.evaluate({}, {"input": [-1.0, 2.0]})["output"]).tolist() == [0.0, 2.0]


def check_abstract(name, *methods):
    def check(ns):
        from abc import ABC

        assert issubclass(ns[name], ABC)
        assert ns[name].__abstractmethods__ == frozenset(methods)
        with pytest.raises(TypeError):
            ns[name]()

    return check


def check_autograd(ns):
    assert issubclass(ns["MyAutogradBackend"], Backend)
    assert ns["MyAutogradBackend"].__abstractmethods__ == {"tensor", "zeros", "ones"}


def check_enhanced(ns):
    backend = ns["EnhancedNumpyBackend"](use_bfloat16=True)
    # pi in bfloat16 is 3.140625 (1.5703125 times 2).
    assert float(backend.tensor(3.14159265, "bfloat16")) == 3.140625
    assert backend.tensor([1, 2], "float64").dtype == np.float64
    np.testing.assert_allclose(backend.ifft(backend.fft(np.arange(4.0))), np.arange(4.0))
    np.testing.assert_allclose(backend.solve(2 * np.eye(2), np.ones(2)), [0.5, 0.5])
    backend.register_function("twice", lambda x: 2 * x)
    assert backend.call_custom("twice", 3) == 6
    with pytest.raises(ValueError, match="Custom function 'thrice' not registered"):
        backend.call_custom("thrice")


def check_registered(ns):
    assert isinstance(ns["backend"], ns["MyCustomBackend"])
    assert ml.get_backend("my_custom").ones(2).tolist() == [1.0, 1.0]


def check_dtype_pattern(ns):
    assert ns["_convert_dtype"](None, "int32") is np.int32
    assert ns["_convert_dtype"](None, None) is None


def check_conv_pattern(ns):
    class Framework:
        @staticmethod
        def conv2d(x, filters, kernel_size, strides, padding):
            return x * 2

    class Own:
        transpose = staticmethod(np.transpose)

    ns["framework"] = Framework
    x = np.arange(24.0).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(ns["conv2d"](Own(), x, None, 3), 2 * x)


def check_backward_hook(ns):
    x = np.array([0.0, 1.0])
    slope = ns["backward_tanh"](None, np.ones(2), (x,), (np.tanh(x),))
    np.testing.assert_allclose(slope, 1.0 / np.cosh(x) ** 2)


def check_gradient_of_jax(ns):
    assert ns["backend"].to_numpy(ns["grad_x"]).tolist() == [2.0, 4.0, 6.0]


def check_incomplete(ns):
    assert issubclass(ns["MyCustomBackend"], Backend)
    with pytest.raises(TypeError, match="ones"):
        ns["MyCustomBackend"]()


def check_imports(*names):
    def check(ns):
        for name in names:
            assert isinstance(ns[name], type)
            assert ns[name].__name__ == name
            assert issubclass(ns[name], Backend)

    return check


def check_clip(ns):
    models = [ns[f"{name}_clip"] for name in ("torch", "jax", "mlx")]
    trained = [key for key in models[0].param_keys if "running" not in key]
    count = sum(int(np.prod(models[0].shapes[key])) for key in trained)
    # OpenAI's RN50 has 102007137 parameters, with an embedding of 1024 that is 512 here.
    assert count == 102007137 - (512 * 2048 + 512) - 512 * 512
    for model in models:
        assert model.shapes["logits_per_image"] == model.shapes["logits_per_text"] == [1, 1]
        assert model.param_keys == models[0].param_keys


def check_languages(ns):
    assert ns["encoder"].backend.backend_type == "jax"
    assert ns["decoder"].backend.backend_type == "torch"
    assert ns["encoder"].shapes["output"][-1] == 512
    assert ns["decoder"].shapes["output"][-1] == 32128
    assert ns["mlx_gpt"].shapes["output"][-1] == 50304
    assert {"input", "memory"} <= ns["decoder"].input_keys


def check_transfer(ns):
    import jax
    import torch

    shapes = {k: tuple(v.shape) for k, v in ns["torch_params"].items()}
    assert sorted(shapes.values()) == [(2,), (2, 4), (4,), (4, 3)]
    for key, value in ns["jax_params"].items():
        assert isinstance(value, jax.Array)
        assert isinstance(ns["torch_params"][key], torch.Tensor)
        np.testing.assert_array_equal(ns["torch_params"][key].numpy(), np.asarray(value))
        assert ns["torch_params"][key].dtype == torch.float32


def check_inference(ns):
    rng = np.random.default_rng(0)
    params = {k: rng.standard_normal(np.shape(v)) for k, v in
              ns["compiled_model"].randomize_params().items()}  # fmt: skip
    x = rng.standard_normal((5, 3))
    weights = sorted((v for v in params.values() if v.ndim == 2), key=lambda v: -v.shape[0])
    biases = sorted((v for v in params.values() if v.ndim == 1), key=lambda v: -v.shape[0])
    wanted = np.maximum(x @ weights[0].T + biases[0], 0.0) @ weights[1].T + biases[1]
    with pytest.warns(Warning):  # float64 parameters of a float32 model
        got = ns["compiled_model"].evaluate(params, {"input": x})["output"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def check_float64(ns):
    assert isinstance(ns["backend"], ml.NumpyBackend)
    assert ns["backend"].ones(2).dtype == np.float64


def check_ggml(ns):
    """Four gigabytes at most, and products by 8 bits: near to float32, and not equal."""
    backend = ns["backend"]
    assert (backend.mem_size, backend.quantize) == (4 << 30, "q8_0")
    model = ml.Model()
    model |= ml.Linear(8)(input="x", output="y")
    x = np.random.default_rng(0).standard_normal((4, 64)).astype("float32")
    pm = ml.compile(model, backend, shapes={"x": [4, 64]})
    params = pm.randomize_params()
    wanted = x @ params["weight"].T + params["bias"].reshape(-1)
    got = pm.evaluate(params, {"x": x})["y"]
    assert 0 < np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()


def check_static_ggml(ns):
    check_ggml(ns)
    check_inference(ns)  # in rows that are no whole blocks


def check_c(ns):
    backend = ns["backend"]
    assert isinstance(backend, ml.CBackend) and backend.ones(2).dtype == np.float32
    model = ml.Model()
    model |= ml.Exponential()(input="x", output="y")
    pm = ml.compile(model, backend, shapes={"x": [3]})
    np.testing.assert_allclose(pm.evaluate({}, {"x": np.arange(3.0)})["y"], np.exp(range(3)), 1e-6)


def check_adam(ns):
    """By the formulas of Adam, in steps of 0.001 whose gradients are the same each time."""
    x = np.array(ns["inputs"])
    slopes = {"weight": np.ones((len(x), 2)).T @ x, "bias": np.full(2, float(len(x)))}
    for key, g in slopes.items():
        wanted, m, v = np.array(ns["params_before"][key]), 0.0, 0.0
        for _ in range(ns["num_epochs"]):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            wanted = wanted - 0.001 * m / (np.sqrt(v) + 1e-8)
        np.testing.assert_allclose(np.array(ns["params"][key]), wanted, atol=1e-6)
    assert int(ns["optimizer"].state["step"]) == ns["num_epochs"]


def check_mlx_cpu(ns):
    assert ns["backend"].get_device() == "cpu:0"


CHECKS = {
    "S0.1": check_abstract("Backend", "tensor", "zeros"),
    "S0.2": check_custom_backend,
    "S0.3": check_autograd,
    "S0.5": check_enhanced,
    "S0.8": check_registered,
    "S0.9": check_dtype_pattern,
    "S0.10": check_conv_pattern,
    "S0.11": check_backward_hook,
    "S1.1": check_imports("JaxBackend", "TorchBackend", "MlxBackend"),
    "S1.2": check_imports("NumpyBackend", "CBackend", "GGMLBackend"),
    "S1.3": check_abstract("Backend", "tensor", "zeros", "ones"),
    "S1.4": check_empty_model,
    "S1.7": check_numbers,
    "S1.8": check_conversion,
    "S1.9": check_gradient_of_jax,
    "S1.11": check_incomplete,
    "S2.6": check_clip,
    "S2.7": check_languages,
    "S3.5": check_mlx_cpu,
    "S3.14": check_adam,
    "S4.4": check_inference,
    "S4.5": check_static_ggml,
    "S4.9": check_float64,
    "S4.10": check_ggml,
    "S4.11": check_c,
    "S4.12": check_transfer,
}

# --- running -------------------------------------------------------------------------------------


class Notebook:
    """The namespace of one document, and what became of each block that has run."""

    def __init__(self, blocks, folder):
        self._folder = folder  # where files go that blocks write
        self._blocks = {block.label: block for block in blocks}
        self._outcomes = {}
        self.namespace = {"__name__": "notebook"}

    def run(self, label):
        """Runs every block up to this one that has not run, and returns what this one raised."""
        for block in self._blocks.values():
            if block.label not in self._outcomes:
                self._outcomes[block.label] = self._execute(block)
            if block.label == label:
                return self._outcomes[label]
        raise KeyError(label)

    def _execute(self, block):
        mark = mark_of(block.label)
        if block.language != "python" or mark not in ("runs", "runs:shim", "failing"):
            return None
        try:
            with contextlib.chdir(self._folder), additions(block.label):
                exec(PRELUDES.get(block.label, ""), self.namespace)
                exec(compile(block.source, block.label, "exec"), self.namespace)
        except Exception as error:  # a block may raise anything; its test tells
            return error
        return None


@pytest.fixture(scope="module")
def notebooks(documents, tmp_path_factory):
    return {
        name: Notebook(read_blocks(documents, name), tmp_path_factory.mktemp(name))
        for name in FILES
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", LABELS)
def test_block(label, notebooks, document_marks):
    mark = mark_of(label)
    document_marks[label] = mark
    if mark == "history":
        pytest.skip(f"history: {HISTORY[label]}")
    if mark.startswith("needs"):
        pytest.skip(mark)
    notebook = notebooks[label.split(".")[0]]
    error = notebook.run(label)
    if label in FAILING:
        assert error is not None, "it runs now: its reason can go"
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        document_marks[label] = f"failing: {FAILING[label]} ({told})"
        pytest.xfail(document_marks[label])
    if error is not None:
        raise error
    CHECKS.get(label, lambda _: None)(notebook.namespace)  # some only have to run
    document_marks[label] = mark


def test_the_documents_have_the_blocks_that_are_counted(documents):
    for name, count in COUNTS.items():
        blocks = read_blocks(documents, name)
        assert len(blocks) == count
        assert {b.label for b in blocks if b.language != "python"} == NO_PYTHON & {
            b.label for b in blocks
        }
    assert len(LABELS) == 75


@pytest.mark.skipif(not has_module("jax"), reason="jax is not installed")
@pytest.mark.filterwarnings("ignore:.*pre_allocate")  # JAX may have begun
def test_the_block_with_checkpoints_runs_on_the_cpu(documents, monkeypatch):
    """S4.1 with another device, and without the precision of products that CPUs lack."""
    source = block_source(documents, "S4.1")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")  # to be undone afterwards
    changed = source.replace('"gpu"', '"cpu"').replace('precision="bfloat16"', "precision=None")
    namespace: dict = {}
    exec(MODEL, namespace)
    exec(compile(changed, "S4.1", "exec"), namespace)
    pm = namespace["compiled_model"]
    assert pm.jit
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    params = pm.init({"input": x})
    ones = np.ones((5, 2), np.float32)
    outputs, gradients = pm.evaluate(params, {"input": x}, output_gradients={"output": ones})
    w1, b1, w2, b2 = (np.asarray(v, np.float64) for v in in_order(params))
    hidden = np.maximum(x @ w1.T + b1, 0.0)
    np.testing.assert_allclose(outputs["output"], hidden @ w2.T + b2, atol=1e-5)
    found = in_order(gradients)
    np.testing.assert_allclose(found[0], ((ones @ w2) * (hidden > 0)).T @ x, atol=1e-4)
    np.testing.assert_allclose(found[2], ones.T @ hidden, atol=1e-4)


def in_order(arrays):
    """Weight and bias of both layers of `MODEL`."""
    by_shape = {tuple(v.shape): v for v in arrays.values()}
    return [by_shape[shape] for shape in [(4, 3), (4,), (2, 4), (2,)]]


def test_the_class_for_tpus_is_defined_and_says_what_it_needs(documents):
    """S0.6: the class lacks two of the three methods; with them JAX lacks `jax.config`."""
    namespace = {"Backend": Backend}
    exec(compile(block_source(documents, "S0.6"), "S0.6", "exec"), namespace)
    with pytest.raises(TypeError, match="abstract"):
        namespace["TPUBackend"]()
    methods = dict.fromkeys(("tensor", "zeros", "ones"), lambda self, data, dtype=None: data)
    complete = type("Complete", (namespace["TPUBackend"],), methods)
    with pytest.raises(ImportError) as said:
        complete()
    from mithril.contrib.tpu import TPUBackend

    assert str(said.value) == "JAX is required for TPUBackend. Please install jax and jaxlib."
    assert issubclass(TPUBackend, Backend)  # what takes its place


@pytest.mark.skipif(not has_mlx(), reason="mlx is not installed")
@pytest.mark.parametrize("label", ["S3.3", "S3.5"])
def test_blocks_that_need_a_gpu_of_mlx_run_on_the_cpu(documents, label):
    """With that word changed; without a GPU the block as it is says what is there."""
    import mlx.core as mx

    source = block_source(documents, label)
    namespace = {"MLXBackend": ml.MLXBackend}
    with additions(label):
        if not has_mlx_gpu():
            with pytest.raises(ml.errors.DeviceNotAvailable, match="available: cpu:0"):
                exec(compile(source, label, "exec"), dict(namespace))
        exec(compile(source.replace("devices.gpu", "devices.cpu"), label, "exec"), namespace)
    assert namespace["backend"].device == mx.Device(mx.cpu, 0)
    if label == "S3.3":
        assert namespace["backend"].ones(2).dtype == mx.float16


# --- the blocks that must run on every backend ----------------------------------------------------

CLASSES = {"numpy": "NumpyBackend", "cpu": "CpuBackend", "c": "CBackend", "torch": "TorchBackend",
           "jax": "JaxBackend", "mlx": "MlxBackend"}  # fmt: skip


def block_source(documents, label):
    blocks = {b.label: b for b in read_blocks(documents, label.split(".")[0])}
    return blocks[label].source


def trained_by_hand(params, x, target, rate, steps):
    """The loop of S3.34 in float64, written out: gradients of softmax and of every layer."""
    w1, b1, w2, b2, w3, b3 = (np.asarray(p, np.float64) for p in params)
    for _ in range(steps):
        h1 = np.maximum(x @ w1.T + b1, 0.0)
        h2 = np.maximum(h1 @ w2.T + b2, 0.0)
        logits = h2 @ w3.T + b3
        e = np.exp(logits - logits.max(1, keepdims=True))
        y = e / e.sum(1, keepdims=True)
        g = y - target  # what the block sends back from the output
        d3 = y * (g - (g * y).sum(1, keepdims=True))
        d2 = (d3 @ w3) * (h2 > 0)
        d1 = (d2 @ w2) * (h1 > 0)
        w3, b3 = w3 - rate * d3.T @ h2, b3 - rate * d3.sum(0)
        w2, b2 = w2 - rate * d2.T @ h1, b2 - rate * d2.sum(0)
        w1, b1 = w1 - rate * d1.T @ x, b1 - rate * d1.sum(0)
    return y, [w1, b1, w2, b2, w3, b3]


def layer_params(pm, params):
    """Weight and bias of each of the three layers, by their shapes."""
    arrays = [np.asarray(pm.backend.to_numpy(value)) for value in params.values()]
    sizes = (128, 64, 10)
    return [
        next(a for a in arrays if a.ndim == rank and a.shape[0] == size)
        for size in sizes
        for rank in (2, 1)
    ]


def test_the_classification_model_on_every_backend(documents, backend_name):
    """S3.34, with the backend line changed and `predictions` made a NumPy array (T1)."""
    name = CLASSES[backend_name]
    source = block_source(documents, "S3.34").replace("MLXBackend", name)
    changed = source.replace(
        'predictions = outputs["output"]', 'predictions = np.asarray(outputs["output"])'
    )
    assert changed != source
    np.random.seed(0)
    namespace = {}
    exec(compile(changed, "S3.34", "exec"), namespace)
    pm, x = namespace["compiled_model"], namespace["X"]
    start = layer_params(pm, pm.init({"input": x}))  # what the block began with
    predictions, wanted = trained_by_hand(start, x, namespace["y_one_hot"], 0.01, 10)
    np.testing.assert_allclose(namespace["predictions"], predictions, atol=1e-4)
    for got, want in zip(layer_params(pm, namespace["params"]), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4)
    accuracy = np.mean(predictions.argmax(1) == namespace["y"])
    assert namespace["accuracy"] == pytest.approx(accuracy, abs=0.011)


def test_the_convolutional_model_on_every_backend(documents, backend_name):
    """S3.35, with the backend line changed."""
    name = CLASSES[backend_name]
    source = block_source(documents, "S3.35")
    changed = source.replace("MLXBackend(dtype=mx.float16)", f"ml.{name}()")
    assert changed != source
    namespace = {"ml": ml}
    exec(compile(changed, "S3.35", "exec"), namespace)
    pm = namespace["compiled_model"]
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 3, 8, 8)).astype(np.float32)
    params = pm.init({"input": x})
    shapes = sorted(tuple(np.shape(v)) for v in params.values())
    assert shapes == sorted(
        [(16, 3, 3, 3), (1, 16, 1, 1), (32, 16, 3, 3), (1, 32, 1, 1), (64, 128), (64,), (10, 64),
         (10,)]
    )  # fmt: skip
    values = {k: np.asarray(pm.backend.to_numpy(v), np.float64) for k, v in params.items()}
    got = np.asarray(pm.backend.to_numpy(pm.evaluate(params, {"input": x})["output"]))
    np.testing.assert_allclose(got, convolutional_by_hand(values, x), rtol=1e-4, atol=1e-5)


def convolutional_by_hand(values, x):
    """The same network in NumPy: convolutions as sums over shifted images."""

    def find(shape):
        return next(v for v in values.values() if v.shape == shape)

    def conv(x, w, b):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        height, width = x.shape[2:]
        return b + sum(
            np.einsum("nchw,oc->nohw", padded[:, :, i : i + height, j : j + width], w[:, :, i, j])
            for i in range(3)
            for j in range(3)
        )

    def pool(x):
        n, c, h, w = x.shape
        return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))

    h = pool(np.maximum(conv(x, find((16, 3, 3, 3)), find((1, 16, 1, 1))), 0.0))
    h = pool(np.maximum(conv(h, find((32, 16, 3, 3)), find((1, 32, 1, 1))), 0.0))
    h = np.maximum(h.reshape(len(h), -1) @ find((64, 128)).T + find((64,)), 0.0)
    return h @ find((10, 64)).T + find((10,))
