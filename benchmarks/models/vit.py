"""ViT (Dosovitskiy et al., arXiv:2010.11929, the B/16 size), composed of ops, as torchvision lays
it out; its blocks are GPT-2's without the mask."""

import mithril as ml

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
    patches = (size // patch) ** 2
    model = ml.Model(name="vit")
    model |= ml.Conv2d(filters=width, kernel_size=patch, stride=patch, name="patches")(
        input="image", output="grid"
    )
    batch = model.grid.shape[0]
    flat = model.grid.reshape((batch, width, patches))
    model |= ml.Transpose((0, 2, 1))(input=flat, output="patch_vectors")
    token = ml.IOKey("token", shape=[1, 1, width], differentiable=True)
    model |= ml.BroadcastTo()(input=token, shape=(batch, 1, width), output="tokens")
    model |= ml.Concat(axis=1)(input=[model.tokens, model.patch_vectors], output="sequence")
    places = ml.IOKey("places", shape=[1, patches + 1, width], differentiable=True)
    model |= ml.Add()(left="sequence", right=places, output="h_0")
    for i in range(layers):
        model |= gpt2.block(width, heads, f"h_{i}", **BLOCK)(input=f"h_{i}", output=f"h_{i + 1}")
    model |= ml.LayerNorm(eps=EPS, name="ln")(input=f"h_{layers}", output="last")
    model |= ml.Linear(classes, name="head")(input=model.last[:, 0], output="logits")
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
