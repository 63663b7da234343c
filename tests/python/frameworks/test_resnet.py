"""ResNets against modules of PyTorch with torchvision's names, and their sizes as published."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, check, compiled, draw
from torch import nn

# torchvision.models, column "Num. Params" of its tables of weights.
pytestmark = pytest.mark.filterwarnings("ignore::mithril.errors.ModeWarning")

PARAMETERS = {18: 11689512, 34: 21797672, 50: 25557032, 101: 44549160, 152: 60192808}
LAYERS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3),
          152: (3, 8, 36, 3)}  # fmt: skip


class Block(nn.Module):
    """He et al., figure 5: two convolutions, or a bottleneck of three with its stride in the
    middle, as torchvision has it."""

    def __init__(self, before, filters, stride, bottleneck):
        super().__init__()
        shapes = [(before, filters, 3, stride), (filters, filters, 3, 1)]
        if bottleneck:
            shapes = [(before, filters, 1, 1), (filters, filters, 3, stride)]
            shapes += [(filters, 4 * filters, 1, 1)]
        self.count = len(shapes)
        for i, (cin, cout, size, step) in enumerate(shapes, 1):
            setattr(self, f"conv{i}", nn.Conv2d(cin, cout, size, step, size // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(cout))
        self.downsample = None
        if stride != 1 or before != cout:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = y.relu() if i < self.count else y
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet(nn.Module):
    def __init__(self, layers, bottleneck, classes, width):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        before, wide = width, 4 if bottleneck else 1
        for i, count in enumerate(layers):
            blocks = []
            for j in range(count):
                stride = 2 if i and not j else 1
                blocks.append(Block(before, width * 2**i, stride, bottleneck))
                before = width * 2**i * wide
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(x.mean((2, 3)))


def compare(layers, bottleneck, width, case, size=33):
    module = draw(ResNet(layers, bottleneck, 5, width))
    data = {"input": np.float32(np.random.default_rng(2).standard_normal((2, 3, size, size)))}
    model = ml.models.resnet.resnet(layers, 5, bottleneck, width)
    image = torch.from_numpy(data["input"]).double()
    check(model, module, data, lambda m: m(image), case)


@pytest.mark.parametrize("case", CASES, ids="-".join)
@pytest.mark.parametrize("depth", [18, 50])
def test_a_resnet_computes_what_pytorch_does(depth, case):
    compare(LAYERS[depth], depth > 34, 4, case)


@pytest.mark.parametrize("case", OF_FRAMEWORKS, ids="-".join)
def test_other_frameworks_compute_it_too(case):
    compare((1, 1, 1, 1), True, 2, case, size=17)


@pytest.mark.parametrize("depth", [34, 101, 152])
def test_deeper_ones_do_too(depth):
    compare(LAYERS[depth], depth > 34, 2, ("cpu", "float64"))


@pytest.mark.parametrize("depth", PARAMETERS)
def test_a_resnet_has_the_parameters_that_are_published(depth):
    model = getattr(ml.models, f"resnet{depth}")(num_classes=1000)
    pm = compiled(model, {"input": np.zeros((1, 3, 224, 224))}, inference=True)
    module = ResNet(LAYERS[depth], depth > 34, 1000, 64)
    sizes = {n: [d for d in p.shape if d != 1] for n, p in module.named_parameters()}
    assert {n: [d for d in pm.shapes[n] if d != 1] for n in sizes} == sizes
    assert sum(int(np.prod(pm.shapes[n])) for n in sizes) == PARAMETERS[depth]


def test_resnet18_of_full_size():
    module = draw(ResNet(LAYERS[18], False, 1000, 64))
    image = np.float32(np.random.default_rng(3).standard_normal((1, 3, 224, 224)))
    pm = compiled(ml.models.resnet18(), {"input": image}, inference=True)
    params = ml.formats.load_state_dict(pm, module.state_dict())
    got = pm.evaluate(params, {"input": image})["output"]
    with torch.no_grad():
        want = module(torch.from_numpy(image).double()).numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_running_statistics_are_learned_in_training():
    module = draw(ResNet((1, 1, 1, 1), False, 3, 2)).train()
    image = np.random.default_rng(3).standard_normal((4, 3, 32, 32))
    model = ml.models.resnet.resnet((1, 1, 1, 1), 3, width=2)
    pm = compiled(model, {"input": image}, dtype="float64", mode="train")
    state = {n: v.numpy().copy() for n, v in module.state_dict().items() if n in pm.state_keys}
    params = ml.formats.load_state_dict(pm, module.state_dict())
    outputs, after = pm.evaluate(params, {"input": image}, state=state)
    want = module(torch.from_numpy(image)).detach().numpy()
    np.testing.assert_allclose(outputs["output"], want, rtol=1e-9)
    assert len(after) == 2 * (1 + 4 * 2 + 3)
    for name, value in after.items():
        want = module.state_dict()[name].numpy()
        np.testing.assert_allclose(value, want, rtol=1e-9, err_msg=name)


def test_both_names_of_the_number_of_classes():
    for model in (ml.models.resnet18(7), ml.models.resnet18(n_classes=7)):
        assert model.shapes["output"][-1] == 7
    with pytest.raises(ml.errors.OptionError, match="num_classes and n_classes .* 5 and 7"):
        ml.models.resnet18(5, n_classes=7)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "10", None, True, 2**31])
def test_a_number_of_classes_is_a_size(wrong):
    with pytest.raises(ml.errors.ArgumentError, match="num_classes"):
        ml.models.resnet34(wrong)


@pytest.mark.parametrize("wrong", [(1, 1, 1), (1, 1, 1, 0), 3, None, "four"])
def test_layers_are_four_numbers(wrong):
    with pytest.raises((ml.errors.ArgumentError, ml.errors.SignatureError), match="layers"):
        ml.models.resnet.resnet(wrong)


def test_an_image_has_three_channels():
    with pytest.raises(ml.ShapeError):
        ml.compile(ml.models.resnet18(), ml.CpuBackend(), shapes={"input": [1, 4, 64, 64]})
