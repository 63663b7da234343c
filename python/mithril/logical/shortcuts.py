"""The methods of `Model` that use higher layers: tables, pictures, files and `model.compile`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.base.checks import checked_bool, checked_size, checked_str
from mithril.base.explanations import why
from mithril.base.public import public
from mithril.errors import MithrilWarning, SignatureError, warn
from mithril.logical import constraints
from mithril.logical.arguments import key_of
from mithril.logical.connection import Connection
from mithril.logical.handles import handle

if TYPE_CHECKING:
    from mithril.logical.model import Model
    from mithril.physical import PhysicalModel


def class_of_op(op: str) -> type[Model]:
    """The class whose models are one op."""
    from mithril import models
    from mithril.models import _generated
    from mithril.models.operator_model import OperatorModel

    name = _generated.CLASSES.get(op)
    return OperatorModel if name is None else getattr(models, name)


class Shortcuts:
    """The part of `Model` that shows it, and writes and compiles it."""

    _node: Any

    @property
    def _whole(self) -> Any:
        """The model that this is a part of."""
        return self

    @public
    def why(self, key: str | Connection) -> str:
        """Explains what is known of a wire by the chain of facts behind it, nearest first.

        Each line is a wire with its shape or kind, who said so, and the line of user code.

        Raises
        ------
        KeyNotFound : if the model has no such wire

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(8)(input="x", output="h")
        >>> model.set_shapes(x=["N", 4])
        >>> print(model.why("h").splitlines()[0])
        h : [N, 8]
        """
        return why(self._node, key_of("why", key))

    @public
    def summary(
        self,
        shapes: bool = True,
        types: bool = False,
        symbolic: bool = False,
        name: str | None = None,
        alternative_shapes: bool = False,
        uni_cache: Any = None,
        var_cache: Any = None,
        depth: int = 0,
    ) -> None:
        """Prints the submodels with their keys, shapes, connections and parameters.

        Parameters
        ----------
        shapes, types : whether to print these columns
        symbolic : names instead of None for open sizes
        name : title of the table; default: the name of the model, or its class
        alternative_shapes : all that is known of each shape
        uni_cache, var_cache : accepted for the original's sake
        depth : levels of submodels with tables of their own

        A trainable input shows how many numbers it has, ">0" while its shape is open; the last
        line counts those of the model, shared ones once.

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(4)(input="x", output="y")
        >>> model.set_shapes(x=["N", 3])
        >>> model.summary()
                                 Model
        --------------------------------------------------------
        Model Name  Keys      Shapes     Connections  Parameters
        --------------------------------------------------------
        Linear      Inputs:
                      weight  [   4, 3]  '$weight'    12
                      input   [None, 3]  'x'
                      bias    [   4]     '$bias'      4
                    Outputs:
                      output  [None, 4]  'y'
        --------------------------------------------------------
        <BLANKLINE>
        parameters: 16
        """
        from mithril.inspection.summary import model_summary, summary_flags

        flags = summary_flags(
            shapes=shapes, types=types, symbolic=symbolic, alternative_shapes=alternative_shapes
        )
        title = "" if name is None else checked_str("summary: name", name)
        print(model_summary(self._node, checked_size("summary: depth", depth, 0), title, **flags))

    @public
    def plot(
        self, format: str | None = None, file_path: Any = None, depth: int | None = None
    ) -> Any:
        """A picture: submodels as boxes, nested models as frames, wires with their shapes.

        Parameters
        ----------
        format : "svg" (default), "mermaid" or "dot"; None: what the end of `file_path` says
        file_path : where the picture is written, too
        depth : how many levels of nested models are drawn open; None: all

        Returns
        -------
        The text of the picture, a string; a notebook shows an SVG.

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Relu()(input="x", output="y")
        >>> model.plot()  # doctest: +ELLIPSIS
        <Picture: svg, ...>
        """
        from mithril.drawing import plot

        return plot(self, format, file_path, depth)

    def _repr_html_(self) -> str:
        from mithril.inspection.summary import model_html

        return model_html(self)

    # --- files ----------------------------------------------------------------------------------
    @public
    def to_json(self, *, history: bool = False) -> str:
        """The model as text that reads well in a diff (docs/model_file.md).

        Parameters
        ----------
        history : whether to add where in your code everything was said, which `why` shows; most
            changes of that code change these lines.

        Raises
        ------
        UnsupportedError : the model holds a function that is not registered by name.

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Relu()(input="x", output="y")
        >>> ml.Model.from_json(model.to_json()).input_keys
        ['x']
        """
        from mithril.training import model_file

        state = model_file.text_of(self._whole)
        return _core.model_to_json(self._node, checked_bool("to_json: history", history), state)

    @classmethod
    @public
    def from_json(cls, text: str | bytes) -> Model:
        """The model of a text that `to_json` made, solved again.

        Raises
        ------
        ParseError : malformed, or of another major version (`MTH602`).
        KeyNotFound : an op or a constraint that is not registered here.
        """
        if not isinstance(text, str | bytes):
            raise SignatureError(f"from_json: requires text, got {type(text).__name__}")
        from mithril.training import model_file

        node, notes, state = _core.model_from_json(text, constraints.relation)
        for note in notes:
            warn(f"model file: {note}; it is ignored", MithrilWarning)
        return model_file.model_of(node, state) if state else handle(node)

    @public
    def save(self, path: Any, params: dict[str, Any] | None = None) -> None:
        """Writes the model, and arrays by name if they are given, as one file for `ml.load`.

        >>> import mithril as ml, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "net.mithril")
        >>> ml.Linear(2).save(path, {"weight": [[1.0], [2.0]]})
        >>> sorted(ml.load(path).params)
        ['weight']
        """
        from mithril.formats import save

        save(self._whole, path, params)

    def __reduce__(self) -> tuple[Any, ...]:
        from mithril.logical.pickling import model_parts

        return model_parts(self._whole, self._whole._own_attributes())

    @property
    def compile(self) -> Callable[..., PhysicalModel]:
        """`model.compile(backend, …)` is `ml.compile(model, backend, …)`."""
        from mithril.physical.compile import compile as compile_model

        return partial(compile_model, self._whole)


__all__ = ["Shortcuts", "class_of_op"]
