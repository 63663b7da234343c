"""Rows of `make demo-all`: the network for digits, trained on devices beside the engine."""

import mithril as ml
import pytest
from backends.test_opencl_backend import WHY as NO_OPENCL
from emulated_cuda import NO_CUDA

from examples import digits

IMAGES, STEPS = 32, 12  # of the batch that all steps see: the emulator's threads take turns on one
# Of logits and gradients in float32, whose sums have other orders, beside float64.
BOUND = 1e-4

pytestmark = pytest.mark.device


def without(reason):
    return pytest.mark.skipif(bool(reason), reason=reason or "")


@pytest.fixture(scope="module")
def start():
    """Parameters, their state, a batch, what it gives in float64, and images to test on."""
    train, test = digits.load()
    pm = ml.compile(
        digits.training(digits.network()),
        ml.CpuBackend(),
        data_keys={"image", "label"},
        shapes={"image": [None, 1, 8, 8]},
    )
    params, state = pm.randomize_params(0), pm.initial_state(0)
    batch = {key: value[:IMAGES] for key, value in next(digits.batches(train, seed=7)).items()}
    reference = digits.difference_reference(params, state, batch)
    return (params, state, batch, reference), test


@pytest.fixture(scope="module")
def of_the_engine(start):
    return row(ml.CpuBackend(), *start)


def row(backend, start, test):
    """Differences of logits and gradients, and how much of the test is right after the steps."""
    _, logits, gradients, params, state = digits.compare(backend, *start, steps=STEPS)
    return logits, gradients, digits.accuracy(backend, params, state, test)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("OpenCLBackend", marks=without(NO_OPENCL)),
        pytest.param("CudaBackend", marks=without(NO_CUDA)),
    ],
)
def test_a_device_learns_as_the_engine_does(name, start, of_the_engine):
    backend = getattr(ml, name)()
    logits, gradients, score = row(backend, *start)
    print(
        f"{name}: {score:.3f} of the test right after {STEPS} steps, engine {of_the_engine[2]:.3f}"
    )
    assert logits < BOUND and gradients < BOUND
    assert of_the_engine[2] > 0.4  # a tenth of the images shows each digit
    # Steps part where rounding decides: one image in fifty may be on the other side.
    assert score == pytest.approx(of_the_engine[2], abs=1 / 50)


def test_every_backend_has_a_row():
    """Here, or with the reason why not; devices are among them."""
    rows = dict(digits.backends())
    assert {"CpuBackend", "OpenCLBackend", "CudaBackend", "GGMLBackend"} <= rows.keys()
    for name, backend in rows.items():
        assert isinstance(backend, getattr(ml, name) | Exception), name
