"""`t5_encode` and `t5_decode` against transformers' T5 with random weights."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, backend_of, check, compiled, draw, widen_norms
from mithril.models.t5 import buckets

transformers = pytest.importorskip("transformers")
T5Attention = transformers.models.t5.modeling_t5.T5Attention
T5LayerNorm = transformers.models.t5.modeling_t5.T5LayerNorm

# Few buckets and distances, so that short sequences reach the last of them.
CONFIG = {"d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 2, "vocab_size": 23,
          "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9}  # fmt: skip
# transformers' count of what the checkpoints have.
PARAMETERS = {"t5-small": 60506624, "t5-base": 222903552, "t5-large": 737668096}
WORDS = CONFIG["vocab_size"]


def module(**changed):
    config = transformers.T5Config(**{**CONFIG, **changed}, decoder_start_token_id=0)
    return widen_norms(draw(transformers.T5ForConditionalGeneration(config)), T5LayerNorm)


def tokens(*shape):
    return np.random.default_rng(2).integers(1, WORDS, shape)


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
def test_the_encoder_computes_what_transformers_does(case):
    x = tokens(2, 12)

    def run(t5):
        return t5.encoder(torch.from_numpy(x)).last_hidden_state

    check(ml.models.t5_encode(CONFIG), module(), {"input": x}, run, case, strict=False)


VARIANTS = {
    "t5": {},
    "of its own depth": {"num_decoder_layers": 1},
    "gated": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def decoder_cases():
    """One variant on every backend, the others on one."""
    cases = [("t5", case) for case in CASES + OF_FRAMEWORKS]
    return cases + [(name, ("cpu", "float64")) for name in VARIANTS if name != "t5"]


@pytest.mark.parametrize(("variant", "case"), decoder_cases())
def test_the_decoder_computes_what_transformers_does(variant, case):
    t5, x = module(**VARIANTS[variant]), tokens(2, 12)
    untie(t5)
    memory = np.float32(np.random.default_rng(3).standard_normal((2, 4, 12)))

    def run(t5):
        encoded = (torch.from_numpy(memory).double(),)
        return t5(encoder_outputs=encoded, decoder_input_ids=torch.from_numpy(x)).logits

    model = ml.models.t5_decode({**CONFIG, **VARIANTS[variant]})
    check(model, t5, {"input": x, "memory": memory}, run, case, strict=False)


def untie(t5):
    """Gives the head a weight of its own, so that its gradient is not a sum."""
    weight = np.random.default_rng(52).standard_normal(t5.lm_head.weight.shape)
    t5.lm_head.weight = torch.nn.Parameter(torch.from_numpy(np.float32(weight)).double())


def test_greedy_search_finds_the_tokens_of_transformers(backend_name):
    t5, source = draw(module(), seed=2, scale=2.0), tokens(2, 6)
    untie(t5)
    options = {"naming": "path", "inference": True}
    backend = backend_of(backend_name, "float32")
    encoder = ml.compile(
        ml.models.t5_encode(CONFIG),
        backend,
        data_keys={"input"},
        shapes={"input": [2, 6]},
        **options,
    )
    shapes = {"input": [2, None], "memory": [2, 6, 12]}
    model = ml.models.t5_decode(CONFIG, cache_size=20)
    decoder = ml.compile(model, backend, data_keys=set(shapes), shapes=shapes, **options)
    load = ml.formats.load_state_dict
    parts = [load(pm, t5.state_dict(), strict=False) for pm in (encoder, decoder)]
    memory = encoder.evaluate(parts[0], {"input": source})["output"]
    got = ml.models.generate(
        decoder, parts[1], [[0], [0]], 20, data={"memory": memory}, stop_tokens=[1]
    )
    options = {"do_sample": False, "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    want = t5.generate(torch.from_numpy(source), max_new_tokens=20, **options).numpy()
    assert len(np.unique(want)) > 4  # a model that says one word only would prove nothing
    for own, theirs in zip(got, want, strict=True):
        end = np.append(np.flatnonzero(theirs == 1), len(theirs))[0]
        np.testing.assert_array_equal(own[:end], theirs[:end])


@pytest.mark.parametrize(("count", "most"), [(32, 128), (8, 9), (6, 20), (64, 1000)])
@pytest.mark.parametrize("is_both_ways", [True, False])
def test_buckets_of_distances_are_those_of_transformers(count, most, is_both_ways):
    far = torch.arange(-2 * most, 2 * most + 1)
    want = T5Attention._relative_position_bucket(far, is_both_ways, count, most).numpy()
    got = buckets(most, count, is_both_ways)
    np.testing.assert_array_equal(got[np.clip(far.numpy(), -most, most) + most], want)


@pytest.mark.parametrize("name", PARAMETERS)
def test_configurations_have_the_parameters_of_the_checkpoints(name):
    config = ml.models.T5_CONFIGS[name]
    data = {"input": np.zeros((1, 3), int), "memory": np.zeros((1, 3, config["d_model"]))}
    encoder = compiled(ml.models.t5_encode(config), {"input": data["input"]}, inference=True)
    decoder = compiled(ml.models.t5_decode(config), data, inference=True)
    sizes = {k: np.prod(pm.shapes[k]) for pm in (encoder, decoder) for k in pm.param_keys}
    del sizes["lm_head.weight"]  # checkpoints share it with the embedding
    assert sum(sizes.values()) == PARAMETERS[name]


def test_a_configuration_of_transformers_is_one():
    config = transformers.T5Config(**CONFIG)
    for given in (config, config.to_dict()):
        model = ml.models.t5_decode(given)
        pm = compiled(model, {"input": tokens(1, 3), "memory": np.zeros((1, 3, 12))})
        assert pm.shapes["output"] == [1, 3, WORDS]


@pytest.mark.parametrize("build", ["t5_encode", "t5_decode"])
@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"d_model": 0}, ml.errors.ArgumentError, "d_model: requires"),
        ({"d_kv": 2.5}, ml.errors.ArgumentError, "d_kv"),
        ({"num_heads": None}, ml.errors.ArgumentError, "num_heads"),
        ({"vocab_size": "9"}, ml.errors.ArgumentError, "vocab_size"),
        ({"feed_forward_proj": "gelu"}, ml.errors.OptionError, "feed_forward_proj requires"),
    ],
)
def test_wrong_entries_are_refused(build, changed, error, said):
    with pytest.raises(error, match=f"{build}: .*{said}"):
        getattr(ml.models, build)({**CONFIG, **changed})


@pytest.mark.parametrize("config", [{}, None, 3, {"d_model": 4}])
def test_missing_entries_are_named(config):
    with pytest.raises(ml.KeyNotFound, match="t5_encode: config has no entry"):
        ml.models.t5_encode(config)
