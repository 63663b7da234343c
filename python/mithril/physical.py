"""`PhysicalModel`: a compiled model, which maps parameters and data to outputs and gradients."""

from __future__ import annotations

import collections
import contextlib
import inspect
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from mithril import _core
from mithril._checks import instance, items, mapping, text, truth
from mithril._conversion import Converter, as_numpy
from mithril._explanations import at_line, data_error, near_miss
from mithril._initial import Uninitialized, draw, initializers, left_out_names
from mithril._lists import Lists
from mithril._model_function import ModelFunction
from mithril._native_calls import evaluate_call, step_call
from mithril._open_kinds import OpenKinds
from mithril._open_ranks import OpenRanks, Shaped, shape_of
from mithril._physical_keys import FINAL_COST, PhysicalKeys
from mithril._program import Key, Program, Settings, keys_of, runs_natively, target_of
from mithril._public import (
    REQUIRED,
    public,
    public_with_shortcut,
    refusal,
    refuses_misfits,
)
from mithril._quick_call import QuickCall
from mithril._single_numbers import as_given, as_numbers, single_numbers
from mithril._static_shapes import StaticShapes
from mithril._tensor import array_literal
from mithril._weights import check_weights
from mithril.backends import _own_ops
from mithril.errors import (
    ArgumentError,
    DataIndexError,
    EmptyModelWarning,
    InitialParamsWarning,
    KeyNotFound,
    ModeWarning,
    ShapeError,
    ShapeNotKnown,
    SignatureError,
    UnsupportedError,
    UnusedKeyWarning,
    UnusedParamsWarning,
    shown,
    suggestion,
    warn,
)

if TYPE_CHECKING:
    import os

    from mithril._typing import Arrays, Gradients
    from mithril.connection import Connection

Params = dict[str, Any]
_REFUSED_IF_STRICT = (UnusedKeyWarning, UnusedParamsWarning, InitialParamsWarning)
# In the text of a graph: a dropout that is off, unless it never drops.
_IDLE_DROPOUT = re.compile(r"\bdropout(?:_attention)?\((?!.*\bp=0(?:\.0)?,).*\bmode=\"eval\"")
_logger = logging.getLogger("mithril")


class WithGradients(NamedTuple):
    """What `evaluate` returns when gradients were asked for."""

    outputs: dict[str, Any]
    gradients: dict[str, Any]


class WithState(NamedTuple):
    """What `evaluate` returns for a model with state."""

    outputs: dict[str, Any]
    state: dict[str, Any]


class WithGradientsAndState(NamedTuple):
    """What `evaluate` returns for a model with state when gradients were asked for."""

    outputs: dict[str, Any]
    gradients: dict[str, Any]
    state: dict[str, Any]


class Step(NamedTuple):
    """What `step` returns: everything that the next step needs, and the outputs."""

    params: Params
    opt_state: dict[str, Any]
    state: dict[str, Any]
    outputs: dict[str, Any]


