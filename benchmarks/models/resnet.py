"""ResNets (He et al., arXiv:1512.03385), composed of ops, as torchvision lays them out."""

import functools

import mithril as ml

WIDTHS, CLASSES = (64, 128, 256, 512), 1000
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}  # of each stage, by depth
WIDENING = {18: 1, 50: 4}  # what a block's output is wider by than the convolutions before it


def convolution(filters: int, size: int, stride: int, name: str) -> ml.Conv2d:
    return ml.Conv2d(
        filters=filters,
        kernel_size=size,
        stride=stride,
        padding=size // 2,
        use_bias=False,
        name=name,
    )


def convolutions(filters: int, stride: int, widening: int) -> tuple[tuple[int, int, int], ...]:
    """Filters, window and stride of a block's convolutions: two of 3x3, or one between two of
    1x1, of which the last one widens."""
    if widening == 1:
        return (filters, 3, stride), (filters, 3, 1)
    return (filters, 1, 1), (filters, 3, stride), (filters * widening, 1, 1)


def block(filters: int, stride: int, projects: bool, name: str, widening: int = 1) -> ml.Model:
    """Convolutions and a way around them, which is one of 1x1 where the shape changes."""
    model = ml.Model(name=name)
    wire = "input"
    for i, (count, size, step) in enumerate(convolutions(filters, stride, widening), 1):
        if i > 1:
            model |= ml.Relu()(input=wire, output=f"relu{i - 1}_out")
            wire = f"relu{i - 1}_out"
        model |= convolution(count, size, step, f"conv{i}")(input=wire, output=f"conv{i}_out")
        wire = f"bn{i}_out"
        model |= ml.BatchNorm2D(mode=None, name=f"bn{i}")(input=f"conv{i}_out", output=wire)
    around = "input"
    if projects:
        wide = filters * widening
        model |= convolution(wide, 1, stride, "down")(input="input", output="down_out")
        model |= ml.BatchNorm2D(mode=None, name="down_bn")(input="down_out", output="around")
        around = "around"
    model |= ml.Add()(left=wire, right=around, output="sum")
    model |= ml.Relu()(input="sum", output="output")
    model.expose_keys("output")
    return model


def resnet(depth: int, classes: int = CLASSES, widths: tuple[int, ...] = WIDTHS) -> ml.Model:
    """Images [n, 3, h, w] to logits [n, classes]."""
    model = ml.Model(name=f"resnet{depth}")
    model |= convolution(widths[0], 7, 2, "conv1")(input="image", output="conv1_out")
    model += ml.BatchNorm2D(mode=None, name="bn1")
    model += ml.Relu()
    model += ml.MaxPool2d(kernel_size=3, stride=2, padding=1)
    before, widening = widths[0], WIDENING[depth]
    for stage, (filters, blocks) in enumerate(zip(widths, BLOCKS[depth], strict=True)):
        for i in range(blocks):
            stride = 2 if stage > 0 and i == 0 else 1
            projects = stride != 1 or filters * widening != before
            model += block(filters, stride, projects, f"layer{stage + 1}_{i}", widening)
            before = filters * widening
    model += ml.Mean(axis=(2, 3))
    model += ml.Linear(classes, name="fc")(output="logits")
    model.expose_keys("logits")
    return model


resnet18 = functools.partial(resnet, 18)
