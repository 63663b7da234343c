"""Calls of `evaluate` that the fast paths leave alone: what is looked at first, and then six steps:
choose the program, gather, convert, check, run, name the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mithril.base.checks import checked_bool, checked_mapping
from mithril.errors import ArgumentError, ShapeError
from mithril.physical.compilation import Call, Compilation
from mithril.physical.fast_path import FastPath
from mithril.physical.fetch import fetching
from mithril.physical.gradients import (
    check_gradients_allowed,
    check_gradients_wanted,
    cotangents_of,
    names_of_inputs,
    wanted_gradients,
)
from mithril.physical.inputs import check, check_states, convert, gather
from mithril.physical.open_kinds import model_for_kinds
from mithril.physical.program import Program
from mithril.physical.results import Results, named
from mithril.physical.single_numbers import as_given, as_numbers, single_numbers


class Request(NamedTuple):
    """Arguments of `evaluate` under their names there, but for parameters and data."""

    output_gradients: Any
    state: Mapping[str, Any] | None
    wrt: Iterable[str] | None
    donate_state: bool


def evaluate_specially(
    physical: Any,
    params: Any,
    data: Any,
    output_gradients: Any,
    state: Any,
    wrt: Any,
    fetch: Any,
    donate_state: Any,
    lazy: Any,
) -> Any:
    """Evaluates with options that few calls have: ``lazy``, ``fetch``, ``donate_state``."""
    if lazy is not False and checked_bool("evaluate: lazy", lazy):
        with physical.backend.without_waiting():
            return physical.evaluate(
                params,
                data,
                output_gradients=output_gradients,
                state=state,
                wrt=wrt,
                fetch=fetch,
                donate_state=donate_state,
            )
    if physical._compilation.static is not None:
        physical._compilation.static.check(data)
    if donate_state is not False and checked_bool("evaluate: donate_state", donate_state):
        _refuse_nothing_donated(physical, state)
    if fetch is not None:
        physical = fetching(physical, fetch)
        return physical.evaluate(
            params,
            data,
            output_gradients=output_gradients,
            state=state,
            wrt=wrt,
            donate_state=donate_state,
        )
    result = physical._fast_path.evaluate(params, data, state, output_gradients, wrt)
    if result is not None:
        return result
    donates = checked_bool("evaluate: donate_state", donate_state)
    return evaluate_slowly(physical, params, data, Request(output_gradients, state, wrt, donates))


def _refuse_nothing_donated(physical: Any, state: Any) -> None:
    if not checked_mapping("state", state):
        has = physical.state_keys
        raise ArgumentError(
            "evaluate: donate_state=True: there is no state whose arrays may be overwritten",
            hint="give state=, such as pm.initial_state()" if has else "the model has no state",
        )


def evaluate_slowly(physical: Any, params: Any, data: Any, request: Request) -> Any:
    """Evaluates a call of any arrays, lists and numbers, and says what is wrong with it."""
    request = _with_names(request)
    call = Call(
        checked_mapping("params", params),
        checked_mapping("data", data),
        checked_mapping("state", request.state),
    )
    if call.state:
        check_states("evaluate", physical._compilation, call.state)
    floats = [name for name in request.wrt or () if isinstance(name, str)]
    model = model_for_kinds(physical, call.data, floats)
    if model is not physical:
        result = model.evaluate(params, data, **request._asdict())
        # It looks at the arrays, and leaves those of other kinds alone.
        physical._native_evaluate = model._native_evaluate
        return result
    result = _with_lists(physical._compilation, physical._fast_path, call, request)
    physical._native_evaluate = physical._fast_path.native_evaluate
    return result


def _with_names(request: Request) -> Request:
    """The request with `wrt` as a list, which is read twice."""
    if request.wrt is None:
        return request
    wrt = names_of_inputs(request.wrt)
    check_gradients_wanted(wrt, request.output_gradients)
    return request._replace(wrt=wrt)


def _with_lists(compilation: Compilation, fast: FastPath, call: Call, request: Request) -> Any:
    """Takes lists of tensors apart before the steps, and puts them together behind."""
    lists = compilation.lists
    if lists is None:
        return _with_numbers(compilation, fast, call, request)
    split = lists.split("params", call.params), lists.split("data", call.data)
    cotangents = lists.cotangents(request.output_gradients)
    request = request._replace(output_gradients=cotangents)
    return lists.joined(_with_numbers(compilation, fast, Call(*split, call.state), request))


def _with_numbers(compilation: Compilation, fast: FastPath, call: Call, request: Request) -> Any:
    """Evaluates a call that fails once more, with its arrays of one element as the numbers that the
    model has; where there are none, the error stays."""
    try:
        return evaluated(compilation, fast, call, request)
    except ShapeError:
        shapes = single_numbers(compilation, call.params)
        if not shapes:
            raise
    call = call._replace(params=as_numbers(compilation, call.params, shapes))
    return as_given(compilation, evaluated(compilation, fast, call, request), shapes)


def evaluated(compilation: Compilation, fast: FastPath, call: Call, request: Request) -> Any:
    """Evaluates a call of the model itself, in six steps."""
    program = compilation.program_for(call)
    arrays = gather(compilation, program, call)
    inputs = convert(compilation, program, arrays)
    check(compilation, program, inputs, call)
    results = run(compilation, program, inputs, request)
    fast.learn(program, call, inputs, request, results)
    return named(program, results)


def run(compilation: Compilation, program: Program, inputs: list[Any], request: Request) -> Results:
    """Runs the program, or the one of the gradients that are wanted."""
    if request.output_gradients is None or request.output_gradients is False:
        outputs, states = program.run(inputs, request.donate_state)
        return Results(outputs, None, states)
    check_gradients_allowed(compilation)
    wanted = wanted_gradients(compilation, program, request.wrt)
    cotangents = cotangents_of(compilation, program, inputs, request.output_gradients)
    outputs, states, gradients = program.run_gradient(inputs, cotangents, wanted)
    return Results(outputs, dict(zip(wanted, gradients, strict=True)), states)


__all__ = ["Request", "evaluate_slowly", "evaluate_specially", "evaluated", "run"]
