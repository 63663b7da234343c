import mithril as ml
import numpy as np
import pytest
from mithril.errors import OptionError, SignatureError
from mithril.models import KernelizedSVM, PolynomialKernel, RBFKernel
from models.composite_cases import VALUES, check, far, numbers, on_native, run
from sklearn.metrics import pairwise
from sklearn.svm import SVC

POINTS = {"input1": (4, 3), "input2": (5, 3)}


def rbf(input1, input2, sigma, l_scale):
    squares = ((input1[:, None] - input2[None]) ** 2).sum(axis=-1)
    return l_scale**2 * np.exp(-0.5 * squares / sigma**2)


def test_rbf(backend_name):
    inputs = numbers(1, **POINTS) | {"sigma": np.array([0.7]), "l_scale": np.array([1.3])}
    check(RBFKernel(), lambda **given: {"output": rbf(**given)}, inputs, backend_name)


def test_rbf_is_that_of_scikit_learn(backend_name):
    inputs = numbers(2, **POINTS) | {"sigma": np.array([0.7]), "l_scale": np.array([1.0])}
    wanted = pairwise.rbf_kernel(inputs["input1"], inputs["input2"], gamma=1 / (2 * 0.7**2))
    outputs, _ = run(RBFKernel(), inputs, backend_name)
    assert far(outputs["output"], wanted, VALUES) is None


def test_rbf_of_integers(backend_name):
    points = {"input1": np.array([[0, 3]]), "input2": np.array([[4, 0], [0, 3]])}
    inputs = points | {"sigma": np.array([5.0]), "l_scale": np.array([2.0])}
    outputs, _ = run(RBFKernel(), inputs, backend_name)
    assert far(outputs["output"], 4 * np.exp([[-0.5, 0.0]]), VALUES) is None


@on_native
@pytest.mark.parametrize("degree", [1.0, 2.0, 3.0, 2.5])
@pytest.mark.parametrize("robust", [False, True])
def test_polynomial_of_positive_numbers(native, robust, degree):
    def by_hand(input1, input2, poly_coef, degree):
        return {"output": (input1 @ input2.T + poly_coef) ** degree}

    inputs = numbers(3, **POINTS)
    inputs |= {"poly_coef": np.array(4.0), "degree": np.array(degree)}
    check(PolynomialKernel(robust), by_hand, inputs, native)


@pytest.mark.parametrize("degree", [2, 3])
def test_polynomial_is_that_of_scikit_learn(backend_name, degree):
    inputs = numbers(4, **POINTS)
    wanted = pairwise.polynomial_kernel(*inputs.values(), degree=degree, gamma=1.0, coef0=-0.25)
    assert (wanted < 0).any() or degree == 2
    model = PolynomialKernel(robust=False, poly_coef=-0.25, degree=ml.Tensor(float(degree)))
    outputs, _ = run(model, inputs, backend_name)
    assert far(outputs["output"], wanted, VALUES) is None


# Reference 4.3, robust_power, worked out on paper: base, exponent -> value, slope of the base,
# slope of the exponent. Below the threshold T the line |b| / T where it is below the power.
T = 2.0**-1022
ROBUST = {
    "even": (-2.0, 2.0, 4.0, -4.0, 4.0 * np.log(2.0)),
    "odd": (-2.0, 3.0, 8.0, -12.0, 8.0 * np.log(2.0)),
    "root at 0": (0.0, 0.5, 0.0, 0.0, 0.0),
    "square at 0": (0.0, 2.0, 0.0, 0.0, 0.0),
    "at 0 by 1": (0.0, 1.0, 0.0, None, 0.0),
    "near 0, on the line": (T / 4, 0.001, 0.25, 1 / T, 0.0),
    "negative, on the line": (-T / 4, 0.001, 0.25, -1 / T, 0.0),
    "near 0, below the line": (T / 4, 0.25, 2.0**-256, 2.0**766, -1024 * np.log(2.0) * 2.0**-256),
}


