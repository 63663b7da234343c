"""The public names of `mithril.framework.common` in the original library."""

from mithril.logical.connection import NOT_GIVEN, TBD, Tensor
from mithril.logical.connection import Edge as IOHyperEdge
from mithril.logical.conns import KeyType
from mithril.logical.constraints import Constraint, Updates, UpdateType
from mithril.types import Constant, NullConnection, ToBeDetermined

__all__ = [
    "Constant",
    "Constraint",
    "IOHyperEdge",
    "KeyType",
    "NOT_GIVEN",
    "NullConnection",
    "TBD",
    "Tensor",
    "ToBeDetermined",
    "UpdateType",
    "Updates",
]
