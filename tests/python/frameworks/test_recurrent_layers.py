"""LSTM, GRU and SimpleRNN against PyTorch's layers in float64: values and gradients."""

import mithril as ml
import numpy as np
import pytest

torch = pytest.importorskip("torch")

N, T, D, H = 3, 5, 4, 6
KINDS = {"LSTM": (ml.LSTM, torch.nn.LSTM), "GRU": (ml.GRU, torch.nn.GRU),
         "SimpleRNN": (ml.SimpleRNN, torch.nn.RNN)}  # fmt: skip
OPTIONS = [
    {},
    {"bidirectional": True, "num_layers": 2},
    {"use_bias": False},
    {"use_lengths": True, "bidirectional": True, "num_layers": 2},
    {"use_mask": True},
    {"use_initial_state": True, "bidirectional": True},
]
BACKENDS = ["CpuBackend", "NumpyBackend", "TorchBackend", "JaxBackend"]


def _model(kind, options):
    layer = KINDS[kind][0](H, name="layer", **options)
    model = ml.Model()
    keys = {key: key for key in layer.input_keys if not key.startswith("$")}
    states = ["hidden", "cell"] if kind == "LSTM" else ["hidden"]
    finals = {f"final_{state}": f"final_{state}" for state in states}
    model |= layer.connect(**{**keys, "input": "x"}, output="output", **finals)
    model.expose_keys("output", *finals)
    return model, states


def _reference(kind, options, **more):
    torch.manual_seed(5)
    return KINDS[kind][1](
        D,
        H,
        num_layers=options.get("num_layers", 1),
        bias=options.get("use_bias", True),
        bidirectional=options.get("bidirectional", False),
        batch_first=True,
        dtype=torch.float64,
        **more,
    )


def _torch_run(layer, options, data, weights):
    x = torch.tensor(data["x"], requires_grad=True)
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    states = [torch.tensor(data.get(f"initial_{s}", np.zeros((count, N, H))))
              for s in ("hidden", "cell")]  # fmt: skip
    start = tuple(states) if isinstance(layer, torch.nn.LSTM) else states[0]
    if "lengths" in data or "mask" in data:
        lengths = data["lengths"] if "lengths" in data else data["mask"].sum(1)
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor(lengths), batch_first=True, enforce_sorted=False
        )
        packed, last = layer(packed, start)
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=T)
    else:
        out, last = layer(x, start)
    last = last if isinstance(last, tuple) else (last,)
    results = {"output": out, **dict(zip(("final_hidden", "final_cell"), last, strict=False))}
    sum((results[key] * torch.tensor(weights[key])).sum() for key in results).backward()
    gradients = {key: p.grad.numpy() for key, p in layer.named_parameters()}
    gradients["x"] = x.grad.numpy()
    return {key: value.detach().numpy() for key, value in results.items()}, gradients


