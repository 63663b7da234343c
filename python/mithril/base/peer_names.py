"""Names that other libraries use, and their names here: for messages about unknown names.

One table a kind of name: layers and functions of the package, members of connections, of models
and of optimizers, arguments; and numbers in the place of another argument.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from mithril.errors import shown

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
            "RMSprop": "not there; ml.optim.Adam is nearest, the others are ml.optim.AdamW, SGD and"
            " Momentum",
            "EarlyStopping": "a callback of mithril.training.train_model that returns True to end",
            "callbacks": "mithril.training.train_model(..., callbacks=[function of an Epoch])",
            "to_categorical": "not needed: ml.CrossEntropy() takes class numbers; one-hot targets"
            " are numpy.eye(classes)[y], for ml.CrossEntropy(categorical=False)",
            "load_model": "ml.load(path)",
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
            "Transformer": "ml.MultiHeadAttention, ml.LayerNorm and ml.Linear, wired",
            "TransformerEncoder": "ml.MultiHeadAttention, ml.LayerNorm and ml.Linear, wired",
            "TransformerEncoderLayer": "ml.MultiHeadAttention, ml.LayerNorm and ml.Linear, wired",
            "TransformerDecoderLayer": "ml.MultiHeadAttention, ml.LayerNorm and ml.Linear, wired",
            "Dropout1d": "x * ml.Dropout(p)(ml.OnesLike()(x[:, :, :1])), which drops channels"
            " of [N, C, L]",
            "Dropout2d": "x * ml.Dropout(p)(ml.OnesLike()(x[:, :, :1, :1])), which drops channels"
            " of [N, C, H, W]; ml.Dropout drops single elements",
            "Dropout3d": "x * ml.Dropout(p)(ml.OnesLike()(x[:, :, :1, :1, :1])), which drops"
            " channels of [N, C, D, H, W]",
            "InstanceNorm1d": "ml.InstanceNorm",
            "InstanceNorm2d": "ml.InstanceNorm",
            "InstanceNorm3d": "ml.InstanceNorm",
            "lr_scheduler": "optimizer.lr = ..., set between steps",
            "DataLoader": 'any batches: dictionaries, {"x": ..., "y": ...}, in a list or from'
            " PyTorch's own loader",
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

# Trained values are the caller's, who has them from `step`.
_KEPT = "the params that pm.step returned, {**params, **state} with statistics"
_FIRST = "pm.get_parameters() gives initial ones"

# Members of models and modules elsewhere; `pm` is the compiled model.
_OF_COMPILED: dict[str, tuple[str, str]] = {
    **{
        name: (_TORCH, here)
        for name, here in {
            "forward": "pm.evaluate(params, data)",
            "backward": "pm.evaluate(params, data, output_gradients=...)",
            "grad": "what pm.evaluate(params, data, output_gradients=...) returns",
            "zero_grad": "not needed: gradients are returned, not kept",
            "parameters": f"{_KEPT}; {_FIRST}",
            "named_parameters": f"{_KEPT}; {_FIRST}",
            "state_dict": f"{_KEPT}; {_FIRST}",
            "buffers": "the state that pm.step returned; pm.initial_state() gives the first one",
            "save": "model.save(path, {**params, **state}), params and state as pm.step returned"
            " them",
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
            "trainable_weights": f"{_KEPT}; {_FIRST}",
            "get_weights": f"{_KEPT}; {_FIRST}",
            "weights": f"{_KEPT}; {_FIRST}",
            "train_on_batch": "pm.step",
        }.items()
    },
    **{
        name: (_JAX, here)
        for name, here in {
            "apply": "pm.evaluate(params, data)",
            "params": f"pm.get_parameters() at first, then {_KEPT}",
        }.items()
    },
    "evaluate_gradients": ("", "pm.evaluate(params, data, output_gradients=...)"),
    "evaluate_all": ("", "pm.evaluate(params, data, output_gradients=...)"),
    "flat_graph": ("", "pm.explain(), which prints what runs"),
}

# Members that models have elsewhere before they are compiled here.
_OF_MODEL: dict[str, tuple[str, str]] = {
    **{
        name: (_TORCH, here)
        for name, here in {
            "forward": "the wiring: model |= layer(input=..., output=...); values go through"
            " pm.evaluate(params, data) of pm = ml.compile(model, backend)",
            "parameters": "pm.randomize_params(seed=0) of pm = ml.compile(model, backend), and what"
            " pm.step returns",
            "named_parameters": "pm.randomize_params(seed=0) of pm = ml.compile(model, backend),"
            " and what pm.step returns",
            "state_dict": "params, as pm.step of pm = ml.compile(model, backend) returned them,"
            " {**params, **state} with statistics",
            "load_state_dict": "params = ml.formats.load_state_dict(pm, state_dict) of"
            ' pm = ml.compile(model, backend, naming="path")',
            "train": 'ml.compile(model, backend, mode="train")',
            "eval": 'ml.compile(model, backend, mode="eval")',
            "to": "the backend's device: ml.compile(model, ml.TorchBackend(device=...))",
            "cuda": 'ml.compile(model, ml.TorchBackend(device="cuda")), or ml.CudaBackend()',
            "cpu": "ml.compile(model, ml.CpuBackend())",
            "half": "ml.compile(model, backend) with the backend's dtype, such as"
            ' ml.TorchBackend(dtype="float16")',
            "backward": "pm.evaluate(params, data, output_gradients=...) of"
            " pm = ml.compile(model, backend)",
            "zero_grad": "not needed: gradients are returned, not kept",
            "requires_grad_": 'ml.compile(model, backend, frozen_keys={"part.*"})',
            "modules": "model.get_unique_submodel_names()",
            "named_modules": "model.get_unique_submodel_names()",
            "children": "model.get_unique_submodel_names()",
            "add_module": 'model |= layer(input="x", output="h"), with name= of the layer',
            "append": 'model += layer, or model |= layer(input="x", output="h")',
            "register_buffer": "ml.Tensor(...) as a value of a key",
            "apply": 'model.set_initializers({"*.bias": "zeros"}),'
            ' or pm.randomize_params(seed=0, init={"*.bias": "zeros"})',
        }.items()
    },
    **{
        name: (_KERAS, here)
        for name, here in {
            "add": 'model += layer, or model |= layer(input="x", output="h")',
            "fit": "mithril.training.train_model(pm, backend, batches) of"
            " pm = ml.compile(model, backend), or pm.step in a loop",
            "predict": "pm.predict(params, data) of pm = ml.compile(model, backend)",
            "evaluate": "pm.evaluate(params, data) of pm = ml.compile(model, backend), which"
            " returns outputs and costs",
            "train_on_batch": "pm.step of pm = ml.compile(model, backend, optimizer=...)",
            "layers": "model.get_unique_submodel_names()",
            "get_layer": "model.get_submodel(name)",
            "weights": "pm.randomize_params(seed=0) of pm = ml.compile(model, backend), and what"
            " pm.step returns",
            "trainable_weights": "pm.randomize_params(seed=0) of pm = ml.compile(model, backend),"
            " and what pm.step returns",
            "get_weights": "pm.randomize_params(seed=0) of pm = ml.compile(model, backend), and"
            " what pm.step returns",
            "set_weights": "what goes into a call: pm.evaluate(params, data)",
            "trainable": 'ml.compile(model, backend, frozen_keys={"part.*"})',
        }.items()
    },
}

# Members of optimizers elsewhere.
_OF_OPTIMIZER: dict[str, tuple[str, str]] = {
    **{
        name: (_TORCH, here)
        for name, here in {
            "step": "params, opt_state, state, outputs = pm.step(params, opt_state, data) of"
            " pm = ml.compile(model, backend, optimizer=optimizer)",
            "zero_grad": "not needed: gradients are returned, not kept",
            "param_groups": "optimizer.lr = ..., of all parameters alike",
            "state_dict": "the opt_state that pm.step returned",
            "load_state_dict": "the opt_state that goes into pm.step(params, opt_state, data)",
        }.items()
    },
    **{
        name: (_KERAS, here)
        for name, here in {
            "apply_gradients": "optimizer.update(params, gradients, opt_state)",
            "minimize": "pm.step(params, opt_state, data) of"
            " pm = ml.compile(model, backend, optimizer=optimizer)",
            "apply": "optimizer.update(params, gradients, opt_state)",
        }.items()
    },
}

# Functions that PyTorch has in `torch.nn.functional`, but for those that are called as a layer is.
_OF_FUNCTIONAL: dict[str, str] = {
    "mse_loss": 'ml.SquaredError(reduction="mean")',
    "l1_loss": 'ml.AbsoluteError(reduction="mean")',
    "cross_entropy": 'ml.CrossEntropy(reduction="mean")',
    "binary_cross_entropy": 'ml.BinaryCrossEntropy(input_type="probs", reduction="mean")',
    "binary_cross_entropy_with_logits": 'ml.BinaryCrossEntropy(reduction="mean")',
    "scaled_dot_product_attention": "ml.ScaledDotProduct(is_causal=False)",
    "conv1d": "ml.Conv1D(kernel_size=3, out_channels=16)(x)",
    "conv2d": "ml.Conv2D(kernel_size=3, out_channels=16)(x)",
    "interpolate": "ml.Upsample(scale_factor=2)(x)",
    "linear": "ml.Linear(dimension)(x)",
    "softmax": "ml.Softmax(axis=-1)(x)",
    "log_softmax": "ml.LogSoftmax(axis=-1)(x)",
    "dropout2d": "x * ml.Dropout(p)(ml.OnesLike()(x[:, :, :1, :1]))",
}

# Names of optimizers' modules elsewhere, without the row of `_NAMES` where that says the same.
_OF_OPTIM: dict[str, tuple[str, str]] = {
    "Optimizer": ("", "ml.optim.SGD, Momentum, Adam or AdamW"),
    "lr_scheduler": _NAMES["lr_scheduler"],
    "schedules": (_KERAS, _NAMES["lr_scheduler"][1]),
    "sgd": ("Optax", "ml.optim.SGD"),
    "adam": ("Optax", "ml.optim.Adam"),
    "adamw": ("Optax", "ml.optim.AdamW"),
    **dict.fromkeys(
        (
            "RMSprop",
            "Adagrad",
            "Adadelta",
            "Adamax",
            "NAdam",
            "RAdam",
            "Adafactor",
            "Lion",
            "Muon",
            "LBFGS",
            "Rprop",
            "ASGD",
        ),  # fmt: skip
        (_TORCH, _NAMES["RMSprop"][1]),
    ),
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
# Arguments elsewhere that are lines of their own here.
_INITIAL = (
    'layers with parameters take init={{"{}": ...}}, models model.set_initializers, and a call'
    " pm.randomize_params(seed=0, init=...)"
)
_LINES: dict[str, str] = {
    "activation": "activations are layers: `model += ml.Relu()` behind it",
    "nonlinearity": "activations are layers: `model += ml.Relu()` behind it",
    "batch_first": "the batch is the first axis always",
    "time_major": "the batch is the first axis always",
    "inplace": "nothing is changed in place",
    "init": _INITIAL.format("*"),
    "initializer": _INITIAL.format("*"),
    "kernel_initializer": _INITIAL.format("weight"),
    "bias_initializer": _INITIAL.format("bias"),
    "embeddings_initializer": _INITIAL.format("weight"),
    "kernel_regularizer": "train.add_regularization(ml.L2(), coef=..., input=...) of"
    " train = ml.TrainModel(model)",
    "bias_regularizer": "train.add_regularization(ml.L2(), coef=..., input=...) of"
    " train = ml.TrainModel(model)",
    "betas": "they are beta1= and beta2=",
    "device": "it is the backend's: ml.TorchBackend(device=...)",
}
# The same of one callee.
_LINES_OF: dict[tuple[str, str], str] = {
    **{
        (optimizer, "params"): "parameters go into the calls: opt_state = optimizer.init(params)"
        for optimizer in ("SGD", "Momentum", "Adam", "AdamW")
    },
    ("SGD", "momentum"): "it is ml.optim.Momentum(lr=..., momentum=...)",
    ("SGD", "nesterov"): "it is ml.optim.Momentum(lr=..., nesterov=True)",
    ("compile", "loss"): "losses are those of train = ml.TrainModel(model):"
    " train.add_loss(ml.CrossEntropy(), input=..., target=...)",
    ("compile", "metrics"): "they are those of train = ml.TrainModel(model):"
    " train.add_metric(ml.Accuracy(), ...)",
    ("LSTM", "return_state"): "the last states are the keys final_hidden and final_cell",
    ("GRU", "return_state"): "the last state is the key final_hidden",
    ("SimpleRNN", "return_state"): "the last state is the key final_hidden",
}
_FOLLOWS = frozenset(
    ("in_features", "in_channels", "input_dim", "input_size", "input_shape", "normalized_shape")
)


def _said(name: str, known: tuple[str, str]) -> str:
    whose, here = known
    owner = f"{whose}'{'' if whose.endswith('s') else 's'} " if whose else ""
    return f": {owner}{name} is {here.replace('{}', name)}"


def _found(name: str, table: Mapping[str, tuple[str, str]]) -> str:
    return _said(name, table[name]) if name in table else ""


def name_here(name: str) -> str:
    """Returns ": Keras' Dense is ml.Linear(dimension)" for a name of another library, or ""."""
    return _found(name, _NAMES)


def member_here(name: str) -> str:
    """Like `name_here`, for members of other libraries' tensors."""
    return _found(name, _MEMBERS)


