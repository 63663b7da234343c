"""`create_llama` against transformers' Llama with random weights: logits, gradients, tokens."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, backend_of, check, draw, widen_norms

transformers = pytest.importorskip("transformers")

WORDS = 29
SIZES = (16, 4, 2, 2, 24, WORDS)


def module(scale=1.0, **changed):
    options = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
               "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": WORDS,
               "rms_norm_eps": 1e-6, "bos_token_id": None, "eos_token_id": None}  # fmt: skip
    config = transformers.LlamaConfig(**{**options, **changed})
    llama = draw(transformers.LlamaForCausalLM(config), scale=scale)
    llama.model.rotary_emb = Angles(config)
    return widen_norms(llama, transformers.models.llama.modeling_llama.LlamaRMSNorm)


class Angles(torch.nn.Module):
    """As transformers computes them in float32 (Su et al., arXiv:2104.09864), in float64."""

    def __init__(self, config):
        super().__init__()
        width = config.head_dim
        base = config.rope_parameters["rope_theta"]
        self.speeds = base ** -(torch.arange(0, width, 2).double() / width)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.speeds
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


def test_the_angles_are_those_of_transformers():
    config = module().config
    own = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    places = torch.arange(30)[None]
    for got, want in zip(Angles(config)(None, places), own(torch.zeros(1), places), strict=True):
        torch.testing.assert_close(got.float(), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
def test_it_computes_what_transformers_does(case):
    tokens = np.random.default_rng(2).integers(0, WORDS, (2, 7))
    model = ml.models.create_llama(*SIZES)
    check(model, module(), {"input": tokens}, lambda m: m(torch.from_numpy(tokens)).logits, case)


def test_heads_of_another_size_and_angles_of_another_base():
    tokens = np.random.default_rng(2).integers(0, WORDS, (2, 7))
    rope = {"rope_type": "default", "rope_theta": 500.0}
    llama = module(head_dim=6, rope_parameters=rope, rms_norm_eps=1e-2)
    model = ml.models.create_llama(*SIZES, head_dim=6, theta=500.0, eps=1e-2)
    run = lambda m: m(torch.from_numpy(tokens)).logits  # noqa: E731
    check(model, llama, {"input": tokens}, run, ("cpu", "float64"))


def test_greedy_search_finds_the_tokens_of_transformers(backend_name):
    llama, tokens = module(scale=2.0), np.random.default_rng(6).integers(0, WORDS, (2, 4))
    model = ml.models.create_llama(*SIZES, cache_size=24)
    options = {"data_keys": {"input"}, "shapes": {"input": [2, None]}, "naming": "path"}
    pm = ml.compile(model, backend_of(backend_name, "float32"), inference=True, **options)
    params = ml.formats.load_state_dict(pm, llama.state_dict())
    got = ml.models.generate(pm, params, tokens, 20)
    prompt = torch.from_numpy(tokens)
    options = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    np.testing.assert_array_equal(got, llama.generate(prompt, max_new_tokens=20, **options))
    assert len(np.unique(got[:, 4:])) > 4  # a model that says one word only would prove nothing


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("wrong", [0, -1, 2.5, "4", None, True])
def test_sizes_are_checked(at, wrong):
    sizes = [*SIZES[:at], wrong, *SIZES[at + 1 :]]
    with pytest.raises(ml.errors.ArgumentError, match="create_llama: .* requires an integer"):
        ml.models.create_llama(*sizes)


def test_what_must_divide_is_said():
    with pytest.raises(ml.errors.ArgumentError, match="num_heads must divide dims = 16, got 3"):
        ml.models.create_llama(16, 3, 1, 1, 8, WORDS)
    with pytest.raises(ml.errors.ArgumentError, match="num_kv_heads must divide num_heads = 4"):
        ml.models.create_llama(16, 4, 3, 1, 8, WORDS)
