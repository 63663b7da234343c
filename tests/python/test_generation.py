"""`generate`: its loop over models whose logits are known, and its draws against transformers'."""

# Covers: mithril/physical/sampling.py

import mithril as ml
import numpy as np
import pytest
from mithril.physical.sampling import Sampler

from tests.python.rows.common import backend_of

WORDS = 7


def counter(**options):
    """A model that finds a token's successor likeliest: 3 is followed by 4, the last one by 0."""
    model = ml.Model()
    rows = np.roll(np.eye(WORDS), 1, axis=1)
    model |= ml.Embedding(WORDS, WORDS)(input="input", weight=ml.Tensor(rows), output="output")
    return ml.compile(
        model, ml.NumpyBackend(dtype=ml.float64), data_keys={"input"}, inference=True, **options
    )


def test_the_likeliest_token_is_taken():
    got = ml.models.generate(counter(), {}, [[3], [6]], 4)
    assert got.tolist() == [[3, 4, 5, 6, 0], [6, 0, 1, 2, 3]]
    assert got.dtype == np.int64


def test_one_prompt_is_a_batch_of_one():
    assert ml.models.generate(counter(), {}, [1, 2], 2).tolist() == [[1, 2, 3, 4]]


def test_no_tokens_may_be_asked_for():
    assert ml.models.generate(counter(), {}, [[1, 2]], 0).tolist() == [[1, 2]]


def test_a_sequence_ends_with_a_stop_token_and_is_filled_up():
    got = ml.models.generate(counter(), {}, [[3], [1]], 6, stop_tokens=[5, 4])
    assert got.tolist() == [[3, 4, 4, 4], [1, 2, 3, 4]]


def test_a_stream_gives_tokens_one_by_one():
    stream = ml.models.generate_stream(counter(), {}, [[3], [1]], 3)
    assert next(stream).tolist() == [4, 2]
    assert [step.tolist() for step in stream] == [[5, 3], [6, 4]]


def test_a_stream_refuses_wrong_arguments_before_its_first_token():
    with pytest.raises(ml.errors.ArgumentError, match="max_new_tokens"):
        ml.models.generate_stream(counter(), {}, [[3]], -1)


def test_draws_follow_the_probabilities():
    draw = Sampler(0.5, None, None, seed=3)
    logits = np.log(np.array([[0.1, 0.2, 0.3, 0.4]])) * 0.5
    counts = np.bincount(draw(np.repeat(logits, 40000, 0)), minlength=4) / 40000
    # The standard deviation of a frequency is at most 0.0025.
    np.testing.assert_allclose(counts, [0.1, 0.2, 0.3, 0.4], atol=0.0125)


def test_a_seed_repeats_its_draws():
    draws = [
        ml.models.generate(counter(), {}, [[1]], 20, temperature=5.0, seed=seed).tolist()
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_the_likeliest_of_one_is_greedy():
    options = {"temperature": 9.0, "seed": 0}
    for narrow in ({"top_k": 1}, {"top_p": 1e-9}):
        got = ml.models.generate(counter(), {}, [[3]], 4, **options, **narrow)
        assert got.tolist() == [[3, 4, 5, 6, 0]]


@pytest.mark.frameworks
@pytest.mark.parametrize("top_k", [None, 1, 3, 50, 1000])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.5, 0.9, 1.0])
def test_probabilities_are_those_of_transformers(top_k, top_p):
    transformers = pytest.importorskip("transformers")
    import torch

    logits = np.random.default_rng(4).standard_normal((5, 60)) * 3
    want = transformers.TemperatureLogitsWarper(0.7)(None, torch.from_numpy(logits))
    if top_k is not None:
        want = transformers.TopKLogitsWarper(top_k)(None, want)
    if top_p is not None:
        want = transformers.TopPLogitsWarper(top_p)(None, want)
    got = Sampler(0.7, top_k, top_p, None).probabilities(logits)
    np.testing.assert_allclose(got, want.softmax(-1).numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-300, 1e-30])
