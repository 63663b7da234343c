"""PyTorch's layers against the oracle's, on the samples of the registry."""

import numpy as np
import pytest

pytest.importorskip("torch")
from mithril import _core  # noqa: E402
from mithril.testing import op_matrix, oracle, torch_oracle  # noqa: E402
from mithril.testing.torch_windows import TABLE  # noqa: E402

pytestmark = pytest.mark.frameworks
OPS = {op["name"]: op for op in _core.ops() if op["name"] in TABLE}


def test_every_op_exists():
    assert OPS.keys() == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_values(name):
    cases = [case for case in op_matrix.cases(OPS[name]) if case.kind == "float"]
    for case in cases:
        want = oracle.evaluate(case.text, case.inputs).outputs["output"]
        got = torch_oracle.evaluate(case.text, case.inputs).outputs["output"].numpy()
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=case.label)
