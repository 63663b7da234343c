"""A nest shaped like FLUX.1 (Black Forest Labs 2024): 57 blocks, image and text tokens beside
each other, joined in one attention, both modulated by a vector."""

import mithril as ml

BLOCKS, WIDTH, HEADS = 57, 3072, 24


def modulation(width: int) -> ml.Model:
    """The vector [b, w] to shift, scale and gate, twice, each [b, 1, w]."""
    model = ml.Model()
    model |= ml.SiLU()(input="vector", output="active")
    model |= ml.Linear(6 * width, name="lin")(input="active", output="all")
    model |= ml.models.ExpandDims(1)(input="all", output="apart")
    model |= ml.Split(6, axis=-1)(input="apart", output="parts")
    model.expose_keys("parts")
    return model


def modulated(model: ml.Model, parts: ml.Connection, first: int, key: str) -> ml.Connection:
    """LayerNorm without parameters, scaled and shifted."""
    model |= ml.LayerNorm(use_scale=False, use_bias=False)(input=key, output=f"{key}_normed")
    return (1 + parts[first + 1]) * model[f"{key}_normed"] + parts[first]


def heads_of(width: int, heads: int) -> ml.Model:
    """One stream to its queries, keys and values [b, heads, t, w / heads]."""
    model = ml.Model()
    parts = ml.IOKey("parts", type=list)
    joint = modulated(model, parts, 0, "input")
    model |= ml.Linear(3 * width, name="qkv")(input=joint, output="joint")
    model |= ml.Split(3, axis=-1)(input="joint", output="pieces")
    for i, name in enumerate(("query", "key", "value")):
        piece = model.pieces[i]
        by_head = piece.reshape((piece.shape[0], piece.shape[1], heads, width // heads))
        model |= ml.Transpose((0, 2, 1, 3))(input=by_head, output=name)
    model.expose_keys("query", "key", "value")
    return model


def end(width: int) -> ml.Model:
    """One stream from what attention gave it to the end of the block."""
    model = ml.Model()
    parts = ml.IOKey("parts", type=list)
    model |= ml.Linear(width, name="proj")(input="mixed", output="projected")
    model |= ml.Add()(left="input", right=parts[2] * model.projected, output="middle")
    wide = modulated(model, parts, 3, "middle")
    model |= ml.Linear(4 * width, name="mlp_in")(input=wide)
    model += ml.Gelu(approximate=True)
    model += ml.Linear(width, name="mlp_out")(output="narrow")
    model |= ml.Add()(left="middle", right=parts[5] * model.narrow, output="output")
    model.expose_keys("output")
    return model


def block(width: int, heads: int, name: str) -> ml.Model:
    model = ml.Model(name=name)
    for stream in ("img", "txt"):
        model |= modulation(width)(vector="vector", parts=f"{stream}_parts")
        model |= heads_of(width, heads)(
            input=stream,
            parts=f"{stream}_parts",
            **{key: f"{stream}_{key}" for key in ("query", "key", "value")},
        )
    for key in ("query", "key", "value"):
        both = [model[f"txt_{key}"], model[f"img_{key}"]]
        model |= ml.Concat(axis=2)(input=both, output=key)
    model |= ml.ScaledDotProduct()(query="query", key="key", value="value", output="by_head")
    model |= ml.Transpose((0, 2, 1, 3))(input="by_head", output="by_token")
    shape = model.by_token.shape
    mixed = model.by_token.reshape((shape[0], shape[1], width))
    texts = model.txt.shape[1]
    for stream, rows in (("txt", (slice(None), slice(None, texts))), ("img", None)):
        taken = mixed[rows] if rows else mixed[:, texts:]
        model |= end(width)(
            input=stream, parts=f"{stream}_parts", mixed=taken, output=f"{stream}_out"
        )
    model.expose_keys("img_out", "txt_out")
    return model


def flux(blocks: int = BLOCKS, width: int = WIDTH, heads: int = HEADS) -> ml.Model:
    """Image tokens [b, i, w], text tokens [b, t, w] and a vector [b, w] to both streams."""
    model = ml.Model(name="flux")
    for i in range(blocks):
        model |= block(width, heads, f"block_{i}")(
            img=f"img_{i}",
            txt=f"txt_{i}",
            vector="vector",
            img_out=f"img_{i + 1}",
            txt_out=f"txt_{i + 1}",
        )
    model.expose_keys(f"img_{blocks}", f"txt_{blocks}")
    return model
