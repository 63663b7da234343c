"""Points in few dimensions whose distances tell those of many: MDS and t-SNE."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_flag, checked_size
from mithril.base.public import public
from mithril.errors import OptionError, SignatureError, shown
from mithril.logical.connection import Connection
from mithril.logical.handles import node_of
from mithril.logical.model import ExtendInfo, Model
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite, require_model
from mithril.types import NOT_GIVEN, TBD, Constant

_INPUTS = ("points", "distances", "powered_distances")


class EncoderDistanceMatrix(Composite):
    """The distance of each point of one set to each of another, in a norm that may be trained.

    ``(Σ_k |x_k − y_k| ^ p) ^ (1 / p)`` with p = `NormModifier` of `norm`: itself from 1 to 5.

    Parameters
    ----------
    get_final_distance : whether the root is taken; else the sums of powers are the output
    robust : whether the gradient of the root stays finite where two points are equal

    Keys
    ----
    input1 : float or int [n, d]
    input2 : float or int [m, d]
    norm : float []
    output : float [n, m]

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> distances = ml.models.EncoderDistanceMatrix()
    >>> model |= distances(input1="a", input2="b", norm=ml.Tensor(2.0), output="d")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"a": [[0.0, 0.0]], "b": [[3.0, 4.0]]})["d"].tolist()
    [[5.0]]
    """

    _connect_order = ("input1", "input2", "norm", "output")

    @public
    def __init__(
        self,
        get_final_distance: bool = True,
        robust: bool = True,
        input1: Any = TBD,
        input2: Any = TBD,
        norm: Any = TBD,
        *,
        name: str | None = None,
    ):
        what = "EncoderDistanceMatrix"
        final = checked_flag(f"{what}: get_final_distance", get_final_distance)
        robust = checked_flag(f"{what}: robust", robust)
        options = {"get_final_distance": final, "robust": robust}
        given = {"input1": input1, "input2": input2, "norm": norm}
        with self._compose(name, options, **given) as keys:
            power: Any = Connection()
            sums = Connection()
            self |= models.NormModifier().connect(input=keys["norm"], output=power)
            distances = models.DistanceMatrix()
            points = {"left": keys["input1"], "right": keys["input2"]}
            self |= distances.connect(**points, norm=power, output=sums if final else "output")
            if final:
                root = models.Power(robust=robust)
                self |= root.connect(base=sums, exponent=1.0 / power, output="output")
            self._set_open_cins("input1", "input2")

    @public
    def connect(
        self,
        input1: Wire = NOT_GIVEN,
        input2: Wire = NOT_GIVEN,
        norm: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input1": input1, "input2": input2, "norm": norm, "output": output}
        return ExtendInfo(self, keys)

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class MDSCore(Composite):
    """The stress of an embedding: how far its distances are from the given ones.

    ``(Σ |d − e| ^ p / Σ d ^ p) ^ (1 / p)`` over all pairs, with the distances d given and e of the
    embedding; for p = 2 it is stress-1 (Kruskal, Psychometrika 29, 1964) over both halves of the
    matrices.

    Parameters
    ----------
    exact_distances : whether `distances` are distances; else they are their powers d ^ p
    robust : whether gradients stay finite where two points are equal, and the stress where all are

    Keys
    ----
    distances : [n, n]
    pred_distances : [n, n], the powers e ^ p, as `EncoderDistanceMatrix` gives them without root
    norm : float [], p is its `NormModifier`
    output : float []

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> core = ml.models.MDSCore()
    >>> model |= core(distances="d", pred_distances="e", norm=ml.Tensor(2.0), output="stress")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> data = {"d": [[0.0, 2.0], [2.0, 0.0]], "e": [[0.0, 1.0], [1.0, 0.0]]}
    >>> pm.evaluate({}, data)["stress"].item()
    0.5
    """

    _connect_order = ("distances", "pred_distances", "norm", "output")
    _tensors = ("distances", "pred_distances")

    @public
    def __init__(
        self,
        exact_distances: bool = True,
        robust: bool = True,
        distances: Any = TBD,
        pred_distances: Any = TBD,
        norm: Any = TBD,
        *,
        name: str | None = None,
    ):
        exact = checked_flag("MDSCore: exact_distances", exact_distances)
        robust = checked_flag("MDSCore: robust", robust)
        given = {"norm": norm, "distances": distances, "pred_distances": pred_distances}
        options = {"exact_distances": exact, "robust": robust}
        with self._compose(name, options, **given) as keys:
            power: Any = Connection()
            self |= models.NormModifier().connect(input=keys["norm"], output=power)

            def raised(base: Any, exponent: Any) -> Any:
                return models.Power(robust=robust)(base, exponent)

            found: Any = keys["distances"]
            embedded = raised(keys["pred_distances"], 1.0 / power)
            lengths = found if exact else raised(found, 1.0 / power)
            powers = raised(found, power) if exact else found
            errors, total = raised((lengths - embedded).abs(), power).sum(), powers.sum()
            stress = errors * models.StableReciprocal()(total) if robust else errors / total
            root = models.Power(robust=robust)
            self |= root.connect(base=stress, exponent=1.0 / power, output="output")
            self.set_shapes(distances=["n", "n"], pred_distances=["n", "n"])
            self._set_open_cins("distances", "pred_distances", "norm")

    @public
    def connect(
        self,
        distances: Wire = NOT_GIVEN,
        pred_distances: Wire = NOT_GIVEN,
        norm: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"distances": distances, "pred_distances": pred_distances, "norm": norm}
        return ExtendInfo(self, {**keys, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class TsnePJoint(Composite):
    """The joint probabilities of t-SNE: how near each pair of points is, for a given perplexity.

    ``(p_j|i + p_i|j) / 2 n`` with p_j|i proportional to exp(−β_i d_ij²), the diagonal left out, and
    β_i such that the entropy of row i is the logarithm of the perplexity (van der Maaten and
    Hinton, JMLR 9, 2008). β is found by bisecting its logarithm. There is no gradient.

    Keys
    ----
    squared_distances : float [n, n]
    target_perplexity : float [], above 1 and below n − 1
    threshold : float [], a row is left as it is where its perplexity is within it of the target
    output : float [n, n], symmetric, of sum 1

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> joint = ml.models.TsnePJoint(target_perplexity=ml.Tensor(1.5))
    >>> model |= joint(squared_distances="d", output="p")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> p = pm.evaluate({}, {"d": [[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]]})["p"]
    >>> [[round(x, 3) for x in row] for row in p.tolist()]
    [[0.0, 0.227, 0.047], [0.227, 0.0, 0.227], [0.047, 0.227, 0.0]]
    """

    _connect_order = ("squared_distances", "target_perplexity", "threshold", "output")

    @public
    def __init__(
        self,
        squared_distances: Any = TBD,
        target_perplexity: Any = TBD,
        threshold: Any = Constant.EPSILON,
        *,
        name: str | None = None,
    ):
        given = {
            "squared_distances": squared_distances,
            "target_perplexity": target_perplexity,
            "threshold": threshold,
        }
        with self._compose(name, {}, **given) as keys:
            distances: Any = keys["squared_distances"]
            target: Any = keys["target_perplexity"]
            count = distances.size(0)
            apart = models.EyeComplement()(count)
            # Only differences matter: then no row has vanishing weights alone.
            farther = distances + (1.0 - apart) * distances.max()
            nearest = farther.min(axis=1, keepdim=True)
            distances = (distances - nearest) * apart
            low, high = distances[:, :1] * 0.0 - _OCTAVES, distances[:, :1] * 0.0 + _OCTAVES
            for _ in range(_HALVINGS):
                middle = (low + high) * 0.5
                perplexity = _entropy(distances, apart, middle).exp()
                is_wide = perplexity > target
                is_met = (perplexity - target).abs() <= keys["threshold"]
                low = models.Where()(is_wide | is_met, middle, low)
                high = models.Where()(is_wide & ~is_met, high, middle)
            rows = _weights(distances, apart, (low + high) * 0.5)
            rows = rows / rows.sum(axis=1, keepdim=True)
            joint = (rows + rows.transpose()) / (count * 2)
            self |= models.StopGradient().connect(input=joint, output="output")
            self.set_shapes(squared_distances=["n", "n"], target_perplexity=[], threshold=[])
            self._set_open_cins("squared_distances")

    @public
    def connect(
        self,
        squared_distances: Wire = NOT_GIVEN,
        target_perplexity: Wire = NOT_GIVEN,
        threshold: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"squared_distances": squared_distances, "target_perplexity": target_perplexity}
        return ExtendInfo(self, {**keys, "threshold": threshold, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


_OCTAVES = 64.0  # of β, up and down from 1
_HALVINGS = 48


def _weights(distances: Any, apart: Any, octave: Any) -> Any:
    return (distances * -(2.0**octave)).exp() * apart


def _entropy(distances: Any, apart: Any, octave: Any) -> Any:
    """Computes the entropy of each row's weights, in nats: ln Σ w + β Σ w d² / Σ w."""
    weights = _weights(distances, apart, octave)
    total = weights.sum(axis=1, keepdim=True)
    mean = (weights * distances).sum(axis=1, keepdim=True) / total
    return models.Log()(total) + 2.0**octave * mean


