"""The example's embedding against scikit-learn's: its divergence, and who is near whom."""

import numpy as np
from mithril.examples import tsne
from scipy.spatial.distance import squareform
from sklearn.manifold import TSNE
from sklearn.manifold._t_sne import _joint_probabilities


def divergence(x, points, perplexity):
    """By scikit-learn's neighbourhoods of x (van der Maaten and Hinton, JMLR 9, 2008)."""
    squares = ((x[:, None] - x[None]) ** 2).sum(-1).astype(np.float32)
    p = squareform(_joint_probabilities(squares, perplexity, 0))
    q = 1 / (1 + ((points[:, None] - points[None]) ** 2).sum(-1))
    np.fill_diagonal(q, 0)
    q /= q.sum()
    return (p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum()


def test_its_divergence_is_low():
    x, group = tsne.groups(12, seed=4)
    found = tsne.embed(x, perplexity=8.0)
    np.testing.assert_allclose(divergence(x, found.points, 8.0), found.after, rtol=1e-2)
    theirs = TSNE(2, perplexity=8.0, method="exact", random_state=0).fit(x)
    assert found.after < 1.5 * theirs.kl_divergence_ < found.before
    assert tsne.share_of_neighbours(found.points, group) == 1.0


def test_groups_stay_together(capsys):
    assert tsne.main() > 0.98
    assert capsys.readouterr().out.startswith("neighbours of one group: ")


def test_neighbours_are_counted():
    points = np.array([[0.0, 0], [1, 0], [5, 0], [5.5, 0]])
    assert tsne.share_of_neighbours(points, np.array([0, 0, 1, 0])) == 0.5