@on_native
@pytest.mark.parametrize("case", ROBUST)
def test_robust_power(native, case):
    base, exponent, value, base_slope, exponent_slope = ROBUST[case]
    inputs = {"input1": np.array([[base]]), "input2": np.array([[1.0]])}
    inputs |= {"poly_coef": np.array(0.0), "degree": np.array(exponent)}
    one = {"output": np.array([[1.0]])}
    outputs, gradients = run(PolynomialKernel(), inputs, native, one, ["input1", "degree"])
    assert far(outputs["output"], [[value]], VALUES) is None
    assert far(gradients["degree"], exponent_slope, VALUES) is None
    if base_slope is not None:
        assert far(gradients["input1"], [[base_slope]], VALUES) is None


def test_svm(backend_name):
    def by_hand(weight, bias, **points):
        kernel = rbf(**points)
        return {"kernel": kernel, "output": kernel @ weight.T + bias}

    inputs = numbers(5, **POINTS, weight=(1, 5), bias=(1,))
    inputs |= {"sigma": np.array([0.7]), "l_scale": np.array([1.3])}
    check(KernelizedSVM(RBFKernel()), by_hand, inputs, backend_name)


@pytest.mark.parametrize("kind", ["rbf", "poly"])
def test_svm_is_that_of_scikit_learn(backend_name, kind):
    """A machine that scikit-learn has trained decides the same here."""
    points = numbers(6, x=(40, 3), new=(7, 3))
    classes = (points["x"].prod(axis=1) > 0).astype(int)
    trained = SVC(kernel=kind, gamma=0.5 if kind == "rbf" else 1.0, degree=3, coef0=0.5)
    trained.fit(points["x"], classes)
    kernel = {
        "rbf": lambda: RBFKernel(sigma=ml.Tensor([1.0]), l_scale=ml.Tensor([1.0])),
        "poly": lambda: PolynomialKernel(False, poly_coef=0.5, degree=ml.Tensor(3.0)),
    }[kind]()
    inputs = {
        "input1": points["new"],
        "input2": trained.support_vectors_,
        "weight": trained.dual_coef_,
        "bias": trained.intercept_,
    }
    outputs, _ = run(KernelizedSVM(kernel), inputs, backend_name)
    wanted = trained.decision_function(points["new"])[:, None]
    assert far(outputs["output"], wanted, 1e-10) is None


def test_a_kernel_of_the_user():
    kernel = ml.Model()
    kernel |= ml.Transpose()(input="input2", output="t")
    kernel |= ml.MatrixMultiply()(left="input1", right="t", output="dot")
    kernel |= ml.Multiply()(left="dot", right="scale", output="out")
    svm = KernelizedSVM(kernel, scale=ml.Tensor(2.0))
    assert svm.input_keys == ["input2", "input1", "scale", "weight", "bias"]
    inputs = numbers(7, **POINTS, weight=(1, 5), bias=(1,))
    outputs, _ = run(svm, inputs, "numpy")
    wanted = 2 * inputs["input1"] @ inputs["input2"].T
    assert far(outputs["kernel"], wanted, VALUES) is None


def test_one_kernel_in_two_machines():
    kernel = RBFKernel()
    assert KernelizedSVM(kernel).input_keys == KernelizedSVM(kernel).input_keys


def test_keys_of_the_kernel_can_be_wired():
    model = ml.Model()
    svm = KernelizedSVM(RBFKernel())
    model |= svm.connect("x", "X", "w", "b", "y", sigma="width", kernel="K")
    assert model.input_keys == ["x", "X", "width", "$1", "w", "b"]


REFUSED = {
    "a class": (
        lambda: KernelizedSVM(RBFKernel),
        SignatureError,
        "KernelizedSVM: kernel: requires a model, got <class"
        " 'mithril.models.kernel_methods.RBFKernel'>\n  help: make one: RBFKernel()",
    ),
    "no kernel": (
        lambda: KernelizedSVM(ml.Relu()),
        OptionError,
        "KernelizedSVM: kernel requires an input 'input1', Relu() has input",
    ),
    "another argument": (
        lambda: KernelizedSVM(RBFKernel(), sigmas=1.0),
        SignatureError,
        "KernelizedSVM: has no argument 'sigmas', did you mean 'sigma'?",
    ),
    "a flag": (
        lambda: PolynomialKernel(robust="yes"),
        SignatureError,
        "PolynomialKernel: robust: requires True or False, got 'yes'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, error, text = REFUSED[case]
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == text


def test_points_of_different_sizes():
    model = RBFKernel()
    with pytest.raises(ml.errors.ShapeError):
        model.set_shapes(input1=[4, 3], input2=[5, 2])
