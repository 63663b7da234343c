"""Metrics of classification: accuracy, precision, recall, F1, AUC.

Classes are integers from 0, or rows with one score for each class. Nothing here has a gradient.
"""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_flag, checked_size
from mithril.base.public import public
from mithril.errors import OptionError, SignatureError, shown
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD

_AVERAGES = ("micro", "macro", "weighted")


class Metric(Composite):
    """Predicted and true classes in one form, and their difference.

    Parameters
    ----------
    threshold : predictions that are no rows of scores and exceed it are class 1, others class 0
    is_binary : whether there are two classes; wants a threshold
    is_pred_one_hot : whether predictions are rows of scores: the largest is the class
    is_label_one_hot : whether labels are rows with a 1 where the class is
    pred, label : values or `IOKey`s for these keys

    Keys
    ----
    label : [..., classes] if one-hot, else [...]
    pred : [..., classes] if one-hot, else [...]; apart from the classes of the shape of labels
    pred_formatted : [...], the predicted classes
    label_formatted : [...], the true classes
    output : [...], pred_formatted − label_formatted: 0 where the prediction is right

    Raises
    ------
    OptionError : is_binary without a threshold.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> metric = ml.models.Metric(is_label_one_hot=False)
    >>> model |= metric(pred="p", label="t", pred_formatted="class", output="difference")
    >>> model.set_shapes(p=["N", 3])
    >>> model.shapes["class"], model.shapes["t"]
    (['N'], ['N'])
    """

    _connect_order = ("pred", "label", "output", "pred_formatted", "label_formatted")

    @public
    def __init__(
        self,
        threshold: float | None = None,
        is_binary: bool = False,
        is_pred_one_hot: bool = True,
        is_label_one_hot: bool = True,
        pred: Any = TBD,
        label: Any = TBD,
        *,
        name: str | None = None,
    ):
        options = _options(self, threshold, is_binary, is_pred_one_hot, is_label_one_hot)
        with self._compose(name, options, label=label, pred=pred) as keys:
            classes = {
                "label": _classes(keys["label"], options["is_label_one_hot"], None),
                "pred": _classes(keys["pred"], options["is_pred_one_hot"], threshold),
            }
            for key, found in classes.items():
                self |= models.Buffer().connect(input=found, output=f"{key}_formatted")
            difference = models.Subtract()
            self |= difference.connect("pred_formatted", "label_formatted", "output")
            # Else predictions [N, 1] would meet labels [N] by broadcasting, each with each.
            self.set_shapes(dict.fromkeys(("pred_formatted", "label_formatted"), [("V", ...)]))
            self.set_cin("pred")
            self.set_cout("pred_formatted", "label_formatted", "output")
            self.expose_keys("pred_formatted", "label_formatted", "output")

    @public
    def connect(
        self,
        pred: Wire = NOT_GIVEN,
        label: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
        pred_formatted: Wire = NOT_GIVEN,
        label_formatted: Wire = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"pred": pred, "label": label, "output": output}
        formatted = {"pred_formatted": pred_formatted, "label_formatted": label_formatted}
        return ExtendInfo(self, keys | formatted)

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _options(
    model: Composite, threshold: Any, is_binary: Any, is_pred_one_hot: Any, is_label_one_hot: Any
) -> dict[str, Any]:
    """The arguments that all metrics take, checked."""
    what = type(model).__name__
    options = {
        "is_binary": checked_flag(f"{what}: is_binary", is_binary),
        "is_pred_one_hot": checked_flag(f"{what}: is_pred_one_hot", is_pred_one_hot),
        "is_label_one_hot": checked_flag(f"{what}: is_label_one_hot", is_label_one_hot),
    }
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if threshold is not None and not is_number:
        raise SignatureError(f"{what}: threshold requires a number, got {shown(threshold)}")
    if options["is_binary"] and threshold is None:
        raise OptionError(
            f"{what}: is_binary requires a threshold, got None", hint="such as threshold=0.5"
        )
    return {"threshold": threshold, **options}


def _classes(given: Any, is_one_hot: bool, threshold: float | None) -> Any:
    if is_one_hot:
        return models.ArgMax(axis=-1)(given)
    found = given if threshold is None else given > threshold
    return found * 1  # True and False are the classes 1 and 0


