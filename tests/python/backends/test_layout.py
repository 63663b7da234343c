"""Channels last on MLX: which transposes are left, and that nothing else changes."""

import mithril as ml
import numpy as np
import pytest

from benchmarks.models.resnet import resnet18

pytest.importorskip("mlx.core")
pytestmark = pytest.mark.frameworks

WIDTHS = (4, 6, 8, 10)


def compiled(backend, model, mode, **options):
    shapes = {"image": [None, 3, None, None]}
    return ml.compile(model, backend, data_keys={"image"}, shapes=shapes, mode=mode, **options)


def training_model():
    train = ml.TrainModel(resnet18(5, WIDTHS))
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="logits", target="target")
    return train


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_resnet18_has_at_most_two_transposes(mode):
    pm = compiled(ml.MlxBackend(), resnet18(), mode)
    assert pm.source.count("ops.conv2d_channels_last(") == 20
    assert pm.source.count("transpose(") + pm.source.count("swapaxes(") <= 2
    # Where nothing of it is left to the pass, every convolution transposes.
    plain = compiled(ml.MlxBackend(), resnet18(), mode, passes=["-layout"])
    assert plain.source.count("ops.conv2d(") == 20


def test_values_and_gradients_are_those_of_pytorch():
    rng = np.random.default_rng(0)
    data = {
        "image": rng.standard_normal((2, 3, 33, 40)).astype(np.float32),
        "target": rng.standard_normal((2, 5)).astype(np.float32),
    }
    results = []
    for backend in (ml.TorchBackend(), ml.MlxBackend()):
        pm = ml.compile(training_model(), backend, data_keys=set(data), mode="train",
                        shapes={"image": [None, 3, None, None]})  # fmt: skip
        params = {k: backend.array(np.asarray(v)) for k, v in initial(pm).items()}
        arrays = {k: backend.array(v) for k, v in data.items()}
        found = pm.evaluate(params, arrays, output_gradients=True, state=pm.initial_state())
        parts = {**found.outputs, **found.gradients, **found.state}
        results.append({k: np.asarray(backend.to_numpy(v)) for k, v in parts.items()})
    expected, actual = results
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        scale = np.abs(value).max() + 1e-6
        np.testing.assert_allclose(actual[name] / scale, value / scale, atol=2e-4, err_msg=name)


def initial(pm):
    rng = np.random.default_rng(1)
    shapes = {name: np.asarray(pm.backend.to_numpy(v)) for name, v in pm.get_parameters().items()}
    return {
        name: (rng.standard_normal(v.shape) / np.sqrt(v[0].size or 1)).astype(np.float32)
        if v.ndim > 1
        else v
        for name, v in shapes.items()
    }
