import mithril as ml
import numpy as np
from mithril.models import LinearSVM, LogisticRegression
from models.composite_cases import check, far, numbers, run
from sklearn import linear_model, svm

SHAPES = {"input": (5, 3), "weight": (1, 3), "bias": (1,)}


def test_linear_svm(backend_name):
    def by_hand(input, weight, bias):
        score = input @ weight.T + bias
        return {"output": score, "decision_output": np.sign(score)}

    check(LinearSVM(), by_hand, numbers(1, **SHAPES), backend_name)


def test_logistic_regression(backend_name):
    def by_hand(input, weight, bias):
        logits = input @ weight.T + bias
        return {"output": logits, "probs_output": 1 / (1 + np.exp(-logits))}

    check(LogisticRegression(), by_hand, numbers(2, **SHAPES), backend_name)


def trained(estimator, seed):
    """An estimator of scikit-learn and its inputs here."""
    points = numbers(seed, x=(60, 3), new=(8, 3))
    estimator.fit(points["x"], (points["x"].sum(axis=1) > 0.1).astype(int))
    inputs = {"input": points["new"], "weight": estimator.coef_, "bias": estimator.intercept_}
    return estimator, inputs


def test_linear_svm_is_that_of_scikit_learn(backend_name):
    estimator, inputs = trained(svm.LinearSVC(), 3)
    outputs, _ = run(LinearSVM(), inputs, backend_name)
    score = estimator.decision_function(inputs["input"])
    assert far(outputs["output"], score[:, None], 1e-12) is None
    classes = (outputs["decision_output"][:, 0] + 1) / 2
    assert classes.tolist() == estimator.predict(inputs["input"]).tolist()


def test_logistic_regression_is_that_of_scikit_learn(backend_name):
    estimator, inputs = trained(linear_model.LogisticRegression(), 4)
    outputs, _ = run(LogisticRegression(), inputs, backend_name)
    wanted = estimator.predict_proba(inputs["input"])[:, 1:]
    assert far(outputs["probs_output"], wanted, 1e-12) is None


def test_the_score_is_what_the_next_model_reads():
    model = ml.Model()
    model |= LogisticRegression()(input="x", probs_output="p")
    model += ml.Negate()(output="y")
    inputs = numbers(5, x=(2, 3))
    model.expose_keys("y", "p")
    pm = ml.compile(model, ml.NumpyBackend(dtype="float64"), data_keys={"x"}, inference=True)
    outputs = pm.evaluate(pm.randomize_params(), inputs)
    assert far(outputs["p"], 1 / (1 + np.exp(outputs["y"])), 1e-12) is None
