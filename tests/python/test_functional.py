"""`functional`: functions of connections as submodels."""

# Covers: mithril/models/functional_models.py

import mithril as ml
import pytest
from mithril.errors import SignatureError


@ml.models.functional
def affine(x, scale, shift=1):
    return x * scale + shift


def test_a_call_is_a_submodel():
    model = ml.Model.create(out=affine(ml.IOKey("x"), ml.IOKey("s"), name="affine"))
    assert model.input_keys == ["x", "s"]
    assert list(model.get_unique_submodel_names().values()) == ["affine"]


def test_each_call_is_its_own():
    x = ml.IOKey("x")
    model = ml.Model.create(out=affine(affine(x, 2.0), 3.0, shift=2))
    assert model.input_keys == ["x"]
    assert len(model.dag) == 2


def test_what_is_returned_must_be_a_connection():
    @ml.models.functional
    def wrong(x):
        return 3

    with pytest.raises(SignatureError, match="wrong must return connections, got int"):
        wrong(ml.IOKey("x"))


def test_a_layer_in_its_own_arguments_is_copied():
    layer = ml.Linear(3)
    model = ml.Model()
    model |= ml.models.Buffer()(input=layer(layer(ml.IOKey("x"))), output="y")
    assert len(model.dag) == 3 and len(model.input_keys) == 5
