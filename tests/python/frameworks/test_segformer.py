"""`segformer_semantic_segmentation` against transformers' SegFormer with random weights."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, check, compiled, draw

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::mithril.errors.ModeWarning")

CONFIG = {"depths": [2, 1, 1], "hidden_sizes": [4, 8, 10], "num_attention_heads": [1, 2, 5],
          "sr_ratios": [4, 2, 1], "patch_sizes": [7, 3, 3], "strides": [4, 2, 2],
          "mlp_ratios": [2, 3, 1], "decoder_hidden_size": 6, "num_labels": 3}  # fmt: skip
SIDES = (32, 48)


def module(**changed):
    options = {**CONFIG, "num_encoder_blocks": 3, **changed}
    config = transformers.SegformerConfig(**options)
    return draw(transformers.SegformerForSemanticSegmentation(config))


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
def test_it_computes_what_transformers_does(case):
    image = np.float32(np.random.default_rng(2).standard_normal((2, 3, *SIDES)))
    wide = torch.from_numpy(image).double()
    model = ml.models.segformer_semantic_segmentation(CONFIG, SIDES)
    check(model, module(), {"input": image}, lambda m: m(wide).logits, case)


def test_the_smallest_one_has_the_parameters_of_transformers():
    with torch.device("meta"):
        theirs = transformers.SegformerForSemanticSegmentation(
            transformers.SegformerConfig(num_labels=19)
        )
    model = ml.models.segformer_semantic_segmentation({"num_labels": 19}, 64)
    pm = compiled(model, {"input": np.zeros((1, 3, 64, 64))}, inference=True)
    sizes = {n: [d for d in p.shape if d != 1] for n, p in theirs.named_parameters()}
    own = [name for name in pm.param_keys if "running" not in name]
    assert {n: [d for d in pm.shapes[n] if d != 1] for n in own} == sizes


def test_a_configuration_of_transformers_is_one():
    model = ml.models.segformer_semantic_segmentation(module().config, SIDES)
    pm = compiled(model, {"input": np.zeros((1, 3, *SIDES))}, inference=True)
    assert pm.shapes["output"] == [1, 3, 8, 12]


@pytest.mark.parametrize(
    ("changed", "side", "error", "said"),
    [
        ({"num_labels": 0}, 32, ml.errors.ArgumentError, "num_labels"),
        (
            {"depths": [1, 1]},
            32,
            ml.errors.ArgumentError,
            "one number for each stage, got depths 2",
        ),
        ({"strides": 4}, 32, ml.errors.SignatureError, "strides"),
        ({"mlp_ratios": [1, 2, 0]}, 32, ml.errors.ArgumentError, "mlp_ratios"),
        ({"num_attention_heads": [1, 3, 5]}, 32, ml.errors.ArgumentError, "must divide hidden_siz"),
        ({}, 0, ml.errors.ArgumentError, "image_size"),
        ({}, (32, 32, 32), ml.errors.ArgumentError, "height and width, got 3"),
        ({}, "32", ml.errors.SignatureError, "image_size"),
    ],
)
def test_wrong_entries_are_refused(changed, side, error, said):
    with pytest.raises(error, match=said):
        ml.models.segformer_semantic_segmentation({**CONFIG, **changed}, side)


@pytest.mark.parametrize("config", [{}, None, 3])
def test_labels_are_counted_by_the_configuration(config):
    with pytest.raises(ml.KeyNotFound, match="config has no entry 'num_labels'"):
        ml.models.segformer_semantic_segmentation(config, 32)
