"""``pytest --pyargs mithril.testing --mithril-backend=NAME``: the op matrix, a test for each op."""

import pytest

from mithril.testing import backend_tests


def test_op(mithril_op_name, backend):
    row = backend_tests.check(backend, mithril_op_name)
    if row.outcome == "skipped":
        pytest.skip("; ".join(row.reasons))
    assert row.outcome == "passed", "\n".join(row.reasons)
