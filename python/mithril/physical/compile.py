"""`ml.compile`: from a model and a backend to something that runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from mithril.base.files import path_of
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    SignatureError,
)
from mithril.logical.annotation import type_of
from mithril.logical.handles import node_of
from mithril.logical.model import Model, is_trained, predicted_by, stands_alone
from mithril.optim import Optimizer
from mithril.optim.loss_scale import loss_scale_of
from mithril.physical.compilation import compilation_of
from mithril.physical.model import PhysicalModel
from mithril.physical.option_checks import (
    Keys,
    autodiff_of,
    check_disjoint,
    check_nan_of,
    check_optimizer,
    checked_backend,
    constants_of,
    flag,
    gradient_checkpointing_of,
    is_by_path,
    is_portable_of,
    is_width,
    jit_of,
    jit_options_of,
    keys,
    memory_limit_of,
    mode_of,
    pairs,
    passes_off_of,
    quantizing,
    refuse_unsupported,
    stream_gradients_of,
)
from mithril.physical.options import CompileOptions
from mithril.physical.shortcuts import report_keys
from mithril.physical.snapshots import compile_snapshot
from mithril.physical.static_shapes import check_checkpoints
from mithril.types import as_dtype

if TYPE_CHECKING:
    import os

    from mithril.backends.backend import Backend
    from mithril.logical.typing import ByKey


@public
def compile(  # noqa: A001
    model: Model,
    backend: Backend,
    *,
    shapes: ByKey = None,
    data_keys: Keys = None,
    constant_keys: ByKey = None,
    trainable_keys: Keys = None,
    frozen_keys: Iterable[str] | str | None = None,
    discard_keys: Keys = None,
    types: ByKey = None,
    inference: bool = False,
    quantize: Literal["int8", "int4", "int16", "bfloat16"] | None = None,
    mode: Literal["train", "eval"] | None = None,
    jit: bool | Literal["auto"] = "auto",
    autodiff: Literal["engine", "framework"] | None = None,
    optimizer: Optimizer | None = None,
    loss_scale: float | None = None,
    file_path: str | os.PathLike[str] | None = None,
    jit_options: Mapping[str, Any] | None = None,
    strict: bool = False,
    strict_dtypes: bool = False,
    safe_names: bool = True,
    use_short_namings: bool = True,
    naming: Literal["path"] | None = None,
    safe_shapes: bool = True,
    auto_scalar_promotion: bool = True,
    static_shapes: bool = False,
    static_inference: bool = False,
    exact_conv: bool = False,
    deterministic: Literal["portable"] | None = None,
    gradient_checkpointing: bool = False,
    memory_limit: int | str | None = None,
    stream_gradients: bool = False,
    check_nan: bool | Literal["nan", "inf"] = False,
    passes: Iterable[str] = (),
    verbose: bool = False,
) -> PhysicalModel:
    """Compiles a model for a backend. The model is not changed and may be compiled again; what is
    done to it afterwards changes nothing of what was compiled.

    Parameters
    ----------
    shapes : sizes (or None, or names) of any keys
    data_keys : inputs given at each call that are not trained
    constant_keys : inputs with their values, which are folded where possible; arrays of floats
        are cast as data are
    trainable_keys : inputs that are trained although the model does not say so
    frozen_keys : parameters that training leaves as they are, by name or pattern with ``*``: of
        the name that `params` has, or of the path that ``naming="path"`` gives ("body.*"). They
        stay in `params`, without gradients; ``optimizer.init({k: params[k] for k in
        pm.trainable_keys})`` keeps nothing for them.
    discard_keys : outputs (or inputs) that are not wanted
    types : element types of keys, such as ``{"tokens": Tensor[int]}``, or of inputs with their
        width, such as ``{"tokens": ml.int32}``, which else is the backend's default
    inference : no gradients will be asked for
    quantize : "int8", "int4", "int16" or "bfloat16": the weights of products count as what so few
        bits stand for, the same on every backend (GGML has its own blocks, and no "int16" and
        "bfloat16"). They are rounded at each call, constants once; `bind` keeps them in few bits,
        and `quantization_report` says what that costs (docs/low_precision.md). There are no
        gradients then.
    mode : "eval" or "train"; what batch norm and dropout do. "train" for a TrainModel, else "eval"
    jit : compile the emitted program by the framework, which takes a while for each set of shapes;
        "auto" is the backend's own default: True on JAX, where programs that call functions of
        Python run line by line still. The engine's plans and NumPy have no such compiler, and run
        as ever.
    autodiff : "engine" or "framework"; who makes the gradient program
    optimizer : of `mithril.optim` (or a class derived from `Optimizer`); gives the physical model
        `step`
    loss_scale : what `step` multiplies the cost by, and divides gradients by again, so that small
        ones stay above what float16 holds; None: where programs compute in float16, 2^16 at first,
        doubled after 2000 good steps in a row, and halved where a gradient is not finite (PyTorch's
        `GradScaler`). Such a step changes no parameter. The scale is kept in `opt_state`. 1: none
        where `stream_gradients` is given, too, which has no other.
    file_path : where the emitted source is written, a name that ends in ``.py``; not for the
        engine's plans, which have none
    jit_options : handed to the framework's compiler, where it compiles
    strict : unknown keys, and calls without parameters of a model that has some, are errors
        instead of warnings
    strict_dtypes : data of another dtype are errors instead of cast
    safe_names : data keys that the user did not name are errors
    use_short_namings : ``weight_0``; else unnamed keys have their path, ``linear_0_weight``
    naming : "path": an unnamed key is called after the named parts that it lies in and the nearest
        name that one of them has for it, ``encoder.attn.w_q``. Unnamed parts are counted among all
        of their class, so that names stay when a sibling gets a name or follows; initial values
        depend on seed, name and shape. Of two that are the same, the later one has "_" in front.
    safe_shapes : losses take input and target of one shape; False: they may broadcast
    auto_scalar_promotion : operands of several dtypes are cast to one; False: they are errors
    static_shapes : shapes that are not known here are those of the first call from then on
    static_inference : what depends on constants only is computed once, when a program is compiled;
        native backends always do so
    exact_conv : True: every convolution is summed in the order of the reference, to the bit;
        False: float32 ones of 3x3 windows may run by tiles (Winograd), which is quicker and within
        2^-20 of the largest sum of magnitudes (docs/numerics.md). Only on backends
        that run the engine's plans: `ml.CpuBackend`, `ml.CBackend`, `ml.OpenCLBackend` and
        `ml.CudaBackend`.
    deterministic : "portable": results have the same bits on every machine. Convolutions are those
        of ``exact_conv=True``, attention is the products and the softmax that it stands for,
        linear algebra, which is LAPACK's where matrices are large, is the engine's own, and so are
        products that a library does. Without it bits are the same from run to run and for any
        number of threads, but not from one kind of CPU to another. Only on backends that run the
        engine's plans.
    gradient_checkpointing : True: gradients take less memory and more time. What lies idle while
        most memory is in use is computed again where it is read, as long as that takes less than a
        third of the program's FLOPs, about what the forward part takes. Gradients are the engine's,
        to the same bits where each line runs by itself. On `ml.CpuBackend` and, for sizes that are
        known here or fixed by ``static_shapes=True``, on NumPy, JAX and PyTorch. MLX, and PyTorch
        under ``jit=True``, compute segments of the program again (`mx.checkpoint`,
        `torch.utils.checkpoint`), and differentiate.
    memory_limit : bytes, "8GB" or "512MiB": what a call may allocate for intermediate results and
        outputs, beside the inputs, parameters and states that the caller holds (`memory_plan` tells
        both). Of programs that take more, values are computed again, those first that free the most
        bytes for a FLOP; the bits stay the same. Only on `ml.CpuBackend`.
    stream_gradients : True: `step` updates each parameter as soon as its gradient exists, in the
        arrays that it is given, so that neither all gradients nor a second copy of the parameters
        and of the optimizer's state take memory. A step that has begun is finished before Ctrl-C
        is raised. Only with the engine's optimizers on `ml.CpuBackend`; where programs compute in
        float16, only with ``loss_scale=1``.
    check_nan : True: the first op that makes a NaN, forward or in a gradient, is an error that
        names it with its path in the model and its line; "inf": one that makes Inf, too. The
        program counts them as it runs; without the option it does nothing for it.
    passes : optimising passes that do not run, such as ``["-fuse"]``
    verbose : logs (or prints, where nobody listens to the log) keys, shapes and passes

    Raises
    ------
    UnsupportedError : the backend cannot do what an option asks for
    NotFiniteError : by calls of the result, with check_nan
    OutOfMemoryError : by calls of the result that do not fit the memory_limit however much is
        computed again, before anything is allocated

    >>> import mithril as ml, numpy as np
    >>> model = ml.Model()
    >>> model |= ml.Linear(2)(input="input", output="output")
    >>> pm = ml.compile(model, ml.CpuBackend(), data_keys={"input"}, shapes={"input": [None, 3]})
    >>> pm.evaluate(pm.get_parameters(), {"input": np.ones((4, 3))})["output"].shape
    (4, 2)

    Values that are computed again save a third of the memory here:

    >>> deep = ml.Model()
    >>> for _ in range(8):
    ...     deep += ml.Linear(64)
    ...     deep += ml.Sine()
    >>> deep += ml.Sum()
    >>> def peak(**options):
    ...     pm = ml.compile(deep, ml.CpuBackend(), shapes={"input": [256, 64]}, **options)
    ...     return pm.memory_plan().programs["gradient"].peak
    >>> peak(gradient_checkpointing=True) < 2 / 3 * peak()
    True
    """
    backend = checked_backend(backend)
    checkpoints = gradient_checkpointing_of(gradient_checkpointing, backend, autodiff, jit)
    compiles = jit_of(jit, backend, checkpoints)
    by_text = checkpoints and not backend._checkpoints_itself(compiles)
    refuse_unsupported(backend, exact_conv=flag("exact_conv", exact_conv))
    is_portable = is_portable_of(deterministic, backend)
    backend = quantizing(quantize, backend, optimizer)
    weights = "" if quantize is None or backend.quantizes_itself else quantize
    inference = flag("inference", inference) or quantize is not None
    check_optimizer(optimizer, inference)
    model = _finalized(model)
    type_pairs = pairs("types", types)
    widths = [(key, as_dtype(value)) for key, value in type_pairs if is_width(value)]
    options = CompileOptions(
        backend=backend,
        data_keys=keys("data_keys", data_keys),
        trainable_keys=keys("trainable_keys", trainable_keys),
        discard_keys=keys("discard_keys", discard_keys),
        constants=constants_of(constant_keys, widths, as_dtype(backend.default_dtype), model),
        shapes=pairs("shapes", shapes),
        types=[(key, type_of(value)) for key, value in type_pairs if not is_width(value)],
        dtypes=widths,
        train=mode_of(mode, model) == "train",
        inference=inference,
        strict=flag("strict", strict),
        safe_names=flag("safe_names", safe_names),
        short_names=flag("use_short_namings", use_short_namings),
        path_names=is_by_path(naming, use_short_namings),
        names_of_part=stands_alone(model),
        safe_shapes=flag("safe_shapes", safe_shapes),
        promote_mixed=flag("auto_scalar_promotion", auto_scalar_promotion),
        report=flag("verbose", verbose),
        passes_off=passes_off_of(passes),
        autodiff=autodiff_of("engine" if by_text else autodiff, backend),
        jit=compiles,
        jit_is_asked=jit is True,
        jit_options=jit_options_of(jit_options, compiles, backend),
        file_path=None if file_path is None else path_of("compile: file_path", file_path),
        strict_dtypes=flag("strict_dtypes", strict_dtypes),
        optimizer=optimizer,
        static_shapes=flag("static_shapes", static_shapes),
        exact_conv=exact_conv or is_portable,
        canonical=is_portable,
        weights=weights,
        quantize=weights,
        check_nan=check_nan_of(check_nan),
        stream_gradients=stream_gradients_of(stream_gradients, backend, optimizer, check_nan),
        loss_scale=loss_scale_of(loss_scale, backend, optimizer, stream_gradients),
        memory_limit=memory_limit_of(memory_limit, backend),
        gradient_checkpointing=checkpoints,
        static_inference=flag("static_inference", static_inference),
        predicted=predicted_by(model),
    )
    check_disjoint(options)
    physical = compile_snapshot(model, options, frozen_keys)
    if by_text:
        check_checkpoints(compilation_of(physical))
    if verbose:
        report_keys(physical)
    return physical


def _finalized(model: Any) -> Model:
    if not isinstance(model, Model):
        raise SignatureError(f"compile: requires a model, got {type(model).__name__}")
    if node_of(model).is_submodel and is_trained(model):
        return model.clone()
    if node_of(model).is_submodel:
        raise ArgumentError(
            f"compile: {model!r} is part of another model", hint="compile the outermost model"
        )
    finalize = getattr(type(model), "finalize", None)  # a wire may have that name
    if finalize is not None:
        finalize(model)
    return model


__all__ = ["Keys", "compile"]
