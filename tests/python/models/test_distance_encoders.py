import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, OptionError, SignatureError
from mithril.models import (
    L2,
    MDS,
    TSNE,
    DistanceEncoder,
    EncoderDistanceMatrix,
    MDSCore,
    TSNECore,
    TsnePJoint,
)
from models.composite_cases import VALUES, check, far, numbers, on_native, run
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from sklearn.manifold import _t_sne


def powered(a, b, norm):
    return (np.abs(a[:, None] - b[None]) ** norm).sum(axis=-1)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.5])
def test_distances_are_those_of_scipy(backend_name, norm):
    inputs = numbers(1, input1=(4, 3), input2=(5, 3)) | {"norm": np.array(norm)}
    wanted = cdist(inputs["input1"], inputs["input2"], "minkowski", p=norm)
    outputs, _ = run(EncoderDistanceMatrix(), inputs, backend_name)
    assert far(outputs["output"], wanted, VALUES) is None
    outputs, _ = run(EncoderDistanceMatrix(get_final_distance=False), inputs, backend_name)
    assert far(outputs["output"], wanted**norm, VALUES) is None


@on_native
@pytest.mark.parametrize("robust", [False, True])
def test_distances(native, robust):
    inputs = numbers(2, input1=(3, 2), input2=(4, 2)) | {"norm": np.array(2.5)}

    def by_hand(input1, input2, norm):
        return {"output": powered(input1, input2, norm) ** (1 / norm)}

    check(EncoderDistanceMatrix(robust=robust), by_hand, inputs, native)


@on_native
def test_equal_points_have_finite_gradients(native):
    points = numbers(3, input1=(3, 2))["input1"]
    inputs = {"input1": points, "input2": points, "norm": np.array(2.0)}
    _, gradients = run(
        EncoderDistanceMatrix(), inputs, native, {"output": np.ones((3, 3))}, ["input1"]
    )
    assert np.isfinite(gradients["input1"]).all()


@on_native
def test_a_norm_beyond_five_is_folded_back(native):
    inputs = numbers(4, input1=(3, 2), input2=(4, 2))
    outputs, _ = run(EncoderDistanceMatrix(), inputs | {"norm": np.array(6.0)}, native)
    wanted, _ = run(EncoderDistanceMatrix(), inputs | {"norm": np.array(4.0)}, native)
    assert far(outputs["output"], wanted["output"], VALUES) is None


# --- MDS ------------------------------------------------------------------------------------------


def distances_of(seed, count, width, norm=2.0):
    points = np.random.default_rng(seed).normal(size=(count, width))
    return points, powered(points, points, norm)


def stress(d, e, p):
    return (np.abs(d - e) ** p).sum() ** (1 / p) / (d**p).sum() ** (1 / p)


@pytest.mark.parametrize("exact", [True, False])
def test_stress(backend_name, exact):
    p = 2.5
    _, given = distances_of(1, 4, 3, p)
    _, embedded = distances_of(2, 4, 2, p)
    wanted = stress(given ** (1 / p), embedded ** (1 / p), p)
    inputs = {
        "distances": given ** (1 / p) if exact else given,
        "pred_distances": embedded,
        "norm": np.array(p),
    }
    outputs, _ = run(MDSCore(exact), inputs, backend_name)
    assert far(outputs["output"], wanted, 1e-11) is None


INPUTS = {
    "points": lambda points, p: points,
    "distances": lambda points, p: powered(points, points, p) ** (1 / p),
    "powered_distances": lambda points, p: powered(points, points, p),
}


@on_native
@pytest.mark.parametrize("input_type", INPUTS)
def test_mds(native, input_type):
    points, _ = distances_of(3, 5, 3)
    coords = np.random.default_rng(4).normal(size=(5, 2))

    def by_hand(coords):
        d, e = powered(points, points, 2.0) ** 0.5, powered(coords, coords, 2.0) ** 0.5
        return {"output": stress(d, e, 2.0), "predicted_coords": coords}

    model = MDS(2, input_type, norm=ml.Tensor(2.0))
    given = ml.Tensor(INPUTS[input_type](points, 2.0).tolist())
    outer = ml.Model()
    outputs = {key: key for key in ("predicted_coords", "output")}
    outer |= model(input=given, coords="coords", **outputs)
    outer.expose_keys("output", "predicted_coords")
    inputs = {"coords": coords}
    wanted = by_hand(coords)
    cotangents = {"output": np.array(1.0)}
    outputs, gradients = run(outer, inputs, native, cotangents, ["coords"])
    for key, value in wanted.items():
        assert far(outputs[key], value, 1e-11) is None
    step, at = 1e-6, (2, 1)
    moved = [by_hand(coords + sign * step * one(coords.shape, at))["output"] for sign in (1, -1)]
    assert gradients["coords"][at] == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-6)


def one(shape, at):
    out = np.zeros(shape)
    out[at] = 1.0
    return out


def test_mds_finds_points_of_the_plane():
    """Distances of points of the plane leave no stress."""
    points, _ = distances_of(5, 6, 2)
    model = ml.Model()
    model |= MDS(2, "points", norm=ml.Tensor(2.0))(input="x", coords="c", output="stress")
    model.expose_keys("stress")
    backend = ml.CpuBackend(dtype="float64")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": (6, 2)})
    params = {"c": np.random.default_rng(6).normal(size=(6, 2))}
    optimizer = ml.optim.Adam(lr=0.05)
    state = optimizer.init(params)
    for _ in range(800):
        outputs, gradients = pm.evaluate(params, {"x": points}, output_gradients=True)
        params, state = optimizer.update(params, gradients, state)
    assert outputs["stress"] < 0.02
    found = cdist(params["c"], params["c"])
    assert np.abs(found - cdist(points, points)).max() < 0.1


