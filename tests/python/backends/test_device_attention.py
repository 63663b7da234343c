# Covers: backends/device/attention.cc backends/device/attention_text.cc
"""Attention with streaming softmax on devices, against PyTorch's float64 and its gradients."""

import mithril as ml
import numpy as np
import pytest
from backends.test_device_kernels import backend_of, every_device, host_steps
from formats.c_cases import drawn

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.device]

# Shapes of query, key and value; options; what is beside the scores; the offset that is data.
CASES = {
    "one head": ([40, 16], [40, 16], [40, 16], {}, {}, None),
    "causal": ([2, 3, 70, 24], [2, 3, 70, 24], [2, 3, 70, 40], {"is_causal": True}, {}, None),
    "more keys": ([3, 33, 8], [3, 150, 8], [3, 150, 5], {"is_causal": True, "offset": 100}, {},
                  None),
    "an offset of data": ([2, 20, 8], [2, 90, 8], [2, 90, 8], {"is_causal": True}, {}, 37),
    "one query": ([4, 1, 64], [4, 130, 64], [4, 130, 64], {}, {}, None),
    "shared heads": (
        [2, 6, 30, 8], [2, 2, 41, 8], [2, 2, 41, 12],
        {"enable_gqa": True, "is_causal": True, "offset": 11}, {}, None,
    ),
    "a mask of bools": ([2, 12, 8], [2, 66, 8], [2, 66, 8], {}, {"attn_mask": "bool"}, None),
    "a mask of numbers and a bias": (
        [2, 3, 12, 8], [2, 3, 20, 8], [2, 3, 20, 8], {"scale": 0.3},
        {"attn_mask": [12, 20], "bias": [3, 1, 20]}, None,
    ),
    "a bias of all": ([3, 35, 8], [3, 70, 8], [3, 70, 8], {"is_causal": True, "offset": 35},
                      {"bias": [3, 35, 70]}, None),
    "wide heads": ([2, 30, 200], [2, 70, 200], [2, 70, 130], {"is_causal": True, "offset": 40},
                   {}, None),
    "large scores": ([2, 40, 16], [2, 100, 16], [2, 100, 16], {"scale": 60.0}, {}, None),
}  # fmt: skip


def drawn_case(title):
    query, key, value, options, beside, offset = CASES[title]
    params = {"query": drawn(query), "key": drawn(key, 1), "value": drawn(value, 2)}
    data = {}
    for name, shape in beside.items():
        if shape == "bool":
            data[name] = drawn([query[-2], key[-2]], 3) > 0
        else:
            params[name] = drawn(shape, 3)
    if offset is not None:
        data["offset"] = np.array(offset, np.int64)
    return params, data, options, beside


def made(options, names):
    model = ml.Model()
    flags = {f"use_{name}": True for name in ("attn_mask", "bias") if name in names}
    if "offset" in names:
        flags["offset"] = ml.TBD
    model |= ml.Attention(**options, **flags)(**{name: name for name in names}, output="y")
    model.expose_keys("y")
    return model


def oracle(params, data, options, cotangent):
    given = {name: torch.tensor(np.float64(value), requires_grad=True)
             for name, value in params.items()}  # fmt: skip
    query, key, value = (given[name] for name in ("query", "key", "value"))
    if options.get("enable_gqa"):
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    scores = query @ key.transpose(-1, -2) * options.get("scale", query.shape[-1] ** -0.5)
    if "bias" in given:
        scores = scores + given["bias"]
    if options.get("is_causal"):
        offset = int(data.get("offset", options.get("offset", 0)))
        rows = torch.arange(scores.shape[-2])[:, None] + offset
        seen = torch.arange(scores.shape[-1])[None] <= rows
        scores = scores.masked_fill(~seen, -torch.inf)
    if "attn_mask" in given:
        scores = scores + given["attn_mask"]
    if "attn_mask" in data:
        scores = scores.masked_fill(~torch.tensor(data["attn_mask"]), -torch.inf)
    y = torch.softmax(scores, -1) @ value
    y.backward(torch.tensor(np.float64(cotangent)))
    return y.detach().numpy(), {name: one.grad.numpy() for name, one in given.items()}


@every_device
@pytest.mark.parametrize("title", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_gradients(title, dtype, device):
    params, data, options, beside = drawn_case(title)
    params = {name: value.astype(dtype) for name, value in params.items()}
    backend, programs = backend_of(device, dtype)
    pm = ml.compile(
        made(options, [*params, *data]), backend, data_keys=set(data), trainable_keys=set(params),
        shapes={name: list(value.shape) for name, value in (params | data).items()},
    )  # fmt: skip
    cotangent = drawn(CASES[title][0][:-1] + CASES[title][2][-1:], 5).astype(dtype)
    y, gradients = oracle(params, data, options, cotangent)
    bound = (2e-5 if dtype == "float32" else 1e-13) * (20 if "scale" in options else 1)
    got = np.array(pm.evaluate(params, data)["y"])
    np.testing.assert_allclose(got, y, rtol=0, atol=bound * np.abs(y).max())
    run = pm.evaluate(params, data, output_gradients={"y": cotangent})
    for name, want in gradients.items():
        np.testing.assert_allclose(run.gradients[name], want, rtol=0,
                                   atol=2 * bound * np.abs(want).max(), err_msg=name)  # fmt: skip
    assert host_steps(programs) == 0


@every_device
def test_a_row_that_sees_no_key_is_nan(device):
    pm = ml.compile(
        made({}, ["query", "key", "value", "attn_mask"]), backend_of(device)[0], inference=True,
        data_keys={"query", "key", "value", "attn_mask"},
    )  # fmt: skip
    mask = np.ones([12, 40], bool)
    mask[3] = False
    data = {"query": drawn([12, 8]), "key": drawn([40, 8], 1), "value": drawn([40, 8], 2)}
    y = pm.evaluate({}, data | {"attn_mask": mask})["y"]
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(y, 3, 0)).all()


@every_device
def test_the_same_bits_again(device):
    params, data, options, _ = drawn_case("causal")
    pm = ml.compile(made(options, list(params)), backend_of(device)[0], trainable_keys=set(params),
                    shapes={name: list(value.shape) for name, value in params.items()})  # fmt: skip
    cotangents = {"y": drawn([2, 3, 70, 40])}
    runs = [pm.evaluate(params, {}, output_gradients=cotangents).gradients for _ in range(2)]
    for name, one in runs[0].items():
        np.testing.assert_array_equal(one, runs[1][name])
