"""ResNet-18 (He et al., arXiv:1512.03385), composed of ops, as torchvision lays it out."""

import mithril as ml

WIDTHS, BLOCKS, CLASSES = (64, 128, 256, 512), 2, 1000


def convolution(filters: int, size: int, stride: int, name: str) -> ml.Conv2d:
    return ml.Conv2d(
        filters=filters,
        kernel_size=size,
        stride=stride,
        padding=size // 2,
        use_bias=False,
        name=name,
    )


def block(filters: int, stride: int, projects: bool, name: str) -> ml.Model:
    """Two convolutions and a way around them, which is one of 1x1 where the shape changes."""
    model = ml.Model(name=name)
    model |= convolution(filters, 3, stride, "conv1")(input="input", output="conv1_out")
    model += ml.BatchNorm2D(mode=None, name="bn1")
    model += ml.Relu()
    model += convolution(filters, 3, 1, "conv2")
    model += ml.BatchNorm2D(mode=None, name="bn2")(output="residual")
    around = "input"
    if projects:
        model |= convolution(filters, 1, stride, "down")(input="input", output="down_out")
        model |= ml.BatchNorm2D(mode=None, name="down_bn")(input="down_out", output="around")
        around = "around"
    model |= ml.Add()(left="residual", right=around, output="sum")
    model |= ml.Relu()(input="sum", output="output")
    model.expose_keys("output")
    return model


def resnet18(classes: int = CLASSES, widths: tuple[int, ...] = WIDTHS) -> ml.Model:
    """Images [n, 3, h, w] to logits [n, classes]."""
    model = ml.Model(name="resnet18")
    model |= convolution(widths[0], 7, 2, "conv1")(input="image", output="conv1_out")
    model += ml.BatchNorm2D(mode=None, name="bn1")
    model += ml.Relu()
    model += ml.MaxPool2d(kernel_size=3, stride=2, padding=1)
    before = widths[0]
    for stage, filters in enumerate(widths):
        for i in range(BLOCKS):
            stride = 2 if stage > 0 and i == 0 else 1
            projects = stride != 1 or filters != before
            model += block(filters, stride, projects, f"layer{stage + 1}_{i}")
            before = filters
    model += ml.Mean(axis=(2, 3))
    model += ml.Linear(classes, name="fc")(output="logits")
    model.expose_keys("logits")
    return model
