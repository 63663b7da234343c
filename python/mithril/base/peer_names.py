"""What other libraries call things, and what they are called here: for messages of unknown names.

One table a kind of name: layers and functions of the package, members of connections, arguments.
"""

from __future__ import annotations

from collections.abc import Collection

_TORCH, _KERAS, _JAX, _NUMPY = "PyTorch", "Keras", "JAX", "NumPy"

# Name elsewhere -> (whose, what to write here).
_NAMES: dict[str, tuple[str, str]] = {
    **{
        name: (_KERAS, here)
        for name, here in {
            "Dense": "ml.Linear(dimension)",
            "Input": 'ml.IOKey("x", shape=[None, 3]), or model.set_shapes(x=[None, 3])',
            "Conv2DTranspose": "ml.ConvTranspose2D",
            "Conv1DTranspose": "ml.ConvTranspose1D",
            "MaxPooling1D": "ml.MaxPool1D",
            "MaxPooling2D": "ml.MaxPool2D",
            "MaxPooling3D": "ml.MaxPool3D",
            "AveragePooling1D": "ml.AvgPool1D",
            "AveragePooling2D": "ml.AvgPool2D",
            "AveragePooling3D": "ml.AvgPool3D",
            "GlobalAveragePooling1D": "ml.GlobalAvgPool, then ml.Flatten",
            "GlobalAveragePooling2D": "ml.GlobalAvgPool, then ml.Flatten",
            "GlobalMaxPooling1D": "ml.GlobalMaxPool, then ml.Flatten",
            "GlobalMaxPooling2D": "ml.GlobalMaxPool, then ml.Flatten",
            "BatchNormalization": "ml.BatchNorm1D, ml.BatchNorm2D or ml.BatchNorm3D",
            "LayerNormalization": "ml.LayerNorm",
            "GroupNormalization": "ml.GroupNorm",
            "ZeroPadding2D": "ml.Pad",
            "UpSampling2D": "ml.Upsample",
            "Concatenate": "ml.Concat",
            "Permute": "ml.Transpose",
            "RepeatVector": "ml.Repeat",
            "Bidirectional": "ml.LSTM(hidden_size, bidirectional=True)",
            "MeanSquaredError": 'ml.SquaredError(reduction="mean")',
            "MeanAbsoluteError": 'ml.AbsoluteError(reduction="mean")',
            "CategoricalCrossentropy": "ml.CrossEntropy(categorical=False) of logits, with the"
            " classes on axis 1",
            "SparseCategoricalCrossentropy": "ml.CrossEntropy() of logits, with the classes on"
            " axis 1",
            "BinaryCrossentropy": 'ml.BinaryCrossEntropy(input_type="probs")',
            "Huber": "ml.HuberLoss",
            "KLDivergenceLoss": "ml.KLDivergence",
            "layers": "ml itself: ml.Linear, ml.Conv2D",
            "losses": "ml itself: ml.SquaredError, ml.CrossEntropy",
            "optimizers": "ml.optim",
            "RMSprop": "ml.optim.Adam, ml.optim.SGD or ml.optim.Momentum",
        }.items()
    },
    **{
        name: (_TORCH, here)
        for name, here in {
            "nn": "ml itself: ml.Linear, ml.Relu",
            "Module": "ml.Model",
            "Sequential": "ml.Model(), extended by `model += layer`",
            "ModuleList": "a Python list; `model |= layer` puts each layer in",
            "Parameter": 'ml.IOKey("w", shape=[3], differentiable=True)',
            "Identity": "ml.Buffer",
            "Det": "ml.Determinant",
            "Inv": "ml.Inverse",
            "Norm": "(x * x).sum().sqrt() of a connection x, or a layer: ml.LayerNorm, ml.RMSNorm",
            "BatchNorm": "ml.BatchNorm1D, ml.BatchNorm2D or ml.BatchNorm3D",
            "Conv": "ml.Conv1D, ml.Conv2D or ml.Conv3D",
            "MaxPool": "ml.MaxPool1D, ml.MaxPool2D or ml.MaxPool3D",
            "AvgPool": "ml.AvgPool1D, ml.AvgPool2D or ml.AvgPool3D",
            "MSELoss": 'ml.SquaredError(reduction="mean")',
            "L1Loss": 'ml.AbsoluteError(reduction="mean")',
            "CrossEntropyLoss": 'ml.CrossEntropy(reduction="mean")',
            "BCELoss": 'ml.BinaryCrossEntropy(input_type="probs", reduction="mean")',
            "BCEWithLogitsLoss": 'ml.BinaryCrossEntropy(reduction="mean")',
            "KLDivLoss": "ml.KLDivergence",
            "MultiheadAttention": "ml.MultiHeadAttention",
            "Dropout2d": "ml.Dropout",
            "AdaptiveAvgPool": "ml.AdaptiveAvgPool2D",
            "ZeroPad2d": "ml.Pad",
            "Unsqueeze": "ml.ExpandDims",
            "Cat": "ml.Concat",
            "Optimizer": "ml.optim",
            "no_grad": "ml.compile(..., inference=True)",
            "manual_seed": "pm.randomize_params(seed=7)",
            "tensor": "backend.array(...); constants of a model are ml.Tensor(...)",
            "from_numpy": "backend.array(...)",
            "save": "model.save(...) or ml.Saved",
            "Exp": "ml.Exponential",
            "Sin": "ml.Sine",
            "Cos": "ml.Cosine",
            "Abs": "ml.Absolute",
            "Neg": "ml.Negate",
            "Pow": "ml.Power",
            "Sub": "ml.Subtract",
            "Mul": "ml.Multiply",
            "Div": "ml.Divide",
            "Var": "ml.Variance",
        }.items()
    },
    **{
        name: (_JAX, here)
        for name, here in {
            "jit": "ml.compile(model, backend, jit=True)",
            "value_and_grad": "pm.evaluate(params, data, output_gradients=...)",
            "vmap": "a batch axis: layers take any axes in front",
            "while_loop": "ml.While",
            "numpy": "ml itself: ml.Exponential, ml.Sum",
        }.items()
    },
    **{
        name: (_NUMPY, here)
        for name, here in {
            "array": "backend.array(...); constants of a model are ml.Tensor(...)",
            "ndarray": "an array of the backend: ml.NumpyBackend().array(...)",
            "concatenate": "ml.Concat",
            "matmul": "ml.MatrixMultiply, or a @ b",
            "einsum": "ml.Einsum",
            "newaxis": "None in an index: x[:, None]",
            "det": "ml.Determinant",
            "inv": "ml.Inverse",
            "linalg": "ml itself: ml.Solve, ml.Inverse, ml.Determinant, ml.SVD",
            "fft": "ml itself: ml.FFT, ml.RFFT",
            "outer": 'ml.Einsum("i,j->ij"), or x[:, None] * y[None, :]',
            "kron": "ml.Einsum, then ml.Reshape",
            "norm": "(x * x).sum().sqrt() of a connection x",
        }.items()
    },
    **dict.fromkeys(("Adam", "AdamW", "SGD", "Momentum"), ("", "ml.optim.{}")),
}

