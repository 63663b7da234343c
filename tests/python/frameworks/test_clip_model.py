"""`clip` against transformers' CLIP (images by a transformer), and against modules of PyTorch with
OpenAI's names (images by a residual network)."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, check, compiled, draw
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore::mithril.errors.ModeWarning")

EMBED, PLACES, WORDS, WIDTH, HEADS, LAYERS = 6, 7, 19, 8, 2, 2
TEXT = {"context_length": PLACES, "vocab_size": WORDS, "transformer_width": WIDTH,
        "transformer_heads": HEADS, "transformer_layers": LAYERS}  # fmt: skip


def texts(count):
    """Tokens that end with the greatest one, at different places."""
    rng = np.random.default_rng(2)
    tokens = rng.integers(1, WORDS - 1, (count, PLACES))
    for i in range(count):
        tokens[i, 3 + i] = WORDS - 1
        tokens[i, 4 + i :] = 0
    return tokens


def images(count, side):
    return np.float32(np.random.default_rng(3).standard_normal((count, 3, side, side)))


def run_on(data):
    image, text = torch.from_numpy(data["image"]).double(), torch.from_numpy(data["text"])
    return lambda module: module(image, text)


# --- images by a transformer ----------------------------------------------------------------------


def renamed(arrays):
    """A dictionary by the names of transformers' CLIP, by OpenAI's."""
    arrays = {name: np.asarray(value.detach() if hasattr(value, "detach") else value)
              for name, value in arrays.items()}  # fmt: skip
    out = {"logit_scale": arrays["logit_scale"]}
    out["visual.proj"] = arrays["visual_projection.weight"].T
    out["text_projection"] = arrays["text_projection.weight"].T
    old, new = "vision_model.embeddings.", "visual."
    out[f"{new}class_embedding"] = arrays[f"{old}class_embedding"]
    out[f"{new}conv1.weight"] = arrays[f"{old}patch_embedding.weight"]
    out[f"{new}positional_embedding"] = arrays[f"{old}position_embedding.weight"]
    out["token_embedding.weight"] = arrays["text_model.embeddings.token_embedding.weight"]
    out["positional_embedding"] = arrays["text_model.embeddings.position_embedding.weight"]
    norms = {"vision_model.pre_layrnorm": "visual.ln_pre",
             "vision_model.post_layernorm": "visual.ln_post",
             "text_model.final_layer_norm": "ln_final"}  # fmt: skip
    for theirs, ours in norms.items():
        for kind in ("weight", "bias"):
            out[f"{ours}.{kind}"] = arrays[f"{theirs}.{kind}"]
    for side, prefix in (("vision_model", "visual."), ("text_model", "")):
        for i in range(LAYERS):
            old, new = f"{side}.encoder.layers.{i}.", f"{prefix}transformer.resblocks.{i}."
            for kind in ("weight", "bias"):
                packed = [arrays[f"{old}self_attn.{role}_proj.{kind}"] for role in "qkv"]
                out[f"{new}attn.in_proj_{kind}"] = np.concatenate(packed)
                parts = {"self_attn.out_proj": "attn.out_proj", "layer_norm1": "ln_1",
                         "layer_norm2": "ln_2", "mlp.fc1": "mlp.c_fc",
                         "mlp.fc2": "mlp.c_proj"}  # fmt: skip
                for theirs, ours in parts.items():
                    out[f"{new}{ours}.{kind}"] = arrays[f"{old}{theirs}.{kind}"]
    return out


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
def test_with_a_transformer_it_computes_what_transformers_does(case):
    transformers = pytest.importorskip("transformers")
    text = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "vocab_size": WORDS, "max_position_embeddings": PLACES,
            "bos_token_id": 1, "eos_token_id": WORDS - 1, "pad_token_id": 0}  # fmt: skip
    vision = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": LAYERS,
              "num_attention_heads": 2, "image_size": 8, "patch_size": 4}  # fmt: skip
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=EMBED)
    module = draw(transformers.CLIPModel(config))
    data = {"image": images(3, 8), "text": texts(2)}

    image, text = torch.from_numpy(data["image"]).double(), torch.from_numpy(data["text"])

    def run(m):
        got = m(input_ids=text, pixel_values=image)
        return got.logits_per_image, got.logits_per_text

    model = ml.models.clip(EMBED, 8, LAYERS, 128, 4, **TEXT)
    outputs = ("logits_per_image", "logits_per_text")
    check(model, module, data, run, case, outputs, renamed)


# --- images by a residual network -----------------------------------------------------------------


class Bottleneck(nn.Module):
    def __init__(self, before, filters, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, filters, 1, bias=False), nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.conv3 = nn.Conv2d(filters, 4 * filters, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * filters)
        self.stride, self.downsample = stride, None
        if stride > 1 or before != 4 * filters:
            self.downsample = nn.Sequential()
            self.downsample.add_module("-1", nn.AvgPool2d(stride))
            self.downsample.add_module("0", nn.Conv2d(before, 4 * filters, 1, bias=False))
            self.downsample.add_module("1", nn.BatchNorm2d(4 * filters))

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        y = self.bn3(self.conv3(functional.avg_pool2d(y, self.stride)))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class AttentionPool(nn.Module):
    def __init__(self, places, width, heads, embed_dim):
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.zeros(places + 1, width))
        self.k_proj, self.q_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.c_proj = nn.Linear(width, width), nn.Linear(width, embed_dim)
        self.heads = heads

    def forward(self, x):
        x = x.flatten(2).permute(2, 0, 1)
        x = torch.cat([x.mean(0, keepdim=True), x]) + self.positional_embedding[:, None]
        projections = (self.q_proj, self.k_proj, self.v_proj)
        found, _ = functional.multi_head_attention_forward(
            x[:1], x, x, x.shape[-1], self.heads, None,
            torch.cat([p.bias for p in projections]), None, None, False, 0.0,
            self.c_proj.weight, self.c_proj.bias, need_weights=False,
            use_separate_proj_weight=True, q_proj_weight=self.q_proj.weight,
            k_proj_weight=self.k_proj.weight, v_proj_weight=self.v_proj.weight,
        )  # fmt: skip
        return found[0]


class Visual(nn.Module):
    def __init__(self, layers, width, side, embed_dim):
        super().__init__()
        sizes = [(3, width // 2, 2), (width // 2, width // 2, 1), (width // 2, width, 1)]
        for i, (cin, cout, stride) in enumerate(sizes, 1):
            setattr(self, f"conv{i}", nn.Conv2d(cin, cout, 3, stride, 1, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(cout))
        before = width
        for i, count in enumerate(layers):
            blocks = []
            for j in range(count):
                blocks.append(Bottleneck(before, width * 2**i, 2 if i and not j else 1))
                before = 4 * width * 2**i
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.attnpool = AttentionPool((side // 32) ** 2, before, width * 32 // 64, embed_dim)

    def forward(self, x):
        for i in (1, 2, 3):
            x = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)).relu()
        x = functional.avg_pool2d(x, 2)
        for i in (1, 2, 3, 4):
            x = getattr(self, f"layer{i}")(x)
        return self.attnpool(x)


class QuickGelu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class TextBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS)
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(WIDTH, 4 * WIDTH))
        self.mlp.add_module("gelu", QuickGelu())
        self.mlp.add_module("c_proj", nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        y = self.ln_1(x)
        mask = torch.full((PLACES, PLACES), float("-inf"), dtype=x.dtype).triu(1)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class Clip(nn.Module):
    def __init__(self, layers, width, side):
        super().__init__()
        self.visual = Visual(layers, width, side, EMBED)
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.Sequential(*(TextBlock() for _ in range(LAYERS)))
        self.token_embedding = nn.Embedding(WORDS, WIDTH)
        self.positional_embedding = nn.Parameter(torch.zeros(PLACES, WIDTH))
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(torch.zeros(WIDTH, EMBED))
        self.logit_scale = nn.Parameter(torch.zeros([]))

    def forward(self, image, text):
        x = (self.token_embedding(text) + self.positional_embedding).transpose(0, 1)
        x = self.ln_final(self.transformer.resblocks(x).transpose(0, 1))
        text = x[torch.arange(len(x)), text.argmax(-1)] @ self.text_projection
        image, text = functional.normalize(self.visual(image)), functional.normalize(text)
        logits = self.logit_scale.exp() * image @ text.T
        return logits, logits.T


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_with_a_residual_network_it_computes_what_pytorch_does(case):
    layers, width, side = (1, 2, 1, 1), 4, 64
    module, data = draw(Clip(layers, width, side)), {"image": images(2, side), "text": texts(3)}
    model = ml.models.clip(EMBED, side, layers, width, 0, **TEXT)
    check(model, module, data, run_on(data), case, ("logits_per_image", "logits_per_text"))


def test_the_model_of_the_documents_sees_with_a_resnet50():
    model = ml.models.clip(
        embed_dim=512, image_resolution=224, vision_layers=(3, 4, 6, 3), vision_width=64,
        vision_patch_size=0, context_length=77, vocab_size=49408, transformer_width=512,
        transformer_heads=8, transformer_layers=12,
    )  # fmt: skip
    data = {"image": np.zeros((1, 3, 224, 224)), "text": np.zeros((1, 77), int)}
    pm = compiled(model, data, inference=True)
    with torch.device("meta"):
        visual = Visual((3, 4, 6, 3), 64, 224, 512)
    for name, value in visual.named_parameters():
        got = [n for n in pm.shapes[f"visual.{name}"] if n != 1]
        assert got == [n for n in value.shape if n != 1], name
    trained = sum(int(np.prod(pm.shapes[n])) for n in pm.param_keys if "running" not in n)
    # OpenAI's RN50 has 102007137 parameters, with an embedding of 1024 that is 512 here.
    assert trained == 102007137 - (512 * 2048 + 512) - 512 * 512
    assert pm.shapes["logits_per_image"] == [1, 1]


WRONG = {
    "embed_dim": 0, "image_resolution": 63, "vision_layers": (1, 1, 1), "vision_width": 3,
    "context_length": -1, "vocab_size": 2.5, "transformer_width": "8", "transformer_heads": 3,
    "transformer_layers": True,
}  # fmt: skip


@pytest.mark.parametrize("key", WRONG)
def test_sizes_are_checked(key):
    good = {"embed_dim": EMBED, "image_resolution": 64, "vision_layers": (1, 1, 1, 1),
            "vision_width": 4, "vision_patch_size": 0, **TEXT}  # fmt: skip
    with pytest.raises(ml.errors.ArgumentError, match=f"clip: .*{key}"):
        ml.models.clip(**{**good, key: WRONG[key]})


def test_patches_tile_the_image():
    with pytest.raises(
        ml.errors.ArgumentError, match="vision_patch_size must divide .* = 8, got 3"
    ):
        ml.models.clip(EMBED, 8, 1, 64, 3, **TEXT)
    with pytest.raises(ml.errors.ArgumentError, match="vision_width must be a multiple of 64"):
        ml.models.clip(EMBED, 8, 1, 96, 4, **TEXT)
