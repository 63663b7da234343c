"""The blocks of FLUX against modules of PyTorch with the names of its checkpoints."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, check, draw
from torch import nn
from torch.nn.functional import gelu, layer_norm, rms_norm, scaled_dot_product_attention, silu

WIDTH, HEADS, TEXTS, PLACES, BATCH = 16, 2, 3, 5, 2


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH // HEADS))

    def forward(self, x):
        return rms_norm(x, x.shape[-1:], self.scale, 1e-6)


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_norm, self.key_norm = Scale(), Scale()


class Modulation(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.lin, self.count = nn.Linear(WIDTH, count * WIDTH), count

    def forward(self, vec):
        return self.lin(silu(vec))[:, None].chunk(self.count, -1)


def heads_of(packed):
    """Queries, keys and values [b, heads, places, head]."""
    b, n, _ = packed.shape
    return packed.view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)


def attend(q, k, v, angles):
    """Pairs of neighbours are complex numbers, which places turn (Su et al., arXiv:2104.09864)."""

    def turn(x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(3)

    found = scaled_dot_product_attention(turn(q), turn(k), v)
    return found.transpose(1, 2).flatten(2)


def modulate(x, shift, scale):
    return (1 + scale) * layer_norm(x, x.shape[-1:], eps=1e-6) + shift


class Double(nn.Module):
    def __init__(self, bias):
        super().__init__()
        for role in ("img", "txt"):
            setattr(self, f"{role}_mod", Modulation(6))
            attention = nn.Module()
            attention.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
            attention.norm, attention.proj = Norms(), nn.Linear(WIDTH, WIDTH)
            setattr(self, f"{role}_attn", attention)
            layers = nn.Linear(WIDTH, 3 * WIDTH), nn.GELU("tanh"), nn.Linear(3 * WIDTH, WIDTH)
            setattr(self, f"{role}_mlp", nn.Sequential(*layers))

    def forward(self, img, txt, vec, angles):
        streams, parts, packed = {"txt": txt, "img": img}, {}, []
        for role, x in streams.items():
            parts[role] = getattr(self, f"{role}_mod")(vec)
            attention = getattr(self, f"{role}_attn")
            q, k, v = heads_of(attention.qkv(modulate(x, *parts[role][:2])))
            packed.append((attention.norm.query_norm(q), attention.norm.key_norm(k), v))
        found = attend(*(torch.cat(pair, 2) for pair in zip(*packed, strict=True)), angles)
        found = dict(zip(streams, found.split([txt.shape[1], img.shape[1]], 1), strict=True))
        out = {}
        for role, x in streams.items():
            _, _, gate, shift, scale, last = parts[role]
            x = x + gate * getattr(self, f"{role}_attn").proj(found[role])
            out[role] = x + last * getattr(self, f"{role}_mlp")(modulate(x, shift, scale))
        return out["img"], out["txt"]


class Single(nn.Module):
    def __init__(self):
        super().__init__()
        self.modulation, self.norm = Modulation(3), Norms()
        self.linear1 = nn.Linear(WIDTH, 3 * WIDTH + 3 * WIDTH)
        self.linear2 = nn.Linear(WIDTH + 3 * WIDTH, WIDTH)

    def forward(self, x, vec, angles):
        shift, scale, gate = self.modulation(vec)
        packed, beside = self.linear1(modulate(x, shift, scale)).split([3 * WIDTH, 3 * WIDTH], -1)
        q, k, v = heads_of(packed)
        found = attend(self.norm.query_norm(q), self.norm.key_norm(k), v, angles)
        both = torch.cat([found, gelu(beside, approximate="tanh")], -1)
        return x + gate * self.linear2(both)


def inputs():
    """Data by name, and the angles whose rotations are the data `pe`."""
    rng = np.random.default_rng(5)
    shapes = {"img": (BATCH, PLACES, WIDTH), "txt": (BATCH, TEXTS, WIDTH), "vec": (BATCH, WIDTH)}
    data = {key: np.float32(rng.standard_normal(shape)) for key, shape in shapes.items()}
    angles = rng.uniform(-3, 3, (BATCH, 1, TEXTS + PLACES, WIDTH // HEADS // 2))
    cos, sin = np.cos(angles), np.sin(angles)
    pe = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
    return {**data, "pe": pe}, torch.from_numpy(angles)


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
@pytest.mark.parametrize("bias", [False, True])
def test_a_double_block_computes_what_pytorch_does(bias, case):
    data, angles = inputs()
    wide = [torch.from_numpy(data[key]).double() for key in ("img", "txt", "vec")]
    model = ml.models.double_stream_block(WIDTH, HEADS, 3.0, bias)
    module = draw(Double(bias))
    check(model, module, data, lambda m: m(*wide, angles), case, ("img_out", "txt_out"))


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
def test_a_single_block_computes_what_pytorch_does(case):
    data, angles = inputs()
    x = np.concatenate([data["txt"], data["img"]], 1)
    wide = [torch.from_numpy(value).double() for value in (x, data["vec"])]
    model = ml.models.single_stream_block(WIDTH, HEADS, 3.0)
    data = {"input": x, "vec": data["vec"], "pe": data["pe"]}
    check(model, draw(Single()), data, lambda m: m(*wide, angles), case)


@pytest.mark.parametrize("build", ["double_stream_block", "single_stream_block"])
@pytest.mark.parametrize(
    "arguments", [(0, 2), (8, 3), (8, "2"), (8, 2, 0.0), (8, 2, "4"), (8, 2, 0.01)]
)
def test_sizes_are_checked(build, arguments):
    with pytest.raises(ml.errors.ArgumentError, match=f"{build}: "):
        getattr(ml.models, build)(*arguments)