def compiled_member_here(name: str) -> str:
    """Like `name_here`, for members of other libraries' models."""
    return _found(name, _OF_COMPILED)


def model_member_here(name: str) -> str:
    """Like `name_here`, for members of other libraries' models before they are compiled."""
    return _found(name, _OF_MODEL)


def optimizer_member_here(name: str) -> str:
    """Like `name_here`, for members of other libraries' optimizers."""
    return _found(name, _OF_OPTIMIZER)


def optim_name_here(name: str) -> str:
    """Like `name_here`, for names in other libraries' modules of optimizers."""
    return _found(name, _OF_OPTIM)


def functional_here(name: str, layers: Collection[str]) -> str:
    """Like `name_here`, for functions of `torch.nn.functional`; `layers`: classes of mithril."""
    here = _OF_FUNCTIONAL.get(name)
    if here is None and name in _MEMBERS and "ml." in _MEMBERS[name][1]:
        here = _MEMBERS[name][1]
    if here is None:
        plain = name.replace("_", "").lower()
        same = sorted((x for x in layers if x.lower() == plain and x[0].isupper()), reverse=True)
        here = f"ml.{same[0]}(...)(x)" if same else None
    return _said(f"functional.{name}", (_TORCH, here)) if here else ""


def argument_here(name: str, known: Collection[str], callee: str = "") -> str:
    """Says what to give instead of an argument that layers of other libraries have, or ""."""
    if callee in _ON_AXIS_1 and name in ("axis", "dim", "data_format"):
        return f": the {_ON_AXIS_1[callee]} are axis 1 of the input; x.transpose(...) moves axes"
    here = next((argument for argument in _ARGUMENTS.get(name, ()) if argument in known), None)
    if here is not None:
        return f": it is {here!r} here"
    line = _LINES_OF.get((callee, name)) or _LINES.get(name)
    if line is not None:
        return f": {line}"
    return ": it follows from the input" if name in _FOLLOWS else ""


