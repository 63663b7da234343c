"""Three mistakes that everybody makes once, what their errors say, and the repair.

`python -m examples.read_an_error` prints:

    1. Sizes that do not fit: both sides, and what they follow from
    'sum' (Add) cannot take 'x'
      read_an_error.py:36   model |= ml.Add(name="sum")(left="x", right="h", output="y")
        x   : [n, 8]     <- set_shapes, read_an_error.py:35
        h   : [n, 16]    <- Linear 'inner', read_an_error.py:34
          x : [n, 8]     <- set_shapes, read_an_error.py:35
        add: shapes must broadcast, got left: [n, 8] and right: [n, 16]
    mended: ['n', 8]

    2. A key that the layer does not have
    Linear has no key 'weigth', did you mean 'weight'?
      at read_an_error.py:41
    mended: ['w', 'x', '$1']

    3. A wire that nobody writes: an input like any other, until its data are missing
    evaluate: data must have 'feautres'
    help: the input 'feautres' is almost the wire 'features'
    mended: ['y']
"""

import warnings

import mithril as ml
import numpy as np


def residual(width: int) -> ml.Model:
    """A sum that wants as many features inside as there are in the input."""
    model = ml.Model()
    model |= ml.Linear(width, name="inner")(input="x", weight="w", output="h")
    model.set_shapes(x=["n", 8])
    model |= ml.Add(name="sum")(left="x", right="h", output="y")
    return model


def one_layer(**keys: str) -> ml.Model:
    return ml.Model().extend(ml.Linear(4), input="x", output="y", **keys)


def two_layers(read: str) -> ml.PhysicalModel:
    model = ml.Model()
    model |= ml.Linear(4)(input="image", output="features")
    model |= ml.Relu()(input=read, output="y")
    return ml.compile(model, ml.NumpyBackend(), shapes={"image": [2, 3]})


def main() -> None:
    print("1. Sizes that do not fit: both sides, and what they follow from")
    try:
        residual(width=16)
    except ml.ShapeError as error:
        print(error)
    print("mended:", residual(width=8).shapes["y"])

    print("\n2. A key that the layer does not have")
    try:
        one_layer(weigth="w")
    except KeyError as error:  # KeyNotFound is a KeyError
        print(error)
    print("mended:", one_layer(weight="w").input_keys)

    print("\n3. A wire that nobody writes: an input like any other, until its data are missing")
    warnings.simplefilter("ignore", ml.errors.NearMissWarning)  # compile tells it, too
    pm = two_layers(read="feautres")
    try:
        pm.evaluate(pm.randomize_params(seed=0), {"image": np.ones((2, 3), "float32")})
    except ml.errors.KeyNotFound as error:
        print(error.message)
        print("help:", error.hint.partition(": ")[0])
    print("mended:", two_layers(read="features").output_keys)


if __name__ == "__main__":
    main()
