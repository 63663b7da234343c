# Covers: mithril/testing/backend_tests.py mithril/testing/verification.py
"""The public checks of backends, `run_backend_tests` and `ml.verify`, on devices: what a user who
has one runs. All ops are in test_op_matrix.py."""

import mithril as ml
import pytest
from backends.test_device_kernels import no_cuda, no_opencl
from formats.c_cases import MODELS
from mithril.testing import run_backend_tests

pytestmark = pytest.mark.device
every_name = pytest.mark.parametrize(
    "name", [pytest.param("opencl", marks=no_opencl), pytest.param("cuda", marks=no_cuda)]
)
# One of each kind: fused loops, rows, products, windows, look-ups, orders, attention, a loop of the
# host's steps, what falls back.
OPS = ["add", "gelu", "softmax", "layer_norm", "sum", "matmul", "linear", "conv2d", "max_pool2d",
       "embedding", "scatter", "sort", "cumsum", "attention", "cholesky", "fft"]  # fmt: skip


@every_name
def test_the_conformance_suite(name):
    """Values, gradients and errors of some ops against the oracle, and what makes arrays."""
    report = run_backend_tests(ml.get_backend(name), ops=[*OPS, "Backend.zeros"], dtypes=["int32"])
    assert report and report.failed == 0, str(report)
    assert report.passed == report.total == len(OPS) + 1
    assert report.checks > 2 * report.total


@every_name
@pytest.mark.parametrize("title", ["mlp", "cnn", "gpt_block"])
def test_models_are_verified_node_by_node(name, title):
    make, shape = MODELS[title]
    report = ml.verify(make(), ["cpu", name], shapes={"x": shape}, data_keys={"x"}, mode="eval",
                       mixed_devices=True)  # fmt: skip
    assert report, str(report)
    assert len(report.rows) == 3  # the reference's among them
    assert len({row.nodes for row in report.rows}) == 1 and report.rows[0].nodes > 2


@every_name
def test_a_device_beside_the_engine_is_asked_for(name):
    """Devices of two kinds may be compared, if one says so."""
    make, shape = MODELS["mlp"]
    backend = ml.get_backend(name)
    if backend.get_device().partition(":")[0] == "cpu":
        assert ml.verify(make(), ["cpu", backend], shapes={"x": shape}, data_keys={"x"})
        return
    with pytest.raises(ml.errors.ArgumentError, match="backends on one device, got cpu, "):
        ml.verify(make(), ["cpu", backend], shapes={"x": shape}, data_keys={"x"})
