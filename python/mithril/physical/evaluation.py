"""The calls that run a compiled model: `evaluate`, `predict`, by position, as a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from mithril.base.checks import checked_list
from mithril.base.public import public, public_with_shortcut, refusal, refuses_misfits
from mithril.errors import EmptyModelWarning, SignatureError, UnsupportedError, warn
from mithril.physical.face import Face
from mithril.physical.gradients import check_outputs
from mithril.physical.model_function import ModelFunction
from mithril.physical.predicting import predict
from mithril.physical.results import WithGradients, WithGradientsAndState, WithState
from mithril.physical.slow_path import Request, evaluate_slowly, evaluate_specially

if TYPE_CHECKING:
    from mithril.logical.connection import Connection
    from mithril.logical.typing import Arrays, Gradients


class Evaluation(Face):
    """The part of `PhysicalModel` that runs it."""

    _native_evaluate: Any  # the engine's: takes calls that need nothing of Python

    @overload
    def evaluate(
        self,
        params: Arrays | None = None,
        data: Arrays | None = None,
        *,
        output_gradients: Literal[False] | None = None,
        state: None = None,
        wrt: Iterable[str] | None = None,
        fetch: Iterable[str | Connection] | None = None,
        donate_state: bool = False,
        lazy: bool = False,
    ) -> dict[str, Any]: ...
    @overload
    def evaluate(
        self,
        params: Arrays | None = None,
        data: Arrays | None = None,
        *,
        output_gradients: Literal[True] | Gradients,
        state: None = None,
        wrt: Iterable[str] | None = None,
        fetch: Iterable[str | Connection] | None = None,
        donate_state: bool = False,
        lazy: bool = False,
    ) -> WithGradients: ...
    @overload
    def evaluate(
        self,
        params: Arrays | None = None,
        data: Arrays | None = None,
        *,
        output_gradients: Literal[False] | None = None,
        state: Arrays,
        wrt: Iterable[str] | None = None,
        fetch: Iterable[str | Connection] | None = None,
        donate_state: bool = False,
        lazy: bool = False,
    ) -> WithState: ...
    @overload
    def evaluate(
        self,
        params: Arrays | None = None,
        data: Arrays | None = None,
        *,
        output_gradients: Literal[True] | Gradients,
        state: Arrays,
        wrt: Iterable[str] | None = None,
        fetch: Iterable[str | Connection] | None = None,
        donate_state: bool = False,
        lazy: bool = False,
    ) -> WithGradientsAndState: ...

    @public_with_shortcut("_native_evaluate")
    @refuses_misfits
    def evaluate(
        self,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        *others: Any,
        output_gradients: Any = None,
        state: Mapping[str, Any] | None = None,
        wrt: Iterable[str] | None = None,
        fetch: Iterable[str | Connection] | None = None,
        donate_state: bool = False,
        lazy: bool = False,
        **unknown: Any,
    ) -> Any:
        """The outputs, and on request gradients and the next state.

        Parameters
        ----------
        params : the parameters; None or {} means the initial ones
        data : values of `data_keys`: arrays, lists or numbers
        output_gradients : gradients of the outputs: a dictionary, a function from the outputs to
            one, or True where there is one scalar output (or a cost)
        state : the state, where the model has one; without entries that it has not, but for the
            key of random numbers of a model in training, which inference does not look at
        wrt : further inputs whose gradients are wanted, where `output_gradients` asks for any
        fetch : further wires that are wanted, by name or path (``"blocks.3.attn"``: that of a
            submodel means its one output) or as connections; they stand in the result under what
            was given. For each set of them a program is compiled, of which 16 are kept.
        donate_state : whether the arrays in `state` may be overwritten. The CPU engine then appends
            to caches where they are, and the new state has the very arrays that were given; other
            backends copy as ever. Without a state it is an error.
        lazy : True: on MLX results are not waited for; they are computed when they are read. Other
            backends return what they return in any case.

        Returns
        -------
        The dictionary of outputs, with what was fetched, of a model without state where no
        gradients are wanted; else a named tuple of dictionaries:

        - gradients wanted: ``(outputs, gradients)``, the gradients by `trainable_keys` and `wrt`
        - a model with state (`state_keys`): ``(outputs, state)``, the state of the next call
        - both: ``(outputs, gradients, state)``

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.BatchNorm1D()(input="x", output="y")
        >>> shapes, data = {"x": [2, 1]}, {"x": [[1.0], [3.0]]}
        >>> pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys={"x"}, mode="train")
        >>> params, state = pm.get_parameters(), pm.initial_state()
        >>> result = pm.evaluate(params, data, state=state)
        >>> result._fields, result.state["running_mean"].tolist()
        (('outputs', 'state'), [0.20000000298023224])
        >>> pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys={"x"}, inference=True)
        >>> list(pm.evaluate({**params, **result.state}, data))
        ['y']
        """
        if others or unknown:
            raise refusal(Evaluation.evaluate, (self, params, data, *others), unknown)
        if lazy is not False or fetch is not None or donate_state is not False:
            return evaluate_specially(
                self, params, data, output_gradients, state, wrt, fetch, donate_state, lazy
            )
        if self._compilation.static is not None:
            self._compilation.static.check(data)
        result = self._fast_path.evaluate(params, data, state, output_gradients, wrt)
        if result is not None:
            return result
        return evaluate_slowly(self, params, data, Request(output_gradients, state, wrt, False))

    @public
    def predict(
        self,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The outputs of the model that is trained, as it infers: dropout is off and normalization
        takes its running statistics.

        No targets are needed; those in `data` are not looked at. The program is compiled at the
        first call, with ``mode="eval"``.

        Parameters
        ----------
        params : the parameters, by the names that training gives them
        data : values of what the outputs depend on
        state : of training, with the running statistics; a state that inference has too is given
            here, and `evaluate` of a model compiled with ``mode="eval"`` returns the next one

        Raises
        ------
        KeyNotFound : a parameter, a statistic or data are missing, or the state has more than
            training and inference

        >>> import mithril as ml
        >>> train = ml.TrainModel(ml.Relu())
        >>> train.add_loss(ml.SquaredError(), input="output", target="target")
        >>> pm = ml.compile(train, ml.NumpyBackend(), shapes={"input": [2]})
        >>> pm.predict({}, {"input": [-1.0, 2.0]})
        {'output': array([0., 2.], dtype=float32)}
        """
        return predict(self, params, data, state)

    @public
    def __call__(self, *data: Any, params: Any = None, state: Any = None, **named: Any) -> Any:
        """Evaluates data given by position (in the order of `data_keys`) or name.

        One output is returned as an array, several as a dictionary.
        """
        if not self.output_keys:
            warn("this model has no outputs", EmptyModelWarning)
            return {}
        try:
            bound = self.__signature__.bind(*data, **named).arguments
        except TypeError as error:
            raise SignatureError(f"{error}; this model is called as {self.__signature__}") from None
        result = self.evaluate(params, bound, state=state)
        outputs = result.outputs if isinstance(result, WithState) else result
        single = outputs[self.output_keys[0]] if len(self.output_keys) == 1 else outputs
        return WithState(single, result.state) if isinstance(result, WithState) else single

    @public
    def as_function(self, outputs: Iterable[str] | str | None = None) -> Callable[..., Any]:
        """A pure function ``f(params, data=None, state=None)`` that the framework can transform.

        It returns the dictionary of outputs, and for a model with state the named tuple ``(outputs,
        state)``. Arrays must be the backend's, in the dtypes of the model; nothing is checked or
        converted, so that `jax.jit`, `jax.grad`, `jax.vmap`, `torch.func`, `torch.compile`,
        `torch.export`, `mx.compile` and `mx.grad` see nothing but operations of their own.

        Parameters
        ----------
        outputs : which outputs are wanted, or the one that is; None: all

        Raises
        ------
        UnsupportedError : on NumPy and the engine, which have no such transformations
        """
        program, lists = self._compilation.program, self._compilation.lists
        if program is None or lists or not hasattr(program.forward, "function"):
            what = "lists of tensors" if lists else repr(self.backend)
            raise UnsupportedError(
                f"as_function: requires a framework backend and known ranks, got {what}"
            )
        if isinstance(outputs, str):
            outputs = [outputs]
        wanted = checked_list("as_function: outputs", outputs, "names of outputs", optional=True)
        names = wanted if outputs is not None else list(self.output_keys)
        check_outputs(self._compilation, "as_function: outputs", names)
        return ModelFunction(self, names)


__all__ = ["Evaluation"]
