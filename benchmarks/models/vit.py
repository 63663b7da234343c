"""ViT (Dosovitskiy et al., arXiv:2010.11929, the B/16 size), and the same by hand in PyTorch, whose
blocks are GPT-2's without the mask."""

import mithril as ml
from mithril.models.vision_transformer import vision_transformer

from benchmarks.models import gpt2

SIZE, PATCH, LAYERS, WIDTH, HEADS, CLASSES = 224, 16, 12, 768, 12, 1000
EPS = 1e-6
BLOCK = {"is_causal": False, "tanh": False, "eps": EPS}


def vit(
    size: int = SIZE,
    patch: int = PATCH,
    layers: int = LAYERS,
    width: int = WIDTH,
    heads: int = HEADS,
    classes: int = CLASSES,
) -> ml.Model:
    """Images [n, 3, size, size] to logits [n, classes], read off the token in front of patches."""
    model = ml.Model(name="vit")
    network = vision_transformer(size, patch, layers, heads, width, 4 * width, classes)
    model |= network(input="image", output="logits")
    model.expose_keys("logits")
    return model


def torch_model(size: int, patch: int, layers: int, width: int, heads: int, classes: int):
    """As people write it in PyTorch; parameters come in the order of the mithril model's."""
    import torch
    from torch import nn

    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.zeros(1, 1, width))
            self.places = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))

        def forward(self, x):
            return torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places

    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, patch)
            self.places = Places()
            blocks = (gpt2.torch_block(width, heads, **BLOCK) for _ in range(layers))
            self.blocks = nn.Sequential(*blocks)
            self.ln = nn.LayerNorm(width, EPS)
            self.head = nn.Linear(width, classes)

        def forward(self, image):
            x = self.places(self.patches(image).flatten(2).transpose(1, 2))
            return self.head(self.ln(self.blocks(x))[:, 0])

    return Vit()