# --- numbers and flags in the place of others -----------------------------------------------------

_WIDTH = "the width of the input follows from the input: "
# Layer -> its first flag, and what to write where that got the second of PyTorch's sizes.
_SIZE_FOR_FLAG: dict[str, tuple[str, str]] = {
    "Linear": ("use_bias", f"{_WIDTH}ml.Linear({{}})"),
    "LayerNorm": ("use_scale", f"{_WIDTH}ml.LayerNorm()"),
    "RMSNorm": ("use_scale", f"{_WIDTH}ml.RMSNorm()"),
    "InstanceNorm": ("use_scale", "the channels follow from the input: ml.InstanceNorm()"),
    "GroupNorm": (
        "use_scale",
        "the channels follow from the input: ml.GroupNorm({num_groups})",
    ),
}
_RECURRENT = ("LSTM", "GRU", "SimpleRNN")
# Arguments that PyTorch's and Keras' layers take first, where ours take the input.
_FIRST_ELSEWHERE = ("axis", "beta", "delta", "min_val", "reduction")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def misplaced_here(layer: str, values: Mapping[str, Any]) -> str:
    """The line to write instead of arguments that a layer refused, because their order or kind is
    another library's; or ""."""
    flag, line = _SIZE_FOR_FLAG.get(layer, ("", ""))
    size = values.get(flag)
    if _is_number(size):
        groups = shown(values.get("num_groups"))
        is_size = isinstance(size, int)
        return line.format(shown(size), num_groups=groups) if is_size else f"name it: eps={size}"
    form = values.get("approximate")
    if isinstance(form, str) and form in ("tanh", "none"):
        return f"PyTorch's approximate={form!r} is approximate={form == 'tanh'}"
    for key, value in values.items():
        if isinstance(value, bool) and f"use_{key}" in values:
            return f"write use_{key}={value}; {key!r} takes the array"
    first = values.get("input")
    if _is_number(first) or isinstance(first, str):
        wanted = "reduction" if isinstance(first, str) else None
        found = [n for n in _FIRST_ELSEWHERE if n in values and wanted in (None, n)]
        if found:
            text = f"{found[0]}={shown(first)}"
            return f"the input comes first: name the argument, ml.{layer}({text})"
    return ""


def recurrent_order_here(layer: str, values: Mapping[str, Any]) -> str:
    """Like `misplaced_here`, for a recurrent layer whose flags got numbers."""
    size, layers = values["return_sequences"], values["bidirectional"]
    more = f", num_layers={shown(layers)}" if _is_number(layers) and layers > 1 else ""
    if _is_number(size) and size > 1:
        return f"{_WIDTH}ml.{layer}({shown(size)}{more})"
    return f"name it: ml.{layer}({shown(values['hidden_size'])}{more})" if more else ""


__all__ = [
    "argument_here",
    "compiled_member_here",
    "functional_here",
    "member_here",
    "misplaced_here",
    "model_member_here",
    "name_here",
    "optim_name_here",
    "optimizer_member_here",
    "recurrent_order_here",
]