class Accuracy(Composite):
    """The share of predictions that are right.

    Parameters
    ----------
    threshold, is_binary, is_pred_one_hot, is_label_one_hot, pred, label : as `Metric` takes them

    Keys
    ----
    label, pred : as `Metric` has them
    output : float []

    Raises
    ------
    OptionError : is_binary without a threshold.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> metric = ml.models.Accuracy(is_label_one_hot=False)
    >>> model |= metric(pred="p", label="t", output="accuracy")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"p": [[0.1, 0.9], [0.8, 0.2]], "t": [1, 1]})["accuracy"].item()
    0.5
    """

    _connect_order = ("pred", "label", "output")

    @public
    def __init__(
        self,
        threshold: float | None = None,
        is_binary: bool = False,
        is_pred_one_hot: bool = True,
        is_label_one_hot: bool = True,
        pred: Any = TBD,
        label: Any = TBD,
        *,
        name: str | None = None,
    ):
        options = _options(self, threshold, is_binary, is_pred_one_hot, is_label_one_hot)
        with self._compose(name, options, label=label, pred=pred) as keys:
            difference = Connection()
            self |= Metric(**options).connect(**keys, output=difference)
            self |= models.Mean().connect(input=difference.eq(0), output="output")
            self.set_cin("pred")
            self.set_cout("output")

    @public
    def connect(
        self, pred: Wire = NOT_GIVEN, label: Wire = NOT_GIVEN, output: Output = NOT_GIVEN
    ) -> ExtendInfo:
        return ExtendInfo(self, {"pred": pred, "label": label, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class _ClassMetric(Composite):
    """A quotient of counts: over all predictions, or for each class and averaged then."""

    _connect_order = ("pred", "label", "output")

    @public
    def __init__(
        self,
        average: str = "micro",
        n_classes: int | None = None,
        threshold: float | None = None,
        is_binary: bool = False,
        is_pred_one_hot: bool = True,
        is_label_one_hot: bool = True,
        pred: Any = TBD,
        label: Any = TBD,
        *,
        name: str | None = None,
    ):
        options = _options(self, threshold, is_binary, is_pred_one_hot, is_label_one_hot)
        averaging = _averaging(self, average, n_classes)
        with self._compose(name, averaging | options, label=label, pred=pred) as keys:
            predicted: Any = Connection()
            true: Any = Connection()
            formatted = {"pred_formatted": predicted, "label_formatted": true}
            self |= Metric(**options).connect(**keys, **formatted)
            if average == "micro":
                hits = predicted.eq(true).sum()
                score = hits / _at_least_1(hits + predicted.ne(true).sum())
            else:
                score = self._average(predicted, true, average == "macro", n_classes)
            self |= models.Buffer().connect(input=score, output="output")
            self.set_cin("pred")
            self.set_cout("output")

    def _average(self, predicted: Any, true: Any, is_macro: bool, n_classes: Any) -> Any:
        classes = models.Arange(stop=n_classes)()
        is_predicted = predicted.reshape((-1, 1)).eq(classes)
        is_true = true.reshape((-1, 1)).eq(classes)
        hits = (is_predicted & is_true).sum(axis=0)
        support = is_true.sum(axis=0)
        scores = self._score(hits, is_predicted.sum(axis=0), support)
        if is_macro:
            return scores.sum() / _at_least_1((support > 0).sum())
        return (scores * support).sum() / _at_least_1(support.sum())

    def _score(self, hits: Any, predicted: Any, true: Any) -> Any:
        """The score of each class, by how often it was hit, predicted, and the truth."""
        raise NotImplementedError

    @public
    def connect(
        self, pred: Wire = NOT_GIVEN, label: Wire = NOT_GIVEN, output: Output = NOT_GIVEN
    ) -> ExtendInfo:
        return ExtendInfo(self, {"pred": pred, "label": label, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _averaging(model: Composite, average: Any, n_classes: Any) -> dict[str, Any]:
    what = type(model).__name__
    if not isinstance(average, str) or average not in _AVERAGES:
        raise OptionError(
            f"{what}: average must be 'micro', 'macro' or 'weighted', got {shown(average)}"
        )
    if n_classes is None and average != "micro":
        raise OptionError(
            f"{what}: average={average!r} requires n_classes, got None",
            hint="say how many classes there are: n_classes=10",
        )
    if n_classes is not None:
        checked_size(f"{what}: n_classes", n_classes)
    return {"average": average, "n_classes": n_classes}


def _at_least_1(count: Any) -> Any:
    """Returns the count, by which hits are divided; 1 where it is 0, as hits are 0 then, too."""
    return models.Maximum()(count, models.Tensor(1))


class Precision(_ClassMetric):
    """The share of the predictions of a class that are right: TP / (TP + FP).

    "micro" counts over all classes: the share of all predictions that are right. "macro" is the
    mean over the classes that occur in the labels, "weighted" the mean weighted by how often they
    do. A class that is never predicted scores 0. scikit-learn's `precision_score` agrees, for
    "macro" given `labels=` those that occur in the labels.

    Parameters
    ----------
    average : "micro", "macro" or "weighted"
    n_classes : how many classes there are, for "macro" and "weighted"; others are not counted
    threshold, is_binary, is_pred_one_hot, is_label_one_hot, pred, label : as `Metric` takes them

    Keys
    ----
    label, pred : as `Metric` has them
    output : float []

    Raises
    ------
    OptionError : another average, n_classes missing, is_binary without a threshold.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> flags = {"is_pred_one_hot": False, "is_label_one_hot": False}
    >>> model |= ml.models.Precision("macro", 2, **flags)(pred="p", label="t", output="score")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"p": [0, 1, 1, 1, 1], "t": [0, 0, 0, 0, 1]})["score"].item()
    0.625
    """

    def _score(self, hits: Any, predicted: Any, true: Any) -> Any:
        return hits / _at_least_1(predicted)


class Recall(_ClassMetric):
    """The share of a class that was predicted: TP / (TP + FN).

    Averages, arguments, keys and errors are those of `Precision`; scikit-learn's `recall_score`.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> flags = {"is_pred_one_hot": False, "is_label_one_hot": False}
    >>> model |= ml.models.Recall("macro", 2, **flags)(pred="p", label="t", output="score")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"p": [0, 0, 0, 1, 1], "t": [0, 0, 0, 0, 1]})["score"].item()
    0.875
    """

    def _score(self, hits: Any, predicted: Any, true: Any) -> Any:
        return hits / _at_least_1(true)


class F1(_ClassMetric):
    """The harmonic mean of precision and recall: TP / (TP + ½ (FP + FN)).

    Averages, arguments, keys and errors are those of `Precision`; scikit-learn's `f1_score`.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> flags = {"is_pred_one_hot": False, "is_label_one_hot": False}
    >>> model |= ml.models.F1("macro", 2, **flags)(pred="p", label="t", output="score")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"p": [0, 1, 1, 1], "t": [0, 0, 0, 1]})["score"].item()
    0.5
    """

    def _score(self, hits: Any, predicted: Any, true: Any) -> Any:
        return 2 * hits / _at_least_1(predicted + true)  # 2 TP + FP + FN


class AUC(Composite):
    """The area under the ROC curve of each class against the others, and its mean.

    The share of pairs of a sample of the class and one of another that the scores put in order;
    ties count half. It is the area under the curve by trapezoids (Fawcett, Pattern Recognition
    Letters 27, 2006). NaN where a class has all samples or none. The cost is that of comparing all
    pairs of samples; no memory is taken for them on the engine.

    Parameters
    ----------
    n_classes : how many classes there are
    is_label_one_hot : whether labels are rows with a 1 where the class is
    pred, label : values or `IOKey`s for these keys

    Keys
    ----
    label : [n, n_classes] if one-hot, else [n]
    pred : [n, n_classes], scores
    output : float []

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.AUC(2, is_label_one_hot=False)(pred="p", label="t", output="auc")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> scores = [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.7, 0.3]]
    >>> pm.evaluate({}, {"p": scores, "t": [0, 1, 1, 0]})["auc"].item()
    1.0
    """

    _connect_order = ("pred", "label", "output")
    _tensors = ("pred", "label")

    @public
    def __init__(
        self,
        n_classes: int,
        is_label_one_hot: bool = True,
        pred: Any = TBD,
        label: Any = TBD,
        *,
        name: str | None = None,
    ):
        checked_size("AUC: n_classes", n_classes, 1)
        one_hot = checked_flag("AUC: is_label_one_hot", is_label_one_hot)
        options = {"n_classes": n_classes, "is_label_one_hot": one_hot}
        with self._compose(name, options, label=label, pred=pred) as keys:
            scores: Any = keys["pred"]
            truths: Any = keys["label"]
            total: Any = 0.0
            for at in range(n_classes):
                is_class = truths[:, at].ne(0) if one_hot else truths.eq(at)
                area = _ordered_pairs(scores[:, at], is_class)
                self |= models.Buffer().connect(input=area, output=f"auc_class_{at}")
                total = total + self[f"auc_class_{at}"]
            self |= models.Buffer().connect(input=total / float(n_classes), output="output")
            labels = ["n", n_classes] if one_hot else ["n"]
            self.set_shapes(pred=["n", n_classes], label=labels)
            self._set_open_cins("pred")
            self.set_cout("output")
            self.expose_keys("output")

    @public
    def connect(
        self, pred: Wire = NOT_GIVEN, label: Wire = NOT_GIVEN, output: Output = NOT_GIVEN
    ) -> ExtendInfo:
        return ExtendInfo(self, {"pred": pred, "label": label, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _ordered_pairs(scores: Any, is_class: Any) -> Any:
    """The mean over pairs of one in the class and one not: 1 above it, ½ equal to it, else 0."""
    is_other = ~is_class
    column, row = scores[:, None], scores[None, :]
    is_pair = is_class[:, None] & is_other[None, :]
    # Shares of all pairs, for halves cannot count these.
    above = (is_pair & (column > row)).mean() + (is_pair & column.eq(row)).mean() * 0.5
    return above / is_pair.mean()


__all__ = ["AUC", "F1", "Accuracy", "Metric", "Precision", "Recall"]
