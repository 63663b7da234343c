"""The two oracles agree on attention and what stands around it."""

import numpy as np
import pytest
from mithril.testing import oracle_attention

torch = pytest.importorskip("torch")
torch_attention = pytest.importorskip("mithril.testing.torch_attention")


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape)


QUERY, KEY, VALUE = random(2, 4, 3, 5), random(2, 2, 6, 5), random(2, 2, 6, 2)
SEEN = random(3, 6) > -0.5
SEEN[:, 0] = True
CALLS = {
    "attention": ((QUERY, KEY, VALUE), {"enable_gqa": True}),
    "causal": ((QUERY, KEY, VALUE, SEEN), {"enable_gqa": True, "is_causal": True, "offset": 2}),
    "biased": ((QUERY[0], QUERY[1], QUERY[1], random(3, 3), random(4, 1, 3)), {"scale": 0.3}),
    "split_heads": ((random(2, 3, 6), 2), {}),
    "merge_heads": ((QUERY,), {}),
    "update_cache": ((KEY, random(2, 2, 3, 5), 2), {}),
    "rotary_embedding": ((random(2, 3, 6),), {"offset": 4, "width": 4}),
    "interleaved": ((random(3, 6),), {"theta": 50.0, "interleaved": True}),
}
OF = {"causal": "attention", "biased": "attention", "interleaved": "rotary_embedding"}


@pytest.mark.frameworks
@pytest.mark.parametrize("name", CALLS)
def test_both_oracles_agree(name):
    args, attrs = CALLS[name]
    of = OF.get(name, name)
    want = oracle_attention.TABLE[of](*args, **attrs)
    tensors = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    got = torch_attention.TABLE[of](*tensors, **attrs)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-13)
