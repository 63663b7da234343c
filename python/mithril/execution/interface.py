"""The interface of backends: the members that compiled models, and tools around them, use.

`Backend` implements it for arrays of NumPy and emitted source; backends override what differs. A
backend that runs plans has `_program`; a backend that keeps weights in few bits by itself has
`_quantizing` and `_quantization_report`; a framework that compiles training steps has
`_vjp_function` and `_argument`.
"""

from __future__ import annotations

import contextlib
import operator
from abc import ABC
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mithril.base.logging import note_option
from mithril.base.numpy import np
from mithril.errors import UnsupportedError
from mithril.execution.checkpoints import segmented
from mithril.types import Dtype

__all__ = ["CompileTarget"]


class CompileTarget(ABC):
    """The members of a backend that compiled models use."""

    # --- facts ------------------------------------------------------------------------------------

    backend_type = ""  # the name in the registry
    is_manualgrad = True  # gradients are graphs of the engine, not the framework's
    differentiates_empty = True  # whether the framework does, of tensors without elements
    runs_plans = False  # whether graphs are run by the engine instead of by emitted source
    packs_weights = False  # whether it has kernels for products with weights in few bits
    # Whether it keeps weights in types of its own: it is asked for a backend that does, and reports
    # what that costs (`_quantizing`, `_quantization_report`).
    quantizes_itself = False
    compiles_each_program = False  # takes a compiler's time for each model and its sizes
    jit_default: Any = None  # whether emitted source is compiled unless compile is told otherwise
    jit_option_names: frozenset[str] | None = (
        None  # that its compiler takes; None: it says so itself
    )
    # What its compiler cannot follow of what data choose (`physical.targets.dynamic_features`).
    not_compiled: frozenset[str] = frozenset()
    # Whether functions of `ops` take arrays of the backend; else they take those of NumPy.
    _runs_own_arrays = False
    has_own_memory = False  # whether it has `ml.Array`s, beside the arrays of NumPy
    merges_copies = False  # whether its compiler computes once what text computes twice
    keeps_order = True  # whether what text says first is computed first
    default_dtype: Dtype = Dtype.float32
    compute_dtype: Dtype | None = None  # of mixed precision: docs/low_precision.md
    # Programs compute integers in at most that.
    _widest_int: Dtype = Dtype.int64
    # What two arrays must have in common for a compiled model to treat them alike.
    _signature: Callable[[Any], tuple] = operator.attrgetter("__class__", "dtype", "shape")

    # --- arrays and functions ---------------------------------------------------------------------

    ops: Any  # the table of functions that emitted text calls
    op_names: Any  # their names
    default_int: Any
    tensor: Any
    array: Any
    ones: Any
    zeros: Any
    cast: Any
    shape: Any
    dtype: Any
    reshape: Any
    to_numpy: Any
    block_until_ready: Any
    capabilities: Any
    _from_host: Any
    get_device: Any
    _is_native: Any
    _kernel: Any
    _custom: Any
    constructor_arguments: tuple[tuple[Any, ...], dict[str, Any]]  # what the constructor was given

    # --- offered by some --------------------------------------------------------------------------

    _program: Any
    _quantizing: Any
    _quantization_report: Any
    _vjp_function: Any
    _argument: Any
    compiles_steps: bool

    # --- for ops outside of models, profiles and tests --------------------------------------------

    _runs_ops: Any  # the backend that compiles and runs ops on some operands
    _runs_on_host: Any  # whether a device leaves an op to the engine's kernels
    _pool: Any  # threads of the engine that belong to the backend

    # --- running emitted source -------------------------------------------------------------------

    def _scope(self) -> Any:
        """A context in which the framework computes as this backend is configured."""
        return np.errstate(all="ignore")

    def _scope_of_dtypes(self, dtypes: Iterable[Dtype]) -> Any:
        """The same for operands of these dtypes."""
        return self._scope()

    def _table_dtype(self, dtype: Dtype) -> Any:
        """As functions of `ops` take it."""
        return getattr(self.ops, "bool_" if dtype is Dtype.bool else dtype.value)

    def _tracing_scope(self) -> Any:
        """The same for functions that a framework transforms."""
        return contextlib.nullcontext()

    def _constant(self, value: Any) -> Any:
        """A NumPy array or a string as the functions of `ops` take it."""
        return value

    def _call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
        values = [self.to_numpy(x) if hasattr(x, "shape") else x for x in inputs]
        with self._scope():
            outputs = function(*values)
        is_array = (np.ndarray, np.generic)
        return [self._from_host(np.asarray(x)) if isinstance(x, is_array) else x for x in outputs]

    def _note_parameters(  # noqa: B027
        self, function: Callable[..., Any], positions: Sequence[int]
    ) -> None:
        """Hears which inputs of a program without gradients are parameters."""

    def _make_vjp(self, executable: Any, wrt: tuple[int, ...], has_cotangent: tuple[bool, ...]):
        raise UnsupportedError(
            f"{type(self).__name__} does not differentiate; compile with autodiff='engine'"
        )

    def _jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return function

    def _checkpoints_itself(self, compiles: bool) -> bool:
        """Tells whether less memory for gradients is the framework's business: what text computes
        again would be merged by its compiler, or be kept all the same."""
        return not self.keeps_order or (compiles and self.merges_copies)

    def _checkpointed(self, text: str, function: Any) -> Any:
        """A function of emitted text of which the framework keeps less for its gradients."""
        return function

    def _segmented(self, text: str, function: Any, checkpoint: Any) -> Any:
        """The function in segments that `checkpoint` computes again, if it is a straight line."""
        found = segmented(text, function, checkpoint)
        if found is None:
            reason = "it keeps all that is read, for the program has loops or branches"
            note_option(type(self).__name__, "gradient_checkpointing=True", reason)
        return found or function

    def _keeping_copies(self, jit_options: dict[str, Any]) -> dict[str, Any]:
        """Options with which its compiler does not merge what text computes twice."""
        return jit_options

    def _constants(self, values: tuple[Any, ...]) -> Any:
        """Makes what emitted text calls `C`."""
        return values

    def _guard(
        self, function: Callable[..., Any], arrays: Sequence[Any]
    ) -> Callable[..., bool] | None:
        """A quick check whether arrays are like these, in all that calls of `function` depend on;
        None where there is none that is quicker than their signature."""
        return None

    def _guarded_call(
        self, function: Callable[..., Any], arrays: Sequence[Any]
    ) -> tuple[Sequence[Any], Callable[..., Sequence[Any]]]:
        """The results as `_call` gives them, and what gives them for arrays that pass the check."""
        raise NotImplementedError

    # --- running graphs ---------------------------------------------------------------------------

    def execute(self, graph: Any, buffers: list[Any]) -> list[Any]:
        """Runs a graph of a compiled model on the arrays of its inputs; gives those of its outputs.

        A subclass may have its own: it is called for every evaluation, gradients (which then are
        the engine's programs) and training steps included. ``graph(buffers)`` runs the graph as
        the backend does without it; `graph.ops`, `graph.inputs`, `graph.outputs` and `graph.text`
        say what it is.

        >>> import mithril as ml
        >>> __name__ = "example"  # what this package defines itself is not a user's
        >>> class Telling(ml.NumpyBackend):
        ...     def execute(self, graph, buffers):
        ...         print(graph.ops, graph.outputs)
        ...         return graph(buffers)
        >>> pm = ml.compile(ml.Relu(), Telling(), data_keys={"input"}, shapes={"input": [2]})
        >>> pm.evaluate({}, {"input": [-1.0, 2.0]})
        ('relu',) ('output',)
        {'output': array([0., 2.], dtype=float32)}
        """
        return graph(buffers)
