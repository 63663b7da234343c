"""A number as the target of a loss stands for a tensor of the shape that the loss asks for; values
and gradients beside PyTorch in float64."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ShapeError

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(3).normal(size=(5, 3))
POSITIVE = np.abs(X) + 0.25


def ones(x):
    return torch.ones_like(x)


def classes(x, number):
    return torch.full((len(x),), number)


CASES = {
    "squared": (ml.SquaredError, {}, 0.5, X, lambda x: (x - 0.5) ** 2),
    "absolute": (ml.AbsoluteError, {}, 0, X, lambda x: x.abs()),
    "hinge": (ml.HingeLoss, {}, -1, X, lambda x: (1 + x).clamp(min=0)),
    "squared hinge": (ml.QuadHingeLoss, {}, 1, X, lambda x: (1 - x).clamp(min=0) ** 2),
    "quantile": (
        *(ml.QuantileLoss, {"quantile": 0.25}, 0.5, X),
        lambda x: torch.maximum((0.5 - x) * 0.25, (x - 0.5) * 0.75),
    ),
    "Huber": (ml.HuberLoss, {}, 1.0, X, lambda x: F.huber_loss(x, ones(x), reduction="none")),
    "smooth": (
        *(ml.SmoothL1Loss, {}, 1.0, X),
        lambda x: F.smooth_l1_loss(x, ones(x), reduction="none"),
    ),
    "divergence": (ml.KLDivergence, {}, 1.0, POSITIVE, lambda x: -x.log()),
    "yes or no": (
        *(ml.BinaryCrossEntropy, {}, 1.0, X),
        lambda x: F.binary_cross_entropy_with_logits(x, ones(x), reduction="none"),
    ),
    "focal": (
        *(ml.FocalLoss, {"alpha": None, "gamma": 0.0}, 1, X),
        lambda x: F.binary_cross_entropy_with_logits(x, ones(x), reduction="none"),
    ),
    "counts": (
        *(ml.PoissonNLLLoss, {}, 3, X),
        lambda x: F.poisson_nll_loss(x, 3 * ones(x), reduction="none"),
    ),
    "classes": (
        *(ml.CrossEntropy, {}, 2, X),
        lambda x: F.cross_entropy(x, classes(x, 2), reduction="none"),
    ),
    "classes, weighted": (
        *(ml.CrossEntropy, {"weights": [0.5, 1.0, 2.0], "label_smoothing": 0.1}, 1, X),
        lambda x: F.cross_entropy(
            x,
            classes(x, 1),
            torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64),
            reduction="none",
            label_smoothing=0.1,
        ),
    ),
    "shares": (
        *(ml.CrossEntropy, {"categorical": False}, 0.25, X),
        lambda x: F.cross_entropy(x, ones(x) / 4, reduction="none"),
    ),
    "likelihood": (
        *(ml.NLLLoss, {}, 1, X),
        lambda x: F.nll_loss(x, classes(x, 1), reduction="none"),
    ),
}


def compiled(loss, number, backend, **options):
    model = ml.Model.create(y=loss(ml.IOKey("x", shape=[5, 3]), target=number))
    return ml.compile(model, backend, data_keys={"x"}, **options)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("what", CASES)
def test_values_and_gradients(what, reduction, backend_name):
    make, options, number, x, formula = CASES[what]
    dtype = "float32" if backend_name == "mlx" else "float64"
    backend = ml.get_backend(backend_name, dtype=dtype)
    pm = compiled(make(reduction=reduction, **options), number, backend)
    given = torch.tensor(x, requires_grad=True)
    want = formula(given)
    if reduction == "mean" and "weights" in options:
        want = want.sum() / 5.0  # all samples have the weight 1
    elif reduction == "mean":
        want = want.mean()
    want.sum().backward()
    cotangent = {"y": backend.ones(tuple(want.shape))}
    found = pm.evaluate({}, {"x": backend.array(x)}, output_gradients=cotangent, wrt=["x"])
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-9}
    y = np.asarray(backend.to_numpy(found.outputs["y"]))
    np.testing.assert_allclose(y, want.detach().numpy(), **tolerance)
    slopes = np.asarray(backend.to_numpy(found.gradients["x"]))
    np.testing.assert_allclose(slopes, given.grad.numpy(), **tolerance)


def test_gaussian_and_angles(backend_name):
    backend = ml.get_backend(backend_name)
    x, y = ml.IOKey("x", shape=[5, 3]), ml.IOKey("y", shape=[5, 3])
    model = ml.Model.create(
        gauss=ml.GaussianNLLLoss()(x, target=1, var=2.0),
        angle=ml.CosineEmbeddingLoss()(x, y, target=-1),
    )
    pm = ml.compile(model, backend, data_keys={"x", "y"})
    data = {"x": X.astype("f4"), "y": POSITIVE.astype("f4")}
    found = pm.evaluate({}, {key: backend.array(value) for key, value in data.items()})
    a, b = torch.tensor(X), torch.tensor(POSITIVE)
    want = {
        "gauss": F.gaussian_nll_loss(a, ones(a), 2 * ones(a), reduction="none"),
        "angle": F.cosine_embedding_loss(a, b, -torch.ones(5), reduction="none"),
    }
    for key, value in want.items():
        got = np.asarray(backend.to_numpy(found[key]))
        np.testing.assert_allclose(got, value.numpy(), rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("loss", [ml.SquaredError, ml.BinaryCrossEntropy, ml.HuberLoss])
def test_tensors_of_rank_0_are_no_numbers(loss):
    """A target that is data has the shape of the input, as before."""
    with pytest.raises(ShapeError):
        key = ml.IOKey("t", shape=[])
        model = ml.Model.create(y=loss()(ml.IOKey("x", shape=[5, 3]), target=key))
        ml.compile(model, ml.NumpyBackend(), data_keys={"x", "t"})


def test_it_is_saved_and_loaded():
    model = ml.Model.create(y=ml.BinaryCrossEntropy()(ml.IOKey("x", shape=[4]), target=1.0))
    again = ml.Model.from_json(model.to_json())
    assert again.to_json() == model.to_json()
    pm = ml.compile(again, ml.NumpyBackend(), data_keys={"x"})
    assert pm.evaluate({}, {"x": np.zeros(4, "f4")})["y"].shape == (4,)
