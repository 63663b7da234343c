"""Fully connected networks: `Layer` and `MLP`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from mithril import models
from mithril.base.checks import checked_list, checked_mapping, checked_size, checked_str
from mithril.base.public import public
from mithril.errors import ArgumentError, OptionError, SignatureError, suggestion
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo, Model
from mithril.logical.typing import Initial, Output, Wire, as_connected
from mithril.models._composite import Composite, require_model
from mithril.types import NOT_GIVEN, TBD


class Layer(Composite):
    """A fully connected layer with its activation: activation(x Wᵀ + b).

    Parameters
    ----------
    activation : a model with one canonical input and the output `output`, such as `Relu()`
    dimension : size of the last axis of the output; None: open
    input, weight, bias : values or `IOKey`s for these keys

    Keys
    ----
    weight : float [dimension, d_in], trainable
    input : float or int [N, ..., d_in]
    bias : float [dimension], trainable
    output : as the activation makes it of [N, ..., dimension]

    Raises
    ------
    SignatureError : the activation is no model.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Layer(ml.Relu(), 4)(input="x", output="y")
    >>> model.set_shapes(x=["N", 3])
    >>> model.shapes["y"]
    ['N', 4]
    """

    _connect_order = ("input", "weight", "bias", "output")

    @public
    def __init__(
        self,
        activation: Model,
        dimension: int | None = None,
        input: Any = TBD,
        weight: Any = TBD,
        bias: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        require_model("Layer: activation", activation, "Relu()")
        if isinstance(dimension, Integral):
            checked_size("Layer: dimension", int(dimension), 0)
        arguments = {"activation": activation, "dimension": dimension, "init": init}
        with self._compose(name, arguments, input=input, weight=weight, bias=bias) as keys:
            self |= models.Linear(dimension).connect(**keys)
            self += activation.connect(output="output")
            self.set_cin("input")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        weight: Wire = NOT_GIVEN,
        bias: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "weight": weight, "bias": bias, "output": output}
        return ExtendInfo(self, keys)

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class MLP(Composite):
    """Fully connected layers one after the other, each followed by its activation.

    Parameters
    ----------
    activations : a model for each layer; one that stands in several places is copied
    dimensions : the size that each layer gives the last axis; as many as activations
    input_name_templates : stems of the names of the parameters, {"weight": …, "bias": …}
    input, **weights_biases : values or `IOKey`s for these keys

    Keys
    ----
    weight0, weight1 … : float [dimensions[i], d_in], trainable
    input : float or int [N, ..., d_in]
    bias0, bias1 … : float [dimensions[i]], trainable
    output : [N, ..., dimensions[-1]]

    Raises
    ------
    OptionError : no layer at all, or other than one activation for each dimension.
    SignatureError : an activation is no model, or a keyword is no parameter of a layer.

    >>> import mithril as ml
    >>> mlp = ml.MLP([ml.Relu(), ml.Softmax()], [8, 3])
    >>> mlp.input_keys
    ['weight0', 'input', 'bias0', 'weight1', 'bias1']
    """

    _connect_order = ("input", "output")

    @public
    def __init__(
        self,
        activations: Iterable[Model],
        dimensions: Iterable[int | None],
        input_name_templates: Mapping[str, str] | None = None,
        input: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
        **weights_biases: Any,
    ):
        activations = checked_list("MLP: activations", activations, "a list of models")
        dimensions = checked_list("MLP: dimensions", dimensions, "a list of sizes")
        stems = _stems(input_name_templates)
        parameters = _check_layers(activations, dimensions, stems, weights_biases)
        arguments = {
            "activations": activations,
            "dimensions": dimensions,
            "input_name_templates": input_name_templates,
            "init": init,
        }
        keys = {"input": input, **dict.fromkeys(parameters, TBD), **weights_biases}
        with self._compose(name, arguments, **keys) as keys:
            for i, (activation, dimension) in enumerate(zip(activations, dimensions, strict=True)):
                wires = {
                    "weight": keys[f"{stems['weight']}{i}"],
                    "bias": keys[f"{stems['bias']}{i}"],
                }
                if i == 0:
                    wires["input"] = keys["input"]
                if i == len(dimensions) - 1:
                    wires["output"] = Connection("output")
                self += Layer(activation, dimension).connect(**wires)
            self.set_cin("input")

    @public
    def connect(
        self, input: Wire = NOT_GIVEN, output: Output = NOT_GIVEN, **weights_biases: Any
    ) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, "output": output, **weights_biases})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _stems(templates: Any) -> dict[str, str]:
    """Returns the names of layers' parameters without their numbers, by "weight" and "bias"."""
    stems = {"weight": "weight", "bias": "bias"}
    given = checked_mapping("MLP: input_name_templates", templates)
    unknown = [key for key in given if key not in stems]
    if unknown:
        raise ArgumentError(
            f"MLP: input_name_templates has the keys 'weight' and 'bias', got {unknown[0]!r}"
        )
    stems |= {k: checked_str("MLP: input_name_templates", stem) for k, stem in given.items()}
    if stems["weight"] == stems["bias"]:
        raise ArgumentError(
            f"MLP: input_name_templates must differ, got {stems['weight']!r} for both"
        )
    return stems


def _check_layers(
    activations: list, dimensions: list, stems: dict[str, str], given: dict[str, Any]
) -> list[str]:
    """Returns the names of the parameters, if all that the constructor was given fits together."""
    if len(activations) != len(dimensions):
        raise OptionError(
            f"MLP: requires one activation for each dimension, got {len(activations)} activations"
            f" and {len(dimensions)} dimensions",
            hint="a layer without an activation has Buffer()",
        )
    if not activations:
        raise OptionError("MLP: requires at least one layer, got none")
    for i, activation in enumerate(activations):
        require_model(f"MLP: activations[{i}]", activation, "Relu()")
    parameters = [f"{stem}{i}" for i in range(len(dimensions)) for stem in stems.values()]
    unknown = [key for key in given if key not in parameters]
    if unknown:
        raise SignatureError(
            f"MLP: has no argument {unknown[0]!r}{suggestion(unknown[0], parameters)}"
        )
    return parameters


__all__ = ["MLP", "Layer"]