# --- t-SNE ----------------------------------------------------------------------------------------


def joint_by_roots(squares, perplexity):
    """p of each pair; the width of each row by a root finder."""
    count = len(squares)
    rows = np.zeros((count, count))
    for i in range(count):
        others = np.delete(squares[i], i)

        def weights(beta, others=others):
            w = np.exp(-beta * (others - others.min()))
            return w / w.sum()

        def excess(octave, weights=weights):
            w = weights(2.0**octave)
            return -(w * np.log(np.maximum(w, 1e-300))).sum() - np.log(perplexity)

        rows[i, np.arange(count) != i] = weights(2.0 ** brentq(excess, -40, 40, xtol=1e-14))
    return (rows + rows.T) / (2 * count)


@on_native
@pytest.mark.parametrize("perplexity", [2.0, 5.0])
def test_joint_probabilities(native, perplexity):
    _, squares = distances_of(7, 12, 3)
    inputs = {"squared_distances": 10.0 * squares, "target_perplexity": np.array(perplexity)}
    outputs, _ = run(TsnePJoint(), inputs, native)
    assert far(outputs["output"], joint_by_roots(10.0 * squares, perplexity), 1e-9) is None


@on_native
def test_joint_probabilities_are_those_of_scikit_learn(native):
    _, squares = distances_of(8, 20, 4)
    condensed = _t_sne._joint_probabilities(squares.astype(np.float32), 5.0, 0)
    wanted = _t_sne.squareform(condensed)
    inputs = {"squared_distances": squares, "target_perplexity": np.array(5.0)}
    outputs, _ = run(TsnePJoint(), inputs, native)
    assert far(outputs["output"], wanted, 1e-4) is None


@on_native
def test_a_coarse_threshold_stops_early(native):
    _, squares = distances_of(9, 8, 3)
    inputs = {"squared_distances": squares, "target_perplexity": np.array(3.0)}
    outputs, _ = run(TsnePJoint(threshold=ml.Tensor(0.5)), inputs, native)
    found, wanted = outputs["output"], joint_by_roots(squares, 3.0)
    assert 1e-6 < np.abs(found - wanted).max() < 0.05


def divergence(p, coords):
    near = 1 / (1 + powered(coords, coords, 2.0))
    np.fill_diagonal(near, 0.0)
    q = near / near.sum()
    mask = p > 0
    return (p[mask] * np.log(p[mask] / q[mask])).sum()


@on_native
@pytest.mark.parametrize("calculated", [True, False])
@pytest.mark.parametrize("input_type", INPUTS)
def test_tsne(native, input_type, calculated):
    points, squares = distances_of(10, 8, 3)
    coords = np.random.default_rng(11).normal(size=(8, 2))
    p = joint_by_roots(squares, 3.0)

    def by_hand(coords, **given):
        return {"output": divergence(p, coords), "predicted_coords": coords}

    model = TSNE(2, input_type, 3.0, calculated)
    inputs = {"input": INPUTS[input_type](points, 2.0), "coords": coords, "norm": np.array(2.0)}
    if not calculated:
        inputs["p_joint"] = p
    wanted = by_hand(coords)
    outputs, gradients = run(model, inputs, native, {"output": np.array(1.0)}, ["coords"])
    for key, value in wanted.items():
        assert far(outputs[key], value, 1e-9) is None
    # scikit-learn's gradient of the objective, of one degree of freedom for two dimensions
    condensed = _t_sne.squareform(p, checks=False)
    objective, gradient = _t_sne._kl_divergence(coords.ravel(), condensed, 1, 8, 2)
    assert outputs["output"] == pytest.approx(objective, rel=1e-9)
    assert far(gradients["coords"], gradient.reshape(8, 2), 1e-8) is None


def test_tsne_runs_everywhere(backend_name):
    points, squares = distances_of(12, 6, 3)
    coords = np.random.default_rng(13).normal(size=(6, 2))
    inputs = {"input": points, "coords": coords, "norm": np.array(2.0)}
    model = TSNE(2, "points", perplexity=2.0, calculate_p_joint=True)
    outputs, _ = run(model, inputs, backend_name)
    assert far(outputs["output"], divergence(joint_by_roots(squares, 2.0), coords), 1e-8) is None


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: MDS(2, "dots"), OptionError, "'points', 'distances', 'powered_distances'"),
        (lambda: MDS(0), ArgumentError, "prediction_dim"),
        (lambda: TSNE(2, perplexity="20"), SignatureError, "perplexity requires a number"),
        (lambda: TSNECore(calculate_p_joint=True, p_joint=ml.IOKey("p")), OptionError, "p_joint"),
        (lambda: DistanceEncoder(L2()), OptionError, "requires an input 'distances'"),
        (lambda: DistanceEncoder(MDSCore), SignatureError, "requires a model"),
        (lambda: EncoderDistanceMatrix("yes"), SignatureError, "get_final_distance"),
    ],
)
def test_arguments_are_checked(make, error, told):
    with pytest.raises(error) as failure:
        make()
    assert told in str(failure.value)


@pytest.mark.parametrize(
    ("cls", "arguments", "key"),
    [
        (EncoderDistanceMatrix, {}, "input1"),
        (MDSCore, {}, "distances"),
        (TsnePJoint, {}, "squared_distances"),
        (TSNECore, {}, "distances"),
        (MDS, {"prediction_dim": 2}, "input"),
        (TSNE, {"prediction_dim": 2}, "input"),
    ],
)
def test_keys_may_be_given_values(cls, arguments, key):
    model = cls(**arguments, **{key: ml.Tensor([[0.0, 1.0], [1.0, 0.0]])})
    assert key not in [wire.key_name for wire in model._node.cins]
