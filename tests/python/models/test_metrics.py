import functools
import warnings

import mithril as ml
import numpy as np
import pytest
from mithril.errors import OptionError, ShapeError, SignatureError
from mithril.models import AUC, F1, Accuracy, Metric, Precision, Recall
from models.composite_cases import VALUES, far, on_native, run
from sklearn import metrics

PLAIN = {"is_pred_one_hot": False, "is_label_one_hot": False}
CLASSES = 4
SCORES = {"Precision": Precision, "Recall": Recall, "F1": F1}
OF_SKLEARN = {
    "Precision": metrics.precision_score,
    "Recall": metrics.recall_score,
    "F1": metrics.f1_score,
}


def predictions(seed, missing=()):
    """Predicted and true classes; those of `missing` are in no label."""
    rng = np.random.default_rng(seed)
    label = rng.choice([c for c in range(CLASSES) if c not in missing], 30)
    pred = np.where(rng.random(30) < 0.5, label, rng.integers(0, CLASSES, 30))
    return pred, label


def one_hot(classes):
    return np.eye(CLASSES)[classes]


def scores_for(classes, seed):
    """Rows whose largest number is where the class is."""
    noise = np.random.default_rng(seed).random((len(classes), CLASSES))
    return noise + one_hot(classes)


def value(model, pred, label, backend_name):
    outputs, _ = run(model, {"pred": pred, "label": label}, backend_name)
    return outputs["output"]


@pytest.mark.parametrize("rows", [(30,), (5, 6)])
def test_accuracy(backend_name, rows):
    pred, label = predictions(1)
    wanted = metrics.accuracy_score(label, pred)
    assert 0.2 < wanted < 0.8
    rows_of_scores = scores_for(pred, 2).reshape(*rows, CLASSES)
    cases = [
        (Accuracy(), rows_of_scores, one_hot(label).reshape(*rows, CLASSES)),
        (Accuracy(is_label_one_hot=False), rows_of_scores, label.reshape(rows)),
        (Accuracy(is_pred_one_hot=False), pred.reshape(rows), one_hot(label).reshape(*rows, -1)),
        (Accuracy(**PLAIN), pred.reshape(rows), label.reshape(rows)),
    ]
    for model, given, truth in cases:
        assert far(value(model, given, truth, backend_name), wanted, VALUES) is None


def test_binary_accuracy(backend_name):
    pred = np.array([0.1, 0.6, 0.5, 0.51, 0.9])
    label = np.array([0, 1, 0, 0, 0])
    model = Accuracy(threshold=0.5, is_binary=True, **PLAIN)
    assert far(value(model, pred, label, backend_name), 0.6, VALUES) is None  # 0.5 is no 1
    column = value(model.clone(), pred[:, None], label[:, None], backend_name)
    assert far(column, 0.6, VALUES) is None


def test_metric(backend_name):
    model = Metric(threshold=0.25, is_pred_one_hot=False)
    inputs = {
        "pred": np.array([0.2, 0.3, 0.9]),
        "label": np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
    }
    outputs, _ = run(model, inputs, backend_name)
    found = {key: (array.tolist(), array.dtype.kind) for key, array in outputs.items()}
    assert found == {
        "pred_formatted": ([0, 1, 1], "i"),
        "label_formatted": ([0, 0, 1], "i"),
        "output": ([0, 1, 0], "i"),
    }


def test_metric_of_truth_values(backend_name):
    inputs = {"pred": np.array([True, False, True]), "label": np.array([True, True, False])}
    outputs, _ = run(Metric(**PLAIN), inputs, backend_name)
    assert outputs["output"].tolist() == [0, -1, 1]


@on_native
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("missing", [(), (2,), (0, 3)])
def test_scores(native, name, average, missing):
    pred, label = predictions(3, missing)
    present = np.unique(label)
    labels = present if average == "macro" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes without predictions
        wanted = OF_SKLEARN[name](label, pred, average=average, labels=labels, zero_division=0)
    make = functools.partial(SCORES[name], average, None if average == "micro" else CLASSES)
    for model, given in ((make(**PLAIN), pred),
                         (make(is_label_one_hot=False), scores_for(pred, 4))):  # fmt: skip
        assert far(value(model, given, label, native), wanted, VALUES) is None


@on_native
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_scores_of_nothing(native, name, average):
    """0 of 0 is 0: a denominator of 0 counts as 1."""
    nothing = np.zeros(0, "int64")
    model = SCORES[name](average, 3, **PLAIN)
    assert value(model, nothing, nothing, native) == 0.0


def test_scores_of_two_classes(backend_name):
    pred = np.array([0.9, 0.4, 0.6, 0.2, 0.7])
    label = np.array([1, 1, 0, 0, 1])
    for name, make in SCORES.items():
        model = make("macro", 2, threshold=0.5, is_binary=True, **PLAIN)
        wanted = OF_SKLEARN[name](label, pred > 0.5, average="macro")
        assert far(value(model, pred, label, backend_name), wanted, VALUES) is None


