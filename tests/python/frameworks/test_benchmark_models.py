"""The models of the benchmarks, small, against what they are measured beside: the same by hand in
PyTorch with equal weights."""

import numpy as np
import pytest
from emulated_cuda import NO_CUDA

from benchmarks import composing, gpu, launches
from benchmarks.devices import backend
from benchmarks.harness import Settings, difference
from benchmarks.nets import Gpt2, Net, Resnet, Vit, count_work

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks
BOUND = 1e-5


class SmallVit(Vit):
    def __init__(self):
        self.sizes = (32, 8, 2, 32, 4, 5)
        rng = np.random.default_rng(1)
        self.data = {"image": rng.standard_normal((2, 3, 32, 32), dtype=np.float32)}
        self.draw_params()


class SmallGpt2(Gpt2):
    def __init__(self):
        self.sizes = (2, 32, 4, 101, 16)
        tokens = np.random.default_rng(1).integers(0, 101, (1, 7))
        self.data = {"tokens": tokens, "places": np.arange(7)[None]}
        self.draw_params()


NETS = {
    "resnet18": lambda: Resnet(18, 2, 64),
    "resnet50": lambda: Resnet(50, 2, 64),
    "vit": SmallVit,
    "gpt2": SmallGpt2,
}


@pytest.mark.parametrize("name", NETS)
def test_models_composed_of_ops_are_those_by_hand(name):
    net: Net = NETS[name]()
    by_hand = net.torch(Settings()).result()
    assert difference(net.ours(Settings()).result(), by_hand) < BOUND
    assert difference(net.ours(Settings(), bind=False).result(), by_hand) < BOUND


@pytest.mark.parametrize("name", NETS)
def test_outputs_tell_one_input_from_another(name):
    """Else comparing them would say nothing: half a percent is far above what rows allow."""
    net: Net = NETS[name]()
    first = net.torch(Settings()).result()
    key, value = next(iter(net.data.items()))
    net.data[key] = np.flip(value).copy()
    assert difference(net.torch(Settings()).result(), first) > 5e-3


@pytest.mark.parametrize("name", NETS)
def test_modules_by_hand_can_be_exported(name):
    """ONNX Runtime, which no test needs, runs what this makes."""
    net: Net = NETS[name]()
    array = torch.from_numpy(net.input)
    exported = torch.export.export(net.module, (array,)).module()
    assert difference({"y": exported(array).detach()}, net.torch(Settings()).result()) < BOUND


# Numbers and billions of multiply-adds of an image of 224 x 224, as torchvision documents them.
PUBLISHED = {
    "resnet18": (lambda: Resnet(18), 11_689_512, 1.81),
    "resnet50": (lambda: Resnet(50), 25_557_032, 4.09),
    "vit_b_16": (Vit, 86_567_656, 17.56),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name):
    net_of, count, work = PUBLISHED[name]
    net = net_of()
    trained = (value for key, value in net.params.items() if not key.startswith("running_"))
    assert sum(value.size for value in trained) == count
    assert count_work(net.torch(Settings()).run) / 2e9 == pytest.approx(work, abs=0.01)


# --- devices --------------------------------------------------------------------------------------


def without_device(name):
    """Why there is none."""
    import mithril as ml

    try:
        ml.get_backend(name)
    except ml.errors.DeviceNotAvailable as error:
        return str(error).splitlines()[0]
    return ""


@pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA)
@pytest.mark.parametrize("name", ["gpu-gpt2", "gpu-gpt2-step", "gpu-mlp-step"])
def test_rows_of_a_gpu_compare_the_same_work(name, monkeypatch, capsys):
    """Small networks; PyTorch takes part on the CPU, where it has no CUDA."""
    monkeypatch.setattr(gpu, "torch_device", lambda: "cpu")
    gpu.ROWS[name](Settings(seconds=0.01, quick=True))
    printed = capsys.readouterr().out
    assert printed.count("  agrees (") == 2 and "DIFFER" not in printed, printed


@pytest.mark.parametrize("name", ["opencl", "cuda"])
def test_what_is_launched_by_hand(name):
    reason = NO_CUDA if name == "cuda" and NO_CUDA else without_device(name)
    if reason:
        pytest.skip(reason)
    x = np.linspace(-1, 1, 16, dtype=np.float32)
    by_hand = launches.relu(backend(name, Settings(threads=1)), x)
    for _ in range(2):
        np.testing.assert_array_equal(by_hand.result()["output"], np.maximum(x, 0))
        by_hand.run()


def test_pairs_are_checked_after_they_are_composed():
    composing.check(composing.stack(2), 2)
    with pytest.raises(AssertionError, match="not what it should be"):
        composing.check(composing.stack(2), 3)