def test_next_to_no_temperature_is_greedy(temperature):
    options = {"temperature": temperature, "seed": 0}
    for more in ({}, {"top_k": 3}, {"top_p": 0.9}):
        got = ml.models.generate(counter(), {}, [[3], [6]], 4, **options, **more)
        assert got.tolist() == [[3, 4, 5, 6, 0], [6, 0, 1, 2, 3]]
    draw = Sampler(temperature, None, None, 0)
    logits = np.array([[-7e5, -3e300, 2.0], [-np.inf, 1e308, -1e308], [np.inf, 5.0, -np.inf]])
    assert draw(logits).tolist() == [2, 1, 0]
    assert draw.probabilities(logits).tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("name", ["numpy", "cpu", "torch", "jax", "mlx"])
@pytest.mark.parametrize("shapes", [{"input": [None, None]}, None])
def test_tokens_are_in_the_vocabulary(name, shapes):
    model = ml.Model()
    rows = np.roll(np.eye(WORDS, dtype="f4"), 1, axis=1)
    model |= ml.Embedding(WORDS, WORDS)(input="input", weight=ml.Tensor(rows), output="output")
    pm = ml.compile(model, backend_of(name), data_keys={"input"}, inference=True, shapes=shapes)
    assert ml.models.generate(pm, {}, [[3, 6]], 2).tolist() == [[3, 6, 0, 1]]
    for outside in (WORDS, 1000):
        with pytest.raises(ml.errors.DataIndexError, match=str(outside)):
            ml.models.generate(pm, {}, [[3, 1], [0, outside]], 2)


def test_tokens_outside_of_a_known_vocabulary_are_told_in_advance():
    pm = counter(shapes={"input": [None, None]})
    with pytest.raises(ml.errors.DataIndexError) as caught:
        ml.models.generate_stream(pm, {}, [[3, 1], [0, 9]], 2)
    assert str(caught.value) == (
        "generate: tokens require integers below 7, the size of the vocabulary in 'output', got 9"
        " at [1, 1]"
    )


