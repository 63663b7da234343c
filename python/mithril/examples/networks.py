"""Three small networks that classify: `mlp`, `small_cnn`, `lstm_classifier`."""

from __future__ import annotations

from collections.abc import Iterable

from mithril import models
from mithril.base.checks import checked_list, checked_size
from mithril.base.public import public
from mithril.errors import ArgumentError
from mithril.logical.model import Model
from mithril.models._blocks import chain, finish


@public
def mlp(sizes: Iterable[int], *, name: str | None = None) -> Model:
    """Linear layers with ReLU between them.

    Parameters
    ----------
    sizes : the width of each layer's output; the last one is the number of classes

    Keys
    ----
    input : float [n, ..., d]
    output : float [n, ..., sizes[-1]], logits

    With ``naming="path"`` parameters have the names of PyTorch's `Sequential` of the same layers
    (``0.weight``, ``2.weight``).

    Raises
    ------
    ArgumentError : no size at all, or one that is none.

    >>> from mithril.examples.networks import mlp
    >>> model = mlp([16, 3])
    >>> model.set_shapes(input=["n", 4])
    >>> model.shapes["output"]
    ['n', 3]
    """
    widths = [
        checked_size("mlp: sizes", size)
        for size in checked_list("mlp: sizes", sizes, "a list of sizes")
    ]
    if not widths:
        raise ArgumentError("mlp: sizes requires at least one, got none")
    parts: list[Model] = []
    for width in widths:
        parts += [models.Linear(width, name=str(len(parts))), models.Relu()]
    return chain(parts[:-1], name)


@public
def small_cnn(num_classes: int, width: int = 16, *, name: str | None = None) -> Model:
    """Two convolutions with pooling behind them, and a linear layer.

    Parameters
    ----------
    num_classes : size of the last axis of the output
    width : channels of the first convolution; the second has twice as many

    Keys
    ----
    input : float [n, c, h, w]
    output : float [n, num_classes], logits

    With ``naming="path"`` parameters have the names ``conv1.weight``, ``conv2.weight``,
    ``fc.weight``.

    Raises
    ------
    ArgumentError : a number that is none of a size.

    >>> from mithril.examples.networks import small_cnn
    >>> model = small_cnn(10)
    >>> model.set_shapes(input=["n", 1, 8, 8])
    >>> model.shapes["output"]
    ['n', 10]
    """
    checked_size("small_cnn: num_classes", num_classes)
    checked_size("small_cnn: width", width)
    parts: list[Model] = []
    for i in (1, 2):
        convolution = models.Convolution2D(
            kernel_size=3, out_channels=width * i, padding=1, name=f"conv{i}"
        )
        parts += [convolution, models.Relu(), models.MaxPool2D(kernel_size=2)]
    parts += [models.Flatten(start_dim=1), models.Linear(num_classes, name="fc")]
    return chain(parts, name)


@public
def lstm_classifier(hidden_size: int, num_classes: int, *, name: str | None = None) -> Model:
    """An LSTM over a sequence, and a linear layer on its last place.

    Parameters
    ----------
    hidden_size : the width of the LSTM's output
    num_classes : size of the last axis of the output

    Keys
    ----
    input : float [n, t, d]
    output : float [n, num_classes], logits

    With ``naming="path"`` parameters have the names of PyTorch's layers
    (``lstm.weight_ih_l0``, ``fc.weight``).

    Raises
    ------
    ArgumentError : a number that is none of a size.

    >>> from mithril.examples.networks import lstm_classifier
    >>> model = lstm_classifier(8, 3)
    >>> model.set_shapes(input=["n", "t", 2])
    >>> model.shapes["output"][-1]
    3
    """
    checked_size("lstm_classifier: hidden_size", hidden_size)
    checked_size("lstm_classifier: num_classes", num_classes)
    model = Model(name=name)
    model |= models.LSTM(hidden_size, name="lstm")(input="input", output="places")
    model |= models.Linear(num_classes, name="fc")(input=model.places[:, -1], output="output")
    return finish(model, "output")


__all__ = ["lstm_classifier", "mlp", "small_cnn"]
