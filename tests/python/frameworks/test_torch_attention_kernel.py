"""When attention on PyTorch is its own kernel, which lacks derivatives of the gradient."""

import mithril as ml
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks
SHAPE = (2, 3, 4)


@pytest.fixture
def kernel_calls(monkeypatch):
    calls = []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def counted(*args, **kwargs):
        calls.append(args)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    return calls


def compiled():
    model = ml.Model()
    model |= ml.ScaledDotProduct()(query="q", key="k", value="v", output="y")
    model.set_differentiability(q=True, k=True, v=True)
    shapes = {name: list(SHAPE) for name in "qkv"}
    return ml.compile(model, ml.TorchBackend(dtype=ml.float64), shapes=shapes, jit=False)


def arrays():
    rng = np.random.default_rng(0)
    return {name: torch.from_numpy(rng.normal(size=SHAPE)) for name in "qkv"}


def attention(q, k, v):
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    return torch.softmax(scores, -1) @ v


def test_values_and_gradients_are_the_kernels(kernel_calls):
    pm, given = compiled(), arrays()
    torch.testing.assert_close(pm.evaluate(given)["y"], attention(**given))
    assert len(kernel_calls) == 1
    ones = {"y": torch.ones(SHAPE, dtype=torch.float64)}
    _, gradients = pm.evaluate(given, output_gradients=ones)
    assert len(kernel_calls) == 2
    leaves = {n: x.clone().requires_grad_() for n, x in given.items()}
    wanted = torch.autograd.grad(attention(**leaves).sum(), list(leaves.values()))
    for name, value in zip(leaves, wanted, strict=True):
        torch.testing.assert_close(gradients[name], value)


def test_gradients_of_gradients_go_step_by_step(kernel_calls):
    function = compiled().as_function()
    given = arrays()

    def penalty(of):
        def value(q):
            out = of({**given, "q": q})
            gradient = torch.autograd.grad((out**2).sum(), q, create_graph=True)[0]
            return (gradient**2).sum()

        q = given["q"].clone().requires_grad_()
        return torch.autograd.grad(value(q), q)[0]

    torch.testing.assert_close(
        penalty(lambda p: function(p)["y"]), penalty(lambda p: attention(**p))
    )
    assert kernel_calls == []


def test_forward_derivatives_go_step_by_step(kernel_calls):
    function = compiled().as_function()
    given = arrays()
    along = {name: torch.ones_like(x) for name, x in given.items()}
    found = torch.func.jvp(lambda p: function(p)["y"], (given,), (along,))[1]
    wanted = torch.func.jvp(lambda p: attention(**p), (given,), (along,))[1]
    torch.testing.assert_close(found, wanted)
    assert kernel_calls == []
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = {name: forward.make_dual(x, along[name]) for name, x in given.items()}
        torch.testing.assert_close(forward.unpack_dual(function(dual)["y"]).tangent, wanted)
    assert kernel_calls == []


def test_data_that_want_gradients_can_be_differentiated_again(kernel_calls):
    pm, given = compiled(), arrays()
    given["v"].requires_grad_()
    ones = {"y": torch.ones(SHAPE, dtype=torch.float64)}
    pm.evaluate(given, output_gradients=ones)
    assert kernel_calls == []
