"""The PyTorch oracle of losses: gradients at kinks as the ops define them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from frameworks.test_torch_oracle import gradients  # noqa: E402
from mithril.testing import oracle_losses, oracle_ops, torch_losses  # noqa: E402

pytestmark = pytest.mark.frameworks


def test_losses_at_equality():
    found = gradients("hinge_loss", {"input": [1.0], "target": [1.0]}, [1.0])
    assert found == {"input": [-0.5], "target": [-0.5]}
    inputs = {"input": [1.0], "target": [1.0], "quantile": [0.75]}
    assert gradients("quantile_loss", inputs, [1.0])["target"] == [0.25]
    inputs = {"input1": [1.0], "input2": [1.0], "target": [1.0]}
    found = gradients("margin_ranking_loss", inputs, [1.0])
    assert found == {"input1": [-0.5], "input2": [0.5], "target": [0.0]}


@pytest.mark.parametrize("weights", [False, "auto", [0.5, 1.0, 2.0]])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropies_of_both_oracles_agree(weights, reduction):
    x = np.random.default_rng(0).dirichlet(np.ones(3), (4, 2)).swapaxes(1, 2)
    t = np.array([[0, 2], [1, 1], [0, 1], [2, 2]])
    options = {"input_type": "probs", "label_smoothing": 0.2, "ignore_index": 1}
    options |= {"reduction": reduction, "smallest": 1e-300}
    given = np.asarray(weights) if isinstance(weights, list) else weights
    found = torch_losses.THRESHOLDED["cross_entropy"](
        torch.tensor(x), torch.tensor(t), weights=given, **options
    )
    wanted = oracle_ops.cross_entropy(x, t, weights=given, **options)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_both_oracles_have_the_same_losses():
    assert torch_losses.DIFFERENTIABLE.keys() == oracle_losses.LOSSES.keys()