WRONG = {
    "no model": ({"pm": 3}, ml.errors.SignatureError, "requires a compiled model, got 3"),
    "no params": ({"params": 3}, ml.errors.SignatureError, "params: requires a dictionary"),
    "no tokens": ({"tokens": [[]]}, ml.ShapeError, "at least one, got"),
    "cube": ({"tokens": [[[1]]]}, ml.ShapeError, "got \\[1, 1, 1\\]"),
    "negative": (
        {"tokens": [[7, -1]]},
        ml.errors.DataIndexError,
        "of at least 0, got -1 at",
    ),
    "fractions": ({"tokens": [[0.5]]}, ml.errors.ArgumentError, "integers, got float64"),
    "count": ({"max_new_tokens": 1.5}, ml.errors.ArgumentError, "max_new_tokens"),
    "input": ({"input_key": "inpt"}, ml.KeyNotFound, "no data key 'inpt', did you mean 'input'"),
    "output": ({"output_key": "logits"}, ml.KeyNotFound, "no output 'logits'"),
    "k without temperature": ({"top_k": 3}, ml.errors.OptionError, "top_k is for tokens that are"),
    "p without temperature": ({"top_p": 0.5}, ml.errors.OptionError, "top_p is for"),
    "seed without temperature": ({"seed": 1}, ml.errors.OptionError, "seed is for"),
    "k": ({"temperature": 1.0, "top_k": 0}, ml.errors.ArgumentError, "top_k"),
    "p": ({"temperature": 1.0, "top_p": 1.5}, ml.errors.ArgumentError, "top_p .* at most 1"),
    "p of 0": ({"temperature": 1.0, "top_p": 0.0}, ml.errors.ArgumentError, "top_p"),
    "temperature": ({"temperature": 0.0}, ml.errors.ArgumentError, "temperature requires a posi"),
    "hot": ({"temperature": float("inf")}, ml.errors.ArgumentError, "temperature"),
    "no number": ({"temperature": float("nan")}, ml.errors.ArgumentError, "temperature"),
    "negative seed": ({"temperature": 1.0, "seed": -1}, ml.errors.ArgumentError, "seed"),
    "stop": ({"stop_tokens": 3}, ml.errors.SignatureError, "stop_tokens"),
    "stops": ({"stop_tokens": ["a"]}, ml.DTypeError, "stop_tokens"),
    "fraction of a stop": ({"stop_tokens": [0.5]}, ml.errors.ArgumentError, "stop_tokens"),
    "data": ({"data": 3}, ml.errors.SignatureError, "data"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name):
    changed, error, said = WRONG[name]
    arguments = {"pm": counter(), "params": {}, "tokens": [[1]], "max_new_tokens": 2} | changed
    with pytest.raises(error, match=said):
        ml.models.generate(**arguments)


def cached(room):
    model = ml.models.create_gpt(True, 64, 8, 2, 1, 11, cache_size=room)
    backend = ml.CpuBackend()
    pm = ml.compile(
        model, backend, data_keys={"input"}, shapes={"input": [1, None]}, inference=True
    )
    return pm, pm.randomize_params(seed=0)


def test_a_cache_without_room_is_refused_before_anything_is_computed():
    pm, params = cached(8)
    assert ml.models.generate(pm, params, [[1, 2, 3]], 6).shape == (1, 9)
    with pytest.raises(ml.errors.ArgumentError, match="and 7 more need 9 places, got a c"):
        ml.models.generate_stream(pm, params, [[1, 2, 3]], 7)


@pytest.mark.parametrize("cache_size", [None, 12])
def test_more_places_than_a_table_has(cache_size):
    """They are refused before anything is computed, also where the last row would be read again."""
    gpt = ml.models.create_gpt(True, 8, 4, 1, 1, vocab_size=5, cache_size=cache_size)
    for backend in (ml.NumpyBackend(), ml.JaxBackend()):
        pm = ml.compile(gpt, backend, data_keys={"input"}, shapes={"input": [1, None]}, jit=False)
        params = pm.randomize_params(seed=0)
        assert ml.generate(pm, params, [[1, 2, 3]], 6).shape == (1, 9)
        with pytest.raises(ml.errors.ArgumentError) as raised:
            ml.generate_stream(pm, params, [[1, 2, 3]], 7)
        assert raised.value.message == (
            "generate: a prompt of 3 tokens in 'input' and 7 more need 9 places,"
            " got embeddings of 8"
        )
        assert raised.value.hint == (
            "give max_new_tokens=6 at most,"
            " or make the model with a larger block_size, of 9 at least"
        )
        with pytest.raises(ml.errors.ArgumentError) as raised:
            ml.generate_stream(pm, params, [[1] * 9], 1)
        assert raised.value.hint == "make the model with a larger block_size, of 9 at least"


def test_logits_that_are_nan_are_an_error():
    pm, params = cached(8)
    key = next(name for name in params if params[name].shape == (8,))
    with pytest.raises(ml.errors.NotFiniteError, match="'output' is NaN behind"):
        ml.models.generate(pm, {**params, key: params[key] * np.nan}, [[1]], 2)


def test_logits_have_three_axes():
    model = ml.Model()
    model |= ml.Embedding(WORDS, 2)(input="input", output="h")
    model |= ml.Sum()(input="h", output="output")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"input"}, inference=True)
    with pytest.raises(ml.ShapeError, match="must be logits"):
        ml.models.generate(pm, pm.randomize_params(seed=0), [[1]], 2)


def test_a_token_is_computed_by_itself_wherever_it_stands(monkeypatch):
    pm, params = cached(64)
    sizes, evaluate = [], type(pm).evaluate

    def watched(self, params, data, **options):
        sizes.append(np.shape(data["input"]))
        return evaluate(self, params, data, **options)

    monkeypatch.setattr(type(pm), "evaluate", watched)
    ml.models.generate(pm, params, [[1, 2, 3]], 60)
    assert sizes == [(1, 3), *[(1, 1)] * 59]