class PhysicalModel(PhysicalKeys):
    """A model compiled for a backend; made by `ml.compile`.

    It keeps no parameters: they go in and come out as plain dictionaries of arrays. Many threads
    may evaluate it at once.
    """

    def __init__(self, snapshot: Any, settings: Settings, options: dict[str, Any]):
        self.backend = settings.backend
        self.inference = settings.inference
        self.jit = settings.jit
        self._settings = settings
        self._options = options
        self._snapshot = snapshot  # the model itself may be edited
        self._node = snapshot.model
        self._static = StaticShapes(self) if settings.static_shapes else None
        self._place = _core.user_location()
        self._convert = Converter(settings)
        self._compiled, self._program = self._made({}, {})
        if settings.file_path is not None and self._runs_plans(self._compiled):
            raise UnsupportedError(
                f"file_path: {type(self.backend).__name__} runs plans, not source",
                hint="print(pm.graph), or use ml.NumpyBackend(); leave it out",
            )
        self._keys = self._program.keys if self._program else keys_of(self._compiled, settings)
        self._lists = Lists.of(self._keys, self._compiled.output_lists)
        self._fetches: collections.OrderedDict[tuple, PhysicalModel] = collections.OrderedDict()
        # For emitted source. Lists are taken apart before, and put together behind.
        self._quick = None if self._lists else QuickCall.of(self._program)
        # Takes calls that need no conversion, warning or state; None sends them the long way.
        self._fast = self._quick.forward if self._quick else None
        self._quick_step: Any = None  # the same for training steps
        # The engine's; `step` has one after its first call.
        goes_long = self._static or self._lists
        self._native_evaluate = None if goes_long else evaluate_call(self._program)
        self._shortcuts = self._native_evaluate, self._fast
        self._native_step: Any = None
        self._predictor: PhysicalModel | None = None
        self._by_name = {key.name: key for key in self._keys}
        self._open_ranks = None if self._program else OpenRanks(self)
        self._kinds = OpenKinds.of(self._keys)
        self._met: dict[str, Shaped] = {}  # inputs of the first call
        self._last_of_kinds: PhysicalModel | None = None
        _refuse_unknown_types(self._keys)
        self._told: set[str] = set()
        self._is_mode_checked = False
        self._lock = threading.Lock()
        self.trainable_keys = tuple(k.name for k in self._keys if k.trainable)
        self.param_keys = tuple(k.name for k in self._keys if k.role == "param")
        self.data_keys = tuple(k.name for k in self._keys if k.role == "data")
        self.state_keys = tuple(k.name for k in self._keys if k.role == "state")
        self.input_keys = {k.list or k.name for k in self._keys} | set(self._constant_names())
        outputs = list(self._compiled.outputs)
        self.output_keys: list[str] = self._lists.names(outputs) if self._lists else outputs
        self.__signature__ = self._signature()

    def __reduce__(self) -> tuple[Any, ...]:
        from mithril._pickling import physical_parts

        return physical_parts(self)

    def _made(
        self, shapes: Mapping[str, list], values: Mapping[str, Any]
    ) -> tuple[Any, Program | None]:
        """The model compiled, and its program if that needs nothing else of what calls give."""
        compiled = self._compile(shapes, values)
        if compiled.unknown_ranks or compiled.unknown_sizes or compiled.unknown_values:
            return compiled, None
        try:
            return compiled, self._make(compiled)
        except (ShapeNotKnown, UnsupportedError):
            awaiting = self._compile(shapes, values, await_values=True)
            if not awaiting.unknown_values:
                raise
            return awaiting, None

    def _compile(
        self,
        shapes: Mapping[str, list],
        values: Mapping[str, Any],
        await_values: bool = False,
    ) -> Any:
        """Compiles with these shapes, too; of inputs that have one already, only complete ones."""
        wires: dict[str, list] = {}
        items = []
        for name, shape in shapes.items():
            key = self._by_name[name]
            if key.list:
                wire = self._node.find_connection(key.key)
                items.append((wire, self._lists.inputs[key.list].index(name), shape))
            else:
                wires[key.key] = shape
        own = [(k if isinstance(k, str) else k.key_name, k, s) for k, s in self._options["shapes"]]
        for name, _, _ in own:
            if None in wires.get(name, ()):
                del wires[name]
        kept = [(key, shape) for name, key, shape in own if name not in wires]
        extra = [(self._node.find_connection(key), shape) for key, shape in wires.items()]
        options = {
            **self._options,
            "shapes": [*kept, *extra],
            "item_shapes": items,
            "values": [
                (self._node.find_connection(self._by_name[name].key), value)
                for name, value in values.items()
            ],
            "await_values": await_values,
        }
        # Whether a backend's own function is called shows when composites are taken apart.
        tried = not _own_ops.are_brought(self.backend)
        compiled = _core.compile(self._node, options, target_of(self.backend, tried))
        if not self.backend.runs_plans:
            return compiled
        native = self._runs_plans(compiled)
        if not native:
            _logger.info(
                "%r: the model has ops that are Python functions, so NumPy runs all of it",
                self.backend,
            )
        if native is tried:
            return compiled
        return _core.compile(self._node, options, target_of(self.backend, native))

    def _runs_plans(self, compiled: Any) -> bool:
        """Whether the engine runs it, or NumPy for the sake of Python functions in it."""
        return self.backend.runs_plans and runs_natively(compiled, self.backend)

    def _make(self, compiled: Any) -> Program:
        return Program(compiled, self._settings)

    # --- running ------------------------------------------------------------------------------
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
        **unknown: Any,
    ) -> Any:
        """The outputs, and on request gradients and the next state.

        Parameters
        ----------
        params : the parameters; None or {} means the initial ones
        data : values of `data_keys`: arrays, lists or numbers
        output_gradients : gradients of the outputs: a dictionary, a function from the outputs to
            one, or True where there is one scalar output (or a cost)
        state : the state, where the model has one
        wrt : further inputs whose gradients are wanted
        fetch : further wires that are wanted, by name or path (``"blocks.3.attn"``: that of a
            submodel means its one output) or as connections; they stand in the result under what
            was given. For each set of them a program is compiled, of which 16 are kept.
        donate_state : whether the arrays in `state` may be overwritten. The CPU engine then appends
            to caches where they are, and the new state has the very arrays that were given; other
            backends copy as ever.

        Returns
        -------
        The dictionary of outputs, with what was fetched. With gradients the named tuple
        ``(outputs, gradients)``, whose gradients have the keys `trainable_keys`; with state, the
        new state is its last item.
        """
        if others or unknown:
            raise refusal(PhysicalModel.evaluate, (self, params, data, *others), unknown)
        if self._static is not None:
            self._static.check(data)
        if fetch is not None:
            from mithril._fetch import fetching

            return fetching(self, fetch).evaluate(
                params,
                data,
                output_gradients=output_gradients,
                state=state,
                wrt=wrt,
                donate_state=donate_state,
            )
        quick = output_gradients is None and wrt is None and state is None
        if quick and self._fast is not None:
            try:
                outputs = self._fast({} if params is None else params, {} if data is None else data)
            except (ShapeError, ArgumentError, DataIndexError):
                outputs = None  # the long way tells what does not fit of the model's ops
            if outputs is not None:
                return outputs
        quick_call = self._quick
        if wrt is None and quick_call is not None:
            found = quick_call.evaluate(params, data, state, output_gradients)
            if found is not None:
                return self._result(quick_call.program, *found)
        params = mapping("params", params)
        data = mapping("data", data)
        state = mapping("state", state)
        donates = truth("evaluate: donate_state", donate_state)
        lists, request = self._lists, output_gradients
        if lists is not None:
            params, data = lists.split("params", params), lists.split("data", data)
            request = lists.cotangents(request)
        if self._kinds is not None and wrt is not None:
            wrt = _names_of_inputs(wrt)  # which are read twice
        other = self._of_kinds(data, wrt)
        if other is not None:
            found = other.evaluate(
                params,
                data,
                output_gradients=output_gradients,
                state=state,
                wrt=wrt,
                donate_state=donates,
            )
            self._take_shortcuts(other._native_evaluate, other._fast)
            return found
        if self._last_of_kinds is not None:
            self._take_shortcuts(*self._shortcuts)
        try:
            result = self._evaluate(params, data, state, request, wrt, donates)
        except ShapeError:
            shapes = single_numbers(self, params)
            if not shapes:
                raise
            params = as_numbers(self, params, shapes)
            result = self._evaluate(params, data, state, request, wrt, donates)
            result = as_given(self, result, shapes)
        return result if lists is None else lists.joined(result)

    def _evaluate(
        self,
        params: Mapping[str, Any],
        data: Mapping[str, Any],
        state: Mapping[str, Any],
        output_gradients: Any,
        wrt: Iterable[str] | None,
        donates: bool,
    ) -> Any:
        program = self._ready(data, params, state)
        inputs = self._inputs(program, params, data, state)
        if output_gradients is None or output_gradients is False:
            outputs, states = program.run(inputs, donates)
            quick_call = self._quick_of(program)
            if quick_call is not None:
                quick_call.learn((params, data, state), inputs)
            return self._result(program, outputs, None, states)
        self._check_gradients_allowed()
        wanted = self._wanted(program, wrt)
        cotangents = self._cotangents(program, inputs, output_gradients)
        outputs, states, gradients = program.run_gradient(inputs, cotangents, wanted)
        quick_call = self._quick_of(program)
        if quick_call is not None and output_gradients is True and wrt is None:
            quick_call.learn_gradients((params, data, state), inputs, cotangents, wanted)
        return self._result(program, outputs, dict(zip(wanted, gradients, strict=True)), states)

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
        KeyNotFound : a parameter, a statistic or data are missing

        >>> import mithril as ml
        >>> train = ml.TrainModel(ml.Relu())
        >>> train.add_loss(ml.SquaredError(), input="output", target="target")
        >>> pm = ml.compile(train, ml.NumpyBackend(), shapes={"input": [2]})
        >>> pm.predict({}, {"input": [-1.0, 2.0]})
        {'output': array([0., 2.], dtype=float32)}
        """
        from mithril._predicting import predict

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

    @overload
    def step(self, params: Arrays, opt_state: dict[str, Any]) -> Step: ...
    @overload
    def step(
        self,
        params: Arrays,
        opt_state: dict[str, Any],
        data: Arrays | None,
        state: Arrays | None = None,
    ) -> Step: ...

    @public_with_shortcut("_native_step")
    @refuses_misfits
    def step(
        self,
        params: Mapping[str, Any] = REQUIRED,
        opt_state: dict[str, Any] = REQUIRED,
        data: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        *others: Any,
        **unknown: Any,
    ) -> Step:
        """One step of training: gradients of the cost, then the optimizer's update.

        Nothing given is changed, unless the model was compiled with ``stream_gradients=True``:
        then the arrays of `params` and `opt_state` are overwritten (those that are read-only or
        share memory are copied), and what is returned holds them.
        """
        if others:
            raise refusal(PhysicalModel.step, (self, params, opt_state, data, state, *others), {})
        if unknown or params is REQUIRED or opt_state is REQUIRED:
            named = {"params": params, "opt_state": opt_state, **unknown}
            raise refusal(PhysicalModel.step, (self,), named)
        if self._static is not None:
            self._static.check(data)
        if self._lists is not None:
            raise UnsupportedError(
                "step: models with lists of tensors are trained by the gradients of evaluate"
            )
        other = self._of_kinds(mapping("data", data))
        if other is not None:
            return other.step(params, opt_state, data, state)
        if self._settings.loss_scale is not None:
            return self._scaled_step(self._checked_params(params), opt_state, data, state)
        if self._quick_step is not None:
            done = self._quick_step.try_run(params, opt_state, data, state)
            if done is not None:
                return tuple.__new__(Step, done)
        optimizer = self._settings.optimizer
        if optimizer is None:
            raise ArgumentError("step: compile with optimizer=, such as ml.optim.Adam()")
        if self._settings.stream_gradients and optimizer._clips:
            raise UnsupportedError(
                "step: with stream_gradients no gradient waits until all can be clipped",
                hint="leave stream_gradients out, or clip_norm and clip_value",
            )
        if self.backend.runs_plans and optimizer.op and not optimizer._clips:
            return self._step_of_engine(self._checked_params(params), opt_state, data, state)
        from mithril._compiled_step import CompiledStep
        from mithril.optim import check_state

        params = self._checked_params(params)
        check_state("step: opt_state", opt_state, optimizer, list(self.trainable_keys))
        if CompiledStep.suits(self._settings):
            done = self._compiled_step(params, opt_state, data, state)
            if done is not None:
                return Step(*done)
        result = self.evaluate(params, data, output_gradients=True, state=state)
        new_params, opt_state = optimizer.update(params, result.gradients, opt_state)
        new_state = result.state if isinstance(result, WithGradientsAndState) else {}
        return Step(new_params, opt_state, new_state, result.outputs)

    def _scaled_step(self, params: Any, opt_state: Any, data: Any, state: Any) -> Step:
        """The step along gradients of a scaled cost."""
        from mithril.optim import check_state

        optimizer, scaling = self._settings.optimizer, self._settings.loss_scale
        check_state("step: opt_state", opt_state, optimizer, list(self.trainable_keys))
        data, state = mapping("data", data), mapping("state", state)
        cost = self._cost(self._ready(data, params, state))
        scale = scaling.state_of(opt_state)["scale"]
        result = self.evaluate(params, data, output_gradients={cost: scale}, state=state)
        own = {name: result.gradients[name] for name in self.trainable_keys}
        new_params, opt_state = scaling.update(optimizer, params, own, opt_state, self.backend)
        new_state = result.state if isinstance(result, WithGradientsAndState) else {}
        return Step(new_params, opt_state, new_state, result.outputs)

    def _compiled_step(self, params: Any, opt_state: Any, data: Any, state: Any) -> tuple | None:
        """The step as one function, compiled where the framework compiles gradients; None where
        the program's gradients are the engine's."""
        from mithril._compiled_step import CompiledStep

        data, state = mapping("data", data), mapping("state", state)
        program = self._ready(data, params, state)
        if not CompiledStep.suits(program.settings):
            return None
        inputs = self._inputs(program, params, data, state)
        if not program.by_framework(inputs):
            return None
        self._check_gradients_allowed()
        step = CompiledStep.of(program, self._cost(program), self._settings.optimizer)
        if program is self._program:
            self._quick_step = step
        return step.run((params, data, state), inputs, opt_state)

    def _checked_params(self, params: Any) -> Mapping[str, Any]:
        given = mapping("step: params", params)
        missing = [name for name in self.trainable_keys if name not in given]
        if missing:
            near = suggestion(missing[0], given)
            raise KeyNotFound(f"step: params must have '{missing[0]}'{near}", code="MTH402")
        return given

    def _step_of_engine(self, params: Any, opt_state: Any, data: Any, state: Any) -> Step:
        """The step as one program: gradients and updates are fused and planned together."""
        import numpy as np

        from mithril.optim import check_state

        data, state = mapping("data", data), mapping("state", state)
        program = self._ready(data, params, state)
        inputs = self._inputs(program, mapping("params", params), data, state)
        self._check_gradients_allowed()
        optimizer = self._settings.optimizer
        trained = [key.name for key in program.inputs if key.trainable]
        check_state("step: opt_state", opt_state, optimizer, trained)
        rate_type = np.float64 if self.backend.default_dtype == "float64" else np.float32
        extra = {
            "$opt.t": np.asarray(opt_state["step"], np.int64),
            "$opt.lr": np.asarray(optimizer.lr, rate_type),
        }
        for slot in optimizer.slots:
            for name, value in opt_state[slot].items():
                if name in program.by_name:
                    kept = program.by_name[name].kept
                    extra[f"$opt.{slot}.{name}"] = self._convert(kept, value)
        cost = self._cost(program)
        step = opt_state["step"]
        with _counted(opt_state) if self._settings.stream_gradients else contextlib.nullcontext():
            results = program.run_step(inputs, cost, optimizer, extra)
        native = program is self._program and self._static is None
        if native and not self._settings.stream_gradients:
            self._native_step = step_call(program, cost, optimizer, Step)
        new_params = {**params, **{name: results[f"$new.{name}"] for name in trained}}
        slots = {
            slot: {
                **opt_state[slot],
                **{name: results[f"$new.$opt.{slot}.{name}"] for name in trained},
            }
            for slot in optimizer.slots
        }
        return Step(
            new_params,
            {"step": step + 1, **slots},
            {name: results[f"$state.{name}"] for name in program.state_names},
            {name: results[name] for name in program.outputs},
        )

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
        program = self._program
        if program is None or self._lists or not hasattr(program.forward, "function"):
            what = "lists of tensors" if self._lists else repr(self.backend)
            raise UnsupportedError(
                f"as_function: requires a framework backend and known ranks, got {what}"
            )
        if isinstance(outputs, str):
            outputs = [outputs]
        wanted = items("as_function: outputs", outputs, "names of outputs", optional=True)
        names = wanted if outputs is not None else list(self.output_keys)
        self._check_outputs("as_function: outputs", names)
        return ModelFunction(self, names)

    def _quick_of(self, program: Program) -> QuickCall | None:
        """The quick way of a program. Where ranks are open, it is that of the last call's."""
        is_fixed = self._open_ranks is None or self._lists is not None
        if is_fixed or (self._quick and self._quick.program is program):
            return self._quick
        self._quick = QuickCall.of(program)
        self._fast = self._quick.forward if self._quick else None
        if self._static is None:
            self._native_evaluate = evaluate_call(program)
        self._shortcuts = self._native_evaluate, self._fast
        return self._quick

    # --- what goes in -------------------------------------------------------------------------
    def _take_shortcuts(self, native: Any, fast: Any) -> None:
        """Those of the last call's kinds. Each looks at the arrays and leaves others alone."""
        self._native_evaluate, self._fast = native, fast

    def _of_kinds(self, data: Mapping[str, Any], floats: Any = None) -> PhysicalModel | None:
        """The model for what the data hold, where it is another one than this."""
        if self._kinds is None:
            return None
        other = self._kinds.model(self, data, floats or ())
        if other is not None:
            self._last_of_kinds = other
        return other

    def _ready(
        self,
        data: Mapping[str, Any],
        params: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Program:
        """The program; for models whose ranks depend on the arrays, the one of these ranks."""
        if self._open_ranks is None:
            assert self._program is not None
            found = self._program
        else:
            given = {"param": params or {}, "data": data, "state": state or {}}
            found = self._open_ranks.program(given)
        return found if self._static is None else self._static.program(found)

    def _inputs(
        self, program: Program, params: Mapping, data: Mapping, state: Mapping
    ) -> list[Any]:
        given = params
        if not params and self.param_keys:
            params = self._initial_for(program, data)
        sources = {"param": params, "data": data, "state": state}
        values, missing = [], []
        for key in program.inputs:
            source: Any = sources[key.role]
            try:
                value = source[key.name]
            except KeyError:
                missing.append(key)
                continue
            if isinstance(value, Uninitialized):
                value = self._placed(key, value, params, data)
                if isinstance(source, dict):
                    source[key.name] = value
            values.append(self._convert(key, value))
        if missing:
            raise self._missing(missing, params, data, state)
        self._check_shapes(program, values)
        if not self._met:
            pairs = zip(program.inputs, values, strict=True)
            self._met = {key.name: Shaped(v.shape) for key, v in pairs if key.is_tensor}
        if len(given) + len(data) + len(state) != len(values):
            self._refuse_doubles(program, given, data)
            self._warn_of_unused(given, data)
        return values

    def _check_shapes(self, program: Program, values: list[Any]) -> None:
        try:
            program.output_shapes(program.shapes_of(values))
        except ShapeError as error:
            explained = data_error(error, self._node, self._place)
            raise explained from None

    def _missing(self, missing: list[Key], params: Mapping, data: Mapping, state: Mapping):
        names = ", ".join(f"'{key.name}'" for key in missing)
        roles = {key.role for key in missing}
        known = self._by_name.keys() | set(self._compiled.ignored_keys)
        extra = [name for name in (*params, *data, *state) if name not in known]
        near = [suggestion(name, [key.name for key in missing]) for name in extra]
        hints = [f"{name!r} is given{hint}" for name, hint in zip(extra, near, strict=True) if hint]
        if "state" in roles and not state:
            first = "initial_state()" if self._program else "initial_state(sample=data)"
            hints.append(f"state=pm.{first} is the first state")
        elif any(self._is_statistic(key) for key in missing):
            hints.append("running statistics are entries of params: {**params, **state}")
        if all(key.name in (data if key.role == "param" else params) for key in missing):
            hints.insert(0, "they are there, swapped: evaluate(params, data)")
            missing = []
        hints += self._near_misses(missing)
        where = {"param": "params", "data": "data", "state": "state"}
        places = " and ".join(sorted({where[role] for role in roles}))
        return KeyNotFound(
            f"evaluate: {places} must have {names}", code="MTH402", hint="; ".join(hints)
        )

    def _near_misses(self, missing: list[Key]) -> list[str]:
        """Which line reads what is missing; which line wrote a wire of almost that name."""
        names = {key.name for key in missing}
        found = [miss for miss in self._node.near_misses() if miss[0] in names]
        told = {name for name, *_ in found}
        out = [near_miss(*miss) for miss in found]
        for name in sorted(names - told):
            reader = self._node.first_reader(name)
            if reader is not None and reader[3]:
                out.append(f"'{name}' is {reader[0]} ({at_line('', *reader[2:])})")
        return out

    def _refuse_doubles(self, program: Program, params: Mapping, data: Mapping) -> None:
        """A key has one value: which of two would count is not guessed."""
        for name in params:
            if name in data and name in program.by_name:
                role = "params" if program.by_name[name].role == "param" else "data"
                raise ArgumentError(
                    f"evaluate: '{name}' is in params and in data",
                    hint=f"the model reads it from {role}: leave the other one out",
                )

    def _warn_of_unused(self, params: Mapping, data: Mapping) -> None:
        by_name = self._by_name
        ignored = self._compiled.ignored_keys
        for name in data:
            if name not in by_name and name not in ignored and not self._constant(name):
                near = suggestion(name, by_name)
                self._warn(f"data has '{name}', which the model has not{near}", UnusedKeyWarning)
        extra = [n for n in params if n not in by_name]
        if extra:
            shown = ", ".join(f"'{n}'" for n in extra[:3]) + (", ..." if len(extra) > 3 else "")
            self._warn(f"params has {shown}, which the model has not", UnusedParamsWarning)

    def _constant(self, name: str) -> bool:
        return any(key == name for key, _ in self._options["constants"])

    def _warn(self, text: str, category: type[Warning]) -> None:
        if text in self._told:
            return
        if self._settings.strict and category in _REFUSED_IF_STRICT:
            raise KeyNotFound(f"evaluate: {text}", hint="the model is compiled with strict=True")
        self._told.add(text)
        warn(text, category)

    # --- gradients ----------------------------------------------------------------------------
    def _check_gradients_allowed(self) -> None:
        few = self._settings.weights or self._settings.quantize
        if few:
            raise UnsupportedError(
                f"evaluate: no gradients, the weights are kept as {few}",
                hint="bind them without weights=, compile without quantize=",
            )
        if self.inference:
            raise UnsupportedError(
                "evaluate: no gradients, the model was compiled with inference=True"
            )
        if not self._is_mode_checked:
            self._is_mode_checked = True
            self._warn_of_mode()

    def _warn_of_mode(self) -> None:
        """Of gradients in eval mode, where a layer behaves differently in training."""
        if self._options["train"]:
            return
        differences = []
        if any(self._is_statistic(key) for key in self._keys):
            differences.append("running statistics are constants")
        graph = self._compiled.graph
        drops = graph.has_op("dropout") or graph.has_op("dropout_attention")
        if drops and _IDLE_DROPOUT.search(str(graph)):
            differences.append("dropout is off")
        if differences:
            self._warn(
                f"gradients of a model in eval mode: {' and '.join(differences)}; compile"
                ' with mode="train" to train it',
                ModeWarning,
            )

    def _is_statistic(self, key: Key) -> bool:
        is_frozen = key.name in self._settings.frozen
        return key.role == "param" and not key.trainable and not is_frozen

    def _wanted(self, program: Program, wrt: Iterable[str] | None) -> list[str]:
        present = {key.name for key in program.inputs}
        wanted = [name for name in self.trainable_keys if name in present]
        for name in _names_of_inputs(wrt):
            if not isinstance(name, str) or name not in present:
                near = suggestion(name, present) if isinstance(name, str) else ""
                raise KeyNotFound(f"wrt: no input named {shown(name)}{near}")
            dtype = program.by_name[name].dtype
            if dtype is None or not dtype.is_float:
                raise ArgumentError(f"wrt: '{name}' is no tensor of floats", code="MTH506")
            if name not in wanted:
                wanted.append(name)
        return wanted

    def _cotangents(self, program: Program, inputs: list, request: Any) -> dict[str, Any]:
        """Output -> its cotangent; None stands for 1."""
        if request is True:
            return {self._cost(program): None}
        if callable(request):
            outputs, _ = program.run(inputs)
            request = request(dict(zip(program.outputs, outputs, strict=True)))
        if not isinstance(request, Mapping):
            raise SignatureError(
                "output_gradients: requires a dictionary, a function of the outputs or True, got"
                f" {type(request).__name__}"
            )
        if not request:
            return {self._cost(program): None}
        self._check_outputs("output_gradients", request)
        return self._shaped(program, inputs, request)

    def _shaped(self, program: Program, inputs: list, request: Mapping) -> dict[str, Any]:
        shapes = program.output_shapes(program.shapes_of(inputs))
        by_name = dict(zip(program.outputs, shapes, strict=True))
        out = {}
        for name, value in request.items():
            dtype, _ = program.output_types[name]
            if dtype is None or not dtype.is_float:
                raise ArgumentError(f"output_gradients: '{name}' is no tensor of floats")
            key = program.output_key(name)
            converted = self._convert(key, value)
            wanted = by_name[name]
            got = list(converted.shape)
            if wanted is not None and None not in wanted and got != wanted:
                raise ArgumentError(
                    f"output_gradients: '{name}' has shape {wanted}, got {got}",
                    code="MTH108",
                )
            out[name] = converted
        return out

    def _cost(self, program: Program) -> str:
        if FINAL_COST in program.outputs:
            return FINAL_COST
        fetched = {name for name, _ in self._options["fetch"]}
        own = [name for name in program.outputs if name not in fetched]
        if len(own) != 1:
            names = ", ".join(f"'{name}'" for name in own)
            raise ArgumentError(
                f"output_gradients=True requires one scalar output, got {names or 'none'}",
                hint="give a dictionary of cotangents",
            )
        _, shape = program.output_types[own[0]]
        if shape:
            raise ArgumentError(
                f"output_gradients=True requires a scalar output, '{own[0]}' has shape {shape}",
                hint="give a dictionary of cotangents",
            )
        return own[0]

    def _check_outputs(self, what: str, names: Iterable[str]) -> None:
        for name in names:
            if text(what, name) not in self._compiled.outputs:
                near = suggestion(name, self.output_keys)
                raise KeyNotFound(f"{what}: no output named '{name}'{near}", code="MTH401")

    def _result(self, program: Program, outputs: list, gradients: dict | None, states: list) -> Any:
        named = dict(zip(program.outputs, outputs, strict=True))
        if not program.state_names:
            return named if gradients is None else WithGradients(named, gradients)
        state = dict(zip(program.state_names, states, strict=True))
        if gradients is None:
            return WithState(named, state)
        return WithGradientsAndState(named, gradients, state)

    # --- parameters ---------------------------------------------------------------------------
    @public
    def get_parameters(self) -> Params:
        """The initial parameters (seed 0), by name, in the order of the model's inputs."""
        return self._with_lists(self._parameters(0, {}))

    def _with_lists(self, params: Params) -> Params:
        return params if self._lists is None else self._lists.join(params)

    @public
    def randomize_params(
        self,
        seed: int | None = None,
        *,
        init: Mapping[Any, Any] | None = None,
        excluded_keys: Iterable[str] | None = None,
    ) -> Params:
        """Fresh initial parameters; equal seeds give equal numbers on every backend. Shapes that
        are open are those of the first call, once there was one.

        Parameters
        ----------
        seed : an integer; None: another one each time
        init : name, pattern with ``*`` or compiled regular expression -> initializer: "zeros",
            "ones", "normal", "uniform_fan_in", a number, an array, or a function from the shape
            to an array. The first entry that fits a name counts.
        excluded_keys : names of parameters that are left out

        >>> import mithril as ml
        >>> pm = ml.compile(ml.Linear(2), ml.NumpyBackend(), shapes={"input": [None, 3]})
        >>> pm.randomize_params(0, init={"b*": "ones"})["bias"]
        array([1., 1.], dtype=float32)
        """
        if seed is None:
            seed = secrets.randbits(63)
        seed = _seed("randomize_params", seed)
        by_name = initializers(init, self.param_keys)
        left_out = left_out_names(excluded_keys, self.param_keys)
        params = self._parameters(seed, {}, init=by_name)
        met = self if self._met else self._last_of_kinds
        if met and any(isinstance(value, Uninitialized) for value in params.values()):
            params = met._parameters(seed, met._met, init=by_name)
        params = {name: value for name, value in params.items() if name not in left_out}
        return self._with_lists(params)

    @public
    def bind(self, params: Mapping[str, Any], weights: str | None = None) -> PhysicalModel:
        """Another physical model, for which these parameters are constants: they are folded and
        packed once, and no longer given to `evaluate`.

        Parameters
        ----------
        params : the parameters that become constants
        weights : "bfloat16", "int8", "int4" or "int16": how matrices are kept that products
            multiply by (docs/low_precision.md). There are no gradients then. None: as
            ``quantize=`` of compile says, or as they are.

        Raises
        ------
        UnsupportedError : weights on ggml, which has block types of its own, or beside another
            dtype than float32

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(64)(input="x", output="y")
        >>> pm = ml.compile(model, ml.CpuBackend(), shapes={"x": [2, 64]})
        >>> small = pm.bind(pm.get_parameters(), weights="int8")
        >>> [step.kernel for step in small.explain().steps]
        ['matmul.int8_weights', 'loop']
        """
        params = mapping("params", params)
        if self._lists is not None:
            raise UnsupportedError("bind: a parameter is a list of tensors, which stay parameters")
        weights = self._settings.quantize or None if weights is None else weights
        if weights is not None:
            natively = not self.backend.runs_plans or runs_natively(self._compiled, self.backend)
            check_weights("bind: weights", weights, self.backend, not natively)
        unknown = [name for name in params if name not in self.param_keys]
        if unknown:
            near = suggestion(unknown[0], self.param_keys)
            raise KeyNotFound(f"bind: no parameter named '{unknown[0]}'{near}")
        constants = []
        for name, value in params.items():
            if isinstance(value, Uninitialized):
                value._fail()
            key = self._by_name[name]
            if key.dtype is None:  # ranks are open, so that no dtype has been assigned yet
                key = replace(key, dtype=self.backend.default_dtype)
            array = as_numpy(self._convert(key, value), name)
            constants.append((self._node.find_connection(self._by_name[name].key), array))
        options = dict(self._options)
        options["trainable_keys"] = [
            key for key in options["trainable_keys"] if not self._names_one_of(key, params)
        ]
        options["constants"] = [
            *options["constants"],
            *((wire, array_literal(array)) for wire, array in constants),
        ]
        left = self._settings.quantize if set(self.param_keys) - set(params) else ""
        settings = replace(self._settings, quantize=left, recorder=_core.Recorder())
        bound = PhysicalModel(self._snapshot, settings, options)
        return bound if weights is None else bound._with_weights(weights)

    @public
    def quantization_report(
        self,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
    ) -> Any:
        """How far weights in few bits are off, and the outputs with them, beside float32; print it.

        Parameters
        ----------
        params, data, state : as `evaluate` takes them

        Raises
        ------
        UnsupportedError : the model was not compiled with ``quantize=``, nor for a backend that
            has it; or its parameters are bound, and what they were is not known any more

        >>> import mithril as ml, numpy as np
        >>> model = ml.Model()
        >>> model |= ml.Linear(32)(input="x", weight="w", output="y")
        >>> shapes = {"x": [1, 64]}
        >>> pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys={"x"}, quantize="int8")
        >>> report = pm.quantization_report(pm.get_parameters(), {"x": np.ones((1, 64))})
        >>> [(row.name, row.kind, row.relative < 0.01) for row in report.weights]
        [('w', 'int8', True)]
        """
        by_itself = self.backend.quantizes_itself and self.backend.quantize is not None
        if not self._settings.quantize and not by_itself:
            raise UnsupportedError(
                f"quantization_report: {self.backend!r} keeps weights as they are",
                hint='compile the model with quantize="int8", and ask before bind',
            )
        params, data = mapping("params", params), mapping("data", data)
        state = mapping("state", state)
        program = self._ready(data, params, state)
        inputs = self._inputs(program, params, data, state)
        if by_itself:
            return self.backend._quantization_report(program, inputs)
        from mithril._quantized import QuantizationReport, Quantized

        is_quantized = isinstance(program.forward, Quantized)
        nothing = QuantizationReport((), ())
        return program.forward.report(inputs, program.outputs) if is_quantized else nothing

    def _with_weights(self, weights: str) -> PhysicalModel:
        """The same model with constants in a format. What nothing else reads is kept in this format
        only; the rest is packed by each program."""
        options = dict(self._options)
        if self._program is not None:
            tensors = [v for _, v in options["constants"] if isinstance(v, _core.TensorLiteral)]
            packed = _core.pack_literals(self._compiled.forward, tensors, weights)
            smaller = {id(old): new for old, new in zip(tensors, packed, strict=True) if new}
            options["constants"] = [(k, smaller.get(id(v), v)) for k, v in options["constants"]]
        settings = replace(self._settings, weights=weights, recorder=_core.Recorder())
        return PhysicalModel(self._snapshot, settings, options)

    def _names_one_of(self, key: Any, params: Mapping[str, Any]) -> bool:
        """Whether an entry of `trainable_keys` is one of these parameters."""
        keys = {self._by_name[name].key for name in params}
        return (key if isinstance(key, str) else key.key_name) in keys

    @public
    def init(self, sample: Mapping[str, Any] | None = None, seed: int = 0) -> Params:
        """Initial parameters with shapes as `sample` (data of one call) implies them."""
        sample = mapping("init: sample", sample)
        made_for = self._of_kinds(sample) or self
        params = made_for._parameters(_seed("init", seed), sample)
        for value in params.values():
            if isinstance(value, Uninitialized):
                value._fail()
        return self._with_lists(params)

    def _parameters(
        self,
        seed: int,
        data: Mapping[str, Any],
        role: str = "param",
        init: Mapping[str, Any] | None = None,
    ) -> Params:
        compiled = self._compiled
        if self._open_ranks is not None and data:
            compiled = self._ready(data, data, data).compiled
        sizes = compiled.solve(self._given_shapes(data))
        keys = self._keys if compiled is self._compiled else keys_of(compiled, self._settings)
        return {
            key.name: self._initial(key, shape, fan_in, seed, (init or {}).get(key.name))
            for key, (shape, fan_in) in zip(keys, sizes, strict=True)
            if key.role == role
        }

    def _initial(
        self, key: Key, shape: list | None, fan_in: int | None, seed: int, init: Any = None
    ) -> Any:
        is_literal = bool(key.initial) and isinstance(key.initial[0], _core.TensorLiteral)
        is_open = shape is None or None in shape
        if init is not None:
            is_literal, key = False, replace(key, init=init, initial=())
        wants_fan_in = isinstance(key.init, str) and key.init == "uniform_fan_in"
        is_open = is_open or (wants_fan_in and fan_in is None and not key.initial)
        if is_open and not is_literal:
            return Uninitialized(key.name, shape, self._what_is_missing(), seed, init)
        return self.backend.tensor(draw(key, shape or [], fan_in, seed), key.dtype)

    def _what_is_missing(self) -> str:
        open_keys = [
            key.name
            for key, (shape, _) in zip(self._keys, self._compiled.solve({}), strict=True)
            if key.role == "data" and key.is_tensor and (shape is None or None in shape)
        ]
        if not open_keys:
            return ""
        names = ", ".join(f"'{name}'" for name in open_keys)
        return f"its shape follows from {names}: give shapes= to compile, or call init(sample)"

    def _given_shapes(self, given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        return {
            key.name: shape_of(given[key.name], key.name)
            for key in self._keys
            if key.name in given
            and key.is_tensor
            and not isinstance(given[key.name], Uninitialized)
        }

    def _initial_for(self, program: Program, data: Mapping[str, Any]) -> Params:
        self._warn(
            "no params were given: the model runs on its initial parameters", InitialParamsWarning
        )
        params = self._parameters(0, data)
        for value in params.values():
            if isinstance(value, Uninitialized):
                value._fail()
        return params

    def _placed(self, key: Key, value: Uninitialized, params: Any, data: Mapping) -> Any:
        """The value that data give a parameter or state; it replaces the stand-in in the caller's
        dictionary."""
        init = {} if value.init is None else {key.name: value.init}
        drawn = self._parameters(value.seed, {**params, **data}, key.role, init).get(
            key.name, value
        )
        if isinstance(drawn, Uninitialized) and key.role == "state" and drawn.sizes is not None:
            # Broadcasting leaves open what an axis of size 1 becomes.
            drawn = self._initial(key, [size or 1 for size in drawn.sizes], None, value.seed)
        if isinstance(drawn, Uninitialized):
            drawn._fail()
        return drawn

    @public
    def initial_state(self, seed: int = 0, sample: Mapping[str, Any] | None = None) -> dict:
        """The first state: what `state=` of the first call is."""
        sample = mapping("initial_state: sample", sample)
        made_for = self._of_kinds(sample) or self
        return made_for._parameters(_seed("initial_state", seed), sample, role="state")

    @property
    @public
    def initial_state_dict(self) -> dict[str, Any]:
        return self.initial_state(0)

    # --- what it is -----------------------------------------------------------------------------
    @property
    def source(self) -> str:
        """The emitted source, or the text of the graph where plans are run."""
        if self._program is None:
            return ""
        return getattr(self._program.forward, "source", None) or str(self._program.compiled.forward)

    @property
    def graph(self) -> Any:
        """The graph as it was flattened, before any pass."""
        return self._compiled.graph

    @public
    def export_c(
        self,
        folder: str | os.PathLike[str],
        *,
        params: Mapping[str, Any] | None = None,
        training: bool = False,
        weights: Literal["binary", "array"] = "binary",
        name: str = "model",
        target: Literal["hosted", "freestanding"] = "hosted",
        shapes: Mapping[str, Sequence[int]] | None = None,
        threads: int = 1,
    ) -> dict[str, Any]:
        """Writes the model as C99 that needs no Python: source, header, weights, files for make and
        CMake, an example and a README with the layout of all arrays (docs/c.md).

        The program is that of the C backend, whatever backend the model is compiled for, to the
        same bits. It allocates nothing and does no input or output; threads share its weights.

        Parameters
        ----------
        folder : is made where there is none; files of an earlier export are replaced
        params : the parameters that are written; None or {} means the initial ones
        training : a step of training with the optimizer, instead of the forward pass; parameters
            and the optimizer's state are one block that steps update where it is
        weights : "binary": a file for the program's user to load or map; "array": C arrays
        name : of files, functions and types; a name of C
        target : "freestanding": without libm, whose functions the text then has itself
        shapes : of data, where compile was not told them: C has no open sizes
        threads : of OpenMP that a call uses where it is compiled for that, as the Makefile then
            does; results do not depend on it

        Returns
        -------
        The layout as it stands in the file ``NAME.json``: arrays with fields, shapes and offsets;
        bytes of arena, weights and state.

        Raises
        ------
        UnsupportedError : sizes are open, an op has no C, or an input or output is no array
        ArgumentError : the model has no optimizer that training could use

        >>> import tempfile
        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(2)(input="x", output="y")
        >>> pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [4, 3]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     layout = pm.export_c(folder, name="net")
        >>> [(one["field"], one["name"], one["shape"]) for one in layout["inputs"]]
        [('input_0', 'x', [4, 3])]
        """
        from mithril.formats.c_export import export_c

        return export_c(
            self,
            folder,
            params=params,
            training=training,
            weights=weights,
            name=name,
            target=target,
            shapes=shapes,
            threads=threads,
        )

    # --- looking inside -------------------------------------------------------------------------
    @public
    def explain(
        self,
        name: str | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        *,
        program: str = "evaluate",
    ) -> Any:
        """How the model runs: what was fused, which kernels were chosen, and why not others.

        Parameters
        ----------
        name : of a submodel ("mlp.head"): only what became of it; None: every step in order
        shapes : of data, where compile was not told them: fusion is decided for concrete sizes
        program : the way to run the model whose steps are wanted: "evaluate", "gradient" or "step"

        Returns
        -------
        An `Explanation` to print, with an entry in `steps` for each step that runs; with `name` the
        list of lines of `mithril.inspect.explain`. Other backends than the engine's run source, and
        the steps are its lines.

        Raises
        ------
        UnsupportedError : sizes are open
        KeyNotFound : no submodel has that name, or there is no such program

        >>> import mithril as ml
        >>> model = ml.Model(name="net")
        >>> model |= ml.Linear(4, name="first")(input="x", output="h")
        >>> model |= ml.Relu(name="act")(input="h", output="y")
        >>> pm = ml.compile(model, ml.CpuBackend(), shapes={"x": [2, 3]})
        >>> [(step.kernel, step.nodes) for step in pm.explain().steps][-1]
        ('gemm', 'net.first: matmul; net.first: add; net.act: relu')
        """
        from mithril._explain import explain, explain_all

        if name is None:
            return explain_all(self, shapes, text("explain: program", program))
        return explain(self, text("explain: name", name), shapes)

    @public
    def memory_plan(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
        """What memory the model takes, and what takes the most of it; nothing is run.

        Parameters
        ----------
        shapes : of data, where compile was not told them; sizes that stay open are assumed

        Returns
        -------
        A `MemoryPlan` to print: bytes of intermediate results at their peak with the largest
        `contributors`, of inputs, parameters, outputs and constants, for `evaluate`, gradients and
        training steps. Open sizes have a `formula`, and ``plan.largest("batch", "8GB")`` is the
        largest value that fits.

        Raises
        ------
        UnsupportedError : the backend makes no plans: only the engine's does

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(64)(input="x", output="h")
        >>> model |= ml.Linear(1)(input="h", output="y")
        >>> pm = ml.compile(model, ml.CpuBackend(), shapes={"x": ["batch", 16]}, data_keys={"x"})
        >>> plan = pm.memory_plan({"x": [100, 16]})["evaluate"]
        >>> plan.inputs, plan.parameters, plan.outputs
        (6400, 4612, 400)
        """
        from mithril._memory_plan import memory_plan

        return memory_plan(self, shapes)

    @public
    def profile(self, path: Any = None) -> Any:
        """Records every step that runs in a ``with`` block: time, bytes and rates.

        Parameters
        ----------
        path : a file for a trace that chrome://tracing and Perfetto read; written at the end

        Returns
        -------
        A `Profile`: after the block `rows` has what ran by kernel and path, and `print` shows a
        table. Rates are held against the peak of as many threads, which is measured (about 5 ms
        once). On other backends than the engine's there is an event for each call.

        Raises
        ------
        ArgumentError : the model is being profiled already

        >>> import mithril as ml
        >>> pm = ml.compile(ml.Relu(), ml.CpuBackend(), shapes={"input": [8]})
        >>> with pm.profile() as profile:
        ...     outputs = pm.evaluate({}, {"input": [1.0] * 8})
        >>> [(row.kernel, row.count, row.bytes) for row in profile.rows]
        [('relu', 1, 64)]
        """
        from mithril._profiling import Profile

        return Profile(self, path)

    @public
    def summary(
        self,
        model: Any = None,
        depth: int = 0,
        shapes: bool = True,
        types: bool = False,
        symbolic: bool = False,
        verbose: bool = False,
        alternative_shapes: bool = False,
        print_info: bool = True,
        name: str | None = None,
    ) -> None:
        """Prints the backend, every key with role, dtype, shape and number of parameters.

        Parameters
        ----------
        model : the model that was compiled or a part of it: prints its table of submodels instead
        depth : levels of submodels of `model` with tables of their own
        shapes, types : whether to print these columns
        symbolic : names instead of None for open sizes
        verbose : print the table of submodels, too
        alternative_shapes : all that is known of each shape
        print_info : print backend, precision, device, keys by role, number of parameters
        name : title of the table of submodels
        """
        from mithril._summary import physical_summary, summary_flags

        columns = summary_flags(
            shapes=shapes, types=types, symbolic=symbolic, alternative_shapes=alternative_shapes
        )
        parts = summary_flags(verbose=verbose, print_info=print_info)
        print(physical_summary(self, model, depth, name, columns, **parts))

    def _repr_html_(self) -> str:
        from mithril._summary import physical_html

        return physical_html(self)

    def _signature(self) -> inspect.Signature:
        kind = inspect.Parameter
        named = [
            kind(name, kind.POSITIONAL_OR_KEYWORD)
            for name in self.data_keys
            if name.isidentifier() and not _is_keyword(name)
        ]
        return inspect.Signature(named)

    def __repr__(self) -> str:
        return (
            f"PhysicalModel(backend={self.backend!r}, data={list(self.data_keys)},"
            f" outputs={self.output_keys})"
        )


@contextlib.contextmanager
def _counted(opt_state: Mapping[str, Any]) -> Iterator[None]:
    """While a step overwrites arrays, the given state counts it, too: Ctrl-C is raised after it,
    and whoever catches it has these arrays only."""
    if not isinstance(opt_state, dict):
        yield
        return
    before = opt_state["step"]
    opt_state["step"] = before + 1
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        opt_state["step"] = before
        raise


def _seed(what: str, seed: Any) -> int:
    """A seed is any integer; the engine takes its last 64 bits."""
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise SignatureError(f"{what}: seed requires an integer, got {shown(seed)}")
    return seed % 2**64


def _names_of_inputs(wrt: Any) -> list[Any]:
    names = [wrt] if isinstance(wrt, str) else wrt
    return list(items("evaluate: wrt", names, "names of inputs", optional=True))


def _refuse_unknown_types(keys: Iterable[Key]) -> None:
    """Every element type is fixed at compile, so none can be data."""
    for key in keys:
        if key.role == "data" and key.type in ("dtype", "none or dtype"):
            raise UnsupportedError(
                f"compile: '{key.name}' is an element type, which must be known here",
                hint=f"give it in constant_keys: {{'{key.name}': ml.float32}}",
            )


def _is_keyword(name: str) -> bool:
    import keyword

    return keyword.iskeyword(name)


@public
def transfer(params: Mapping[str, Any], to: Any) -> Params:
    """The same parameters as arrays of another backend, dtypes kept."""
    from mithril.backends.backend import Backend

    instance("transfer: to", to, Backend, "a backend")
    out = {}
    for name, value in mapping("transfer: params", params).items():
        if isinstance(value, Uninitialized):
            out[name] = value
            continue
        array = as_numpy(value, name)
        out[name] = to.tensor(array, array.dtype)
    return out
