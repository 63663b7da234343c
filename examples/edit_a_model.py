"""Takes a trained classifier's body, gives it a new head, and runs it: editing in one page.

`python -m examples.edit_a_model` prints:

    model.probabilities    [4, 3]
    body.embedding         [4, 16]
"""

import mithril as ml
import numpy as np


def classifier(classes: int) -> ml.Model:
    model = ml.Model()
    model |= ml.Linear(16, name="body")(input="x", weight="w", bias="b", output="features")
    model |= ml.Relu(name="act")(input="features", output="active")
    model |= ml.Linear(classes, name="head")(input="active", output="scores")
    return model


def main() -> dict[str, list[int]]:
    model = classifier(classes=10)
    model.set_shapes(x=[4, 8])

    # Another head, in the place of the old one; another activation on the way.
    model.replace("head", ml.Linear(3))
    model.replace("act", ml.Gelu())
    model |= ml.Softmax()(input="scores", output="probabilities")
    model.expose_keys("probabilities")

    # The body alone, as a model of its own.
    body = model.extract(inputs=["x"], outputs={"embedding": "active"})

    backend = ml.NumpyBackend()
    data = {"x": np.random.default_rng(0).normal(size=(4, 8)).astype("float32")}
    shapes: dict[str, list[int]] = {}
    for name, part in (("model", model), ("body", body)):
        compiled = ml.compile(part, backend, shapes={"x": [4, 8]}, data_keys={"x"})
        outputs = compiled.evaluate(compiled.get_parameters(), data)
        shapes |= {f"{name}.{key}": list(value.shape) for key, value in outputs.items()}
    for key, shape in shapes.items():
        print(f"{key:<22} {shape}")
    return shapes


if __name__ == "__main__":
    main()
