"""`bind`: parameters become constants, in few bits if that is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.base.checks import checked_mapping
from mithril.base.public import public
from mithril.errors import KeyNotFound, UnsupportedError, suggestion
from mithril.logical.tensor import array_literal
from mithril.physical.compilation import Call, Compilation
from mithril.physical.conversion import as_numpy
from mithril.physical.face import Face
from mithril.physical.initial import Uninitialized
from mithril.physical.inputs import inputs_of
from mithril.physical.literals import literal_array
from mithril.physical.missing import other_naming
from mithril.physical.options import CompileOptions
from mithril.physical.program import Program
from mithril.physical.quantized import QuantizationReport, weight_report
from mithril.physical.targets import runs_natively
from mithril.physical.weights import check_weights

if TYPE_CHECKING:
    from mithril.physical.model import PhysicalModel


class Binding(Face):
    """The part of `PhysicalModel` that makes constants of parameters."""

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
        compilation, params = self._compilation, checked_mapping("params", params)
        if compilation.lists is not None:
            raise UnsupportedError("bind: a parameter is a list of tensors, which stay parameters")
        weights = compilation.options.quantize or None if weights is None else weights
        if weights is not None:
            natively = not self.backend.runs_plans or runs_natively(
                compilation.compiled, self.backend
            )
            check_weights("bind: weights", weights, self.backend, not natively)
        unknown = [name for name in params if name not in self.param_keys]
        if unknown:
            naming = other_naming(compilation, self.param_keys, unknown)
            near = "" if naming else suggestion(unknown[0], self.param_keys)
            raise KeyNotFound(f"bind: no parameter named '{unknown[0]}'{near}", hint=naming)
        bound = _made(self, _bound_options(compilation, params))
        return bound if weights is None else _with_weights(bound, weights)

    @public
    def quantization_report(
        self,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
    ) -> Any:
        """Measures how far quantized weights and outputs differ from float32; `print` the report.

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
        options = self._compilation.options
        if options.weights and not options.quantize:
            raise UnsupportedError(
                f"quantization_report: the weights are bound as {options.weights}, and what they"
                " were is not known any more",
                hint='ask before bind: of a model that is compiled with quantize="int8"',
            )
        if not options.quantize and not by_itself:
            raise UnsupportedError(
                f"quantization_report: {self.backend!r} keeps weights as they are",
                hint='compile the model with quantize="int8", and ask before bind',
            )
        call = Call(
            checked_mapping("params", params),
            checked_mapping("data", data),
            checked_mapping("state", state),
        )
        program = self._compilation.program_for(call)
        inputs = inputs_of(self._compilation, program, call)
        if by_itself:
            return self.backend._quantization_report(program, inputs)
        return _report(self, program, inputs, call)


def _made(physical: Any, options: CompileOptions) -> PhysicalModel:
    """Makes the same model with other options."""
    return type(physical)(physical._compilation.snapshot, options)


def _bound_options(compilation: Compilation, params: Mapping[str, Any]) -> CompileOptions:
    """Returns the options with parameters among the constants."""
    options, own = compilation.options, {compilation.by_name[name].key for name in params}

    is_whole = set(compilation.param_keys) <= set(params)
    return replace(
        options,
        trainable_keys=[k for k in options.trainable_keys if compilation.key_of(k) not in own],
        constants=[*options.constants, *_constants(compilation, params)],
        quantize="" if is_whole else options.quantize,
        recorder=_core.Recorder(),
    )


def _report(physical: Any, program: Program, inputs: list[Any], call: Call) -> QuantizationReport:
    """Compares a call with the same one without rounding."""
    compilation, to_numpy = physical._compilation, physical.backend.to_numpy
    matrices = _known_matrices(compilation)
    exact = _unrounded(physical, [key for key, _ in matrices])._compilation
    names = {key.key: key.name for key in exact.keys}
    params = {names[compilation.key_of(key)]: matrix for key, matrix in matrices}
    own = zip(program.inputs, inputs, strict=True)
    params.update((key.name, value) for key, value in own if key.role == "param")
    call = call._replace(params=params)
    exact_program = exact.program_for(call)
    exact_inputs = inputs_of(exact, exact_program, call)
    rounded, unrounded = (
        {name: to_numpy(value) for name, value in zip(one.outputs, one.run(given)[0], strict=True)}
        for one, given in ((program, inputs), (exact_program, exact_inputs))
    )
    kind, graph = compilation.options.quantize, exact_program.compiled.forward
    return weight_report(physical.backend, kind, graph, exact_inputs, rounded, unrounded)


def _known_matrices(compilation: Compilation) -> list[tuple[Any, Any]]:
    """Lists the constants that may be weights, as they were given."""
    options, dtype = compilation.options, compilation.backend.default_dtype
    literals = [
        (key, literal_array(value, dtype))
        for key, value in options.constants
        if isinstance(value, _core.TensorLiteral) and value.packed is None
    ]
    return [(key, x) for key, x in literals if x.ndim == 2 and x.dtype == dtype.numpy()]


def _unrounded(physical: Any, keys: list[Any]) -> PhysicalModel:
    """Makes the model with weights as they are, of which these constants are parameters."""
    compilation = physical._compilation
    options, moved = compilation.options, set(map(compilation.key_of, keys))
    kept = [(key, x) for key, x in options.constants if compilation.key_of(key) not in moved]
    return _made(
        physical,
        replace(
            options,
            constants=kept,
            trainable_keys=[*options.trainable_keys, *keys],
            weights="",
            quantize="",
            file_path=None,
            recorder=_core.Recorder(),
        ),
    )


def _constants(compilation: Compilation, params: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
    for name, value in params.items():
        if isinstance(value, Uninitialized):
            value._fail()
        key = own = compilation.by_name[name]
        if key.dtype is None:  # ranks are open, so that no dtype has been assigned yet
            own = replace(key, dtype=compilation.backend.default_dtype)
        array = as_numpy(compilation.convert(own, value), name)
        yield compilation.node.find_connection(key.key), array_literal(array)


def _with_weights(physical: PhysicalModel, weights: str) -> PhysicalModel:
    """The same model with constants in a format. What nothing else reads is kept in this format
    only; the rest is packed by each program."""
    compilation = physical._compilation
    options, constants = compilation.options, compilation.options.constants
    if compilation.program is not None:
        tensors = [v for _, v in constants if isinstance(v, _core.TensorLiteral)]
        packed = _core.pack_literals(compilation.compiled.forward, tensors, weights)
        smaller = {id(old): new for old, new in zip(tensors, packed, strict=True) if new}
        constants = [(key, smaller.get(id(value), value)) for key, value in constants]
    return _made(
        physical,
        replace(options, constants=constants, weights=weights, recorder=_core.Recorder()),
    )


__all__ = ["Binding"]
