"""Residual networks of convolutions: `resnet18` to `resnet152`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mithril import models
from mithril.base.checks import checked_flag, checked_list, checked_size
from mithril.base.public import public
from mithril.errors import ArgumentError, OptionError
from mithril.logical.model import Model
from mithril.models._blocks import chain, finish


@public
def resnet(
    layers: Iterable[int],
    num_classes: int = 1000,
    bottleneck: bool = False,
    width: int = 64,
    *,
    name: str | None = None,
) -> Model:
    """A residual network of any depth (He et al., arXiv:1512.03385).

    Blocks of a bottleneck have their stride in the 3x3 convolution, as torchvision's have.

    Parameters
    ----------
    layers : the number of blocks of each of the four stages
    num_classes : size of the last axis of the output
    bottleneck : blocks of 1x1, 3x3, 1x1 convolutions, four times as wide at their end; else two of
        3x3
    width : channels of the first stage; each further one has twice as many

    Keys
    ----
    input : float [n, 3, h, w]
    output : float [n, num_classes], logits

    With ``naming="path"``, parameters and running statistics have torchvision's names
    (``layer1.0.conv1.weight``); `ml.formats.load_state_dict` reads its state dicts.

    Raises
    ------
    ArgumentError : a number that is none of a size, or other than four stages.

    >>> from mithril.models.resnet import resnet
    >>> model = resnet((1, 1, 1, 1), num_classes=10, width=8)
    >>> model.set_shapes(input=["n", 3, 32, 32])
    >>> model.shapes["output"]
    ['n', 10]
    """
    counts = [
        checked_size("resnet: layers", n)
        for n in checked_list("resnet: layers", layers, "four numbers")
    ]
    if len(counts) != 4:
        raise ArgumentError(f"resnet: layers requires four numbers, got {len(counts)}")
    checked_size("resnet: width", width)
    checked_size("resnet: num_classes", num_classes)
    return _network(
        counts, num_classes, checked_flag("resnet: bottleneck", bottleneck), width, name
    )


def _network(
    counts: Sequence[int], num_classes: int, bottleneck: bool, width: int, name: str | None
) -> Model:
    widening = 4 if bottleneck else 1
    model = Model(name=name)
    model |= _convolution(width, 7, 2, "conv1")(input="input")
    model += models.BatchNorm2D(mode=None, name="bn1")
    model += models.Relu(name="relu")
    model += models.MaxPool2D(kernel_size=3, stride=2, padding=1, name="maxpool")
    before = width
    for i, count in enumerate(counts):
        filters, stride = width * 2**i, 1 if i == 0 else 2
        model += _stage(before, filters, widening, count, stride, f"layer{i + 1}")
        before = filters * widening
    model += models.Mean(axis=(2, 3), name="avgpool")
    model += models.Linear(num_classes, name="fc")(output="output")
    model.set_shapes(input=[None, 3, None, None])
    return finish(model, "output")


def _convolution(filters: int, size: int, stride: int, name: str) -> models.Convolution2D:
    return models.Convolution2D(
        kernel_size=size,
        out_channels=filters,
        stride=stride,
        padding=size // 2,
        use_bias=False,
        name=name,
    )


def _stage(before: int, filters: int, widening: int, count: int, stride: int, name: str) -> Model:
    blocks = [_block(before, filters, widening, stride, "0")]
    wide = filters * widening
    blocks += [_block(wide, filters, widening, 1, str(i)) for i in range(1, count)]
    return chain(blocks, name)


def _block(before: int, filters: int, widening: int, stride: int, name: str) -> Model:
    """Convolutions beside a way around them, which is one of 1x1 where the shape changes."""
    model = Model(name=name)
    wire = "input"
    convolutions = _convolutions(filters, widening, stride)
    for i, (count, size, step) in enumerate(convolutions, 1):
        model |= _convolution(count, size, step, f"conv{i}")(input=wire, output=f"conv{i}_out")
        wire = f"bn{i}_out"
        model |= models.BatchNorm2D(mode=None, name=f"bn{i}")(input=f"conv{i}_out", output=wire)
        if i < len(convolutions):
            model |= models.Relu()(input=wire, output=f"relu{i}_out")
            wire = f"relu{i}_out"
    around = "input"
    if stride != 1 or before != filters * widening:
        around = "identity"
        model |= _downsample(filters * widening, stride)(input="input", output=around)
    model |= models.Add()(left=wire, right=around, output="sum")
    model |= models.Relu()(input="sum", output="output")
    return finish(model, "output")


def _convolutions(filters: int, widening: int, stride: int) -> list[tuple[int, int, int]]:
    """Filters, window and stride of a block's convolutions."""
    if widening == 1:
        return [(filters, 3, stride), (filters, 3, 1)]
    return [(filters, 1, 1), (filters, 3, stride), (filters * widening, 1, 1)]


