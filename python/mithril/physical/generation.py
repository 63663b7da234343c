"""Tokens one after the other from a compiled language model: `generate`, `generate_stream`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mithril.base.checks import (
    checked_instance,
    checked_list,
    checked_mapping,
    checked_size,
    checked_str,
)
from mithril.base.numpy import np
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    DataIndexError,
    KeyNotFound,
    NotFiniteError,
    ShapeError,
    suggestion,
)
from mithril.physical.compilation import compilation_of
from mithril.physical.conversion import as_numpy
from mithril.physical.model import PhysicalModel
from mithril.physical.sampling import Sampler


@public
def generate(
    pm: PhysicalModel,
    params: Mapping[str, Any],
    tokens: Any,
    max_new_tokens: int,
    *,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_tokens: Iterable[int] = (),
    data: Mapping[str, Any] | None = None,
    input_key: str = "input",
    output_key: str = "output",
) -> np.ndarray:
    """Continues sequences of tokens by a language model.

    A model with a cache (`cache_size`) gets the prompt at once and then each token by itself, so
    that only attention depends on the tokens before it; one without gets all tokens again.

    Parameters
    ----------
    pm : a model compiled for inference, from tokens int [b, t] to logits [b, t, vocabulary]; with a
        cache, compile it with ``shapes={"input": [b, None]}``
    params : its parameters; {} where they are bound
    tokens : int [b, t] or [t], the prompts, of one length
    max_new_tokens : how many tokens follow at most
    temperature : tokens are drawn by softmax(logits / temperature); None: the likeliest is taken
    top_k : only so many likeliest tokens are drawn
    top_p : only the likeliest tokens that together have this probability are drawn (Holtzman et
        al., arXiv:1904.09751)
    seed : of the draws, which are the same on every backend with equal logits; None: any
    stop_tokens : a sequence that has one is at its end, and is filled up with it
    data : what else the model takes, such as the `memory` of a decoder
    input_key, output_key : the keys of tokens and logits

    Returns
    -------
    int64 [b, t + n], the prompts and what follows; n ≤ max_new_tokens, fewer if all sequences end

    Raises
    ------
    ArgumentError : a number out of its range, or more tokens than the cache has room for
    DataIndexError : a token that is negative, or not in the vocabulary of the logits
    OptionError : options of drawing without a temperature
    KeyNotFound : the model has no such input or output
    NotFiniteError : logits are NaN

    >>> import mithril as ml
    >>> gpt = ml.models.create_gpt(True, 16, 8, 2, 1, vocab_size=11, cache_size=16)
    >>> pm = ml.compile(gpt, ml.CpuBackend(), data_keys={"input"}, shapes={"input": [1, None]},
    ...                 inference=True)
    >>> params = pm.randomize_params(seed=0)
    >>> ml.models.generate(pm, params, [[3, 1, 4]], max_new_tokens=5).shape
    (1, 8)
    """
    loop = _Loop(
        pm, params, tokens, max_new_tokens, Sampler(temperature, top_k, top_p, seed), stop_tokens,
        data, input_key, output_key,
    )  # fmt: skip
    return np.concatenate([loop.tokens, *(new[:, None] for new in loop.run())], 1)


@public
def generate_stream(
    pm: PhysicalModel,
    params: Mapping[str, Any],
    tokens: Any,
    max_new_tokens: int,
    *,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_tokens: Iterable[int] = (),
    data: Mapping[str, Any] | None = None,
    input_key: str = "input",
    output_key: str = "output",
) -> Iterator[np.ndarray]:
    """The tokens that `generate` appends, int64 [b] each, as soon as they are known.

    Arguments and errors are those of `generate`; wrong arguments raise before the first token.

    >>> import mithril as ml
    >>> gpt = ml.models.create_gpt(True, 16, 8, 2, 1, vocab_size=11, cache_size=16)
    >>> pm = ml.compile(gpt, ml.CpuBackend(), data_keys={"input"}, shapes={"input": [1, None]},
    ...                 inference=True)
    >>> params = pm.randomize_params(seed=0)
    >>> stream = ml.models.generate_stream(pm, params, [[3, 1, 4]], max_new_tokens=5)
    >>> sum(1 for token in stream)
    5
    """
    sampler = Sampler(temperature, top_k, top_p, seed)
    return _Loop(
        pm, params, tokens, max_new_tokens, sampler, stop_tokens, data, input_key, output_key
    ).run()


class _Loop:
    """One prompt and what follows it; the arguments are checked when it is made."""

    def __init__(
        self, pm: Any, params: Any, tokens: Any, max_new_tokens: Any, sampler: Sampler,
        stop_tokens: Any, data: Any, input_key: Any, output_key: Any,
    ):  # fmt: skip

        self._pm = checked_instance("generate: pm", pm, PhysicalModel, "a compiled model")
        self._params = checked_mapping("generate: params", params)
        self._data = checked_mapping("generate: data", data)
        self._input = _known("input_key", input_key, pm.data_keys)
        self._output = _known("output_key", output_key, pm.output_keys)
        self._count = checked_size("generate: max_new_tokens", max_new_tokens, 0)
        self._sample = sampler
        self._stops = _integers("stop_tokens", stop_tokens)
        self.tokens = _prompt(tokens)
        self._vocabulary = self._known_vocabulary()
        self._check_tokens()
        self._state = self._first_state()
        self._check_room()

    def _known_vocabulary(self) -> int | None:
        shape = self._pm.get_shapes().get(self._output)
        last = shape[-1] if shape else None
        return last if isinstance(last, int) else None

    def _check_tokens(self) -> None:
        """Raises where the prompts have tokens that no logit is for: some backends look up others
        in their place."""
        if self._vocabulary is not None:
            wanted = f"below {self._vocabulary}, the size of the vocabulary in '{self._output}'"
            _refuse_where(self.tokens >= self._vocabulary, self.tokens, wanted)

    def _first_state(self) -> dict[str, Any]:
        if not self._pm.state_keys:
            return {}
        return self._pm.initial_state(sample={**self._data, self._input: self.tokens})

    def _check_room(self) -> None:
        caches = [v.shape[-2] for key, v in self._state.items() if key.endswith("k_cache")]
        self._check_places("a cache of", caches, "cache_size")
        self._check_places("embeddings of", self._embedded_places(), "block_size")

    def _check_places(self, what: str, sizes: list[int], option: str) -> None:
        prompt = self.tokens.shape[1]
        places = prompt + self._count - 1  # nothing is computed of the last one
        if not sizes or places <= min(sizes):
            return
        most = min(sizes) - prompt + 1
        fewer = f"give max_new_tokens={most} at most, or " if most > 0 else ""
        raise ArgumentError(
            f"generate: a prompt of {prompt} tokens in '{self._input}' and {self._count} more need"
            f" {places} places, got {what} {min(sizes)}",
            hint=f"{fewer}make the model with a larger {option}, of {places} at least",
        )

    def _embedded_places(self) -> list[int]:
        """Returns the sizes of position embeddings, which are called wpe as in GPT-2."""
        keys = [
            key for key in compilation_of(self._pm).keys if f".{key.path}".endswith(".wpe.weight")
        ]
        shapes = self._pm.get_shapes() if keys else {}
        return [size for key in keys for size in shapes[key.name][:1] if isinstance(size, int)]

    def run(self) -> Iterator[np.ndarray]:
        all_tokens = new = self.tokens
        ended = np.full(len(new), -1)
        for _ in range(self._count):
            chosen = self._sample(self._logits(new if self._state else all_tokens))
            chosen = np.where(ended >= 0, ended, chosen)
            ended = np.where(np.isin(chosen, self._stops), chosen, ended)
            yield chosen
            if (ended >= 0).all():
                return
            new = chosen[:, None]
            if not self._state:
                all_tokens = np.concatenate([all_tokens, new], 1)

    def _logits(self, tokens: np.ndarray) -> np.ndarray:
        """Returns the logits of what follows the last of the tokens, float64 [b, vocabulary]."""
        data = {**self._data, self._input: tokens}
        if self._state:
            result = self._pm.evaluate(self._params, data, state=self._state, donate_state=True)
            outputs, self._state = result.outputs, result.state
        else:
            outputs = self._pm.evaluate(self._params, data)
        logits = self._pm.backend.to_numpy(outputs[self._output])
        if logits.ndim != 3:
            raise ShapeError(
                f"generate: '{self._output}' must be logits [b, t, vocabulary], got"
                f" {list(logits.shape)}"
            )
        if self._vocabulary is None:
            self._vocabulary = logits.shape[-1]
            self._check_tokens()
        last = logits[:, -1].astype(np.float64)
        if np.isnan(last).any():
            raise NotFiniteError(f"generate: '{self._output}' is NaN behind the last token")
        return last


def _known(what: str, key: Any, keys: Iterable[str]) -> str:
    if checked_str(f"generate: {what}", key) not in keys:
        kind = "data key" if what == "input_key" else "output"
        raise KeyNotFound(
            f"generate: the model has no {kind} '{key}'{suggestion(key, keys)}",
            hint=f"give {what}=",
        )
    return key


def _prompt(tokens: Any) -> np.ndarray:
    array = np.atleast_2d(_integers("tokens", tokens))
    if array.ndim != 2 or array.size == 0:
        raise ShapeError(
            f"generate: tokens require shape [b, t] with at least one, got {list(array.shape)}"
        )
    _refuse_where(array < 0, array, "of at least 0")
    return array


def _refuse_where(wrong: np.ndarray, tokens: np.ndarray, wanted: str) -> None:
    if wrong.any():
        first = tuple(int(places[0]) for places in wrong.nonzero())
        raise DataIndexError(
            f"generate: tokens require integers {wanted}, got {tokens[first]} at {list(first)}"
        )


def _integers(what: str, values: Any) -> np.ndarray:
    if not hasattr(values, "shape"):  # a range may promise more than any memory has
        values = checked_list(f"generate: {what}", values, "tokens")
    array = as_numpy(values, what)
    if array.dtype.kind not in "iu" and array.size:
        raise ArgumentError(f"generate: {what} require integers, got {array.dtype}")
    return array.astype(np.int64)


__all__ = ["generate", "generate_stream"]
