"""Losses with their weights, smoothing and reductions, against those of torch.nn.functional."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import MithrilError

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.frameworks
BACKENDS = {
    "numpy": "NumpyBackend",
    "cpu": "CpuBackend",
    "c": "CBackend",
    "torch": "TorchBackend",
    "jax": "JaxBackend",
    "mlx": "MlxBackend",
}
RANDOM = np.random.default_rng(0)
SCORES = RANDOM.standard_normal((6, 4))
IMAGE = RANDOM.standard_normal((2, 4, 3))
NUMBERS, PIXELS = np.array([0, 3, 1, 1, 2, 3]), RANDOM.integers(0, 4, (2, 3))
SHARES = RANDOM.dirichlet(np.ones(4), 6)
OTHERS = RANDOM.standard_normal((6, 4))
POSITIVE = RANDOM.uniform(0.2, 3.0, (6, 4))
COUNTS = RANDOM.integers(1, 6, (6, 4)) + 0.5  # PyTorch's gradient in a target of 0 is NaN
SIGNS = np.array([1, -1, 1, 1, -1, -1])
W = [1.0, 2.0, 0.5, 1.5]
TW = torch.tensor(W, dtype=torch.float64)


def divergence(x, t, reduction):
    losses = F.kl_div(torch.log(x), t, reduction="none")
    return losses if reduction == "none" else getattr(losses, reduction)()


# name -> (model, inputs, PyTorch's function of them and a reduction)
CASES = {
    "classes": (ml.CrossEntropy, {}, [SCORES, NUMBERS], F.cross_entropy),
    "weighted, smoothed classes": (
        *(ml.CrossEntropy, {"weights": W, "label_smoothing": 0.2}, [SCORES, NUMBERS]),
        lambda x, t, **r: F.cross_entropy(x, t, TW, label_smoothing=0.2, **r),
    ),
    "smoothed classes, one of them ignored": (
        *(ml.CrossEntropy, {"label_smoothing": 0.1, "ignore_index": 3}, [SCORES, NUMBERS]),
        lambda x, t, **r: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=3, **r),
    ),
    "weighted classes of pixels, one of them ignored": (
        *(ml.CrossEntropy, {"weights": W, "ignore_index": 1}, [IMAGE, PIXELS]),
        lambda x, t, **r: F.cross_entropy(x, t, TW, ignore_index=1, **r),
    ),
    "smoothed shares": (
        ml.CrossEntropy,
        {"categorical": False, "label_smoothing": 0.3, "weights": W},
        [SCORES, SHARES],
        lambda x, t, **r: F.cross_entropy(x, t, TW, label_smoothing=0.3, **r),
    ),
    "negative log likelihood": (
        *(ml.NLLLoss, {"weights": W, "ignore_index": -100}, [IMAGE, PIXELS]),
        lambda x, t, **r: F.nll_loss(x, t, TW, **r),
    ),
    "yes or no": (
        *(ml.BinaryCrossEntropy, {"pos_weight": 2.0}, [SCORES, SHARES]),
        lambda x, t, **r: F.binary_cross_entropy_with_logits(
            x, t, pos_weight=torch.tensor(2.0, dtype=torch.float64), **r
        ),
    ),
    "squared error": (ml.SquaredError, {}, [SCORES, OTHERS], F.mse_loss),
    "absolute error": (ml.AbsoluteError, {}, [SCORES, OTHERS], F.l1_loss),
    "Huber": (
        *(ml.HuberLoss, {"delta": 0.5}, [SCORES, OTHERS]),
        lambda x, t, **r: F.huber_loss(x, t, delta=0.5, **r),
    ),
    "smooth": (ml.SmoothL1Loss, {}, [SCORES, OTHERS], F.smooth_l1_loss),
    "divergence": (
        *(ml.KLDivergence, {}, [POSITIVE, SHARES]),
        divergence,
    ),
    "angles": (
        *(ml.CosineEmbeddingLoss, {"margin": 0.1}, [SCORES, OTHERS, SIGNS]),
        lambda x, y, t, **r: F.cosine_embedding_loss(x, y, t, 0.1, **r),
    ),
    "triplets": (
        *(ml.TripletMarginLoss, {"margin": 0.5, "swap": True}, [SCORES, OTHERS, POSITIVE]),
        lambda a, p, n, **r: F.triplet_margin_loss(a, p, n, 0.5, swap=True, **r),
    ),
    "triplets in another norm": (
        *(ml.TripletMarginLoss, {"p": 3.0}, [SCORES, OTHERS, POSITIVE]),
        lambda a, p, n, **r: F.triplet_margin_loss(a, p, n, p=3.0, **r),
    ),
    "order": (
        *(ml.MarginRankingLoss, {"margin": 0.25}, [SCORES[:, 0], OTHERS[:, 0], SIGNS]),
        lambda x, y, t, **r: F.margin_ranking_loss(x, y, t, 0.25, **r),
    ),
    "counts": (
        *(ml.PoissonNLLLoss, {"full": True}, [SCORES, COUNTS]),
        lambda x, t, **r: F.poisson_nll_loss(x, t, full=True, **r),
    ),
    "counts of rates": (
        *(ml.PoissonNLLLoss, {"log_input": False}, [POSITIVE, COUNTS]),
        lambda x, t, **r: F.poisson_nll_loss(x, t, log_input=False, **r),
    ),
    "normal": (
        *(ml.GaussianNLLLoss, {"full": True}, [SCORES, OTHERS, POSITIVE]),
        lambda x, t, v, **r: F.gaussian_nll_loss(x, t, v, full=True, **r),
    ),
}
KEYS = {
    "CosineEmbeddingLoss": ["input1", "input2", "target"],
    "MarginRankingLoss": ["input1", "input2", "target"],
    "TripletMarginLoss": ["anchor", "positive", "negative"],
    "GaussianNLLLoss": ["input", "target", "var"],
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", CASES)
def test_losses(name, reduction, backend_name):
    loss, arguments, arrays, function = CASES[name]
    keys = KEYS.get(loss.__name__, ["input", "target"])
    given = dict(zip(keys, arrays, strict=True))
    floats = [key for key, value in given.items() if value.dtype.kind == "f"]
    model = ml.Model()
    model |= loss(**arguments, reduction=reduction)(**{k: k for k in keys}, output="output")
    pm = ml.compile(
        model,
        getattr(ml, BACKENDS[backend_name])(dtype="float64"),
        shapes={key: list(value.shape) for key, value in given.items()},
        data_keys=set(keys),
        jit=False,
    )
    leaves = [torch.tensor(given[k], requires_grad=k in floats) for k in keys]
    wanted = function(*leaves, reduction=reduction)
    weight = np.random.default_rng(1).standard_normal(tuple(wanted.shape))
    wanted.backward(torch.as_tensor(weight, dtype=torch.float64))
    data = {key: pm.backend.tensor(value) for key, value in given.items()}
    out = pm.evaluate({}, data, output_gradients={"output": pm.backend.tensor(weight)}, wrt=floats)
    found = pm.backend.to_numpy(out.outputs["output"])
    np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-12, atol=1e-14)
    for key, leaf in zip(keys, leaves, strict=True):
        if key in floats:
            found = pm.backend.to_numpy(out.gradients[key])
            np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-10, atol=1e-13)


def test_all_samples_ignored_have_no_mean():
    model = ml.Model()
    model |= ml.CrossEntropy(ignore_index=1, reduction="mean")("x", "t", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x", "t"}, inference=True)
    assert np.isnan(pm.evaluate({}, {"x": np.ones((2, 3)), "t": np.array([1, 1])})["y"])


def test_a_wrong_number_of_class_weights_is_refused_when_composed():
    model = ml.Model()
    with pytest.raises(MithrilError) as caught:
        model |= ml.CrossEntropy(weights=[1.0, 2.0])(
            input=ml.IOKey("x", shape=[None, 3]), target="t"
        )
    text = str(caught.value)
    assert "CrossEntropy" in text or "cross_entropy" in text
    assert "'weights' must have one number for each class, got 2 for 3" in text
    assert "give 3 weights" in text
    assert "reshape" not in text


@pytest.mark.parametrize("loss", [ml.CrossEntropy, ml.NLLLoss])
def test_a_wrong_number_of_class_weights_is_refused_when_compiled(loss):
    model = ml.Model()
    model |= loss(weights=[1.0, 2.0])(input="x", target="t", output="y")
    shapes = {"x": [5, 3], "t": [5]}
    with pytest.raises(MithrilError, match="one number for each class, got 2 for 3") as caught:
        ml.compile(model, ml.NumpyBackend(), shapes=shapes, data_keys=set(shapes))
    assert "reshape" not in str(caught.value)


def test_integers_have_no_reduced_distance():
    model = ml.Model()
    with pytest.raises(MithrilError, match="SquaredError cannot take"):
        model |= ml.SquaredError(reduction="mean")(
            input=ml.IOKey("x", type=ml.Tensor[int]), target=ml.IOKey("t", type=ml.Tensor[int])
        )
