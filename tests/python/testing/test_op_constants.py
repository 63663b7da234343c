"""Which constants stand in for operands, and what is told of types."""

import mithril as ml
from mithril import _core
from mithril.testing import op_constants


def test_variants_of_two_operands():
    case = op_constants.sample(_core.find_op("add"))
    kinds = dict(op_constants.variants(case))
    assert len(kinds) == 7 and set(kinds["all"]) == {"left", "right"}
    assert isinstance(kinds["left: number"]["left"], float)


def test_types_of_results_and_gradients():
    case = op_constants.sample(_core.find_op("add"))
    constants = {"right": ml.Tensor(0.3)}
    found = op_constants.check(ml.NumpyBackend(dtype="float16"), case, constants)
    assert found == {"output": "float16", "gradient of left": "float16"}


def test_refused_constants():
    case = op_constants.sample(_core.find_op("cholesky"))
    assert op_constants.check(ml.NumpyBackend(), case, {"input": ml.Tensor([0.3])}) is None


def test_ops_that_are_told_their_type_have_no_sample():
    assert op_constants.sample(_core.find_op("zeros")) is None