def _data(kind, options, rng):
    data = {"x": rng.normal(size=(N, T, D))}
    lengths = np.array([5, 1, 3])
    if options.get("use_lengths"):
        data["lengths"] = lengths
    if options.get("use_mask"):
        data["mask"] = np.arange(T) < lengths[:, None]
    if options.get("use_initial_state"):
        for state in ["hidden", "cell"] if kind == "LSTM" else ["hidden"]:
            data[f"initial_{state}"] = rng.normal(size=(2, N, H))
    return data


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o) or "plain")
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_pytorch(kind, options, backend):
    rng = np.random.default_rng(3)
    model, states = _model(kind, options)
    engine = getattr(ml, backend)(dtype="float64")
    data = _data(kind, options, rng)
    pm = ml.compile(model, engine, data_keys=set(data))
    layer = _reference(kind, options)
    params = {key: engine.array(value.numpy()) for key, value in layer.state_dict().items()}
    sides = 2 if options.get("bidirectional") else 1
    count = sides * options.get("num_layers", 1)
    weights = {f"final_{state}": rng.normal(size=(count, N, H)) for state in states}
    weights["output"] = rng.normal(size=(N, T, sides * H))
    given = {key: engine.array(value) for key, value in data.items()}
    cotangents = {key: engine.array(value) for key, value in weights.items()}
    wrt = [*params, "x"]
    outputs, gradients = pm.evaluate(params, given, output_gradients=cotangents, wrt=wrt)
    wanted, wanted_gradients = _torch_run(layer, options, data, weights)
    for key, value in wanted.items():
        np.testing.assert_allclose(engine.to_numpy(outputs[key]), value, rtol=0, atol=1e-10)
    for key, value in wanted_gradients.items():
        np.testing.assert_allclose(engine.to_numpy(gradients[key]), value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_one_program_runs_any_batch_and_time(kind):
    model, _ = _model(kind, {"return_sequences": False, "bidirectional": True})
    pm = ml.compile(model, ml.NumpyBackend(dtype="float64"), data_keys={"x"}, inference=True)
    layer = _reference(kind, {"bidirectional": True})
    params = {key: value.numpy() for key, value in layer.state_dict().items()}
    for batch, time in ((1, 1), (4, 2), (2, 7)):
        x = np.random.default_rng(time).normal(size=(batch, time, D))
        output = pm.evaluate(params, {"x": x})["output"]
        _, last = layer(torch.tensor(x))
        last = (last[0] if isinstance(last, tuple) else last).detach().numpy()
        np.testing.assert_allclose(output, np.concatenate(list(last), -1), rtol=0, atol=1e-10)


def test_relu_is_that_of_pytorch():
    model, _ = _model("SimpleRNN", {"nonlinearity": "relu"})
    pm = ml.compile(model, ml.CpuBackend(dtype="float64"), data_keys={"x"}, inference=True)
    layer = _reference("SimpleRNN", {}, nonlinearity="relu")
    x = np.random.default_rng(0).normal(size=(N, T, D))
    params = {key: value.numpy() for key, value in layer.state_dict().items()}
    wanted = layer(torch.tensor(x))[0].detach().numpy()
    got = pm.evaluate(params, {"x": x})["output"]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10)


def test_dropout_is_between_layers_and_in_training_only():
    model, _ = _model("GRU", {"num_layers": 2, "dropout": 0.9})
    params = {k: v.numpy() for k, v in _reference("GRU", {"num_layers": 2}).state_dict().items()}
    x = np.random.default_rng(0).normal(size=(N, T, D))
    plain = ml.compile(model, ml.NumpyBackend(dtype="float64"), data_keys={"x"})
    train = ml.compile(model, ml.NumpyBackend(dtype="float64"), data_keys={"x"}, mode="train")
    wanted = _reference("GRU", {"num_layers": 2})(torch.tensor(x))[0].detach().numpy()
    got = plain.evaluate(params, {"x": x})["output"]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10)
    outputs, _ = train.evaluate(params, {"x": x}, state=train.initial_state(seed=1))
    assert np.abs(outputs["output"] - wanted).max() > 1e-3


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ml.LSTM(0), ml.errors.ArgumentError, "hidden_size"),
        (lambda: ml.LSTM("8"), ml.errors.ArgumentError, "hidden_size"),
        (lambda: ml.GRU(8, num_layers=0), ml.errors.ArgumentError, "num_layers"),
        (lambda: ml.GRU(8, dropout=0.5), ml.errors.OptionError, "dropout is between layers"),
        (lambda: ml.GRU(8, num_layers=2, dropout=1.5), ml.errors.ArgumentError, "probability"),
        (lambda: ml.LSTM(8, use_mask=True, use_lengths=True), ml.errors.OptionError, "same"),
        (lambda: ml.LSTM(8, mask="m"), ml.errors.OptionError, "no key 'mask'"),
        (lambda: ml.LSTM(8, initial_cell="c"), ml.errors.OptionError, "no key 'initial_cell'"),
        (lambda: ml.SimpleRNN(8, nonlinearity="selu"), ml.errors.ArgumentError, "nonlinearity"),
    ],
)
def test_arguments_that_are_none(make, error, text):
    with pytest.raises(error, match=text):
        make()