# Members of tensors elsewhere; `x` is the connection.
_MEMBERS: dict[str, tuple[str, str]] = {
    **{
        name: (_TORCH, here)
        for name, here in {
            "view": "x.reshape((2, -1))",
            "permute": "x.transpose((0, 2, 1))",
            "unsqueeze": "x[:, None], or ml.ExpandDims(axis)(x)",
            "dim": "len(shape), where model.shapes has it",
            "matmul": "x @ y",
            "mm": "x @ y",
            "bmm": "x @ y",
            "t": "x.T",
            "to": "x.cast(ml.float16)",
            "float": "x.cast(ml.float32)",
            "long": "x.cast(ml.int64)",
            "detach": "ml.StopGradient()(x)",
            "contiguous": "x: layouts are the backend's",
            "clone": "x: nothing changes a connection's value",
            "backward": "pm.evaluate(params, data, output_gradients=...)",
            "grad": "what pm.evaluate(params, data, output_gradients=...) returns",
            "requires_grad": "x.set_differentiability(True)",
            "requires_grad_": "x.set_differentiability(True)",
            "device": "the backend's: ml.TorchBackend(device=...)",
            "expand": "ml.BroadcastTo()(x, shape)",
            "masked_fill": "ml.MaskedFill()",
            "softmax": "ml.Softmax(axis=-1)(x)",
            "sigmoid": "ml.Sigmoid()(x)",
            "tanh": "ml.Tanh()(x)",
            "relu": "ml.Relu()(x)",
            "log": "ml.Log()(x)",
            "pow": "x ** y",
            "add": "x + y",
            "sub": "x - y",
            "mul": "x * y",
            "div": "x / y",
            "chunk": "ml.Chunk()(x)",
            "norm": "(x * x).sum().sqrt()",
        }.items()
    },
    **{
        name: (_NUMPY, here)
        for name, here in {
            "ndim": "len(shape), where model.shapes has it",
            "astype": "x.cast(ml.float32)",
            "flatten": "ml.Flatten(start_dim=0)(x)",
            "ravel": "ml.Flatten(start_dim=0)(x)",
            "squeeze": "ml.Squeeze()(x)",
            "argmax": "ml.ArgMax()(x)",
            "argmin": "ml.ArgMin()(x)",
            "std": "x.var().sqrt()",
            "dot": "x @ y",
            "swapaxes": "ml.SwapAxes(axis1=0, axis2=1)(x)",
            "cumsum": "ml.CumSum()(x)",
            "round": "ml.Round()(x)",
            "clip": "x.clamp(low, high)",
            "repeat": "ml.RepeatInterleave()(x)",
            "split": "ml.Split()(x)",
            "tolist": "backend.to_numpy(outputs[...]).tolist(), when the model has run",
            "numpy": "backend.to_numpy(outputs[...]), when the model has run",
        }.items()
    },
}

