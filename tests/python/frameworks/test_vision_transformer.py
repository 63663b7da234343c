"""Vision transformers against modules of PyTorch with torchvision's names."""

from functools import partial

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, check, compiled, draw
from torch import nn

# torchvision.models, column "Num. Params" of its tables of weights.
PARAMETERS = {"vit_b_16": 86567656, "vit_b_32": 88224232, "vit_l_16": 304326632}


class Block(nn.Module):
    def __init__(self, heads, width, mlp_dim):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, mlp_dim), nn.GELU(), nn.Dropout(0.0), nn.Linear(mlp_dim, width)
        )

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, places, layers, heads, width, mlp_dim):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, places, width))
        blocks = {f"encoder_layer_{i}": Block(heads, width, mlp_dim) for i in range(layers)}
        self.layers = nn.Sequential()
        for name, block in blocks.items():
            self.layers.add_module(name, block)
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x):
        return self.ln(self.layers(x + self.pos_embedding))


class Vit(nn.Module):
    def __init__(self, image, patch, layers, heads, width, mlp_dim, classes):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.encoder = Encoder((image // patch) ** 2 + 1, layers, heads, width, mlp_dim)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(width, classes))

    def forward(self, image):
        x = self.conv_proj(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        return self.heads(self.encoder(x)[:, 0])


SIZES = (16, 4, 2, 2, 8, 12, 5)
FULL = {"vit_b_16": (16, 12, 12, 768, 3072), "vit_b_32": (32, 12, 12, 768, 3072),
        "vit_l_16": (16, 24, 16, 1024, 4096)}  # fmt: skip


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
def test_it_computes_what_pytorch_does(case):
    module = draw(Vit(*SIZES))
    image = np.float32(np.random.default_rng(2).standard_normal((3, 3, 16, 16)))
    model = ml.models.vision_transformer.vision_transformer(*SIZES)
    wide = torch.from_numpy(image).double()
    check(model, module, {"input": image}, lambda m: m(wide), case, gradients=True)


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_has_the_parameters_that_are_published(name):
    model = getattr(ml.models, name)(num_classes=1000)
    pm = compiled(model, {"input": np.zeros((1, 3, 224, 224))}, inference=True)
    with torch.device("meta"):
        module = Vit(224, *FULL[name], 1000)
    sizes = {n: [d for d in p.shape if d != 1] for n, p in module.named_parameters()}
    assert {n: [d for d in pm.shapes[n] if d != 1] for n in pm.param_keys} == sizes
    assert sum(int(np.prod(pm.shapes[n])) for n in sizes) == PARAMETERS[name]


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("wrong", [0, -1, 2.5, "4", None, True])
def test_sizes_are_checked(at, wrong):
    sizes = [*SIZES[:at], wrong, *SIZES[at + 1 :]]
    with pytest.raises(ml.errors.ArgumentError, match="vision_transformer: .* requires"):
        ml.models.vision_transformer.vision_transformer(*sizes)


def test_what_must_divide_is_said():
    build = partial(ml.models.vision_transformer.vision_transformer, num_classes=5)
    with pytest.raises(ml.errors.ArgumentError, match="patch_size must divide image_size = 16"):
        build(16, 5, 2, 2, 8, 12)
    with pytest.raises(ml.errors.ArgumentError, match="num_heads must divide hidden_dim = 8"):
        build(16, 4, 2, 3, 8, 12)