def test_in_training():
    """As a metric beside a loss, for which it has no gradient."""
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.CrossEntropy(), input="y", target="t")
    train.add_metric(Accuracy(is_label_one_hot=False), key_name="accuracy", pred="y", label="t")
    pm = ml.compile(train, ml.NumpyBackend(dtype="float64"), data_keys={"x", "t"})
    params = {"w": np.eye(2), "b": np.zeros(2)}
    data = {"x": np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]), "t": np.array([0, 0, 0])}
    outputs, gradients = pm.evaluate(params, data, output_gradients=True)
    assert far(outputs["accuracy"], 2 / 3, VALUES) is None
    assert gradients["w"].any()


def test_a_column_does_not_meet_a_row():
    model = Accuracy(threshold=0.5, is_binary=True, **PLAIN)
    with pytest.raises(ShapeError):
        model.set_shapes(pred=["N", 1], label=["N"])


REFUSED = {
    "no threshold": (
        lambda: Accuracy(is_binary=True),
        OptionError,
        "Accuracy: is_binary requires a threshold, got None\n  help: such as threshold=0.5",
    ),
    "another average": (
        lambda: F1("mikro"),
        OptionError,
        "F1: average must be 'micro', 'macro' or 'weighted', got 'mikro'",
    ),
    "no classes": (
        lambda: Recall("macro"),
        OptionError,
        "Recall: average='macro' requires n_classes, got None\n"
        "  help: say how many classes there are: n_classes=10",
    ),
    "classes": (
        lambda: Precision("weighted", 0),
        ValueError,
        "Precision: n_classes: requires an integer of at least 1, got 0",
    ),
    "a threshold": (
        lambda: Metric(threshold="0.5"),
        SignatureError,
        "Metric: threshold requires a number, got '0.5'",
    ),
    "a flag": (
        lambda: Metric(is_pred_one_hot=None),
        SignatureError,
        "Metric: is_pred_one_hot: requires True or False, got None",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, error, text = REFUSED[case]
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == text
    if error is OptionError:
        assert isinstance(caught.value, (AssertionError, ValueError))


# --- the area under the ROC curve -----------------------------------------------------------------


def areas(scores, label):
    return [metrics.roc_auc_score(label == c, scores[:, c]) for c in range(CLASSES)]


@pytest.mark.parametrize("is_one_hot", [True, False])
def test_auc(backend_name, is_one_hot):
    _, label = predictions(11)
    scores = np.round(scores_for(label, 12) / 2, 1)  # with ties
    assert len(np.unique(scores)) < scores.size / 2
    wanted = np.mean(areas(scores, label))
    assert 0.5 < wanted < 1.0
    given = one_hot(label) if is_one_hot else label
    assert value(AUC(CLASSES, is_one_hot), scores, given, backend_name) == pytest.approx(wanted)


@on_native
def test_auc_of_each_class(native):
    _, label = predictions(13)
    scores = scores_for(np.roll(label, 3), 14)
    model = AUC(CLASSES, False).extract(outputs=[f"auc_class_{c}" for c in range(CLASSES)])
    outputs, _ = run(model, {"pred": scores, "label": label}, native)
    found = [float(x) for x in outputs.values()]
    assert found == pytest.approx(areas(scores, label))


@on_native
def test_auc_is_nan_where_a_class_is_missing(native):
    _, label = predictions(15, missing={2})
    assert np.isnan(value(AUC(CLASSES, False), scores_for(label, 16), label, native))


@pytest.mark.parametrize("count", [0, -1, 2.0, "3", None])
def test_auc_wants_a_number_of_classes(count):
    with pytest.raises((OptionError, SignatureError, ValueError), match="n_classes"):
        AUC(count)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_auc_of_halves_counts_no_pairs_in_them(dtype, backend_name):
    """240 of 600: 86,400 pairs, beyond the range of float16."""
    random = np.random.default_rng(0)
    scores = random.permutation(600) / 1024.0  # exact in float16
    labels = np.arange(600) < 240
    if dtype == "bfloat16":
        scores = scores.astype("float32").view("uint32") >> 16 << 16
        scores = scores.astype("uint32").view("float32").astype("float64")
    inside, outside = scores[labels][:, None], scores[~labels][None, :]
    want = np.mean((inside > outside) + (inside == outside) * 0.5)
    model = ml.Model()
    model |= ml.AUC(1, is_label_one_hot=False).connect(pred="pred", label="label", output="y")
    backend = ml.get_backend(backend_name, dtype=dtype)
    shapes = {"pred": [600, 1], "label": [600]}
    pm = ml.compile(model, backend, data_keys={"pred", "label"}, shapes=shapes)
    data = {"pred": scores[:, None], "label": (~labels).astype("int32")}
    found = float(np.asarray(backend.to_numpy(pm.evaluate({}, data)["y"])).astype("float64"))
    assert abs(found - want) <= 2.0 ** (-9 if dtype == "float16" else -6)
