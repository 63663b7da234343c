"""Plans a convolutional network from its last layer back to its image, without any data.

A finished head wants 1,152 features. Which images does a network take that ends in it?
`python -m examples.symbolic_shapes` prints:

    edges   [batch, 16, floor((size+1)/2), floor((size+1)/2)]
    parts   [batch, 32, floor((size+1)/2)-2, floor((size+1)/2)-2]
    small   [batch, 32, floor((size+1)/4)-1, floor((size+1)/4)-1]
    flat    [batch, 1152]
    possible sizes of the image: [27, 28, 29, 30]
    28 x 28: scores (2, 10)
    26 x 26: Flatten cannot take 'small'
"""

import mithril as ml
import numpy as np


def network(head: np.ndarray) -> ml.Model:
    model = ml.Model()
    model |= ml.Convolution2D(3, 16, stride=2, padding=1)(input="image", output="edges")
    model |= ml.Convolution2D(3, 32)(input="edges", output="parts")
    model |= ml.MaxPool2D(2)(input="parts", output="small")
    model |= ml.Flatten(start_dim=1)(input="small", output="flat")
    weight = ml.IOKey("head", value=ml.Tensor(head))
    model |= ml.Linear(10, use_bias=False)(input="flat", weight=weight, output="scores")
    model.set_shapes(image=["batch", 1, "size", "size"])
    return model


def main() -> None:
    model = network(np.ones((10, 1152), "float32"))
    for key in ("edges", "parts", "small", "flat"):
        print(f"{key:<7} [{', '.join(map(str, model.shapes[key]))}]")
    sizes = model.solve("image", at_most=64)["size"]
    print("possible sizes of the image:", sizes)

    for size in (28, 26):
        shapes = {"image": [None, 1, size, size]}
        try:
            pm = ml.compile(model, ml.CpuBackend(), data_keys={"image"}, shapes=shapes)
            images = np.zeros((2, 1, size, size), "float32")
            outputs = pm.evaluate(pm.randomize_params(seed=0), {"image": images})
            print(f"{size} x {size}: scores {outputs['scores'].shape}")
        except ml.ShapeError as error:
            print(f"{size} x {size}:", error.message.splitlines()[0])


if __name__ == "__main__":
    main()