def _downsample(filters: int, stride: int) -> Model:
    convolution = _convolution(filters, 1, stride, "0")
    return chain([convolution, models.BatchNorm2D(mode=None, name="1")], "downsample")


def _of_depth(
    what: str,
    counts: Sequence[int],
    bottleneck: bool,
    num_classes: Any,
    n_classes: Any,
    name: str | None,
) -> Model:
    if n_classes is not None:
        checked_size(f"{what}: n_classes", n_classes)
        if num_classes not in (1000, n_classes):
            raise OptionError(
                f"{what}: num_classes and n_classes are the same, got {num_classes} and {n_classes}"
            )
        num_classes = n_classes
    checked_size(f"{what}: num_classes", num_classes)
    return _network(counts, num_classes, bottleneck, 64, name)


@public
def resnet18(
    num_classes: int = 1000, *, n_classes: int | None = None, name: str | None = None
) -> Model:
    """ResNet-18 with torchvision's names of parameters, 11.7 million of them: `resnet` with
    layers=(2, 2, 2, 2).

    Parameters
    ----------
    num_classes : size of the last axis of the output; n_classes means the same

    Keys
    ----
    input : float [n, 3, h, w]
    output : float [n, num_classes], logits

    Raises
    ------
    ArgumentError, OptionError : num_classes is no size, or differs from n_classes.

    >>> import mithril as ml
    >>> model = ml.models.resnet18(num_classes=10)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 10]
    """
    return _of_depth("resnet18", (2, 2, 2, 2), False, num_classes, n_classes, name)


@public
def resnet34(
    num_classes: int = 1000, *, n_classes: int | None = None, name: str | None = None
) -> Model:
    """ResNet-34 with torchvision's names of parameters, 21.8 million of them: `resnet` with
    layers=(3, 4, 6, 3).

    Parameters
    ----------
    num_classes : size of the last axis of the output; n_classes means the same

    Keys
    ----
    input : float [n, 3, h, w]
    output : float [n, num_classes], logits

    Raises
    ------
    ArgumentError, OptionError : num_classes is no size, or differs from n_classes.

    >>> import mithril as ml
    >>> model = ml.models.resnet34(num_classes=10)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 10]
    """
    return _of_depth("resnet34", (3, 4, 6, 3), False, num_classes, n_classes, name)


@public
def resnet50(
    num_classes: int = 1000, *, n_classes: int | None = None, name: str | None = None
) -> Model:
    """ResNet-50 with torchvision's names of parameters, 25.6 million of them: `resnet` with
    layers=(3, 4, 6, 3) and bottlenecks.

    Parameters
    ----------
    num_classes : size of the last axis of the output; n_classes means the same

    Keys
    ----
    input : float [n, 3, h, w]
    output : float [n, num_classes], logits

    Raises
    ------
    ArgumentError, OptionError : num_classes is no size, or differs from n_classes.

    >>> import mithril as ml
    >>> model = ml.models.resnet50(num_classes=10)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 10]
    """
    return _of_depth("resnet50", (3, 4, 6, 3), True, num_classes, n_classes, name)


@public
def resnet101(
    num_classes: int = 1000, *, n_classes: int | None = None, name: str | None = None
) -> Model:
    """ResNet-101 with torchvision's names of parameters, 44.5 million of them: `resnet` with
    layers=(3, 4, 23, 3) and bottlenecks.

    Parameters
    ----------
    num_classes : size of the last axis of the output; n_classes means the same

    Keys
    ----
    input : float [n, 3, h, w]
    output : float [n, num_classes], logits

    Raises
    ------
    ArgumentError, OptionError : num_classes is no size, or differs from n_classes.

    >>> import mithril as ml
    >>> model = ml.models.resnet101(num_classes=10)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 10]
    """
    return _of_depth("resnet101", (3, 4, 23, 3), True, num_classes, n_classes, name)


@public
def resnet152(
    num_classes: int = 1000, *, n_classes: int | None = None, name: str | None = None
) -> Model:
    """ResNet-152 with torchvision's names of parameters, 60.2 million of them: `resnet` with
    layers=(3, 8, 36, 3) and bottlenecks.

    Parameters
    ----------
    num_classes : size of the last axis of the output; n_classes means the same

    Keys
    ----
    input : float [n, 3, h, w]
    output : float [n, num_classes], logits

    Raises
    ------
    ArgumentError, OptionError : num_classes is no size, or differs from n_classes.

    >>> import mithril as ml
    >>> model = ml.models.resnet152(num_classes=10)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 10]
    """
    return _of_depth("resnet152", (3, 8, 36, 3), True, num_classes, n_classes, name)


__all__ = ["resnet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
