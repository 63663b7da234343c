"""`evaluate`, in six steps, and the other ways to run a compiled model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from mithril.base.checks import checked_bool, checked_list, checked_mapping
from mithril.base.public import public, public_with_shortcut, refusal, refuses_misfits
from mithril.errors import (
    ArgumentError,
    EmptyModelWarning,
    ShapeError,
    SignatureError,
    UnsupportedError,
    warn,
)
from mithril.physical.compilation import Call, Compilation
from mithril.physical.face import Face
from mithril.physical.fast_path import FastPath
from mithril.physical.fetch import fetching
from mithril.physical.gradients import (
    check_gradients_allowed,
    check_gradients_wanted,
    check_outputs,
    cotangents_of,
    names_of_inputs,
    wanted_gradients,
)
from mithril.physical.inputs import check, check_states, convert, gather
from mithril.physical.model_function import ModelFunction
from mithril.physical.open_kinds import model_for_kinds
from mithril.physical.predicting import predict
from mithril.physical.program import Program
from mithril.physical.results import (
    Results,
    WithGradients,
    WithGradientsAndState,
    WithState,
    named,
)
from mithril.physical.single_numbers import as_given, as_numbers, single_numbers

if TYPE_CHECKING:
    from mithril.logical.connection import Connection
    from mithril.logical.typing import Arrays, Gradients


class Request(NamedTuple):
    """The results that a call asks for beside the outputs."""

    gradients: Any  # `output_gradients`
    wrt: Iterable[str] | None
    donates_state: bool


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
        if checked_bool("evaluate: lazy", lazy):
            again: Any = self.evaluate  # whose overloads are for callers
            with self.backend.without_waiting():
                return again(
                    params,
                    data,
                    output_gradients=output_gradients,
                    state=state,
                    wrt=wrt,
                    fetch=fetch,
                    donate_state=donate_state,
                )
        if self._compilation.static is not None:
            self._compilation.static.check(data)
        if donate_state is not False and checked_bool("evaluate: donate_state", donate_state):
            _refuse_nothing_donated(self, state)
        if fetch is not None:
            return fetching(self, fetch).evaluate(
                params,
                data,
                output_gradients=output_gradients,
                state=state,
                wrt=wrt,
                donate_state=donate_state,
            )
        found = self._fast_path.evaluate(params, data, state, output_gradients, wrt)
        if found is not None:
            return found
        if wrt is not None:
            wrt = names_of_inputs(wrt)  # which are read twice
            check_gradients_wanted(wrt, output_gradients)
        call = Call(
            checked_mapping("params", params),
            checked_mapping("data", data),
            checked_mapping("state", state),
        )
        if call.state:
            check_states("evaluate", self._compilation, call.state)
        floats = [name for name in wrt or () if isinstance(name, str)]
        model = model_for_kinds(self, call.data, floats)
        if model is not self:
            result = model.evaluate(
                params,
                data,
                output_gradients=output_gradients,
                state=state,
                wrt=wrt,
                donate_state=donate_state,
            )
            # It looks at the arrays, and leaves those of other kinds alone.
            self._native_evaluate = model._native_evaluate
            return result
        request = Request(
            output_gradients, wrt, checked_bool("evaluate: donate_state", donate_state)
        )
        compilation, fast = self._compilation, self._fast_path
        lists = compilation.lists  # are taken apart before, and put together behind
        if lists is not None:
            split = lists.split("params", call.params), lists.split("data", call.data)
            call = Call(*split, call.state)
            request = request._replace(gradients=lists.cotangents(request.gradients))
        try:
            result = evaluated(compilation, fast, call, request)
        except ShapeError as error:
            result = _with_numbers(compilation, fast, call, request, error)
        self._native_evaluate = fast.native_evaluate
        return result if lists is None else lists.joined(result)

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


def _refuse_nothing_donated(physical: Any, state: Any) -> None:
    if not checked_mapping("state", state):
        has = physical.state_keys
        raise ArgumentError(
            "evaluate: donate_state=True: there is no state whose arrays may be overwritten",
            hint="give state=, such as pm.initial_state()" if has else "the model has no state",
        )


def evaluated(compilation: Compilation, fast: FastPath, call: Call, request: Request) -> Any:
    """The results of a call, as `evaluate` returns them."""
    program = compilation.program_for(call)
    arrays = gather(compilation, program, call)
    inputs = convert(compilation, program, arrays)
    check(compilation, program, inputs, call)
    results = run(compilation, program, inputs, request)
    fast.learn(program, call, inputs, request, results)
    return named(program, results)


def run(compilation: Compilation, program: Program, inputs: list[Any], request: Request) -> Results:
    """Runs the program, or the one of the gradients that are wanted."""
    if request.gradients is None or request.gradients is False:
        outputs, states = program.run(inputs, request.donates_state)
        return Results(outputs, None, states)
    check_gradients_allowed(compilation)
    wanted = wanted_gradients(compilation, program, request.wrt)
    cotangents = cotangents_of(compilation, program, inputs, request.gradients)
    outputs, states, gradients = program.run_gradient(inputs, cotangents, wanted)
    return Results(outputs, dict(zip(wanted, gradients, strict=True)), states)


def _with_numbers(
    compilation: Compilation, fast: FastPath, call: Call, request: Request, error: ShapeError
) -> Any:
    """The results of a call that failed, with its arrays of one element as the numbers that the
    model has; where there are none, the error stays."""
    shapes = single_numbers(compilation, call.params)
    if not shapes:
        raise error
    call = call._replace(params=as_numbers(compilation, call.params, shapes))
    return as_given(compilation, evaluated(compilation, fast, call, request), shapes)


__all__ = ["Evaluation", "Request", "evaluated", "run"]
