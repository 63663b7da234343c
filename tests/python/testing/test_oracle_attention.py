"""What the oracle says of attention, by hand."""

import numpy as np
from mithril.testing import oracle_attention as oracle


def test_a_query_sees_up_to_its_place():
    zeros, value = np.zeros((2, 3)), np.array([[1.0], [3.0], [8.0]])
    found = oracle.attention(zeros, np.zeros((3, 3)), value, offset=1, is_causal=True)
    np.testing.assert_allclose(found, [[2.0], [4.0]])


def test_scores_masks_and_groups():
    query, key = np.ones((2, 1, 1)), np.log([[[1.0], [3.0]]])
    value = np.array([[[1.0], [0.0]]])
    options = {"enable_gqa": True, "scale": 1.0}
    found = oracle.attention(query, key, value, **options)
    np.testing.assert_allclose(found, [[[0.25]], [[0.25]]])
    found = oracle.attention(query, key, value, np.array([[True, False]]), **options)
    np.testing.assert_allclose(found, [[[1.0]], [[1.0]]])
    bias = np.log([[[3.0, 1.0]], [[1.0, 1.0]]])
    found = oracle.attention(query, key, value, None, bias, **options)
    np.testing.assert_allclose(found, [[[0.5]], [[0.25]]])


def test_heads_go_apart_and_together():
    x = np.arange(12).reshape(2, 6)
    apart = oracle.split_heads(x, 3)
    assert apart[1].tolist() == [[2, 3], [8, 9]]
    np.testing.assert_array_equal(oracle.merge_heads(apart), x)


def test_a_cache():
    found = oracle.update_cache(np.zeros((4, 1)), np.ones((2, 1)), 1)
    assert found.tolist() == [[0], [1], [1], [0]]
    assert np.isnan(oracle.update_cache(np.zeros((4, 1)), np.ones((2, 1)), 3)).all()


def test_rotations():
    x = np.array([[1.0, 2.0, 0.0, 0.0]] * 2)
    c, s = np.cos([1.0, 0.1]), np.sin([1.0, 0.1])
    halves = oracle.rotary_embedding(x, theta=100.0)
    np.testing.assert_allclose(halves, [x[0], [c[0], 2 * c[1], s[0], 2 * s[1]]], atol=1e-15)
    pairs = oracle.rotary_embedding(x, 1, theta=100.0, interleaved=True)
    np.testing.assert_allclose(pairs[0], [c[0] - 2 * s[0], 2 * c[0] + s[0], 0, 0], atol=1e-15)
    assert oracle.rotary_embedding(x, 1, width=2)[0, 2:].tolist() == [0, 0]


def test_biases_of_the_paper():
    """Section 3: 1/2, 1/4 … 1/256 for 8 heads; 12 heads have those and every second one of 16."""
    found = oracle.alibi(1, 2, num_heads=8)[:, 0, 1]
    np.testing.assert_allclose(found, -(0.5 ** np.arange(1, 9)))
    found = oracle.alibi(1, 2, num_heads=12)[8:, 0, 1]
    np.testing.assert_allclose(found, -(0.5 ** np.array([0.5, 1.5, 2.5, 3.5])))
