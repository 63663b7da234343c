"""Models by name: `Linear`, `Relu` … The classes of ops are made at build time, family by family.

A family is imported when one of its classes is first used.
"""

import importlib

from mithril import errors
from mithril.base import peer_names as _peer_names

# What is written by hand: name -> module.
_BY_HAND = {
    "BaseModel": ("mithril.logical.model", "Model"),
    "LogicalModel": ("mithril.logical.model", "Model"),
    "TrainModel": ("mithril.training.training_model", "TrainModel"),
    "PhysicalModel": ("mithril.physical", "PhysicalModel"),
    "Operator": ("mithril.models.operator_model", "OperatorModel"),
    "BaseKey": ("mithril.logical.connection", "Connection"),
    "IOHyperEdge": ("mithril.logical.connection", "Edge"),
    "PrimitiveModel": ("mithril.models.primitive", "PrimitiveModel"),
    "CustomPrimitiveModel": ("mithril.models.primitive", "CustomPrimitiveModel"),
    "Activation": ("mithril.models.primitive", "Activation"),
    "Lambda": ("mithril.models.tracing", "Lambda"),
    "define_unique_names": ("mithril.logical.model", "define_unique_names"),
    "OperatorModel": ("mithril.models.operator_model", "OperatorModel"),
    "functional": ("mithril.models.functional_models", "functional"),
    "generate": ("mithril.physical.generation", "generate"),
    "generate_stream": ("mithril.physical.generation", "generate_stream"),
    "Constant": ("mithril.types", "Constant"),
    "NOT_GIVEN": ("mithril.types", "NOT_GIVEN"),
} | {
    name: ("mithril.logical.model", name)
    for name in (
        "Connection",
        "ConnectionType",
        "ExtendInfo",
        "IOKey",
        "Model",
        "TBD",
        "Tensor",
    )
}

# Models that are composed by hand: module -> names.
_COMPOSED = {
    "affine": "ElementWiseAffine",
    "attention": "MultiHeadAttention",
    "classifiers": "LinearSVM LogisticRegression",
    "control": "Cond Scan While",
    "distinct": "AUCCore Unique",
    "distance_encoders": """DistanceEncoder EncoderDistanceMatrix MDS MDSCore TSNE TSNECore
        TsnePJoint""",
    "einops": "Einsum Rearrange Reduce Repeat",
    "gaussian_processes": "GaussProcessRegressionCore GPRLoss",
    "kernel_methods": "KernelizedSVM PolynomialKernel RBFKernel",
    "metrics": "AUC Accuracy F1 Metric Precision Recall",
    "mlp": "Layer MLP",
    "pooling": "Pool1D Pool2D",
    "recurrent": """EncoderDecoder EncoderDecoderInference ManyToOne OneToMany OneToManyInference
        RNN""",
    "recurrent_cells": "Cell GRUCell LSTMCell LSTMCellBody RNNCell",
    "recurrent_layers": "GRU LSTM SimpleRNN",
    "regression": "PolynomialRegression",
    "regularizers": "L1 L2 QuadraticFormRegularizer",
    "resnet": "resnet18 resnet34 resnet50 resnet101 resnet152",
    "clip_model": "clip",
    "flux": "double_stream_block single_stream_block",
    "gpt": "create_gpt",
    "llama": "create_llama",
    "segformer": "segformer_semantic_segmentation",
    "t5": "T5_CONFIGS t5_decode t5_encode",
    "whisper": "whisper_decoder whisper_encoder whisper_model",
    "vision_transformer": "vit_b_16 vit_b_32 vit_l_16",
}
_BY_HAND |= {
    name: (f"mithril.models.{module}", name)
    for module, names in _COMPOSED.items()
    for name in names.split()
}

_MODULES = (*_COMPOSED, "primitives", "train_model")


def _families() -> dict[str, str]:
    try:
        from mithril.models import _generated
    except ImportError:  # a source tree that was not built
        return {}
    return _generated.FAMILIES


def __getattr__(name: str):
    if name == "__all__":  # not kept: the build asks before it has made the families
        return sorted({*_BY_HAND, *_families()})
    if name in _BY_HAND:
        module, attribute = _BY_HAND[name]
        value = getattr(importlib.import_module(module), attribute)
    elif name in _MODULES:
        value = importlib.import_module(f"mithril.models.{name}")
    elif name.startswith("_"):
        raise AttributeError(f"module 'mithril.models' has no attribute {name!r}")
    else:
        family = _families().get(name)
        if family is None:
            hint = _peer_names.name_here(name) or errors.suggestion(name, [*_BY_HAND, *_families()])
            raise errors.UnknownNameError(
                f"module 'mithril.models' has no attribute {name!r}{hint}"
            )
        value = getattr(importlib.import_module(f"mithril.models._generated.{family}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_BY_HAND, *_families()})