# Members of models and modules elsewhere; `pm` is the compiled model.
_OF_COMPILED: dict[str, tuple[str, str]] = {
    **{
        name: (_TORCH, here)
        for name, here in {
            "forward": "pm.evaluate(params, data)",
            "backward": "pm.evaluate(params, data, output_gradients=...)",
            "grad": "what pm.evaluate(params, data, output_gradients=...) returns",
            "zero_grad": "not needed: gradients are returned, not kept",
            "parameters": "pm.get_parameters()",
            "named_parameters": "pm.get_parameters().items()",
            "state_dict": "pm.get_parameters(), and pm.initial_state_dict for states",
            "load_state_dict": "ml.formats.load_state_dict(pm, state_dict, with_state=True)",
            "train": 'ml.compile(model, backend, mode="train")',
            "eval": 'ml.compile(model, backend, mode="eval")',
            "to": "the backend's device: ml.compile(model, ml.TorchBackend(device=...))",
            "cuda": 'ml.compile(model, ml.TorchBackend(device="cuda")), or ml.CudaBackend()',
            "cpu": "ml.compile(model, ml.CpuBackend())",
            "half": "ml.compile(model, backend, precision=...), or the backend's dtype",
        }.items()
    },
    **{
        name: (_KERAS, here)
        for name, here in {
            "fit": "mithril.training.train_model(...), or pm.step in a loop",
            "compile": "ml.compile(model, backend)",
            "trainable_weights": "pm.get_parameters()",
            "get_weights": "pm.get_parameters()",
            "weights": "pm.get_parameters()",
            "train_on_batch": "pm.step",
        }.items()
    },
    **{
        name: (_JAX, here)
        for name, here in {
            "apply": "pm.evaluate(params, data)",
            "params": "pm.get_parameters()",
        }.items()
    },
    "evaluate_gradients": ("", "pm.evaluate(params, data, output_gradients=...)"),
    "evaluate_all": ("", "pm.evaluate(params, data, output_gradients=...)"),
    "flat_graph": ("", "pm.explain(), which prints what runs"),
}

# Arguments elsewhere -> those that are meant here, the first that a callee has.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "out_features": ("dimension",),
    "units": ("dimension", "hidden_size"),
    "features": ("dimension", "out_channels"),
    "bias": ("use_bias",),
    "with_bias": ("use_bias",),
    "filters": ("out_channels",),
    "out_channels": ("filters",),
    "strides": ("stride",),
    "dilation_rate": ("dilation",),
    "pool_size": ("kernel_size",),
    "rate": ("p",),
    "dim": ("axis",),
    "dims": ("axis", "axes"),
    "axes": ("axis",),
    "keepdims": ("keepdim",),
    "keepdim": ("keepdims",),
    "epsilon": ("eps",),
    "affine": ("use_scale",),
    "elementwise_affine": ("use_scale",),
    "center": ("use_bias",),
    "scale": ("use_scale",),
    "embedding_dim": ("dim",),
    "output_dim": ("dim",),
    "negative_slope": ("slope",),
    "alpha": ("slope",),
    "lr": ("learning_rate",),
    "learning_rate": ("lr",),
    "from_logits": ("input_type",),
    "dropout_rate": ("dropout", "p"),
    "go_backwards": ("bidirectional",),
    "embed_dim": ("embed_dim", "dim"),
}
# Layers that find something on axis 1 always, and what that is.
_ON_AXIS_1: dict[str, str] = {
    **dict.fromkeys(("CrossEntropy", "NLLLoss"), "classes"),
    **{
        f"{layer}{rank}D": "channels"
        for layer in ("BatchNorm", "Convolution", "ConvTranspose", "MaxPool", "AvgPool")
        for rank in (1, 2, 3)
    },
}
_FOLLOWS = frozenset(
    ("in_features", "in_channels", "input_dim", "input_size", "input_shape", "normalized_shape")
)


def _said(name: str, known: tuple[str, str]) -> str:
    whose, here = known
    owner = f"{whose}'{'' if whose.endswith('s') else 's'} " if whose else ""
    return f": {owner}{name} is {here.format(name)}"


def name_here(name: str) -> str:
    """ ": Keras' Dense is ml.Linear(dimension)" for a name of another library, or ""."""
    return _said(name, _NAMES[name]) if name in _NAMES else ""


def member_here(name: str) -> str:
    """The same of a member that tensors have elsewhere."""
    return _said(name, _MEMBERS[name]) if name in _MEMBERS else ""


def compiled_member_here(name: str) -> str:
    """The same of a member that models have elsewhere."""
    return _said(name, _OF_COMPILED[name]) if name in _OF_COMPILED else ""


def argument_here(name: str, known: Collection[str], callee: str = "") -> str:
    """What to give instead of an argument that layers have elsewhere, or ""."""
    if callee in _ON_AXIS_1 and name in ("axis", "dim", "data_format"):
        return f": the {_ON_AXIS_1[callee]} are axis 1 of the input; x.transpose(...) moves axes"
    here = next((argument for argument in _ARGUMENTS.get(name, ()) if argument in known), None)
    if here is not None:
        return f": it is {here!r} here"
    return ": it follows from the input" if name in _FOLLOWS else ""


__all__ = ["argument_here", "compiled_member_here", "member_here", "name_here"]
