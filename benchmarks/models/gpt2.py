"""A GPT-2-shaped language model (Radford et al. 2019, the 124M size), composed of ops."""

import mithril as ml

LAYERS, WIDTH, HEADS, VOCABULARY, PLACES = 12, 768, 12, 50257, 1024


def attention(width: int, heads: int) -> ml.Model:
    """Causal self-attention: one projection to queries, keys and values, split, joined again."""
    model = ml.Model()
    model |= ml.Linear(3 * width, name="c_attn")(input="input", output="qkv")
    model |= ml.Split(3, axis=-1)(input="qkv", output="parts")
    shape = model.qkv.shape
    head = (shape[0], shape[1], heads, width // heads)
    for i, name in enumerate(("query", "key", "value")):
        by_head = model.parts[i].reshape(head)
        model |= ml.Transpose((0, 2, 1, 3))(input=by_head, output=name)
    model |= ml.ScaledDotProduct(is_causal=True)(
        query="query", key="key", value="value", output="mixed"
    )
    model |= ml.Transpose((0, 2, 1, 3))(input="mixed", output="by_place")
    joined = model.by_place.reshape((shape[0], shape[1], width))
    model |= ml.Linear(width, name="c_proj")(input=joined, output="output")
    model.expose_keys("output")
    return model


def block(width: int, heads: int, name: str) -> ml.Model:
    model = ml.Model(name=name)
    model |= ml.LayerNorm(eps=1e-5, name="ln_1")(input="input", output="ln_1_out")
    model |= attention(width, heads)(input="ln_1_out", output="attn_out")
    model |= ml.Add()(left="input", right="attn_out", output="middle")
    model |= ml.LayerNorm(eps=1e-5, name="ln_2")(input="middle")
    model += ml.Linear(4 * width, name="c_fc")
    model += ml.Gelu(approximate="tanh")
    model += ml.Linear(width, name="c_proj")(output="mlp_out")
    model |= ml.Add()(left="middle", right="mlp_out", output="output")
    model.expose_keys("output")
    return model


def gpt2(
    layers: int = LAYERS,
    width: int = WIDTH,
    heads: int = HEADS,
    vocabulary: int = VOCABULARY,
    places: int = PLACES,
) -> ml.Model:
    """Token numbers [b, t] to logits [b, t, vocabulary]; the embedding is used twice."""
    model = ml.Model(name="gpt2")
    model |= ml.Embedding(vocabulary, width, name="wte")(
        input="tokens", weight="wte", output="token_vectors"
    )
    model |= ml.Embedding(places, width, name="wpe")(input="places", output="place_vectors")
    model |= ml.Add()(left="token_vectors", right="place_vectors", output="h_0")
    for i in range(layers):
        model |= block(width, heads, f"h_{i}")(input=f"h_{i}", output=f"h_{i + 1}")
    model |= ml.LayerNorm(eps=1e-5, name="ln_f")(input=f"h_{layers}", output="last")
    model |= ml.Linear(vocabulary, use_bias=False, name="head")(
        input="last", weight="wte", output="logits"
    )
    model.expose_keys("logits")
    return model
