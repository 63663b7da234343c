"""`whisper_model` and its halves against transformers' Whisper with random weights."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, backend_of, check, compiled, draw

transformers = pytest.importorskip("transformers")

WORDS, WIDTH, HEADS, LAYERS, WIDE, BANDS, SOURCE, TARGET = 27, 12, 3, 2, 20, 5, 6, 24
SIZES = (LAYERS, WIDTH, HEADS, WIDE)
OF_SOUND = {"num_mel_bins": BANDS, "max_source_positions": SOURCE}
OF_TEXT = {"vocab_size": WORDS, "max_target_positions": TARGET}


def module(scale=1.0):
    config = transformers.WhisperConfig(
        vocab_size=WORDS, num_mel_bins=BANDS, d_model=WIDTH, encoder_layers=LAYERS,
        decoder_layers=LAYERS, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS,
        encoder_ffn_dim=WIDE, decoder_ffn_dim=WIDE, max_source_positions=SOURCE,
        max_target_positions=TARGET, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    whisper = draw(transformers.WhisperForConditionalGeneration(config), scale=scale)
    whisper.proj_out.weight = torch.nn.Parameter(whisper.proj_out.weight.detach() * 0.5)
    for parameter in whisper.parameters():
        parameter.requires_grad_(True)  # the places of the encoder, too
    return whisper


def sound():
    return np.float32(np.random.default_rng(4).standard_normal((2, BANDS, 2 * SOURCE)))


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
def test_it_computes_what_transformers_does(case):
    tokens = np.random.default_rng(2).integers(3, WORDS, (2, 7))
    features = torch.from_numpy(sound()).double()

    def run(whisper):
        return whisper(features, decoder_input_ids=torch.from_numpy(tokens)).logits

    model = ml.models.whisper_model(*SIZES, **OF_SOUND, **OF_TEXT)
    check(model, module(), {"input_features": sound(), "input": tokens}, run, case)


def test_its_halves_find_the_tokens_of_transformers(backend_name):
    whisper, load = module(scale=2.0), ml.formats.load_state_dict
    options = {"naming": "path", "inference": True}
    backend = backend_of(backend_name, "float32")
    encoder = ml.compile(
        ml.models.whisper_encoder(*SIZES, **OF_SOUND), backend, data_keys={"input"},
        shapes={"input": list(sound().shape)}, **options,
    )  # fmt: skip
    shapes = {"input": [2, None], "memory": [2, SOURCE, WIDTH]}
    model = ml.models.whisper_decoder(*SIZES, **OF_TEXT, cache_size=TARGET)
    decoder = ml.compile(model, backend, data_keys=set(shapes), shapes=shapes, **options)
    parts = [load(pm, whisper.state_dict(), strict=False) for pm in (encoder, decoder)]
    memory = encoder.evaluate(parts[0], {"input": sound()})["output"]
    got = ml.models.generate(decoder, parts[1], [[1], [1]], 16, data={"memory": memory})
    tokens = torch.ones(2, 1, dtype=torch.long)
    features = torch.from_numpy(sound()).double()
    for _ in range(16):
        logits = whisper(features, decoder_input_ids=tokens).logits
        tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], 1)
    np.testing.assert_array_equal(got, tokens.numpy())
    assert len(np.unique(got)) > 4  # a model that says one word only would prove nothing


def test_the_tiny_one_has_the_parameters_of_its_checkpoint():
    model = ml.models.whisper_model(4, 384, 6, 1536)
    data = {"input_features": np.zeros((1, 80, 3000)), "input": np.zeros((1, 3), int)}
    pm = compiled(model, data, inference=True)
    count = sum(int(np.prod(pm.shapes[n])) for n in pm.param_keys if n != "proj_out.weight")
    assert count == 37760640  # transformers' count for openai/whisper-tiny


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("build", ["whisper_model", "whisper_encoder", "whisper_decoder"])
@pytest.mark.parametrize("wrong", [0, -1, 2.5, "4", None, True])
def test_sizes_are_checked(build, at, wrong):
    sizes = [*SIZES[:at], wrong, *SIZES[at + 1 :]]
    with pytest.raises(ml.errors.ArgumentError, match=f"{build}: .* requires an integer"):
        getattr(ml.models, build)(*sizes)


def test_heads_divide_the_width():
    with pytest.raises(ml.errors.ArgumentError, match="num_heads must divide input_dim = 12"):
        ml.models.whisper_model(1, 12, 5, 8)
