# Covers: mithril/eager/array_methods.py mithril/eager/op_programs.py
"""Ops as methods of backends, where they are compiled as models of one op."""

import numpy as np
import pytest
from conftest import FRAMEWORKS, backend_param
from mithril.backends import get_backend
from mithril.eager.methods import MOST_PROGRAMS


@pytest.fixture
def backend(backend_name):
    return get_backend(backend_name)


def same(backend, actual, expected):
    assert isinstance(actual, backend.get_backend_array_type())
    np.testing.assert_allclose(backend.to_numpy(actual), expected, rtol=1e-6)


def test_ops_without_a_function_of_their_own(backend):
    x = backend.array([[-1.0, 2.0]])
    same(backend, backend.square(x), [[1.0, 4.0]])
    same(backend, backend.leaky_relu(x, 0.5), [[-0.5, 2.0]])
    same(backend, backend.leaky_relu(x, slope=backend.array(0.25)), [[-0.25, 2.0]])
    same(backend, backend.clip(x, -0.5, 0.5), [[-0.5, 0.5]])
    same(backend, backend.variance(x), 2.25)
    same(backend, backend.squared_error(x, backend.zeros(1, 2)), [[1.0, 4.0]])
    same(backend, backend.square([3.0]), [9.0])
    same(backend, backend.square(3.0), 9.0)


def test_layers_take_what_layers_take(backend):
    x, w = backend.ones(2, 3, 4, 4), backend.ones(5, 3, 3, 3)
    same(backend, backend.conv2d(x, w), np.full((2, 5, 2, 2), 27.0))
    assert backend.shape(backend.conv2d(x, filters=w, strides=2)) == (2, 5, 1, 1)
    assert backend.shape(backend.conv2d(x, w, padding="same")) == (2, 5, 4, 4)
    same(backend, backend.conv2d(x, w, bias=backend.ones(1, 5, 1, 1)), np.full((2, 5, 2, 2), 28.0))
    same(backend, backend.max_pool2d(x, 2), np.ones((2, 3, 2, 2)))
    same(backend, backend.avg_pool2d(x, kernel_size=(2, 4)), np.ones((2, 3, 2, 1)))
    normalized = backend.batch_norm(x, backend.ones(3), backend.ones(3))
    same(backend, normalized, np.zeros((2, 3, 4, 4)))


def test_too_many_operands(backend):
    with pytest.raises(TypeError, match="square takes 1 operands"):
        backend.square(backend.ones(1), 2, 3)


def test_programs_are_kept_and_bounded(backend):
    for _ in range(3):
        backend.square(backend.ones(2))
    assert len(backend._twin()._op_programs) == 1
    if backend.backend_type == "numpy":
        for size in range(MOST_PROGRAMS + 5):
            backend.square(backend.ones(size))
        assert len(backend._op_programs) == MOST_PROGRAMS


@pytest.mark.parametrize("name", [backend_param(n) for n in FRAMEWORKS])
def test_methods_are_differentiable(name):
    backend = get_backend(name)
    gradient = backend.grad(lambda x: backend.sum(backend.leaky_relu(x, 0.5)))
    same(backend, gradient(backend.array([-1.0, 0.0, 2.0])), [0.5, 0.5, 1.0])
