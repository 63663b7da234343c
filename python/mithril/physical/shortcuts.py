"""The methods of `PhysicalModel` that use higher layers: reports, profiles, exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mithril.base.checks import checked_str
from mithril.base.public import public
from mithril.physical.face import Face

if TYPE_CHECKING:
    import os


class Shortcuts(Face):
    """The part of `PhysicalModel` that looks inside and writes files."""

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

    @public
    def explain(
        self,
        name: str | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        *,
        program: str = "evaluate",
    ) -> Any:
        """Explains how the model runs: what was fused, which kernels were chosen, and why.

        Parameters
        ----------
        name : of a submodel ("mlp.head"): only what became of it; None: every step in order
        shapes : of data, where compile was not told them: fusion is decided for concrete sizes
        program : the kind of program whose steps are wanted: "evaluate", "gradient" or "step"

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
        from mithril.inspection.explain import explain, explain_all

        if name is None:
            return explain_all(self, shapes, checked_str("explain: program", program))
        return explain(self, checked_str("explain: name", name), shapes)

    @public
    def memory_plan(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
        """Plans the memory of the model, with what takes the most of it; nothing is run.

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
        from mithril.inspection.memory_plan import memory_plan

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
        from mithril.inspection.profiling import Profile

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
        from mithril.inspection.summary import physical_summary, summary_flags

        columns = summary_flags(
            shapes=shapes, types=types, symbolic=symbolic, alternative_shapes=alternative_shapes
        )
        parts = summary_flags(verbose=verbose, print_info=print_info)
        print(physical_summary(self, model, depth, name, columns, **parts))

    def _repr_html_(self) -> str:
        from mithril.inspection.summary import physical_html

        return physical_html(self)


def report_keys(physical: Any) -> None:
    """Tells keys, shapes and passes of a model that was compiled with ``verbose=True``."""
    from mithril.inspection.report import log_report

    log_report(physical)


__all__ = ["Shortcuts", "report_keys"]