class TSNECore(Composite):
    """The Kullback-Leibler divergence of an embedding's neighbourhoods from the given ones.

    ``Σ p_ij ln (p_ij / q_ij)`` with q_ij proportional to 1 / (1 + e_ij²), the diagonal left out
    (van der Maaten and Hinton, JMLR 9, 2008).

    Parameters
    ----------
    exact_distances : whether `distances` are distances; else they are their squares
    calculate_p_joint : whether p is made of `distances` (`TsnePJoint`); else it is given, and
        `distances` only say how many points there are
    perplexity : how many neighbours each point has, about

    Keys
    ----
    distances : [n, n]
    pred_distances : [n, n], the squared distances in the embedding
    p_joint : float [n, n], unless it is calculated
    output : float []

    Raises
    ------
    SignatureError : the perplexity is no number.
    """

    _connect_order = ("distances", "pred_distances", "p_joint", "output")
    _tensors = ("distances", "pred_distances")

    @public
    def __init__(
        self,
        exact_distances: bool = True,
        calculate_p_joint: bool = False,
        perplexity: float = 20.0,
        distances: Any = TBD,
        pred_distances: Any = TBD,
        p_joint: Any = TBD,
        *,
        name: str | None = None,
    ):
        exact = checked_flag("TSNECore: exact_distances", exact_distances)
        calculated = checked_flag("TSNECore: calculate_p_joint", calculate_p_joint)
        options = {
            "exact_distances": exact,
            "calculate_p_joint": calculated,
            "perplexity": _number("TSNECore: perplexity", perplexity),
        }
        given = {"distances": distances, "pred_distances": pred_distances}
        if not calculated:
            given["p_joint"] = p_joint
        elif p_joint is not TBD:
            raise OptionError("TSNECore: p_joint is calculated", hint="calculate_p_joint=False")
        with self._compose(name, options, **given) as keys:
            found: Any = keys["distances"]
            embedded: Any = keys["pred_distances"]
            if calculated:
                squares = found**2 if exact else found
                joint = models.TsnePJoint(target_perplexity=models.Tensor(float(perplexity)))
                p: Connection = joint(squared_distances=squares)
            else:
                self |= models.Buffer().connect(input=found)
                p = keys["p_joint"]
            near = models.EyeComplement()(embedded.size(0)) / (embedded + 1.0)
            divergence = models.KLDivergence()(near / near.sum(), p)
            self |= models.Sum().connect(input=divergence, output="output")
            shapes = {key: ["n", "n"] for key in given}
            self.set_shapes(shapes)
            self._set_open_cins("distances")
            self.set_cout("output")
            self.expose_keys("output")

    @public
    def connect(
        self,
        distances: Wire = NOT_GIVEN,
        pred_distances: Wire = NOT_GIVEN,
        p_joint: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"distances": distances, "pred_distances": pred_distances, "p_joint": p_joint}
        return ExtendInfo(self, {**keys, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SignatureError(f"{what} requires a number, got {shown(value)}")
    return value


class DistanceEncoder(Composite):
    """Coordinates that are trained until their distances are those of the input.

    Parameters
    ----------
    base_model : what compares distances: a model of `distances` and `pred_distances`, and perhaps
        `norm` and `p_joint`, such as `MDSCore()`
    input_type : "distances", "powered_distances" (before the root) or "points"

    Keys
    ----
    input : [n, n] distances, or points [n, d]
    coords : float [n, k], trainable
    norm : float [], of the distances (see `EncoderDistanceMatrix`)
    p_joint : where `base_model` has it
    predicted_coords : [n, k], an output: the coordinates
    output : float [], what `base_model` says

    Raises
    ------
    SignatureError : base_model is no model.
    OptionError : another input_type; base_model lacks a key.
    """

    _connect_order = ("input", "coords", "norm", "predicted_coords", "output")
    _tensors = ("input", "coords")

    @public
    def __init__(
        self,
        base_model: Model,
        input_type: str = "distances",
        input: Any = TBD,
        coords: Any = TBD,
        norm: Any = TBD,
        predicted_coords: Any = TBD,
        *,
        name: str | None = None,
    ):
        arguments = {"base_model": base_model, "input_type": input_type}
        given = {"input": input, "coords": coords, "norm": norm}
        self._encode(name, arguments, base_model, input_type, given, predicted_coords)

    def _encode(
        self,
        name: str | None,
        arguments: dict[str, Any],
        base_model: Model,
        input_type: str,
        given: dict[str, Any],
        predicted_coords: Any,
    ) -> None:
        what = type(self).__name__
        _check_input_type(what, input_type)
        taken = _inputs_of(what, require_model(f"{what}: base_model", base_model, "MDSCore()"))
        optional = {"p_joint": TBD} if "p_joint" in taken else {}
        outputs = {"predicted_coords": predicted_coords}
        with self._compose(name, arguments, **optional, **given, **outputs) as keys:
            norm, coords, found = keys["norm"], keys["coords"], keys["input"]
            if input_type == "points":
                found = _powered(found, norm)
            wires = {"distances": found, "pred_distances": _powered(coords, norm)}
            wires |= {key: keys[key] for key in ("norm", "p_joint") if key in taken}
            self |= base_model.connect(**wires, **{base_model.cout.key: "output"})
            self |= models.Buffer().connect(input=coords, output=keys["predicted_coords"])
            self.set_differentiability(coords=True)
            self.set_shapes(input=["n", "d" if input_type == "points" else "n"], coords=["n", "k"])
            self._set_open_cins("input", "coords", "norm")
            self.set_cout("output", "predicted_coords")
            self.expose_keys("output", "predicted_coords")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        coords: Wire = NOT_GIVEN,
        norm: Wire = NOT_GIVEN,
        predicted_coords: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
        **base_keys: Any,
    ) -> ExtendInfo:
        keys = {"input": input, "coords": coords, "norm": norm}
        outputs = {"predicted_coords": predicted_coords, "output": output}
        return ExtendInfo(self, {**keys, **outputs, **base_keys})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _check_input_type(what: str, input_type: Any) -> None:
    if not isinstance(input_type, str) or input_type not in _INPUTS:
        told = ", ".join(repr(known) for known in _INPUTS)
        raise OptionError(f"{what}: input_type requires one of {told}, got {shown(input_type)}")


def _inputs_of(what: str, base_model: Model) -> list[str]:
    inputs = [key for key in base_model.input_keys if not node_of(base_model).is_valued(key)]
    for key in ("distances", "pred_distances"):
        if key not in inputs:
            told = ", ".join(inputs) or "none"
            raise OptionError(
                f"{what}: base_model requires an input {key!r}, {base_model!r} has {told}"
            )
    return inputs


def _powered(points: Any, norm: Any) -> Any:
    encoder = EncoderDistanceMatrix(get_final_distance=False)
    return encoder(input1=points, input2=points, norm=norm)


class MDS(DistanceEncoder):
    """Multidimensional scaling: coordinates in `prediction_dim` dimensions of least stress.

    Parameters
    ----------
    prediction_dim : how many numbers each point gets
    input_type : "distances", "powered_distances" (before the root) or "points"

    Keys
    ----
    input : [n, n] distances, or points [n, d]
    coords : float [n, prediction_dim], trainable
    norm : float [], of the distances
    predicted_coords : [n, prediction_dim], an output
    output : float [], the stress (`MDSCore`)

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> mds = ml.models.MDS(2, norm=ml.Tensor(2.0))
    >>> model |= mds(input="d", coords="c", predicted_coords="points", output="stress")
    >>> model.set_shapes(d=[5, 5])
    >>> model.shapes["points"]
    [5, 2]
    """

    @public
    def __init__(
        self,
        prediction_dim: int,
        input_type: str = "distances",
        input: Any = TBD,
        coords: Any = TBD,
        norm: Any = TBD,
        predicted_coords: Any = TBD,
        *,
        name: str | None = None,
    ):
        checked_size("MDS: prediction_dim", prediction_dim, 1)
        _check_input_type("MDS", input_type)
        core = MDSCore(exact_distances=input_type == "distances")
        arguments = {"prediction_dim": prediction_dim, "input_type": input_type}
        given = {"input": input, "coords": coords, "norm": norm}
        self._encode(name, arguments, core, input_type, given, predicted_coords)
        self.unfreeze()
        self.set_shapes(coords=[None, prediction_dim])
        self._freeze()


class TSNE(DistanceEncoder):
    """t-SNE: coordinates in `prediction_dim` dimensions that keep neighbours together.

    Parameters
    ----------
    prediction_dim : how many numbers each point gets
    input_type : "distances", "powered_distances" (their squares) or "points"
    perplexity : how many neighbours each point has, about; `preplexity` is the same
    calculate_p_joint : whether neighbourhoods are calculated of `input` in each evaluation; else
        they are given as `p_joint` (see `TsnePJoint`), and `input` is not read

    Keys
    ----
    input : [n, n] distances, or points [n, d]
    coords : float [n, prediction_dim], trainable
    norm : float [], p is its `NormModifier`: 2 for Euclidean distances
    p_joint : float [n, n], unless it is calculated
    predicted_coords : [n, prediction_dim], an output
    output : float [], the divergence (`TSNECore`)

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> tsne = ml.models.TSNE(2, "points", calculate_p_joint=True)
    >>> wires = {"input": "x", "coords": "c", "norm": ml.Tensor(2.0)}
    >>> model |= tsne(**wires, predicted_coords="points", output="divergence")
    >>> model.set_shapes(x=[100, 64])
    >>> model.shapes["points"]
    [100, 2]
    """

    _connect_order = ("input", "norm", "predicted_coords", "output", "coords")

    @public
    def __init__(
        self,
        prediction_dim: int,
        input_type: str = "distances",
        preplexity: float = 20.0,
        calculate_p_joint: bool = False,
        input: Any = TBD,
        norm: Any = TBD,
        predicted_coords: Any = TBD,
        *,
        coords: Any = TBD,
        perplexity: float | None = None,
        name: str | None = None,
    ):
        checked_size("TSNE: prediction_dim", prediction_dim, 1)
        _check_input_type("TSNE", input_type)
        wanted = _number("TSNE: perplexity", preplexity if perplexity is None else perplexity)
        core = TSNECore(input_type == "distances", calculate_p_joint, wanted)
        arguments = {
            "prediction_dim": prediction_dim,
            "input_type": input_type,
            "preplexity": wanted,
            "calculate_p_joint": calculate_p_joint,
        }
        given = {"input": input, "coords": coords, "norm": norm}
        self._encode(name, arguments, core, input_type, given, predicted_coords)
        self.unfreeze()
        self._set_open_cins("input", "coords")
        self.set_shapes(coords=[None, prediction_dim])
        self._freeze()

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        norm: Wire = NOT_GIVEN,
        predicted_coords: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
        coords: Wire = NOT_GIVEN,
        **base_keys: Any,
    ) -> ExtendInfo:
        keys = {"input": input, "norm": norm, "predicted_coords": predicted_coords}
        return super().connect(**keys, output=output, coords=coords, **base_keys)

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


__all__ = [
    "DistanceEncoder",
    "EncoderDistanceMatrix",
    "MDS",
    "MDSCore",
    "TSNE",
    "TSNECore",
    "TsnePJoint",
]
