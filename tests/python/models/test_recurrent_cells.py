import mithril as ml
import numpy as np
import pytest
from mithril.errors import ShapeError, SignatureError
from mithril.models import Cell, GRUCell, LSTMCell, LSTMCellBody, RNNCell
from models.composite_cases import (
    check,
    gru_sizes,
    gru_step,
    lstm_sizes,
    lstm_step,
    numbers,
    on_native,
    rnn_sizes,
    rnn_step,
)

D, H, OUT = 2, 3, 4  # sizes of input, state and output


def stacked(vectors, size):
    return np.array(vectors).reshape(-1, 1, size)


HIDDEN_ONLY = {"rnn": (RNNCell, rnn_sizes, rnn_step), "gru": (GRUCell, gru_sizes, gru_step)}


@on_native
@pytest.mark.parametrize("kind", HIDDEN_ONLY)
@pytest.mark.parametrize(("rows", "before"), [(3, 3), (2, 4), (0, 2), (1, 1)])
def test_cells_of_one_state(native, kind, rows, before):
    make, sizes_of, step = HIDDEN_ONLY[kind]

    def by_hand(input, prev_hidden, **p):
        steps = [step(p, input[i, 0], {"hidden": prev_hidden[i, 0]}) for i in range(rows)]
        return {
            "output": stacked([y for y, _ in steps], OUT),
            "hidden": stacked([state["hidden"] for _, state in steps], H),
            "hidden_compl": prev_hidden[rows:],
        }

    inputs = numbers(1, input=(rows, 1, D), prev_hidden=(before, 1, H), **sizes_of(D, H, OUT))
    check(make(), by_hand, inputs, native, fixed=True)


def test_one_state_for_all_rows(backend_name):
    def by_hand(input, prev_hidden, **p):
        steps = [rnn_step(p, x[0], {"hidden": prev_hidden[0, 0]}) for x in input]
        return {
            "output": stacked([y for y, _ in steps], OUT),
            "hidden": stacked([state["hidden"] for _, state in steps], H),
            "hidden_compl": np.zeros((0, 1, H)),
        }

    inputs = numbers(2, input=(3, 1, D), prev_hidden=(1, 1, H), **rnn_sizes(D, H, OUT))
    check(RNNCell(), by_hand, inputs, backend_name, fixed=True)


def test_lstm_body(backend_name):
    def by_hand(input, prev_hidden, prev_cell, **p):
        p |= {"w_out": np.zeros((1, H)), "bias_out": np.zeros(1)}
        states = [
            lstm_step(p, x[0], {"hidden": h[0], "cell": c[0]})[1]
            for x, h, c in zip(input, prev_hidden, prev_cell, strict=True)
        ]
        rows = [s["cell"] for s in states] + [s["hidden"] for s in states]
        return {"output": stacked(rows, H)}

    sizes = {k: v for k, v in lstm_sizes(D, H, OUT).items() if not k.endswith("out")}
    inputs = numbers(3, input=(3, 1, D), prev_hidden=(3, 1, H), prev_cell=(3, 1, H), **sizes)
    check(LSTMCellBody(), by_hand, inputs, backend_name, fixed=True)


@on_native
@pytest.mark.parametrize(("rows", "before"), [(3, 3), (2, 4), (0, 2)])
def test_lstm_cell(native, rows, before):
    def by_hand(input, prev_hidden, prev_cell, **p):
        steps = [
            lstm_step(p, input[i, 0], {"hidden": prev_hidden[i, 0], "cell": prev_cell[i, 0]})
            for i in range(rows)
        ]
        return {
            "output": stacked([y for y, _ in steps], OUT),
            "hidden": stacked([state["hidden"] for _, state in steps], H),
            "cell": stacked([state["cell"] for _, state in steps], H),
            "hidden_compl": prev_hidden[rows:],
        }

    states = {"prev_hidden": (before, 1, H), "prev_cell": (before, 1, H)}
    inputs = numbers(4, input=(rows, 1, D), **states, **lstm_sizes(D, H, OUT))
    check(LSTMCell(), by_hand, inputs, native, fixed=True)


def test_states_of_fewer_sequences():
    with pytest.raises(ShapeError):
        RNNCell().set_shapes(input=[4, 1, 3], prev_hidden=[2, 1, 3])


def test_the_base_is_no_cell():
    with pytest.raises(SignatureError) as caught:
        Cell()
    assert str(caught.value) == (
        "Cell: is the base of cells and none itself\n"
        "  help: derive a class from it, or use RNNCell(), LSTMCell() or GRUCell()"
    )


def test_parameters_with_values():
    bias = ml.Tensor([1.0, 2.0, 3.0])
    cell = RNNCell(bias_h=bias, w_ih=ml.IOKey(differentiable=False))
    assert cell._node.differentiable("bias_h") is False
    assert cell._node.differentiable("w_ih") is False and cell._node.differentiable("w_hh")
    assert cell.shapes["w_hh"] == [3, 3]
