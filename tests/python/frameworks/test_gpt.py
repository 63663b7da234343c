"""`create_gpt` against transformers' GPT-2 with random weights: logits, gradients, tokens."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, backend_of, check, compiled, draw
from mithril.models.gpt import TRANSPOSED

transformers = pytest.importorskip("transformers")

PLACES, WIDTH, HEADS, LAYERS, WORDS = 24, 16, 4, 2, 31
SIZES = (True, PLACES, WIDTH, HEADS, LAYERS, WORDS)


def module(tied=False):
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=PLACES, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        bos_token_id=None, eos_token_id=None, tie_word_embeddings=tied,
    )  # fmt: skip
    return draw(transformers.GPT2LMHeadModel(config), seed=1)


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
def test_it_computes_what_transformers_does(case):
    tokens = np.random.default_rng(2).integers(0, WORDS, (2, 7))
    check(
        ml.models.create_gpt(*SIZES), module(), {"input": tokens},
        lambda m: m(torch.from_numpy(tokens)).logits, case, transposed=TRANSPOSED,
    )  # fmt: skip


def test_a_tied_checkpoint_loads():
    gpt2 = module(tied=True)
    tokens = np.array([[1, 2, 3]])
    pm = compiled(ml.models.create_gpt(*SIZES), {"input": tokens}, dtype="float64")
    params = ml.formats.load_state_dict(pm, gpt2.state_dict(), transposed=TRANSPOSED)
    want = gpt2(torch.from_numpy(tokens)).logits.detach().numpy()
    np.testing.assert_allclose(pm.evaluate(params, {"input": tokens})["output"], want, rtol=1e-10)


def decoder(gpt2, backend_name="cpu", cache_size=PLACES, batch=2):
    model = ml.models.create_gpt(*SIZES, cache_size=cache_size)
    backend = backend_of(backend_name, "float32")
    shapes = {"input": [batch, None]}
    options = {"data_keys": {"input"}, "shapes": shapes, "naming": "path", "inference": True}
    pm = ml.compile(model, backend, **options)
    return pm, ml.formats.load_state_dict(pm, gpt2.state_dict(), transposed=TRANSPOSED)


def greedy(gpt2, tokens, count):
    tokens = torch.from_numpy(tokens)
    options = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(tokens)}
    return gpt2.generate(tokens, max_new_tokens=count, **options).numpy()


def test_greedy_search_finds_the_tokens_of_transformers(backend_name):
    gpt2, tokens = module(), np.random.default_rng(5).integers(0, WORDS, (2, 4))
    pm, params = decoder(gpt2, backend_name)
    got = ml.models.generate(pm, params, tokens, PLACES - 4)
    np.testing.assert_array_equal(got, greedy(gpt2, tokens, PLACES - 4))
    assert len(np.unique(got[:, 4:])) > 4  # a model that says one word only would prove nothing


def test_without_a_cache_it_finds_the_same():
    gpt2, tokens = module(), np.random.default_rng(5).integers(0, WORDS, (2, 4))
    pm, params = decoder(gpt2, cache_size=None)
    got = ml.models.generate(pm, params, tokens, 9)
    np.testing.assert_array_equal(got, greedy(gpt2, tokens, 9))


def test_without_biases_it_has_none():
    model = ml.models.create_gpt(False, *SIZES[1:])
    pm = compiled(model, {"input": np.zeros((1, 3), int)})
    assert pm.param_keys and not [name for name in pm.param_keys if "bias" in name]


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("wrong", [0, -1, 2.5, "4", None, True])
def test_sizes_are_checked(at, wrong):
    sizes = [*SIZES[1 : at + 1], wrong, *SIZES[at + 2 :]]
    with pytest.raises(ml.errors.ArgumentError, match="create_gpt: .* requires an integer"):
        ml.models.create_gpt(True, *sizes)


def test_heads_divide_the_width():
    with pytest.raises(ml.errors.ArgumentError, match="num_heads must divide dims = 16, got 5"):
        ml.models.create_gpt(True, PLACES, WIDTH, 5, LAYERS, WORDS)


def test_numbers_that_are_no_tokens_are_refused():
    pm = compiled(ml.models.create_gpt(*SIZES), {"input": np.zeros((1, 3), int)})
    params = pm.randomize_params(seed=0)
    with pytest.raises(ml.DTypeError, match="input"):
        pm.evaluate(params, {"input": np.array([[0.5, 1.0, 2.0]])})
