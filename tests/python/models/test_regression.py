import mithril as ml
import pytest
from mithril.errors import ArgumentError
from mithril.models import PolynomialRegression
from models.composite_cases import check, far, numbers, on_native, run
from sklearn.preprocessing import PolynomialFeatures

WIDTHS = {1: 2, 2: 5, 3: 9}  # monomials of two variables up to a degree


def by_hand(degree):
    monomials = PolynomialFeatures(degree, include_bias=False)

    def regression(input, weight, bias):
        return {"output": monomials.fit_transform(input) @ weight.T + bias}

    return regression


@pytest.mark.parametrize("degree", WIDTHS)
def test_features_are_scikit_learns(backend_name, degree):
    inputs = numbers(1, input=(4, 2), weight=(3, WIDTHS[degree]), bias=(3,))
    outputs, _ = run(PolynomialRegression(degree, 3), inputs, backend_name, fixed=True)
    assert far(outputs["output"], by_hand(degree)(**inputs)["output"], 1e-12) is None


@on_native
@pytest.mark.parametrize("degree", WIDTHS)
def test_gradients(native, degree):
    inputs = numbers(2, input=(4, 2), weight=(1, WIDTHS[degree]), bias=(1,))
    check(PolynomialRegression(degree, 1), by_hand(degree), inputs, native, fixed=True)


def test_the_width_of_the_weight_follows_from_the_input():
    model = ml.Model()
    model |= PolynomialRegression(3)(input="x", weight="w", output="y")
    model.set_shapes(x=["N", 2], y=["N", 4])
    assert model.shapes["w"] == [4, 9]


@pytest.mark.parametrize("degree", [0, -1, 1.5, None, "2"])
def test_the_degree_is_checked(degree):
    with pytest.raises((ArgumentError, TypeError)) as failure:
        PolynomialRegression(degree)
    assert "degree" in str(failure.value)
