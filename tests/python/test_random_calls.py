"""Random sequences of API calls: a failed call leaves no trace, facts do not depend on the order.

`pytest --hypothesis-profile=thorough tests/python/test_random_calls.py` runs thirty times as many.
"""

import mithril as ml
from hypothesis import given
from hypothesis import strategies as st
from mithril.errors import InternalError, MithrilError

NAMES = ["a", "b", "c", "d", "input", "weight"]
CALLS_IN_A_ROW = 12


class Refused(Exception):
    """What the constraints of this file raise."""


class Pick:
    """Draws by index, so that one example is a list of numbers and rematerializes well."""

    def __init__(self, data):
        self._data = data

    def below(self, count):
        return self._data.draw(st.integers(0, count - 1))

    def of(self, items):
        return items[self.below(len(items))]

    def chance(self, percent):
        return self.below(100) < percent


class World:
    """A model under construction with everything that a call may be given."""

    def __init__(self, pick):
        self.pick = pick
        self.model = ml.Model()
        self.foreign = ml.Model()
        self.foreign |= ml.Relu()(input="a", output="z")
        self.children = []
        self.keys = [self.key() for _ in range(3)]
        self.tensors = [ml.Tensor([1.0, 2.0]), ml.Tensor(3), ml.Tensor(shape=["N"])]
        self.results = []
        self.constraints = []

    # --- what calls are given ---------------------------------------------------------------
    def key(self):
        pick = self.pick
        options = {}
        if pick.chance(60):
            options["name"] = pick.of(NAMES)
        if pick.chance(30):
            options["shape"] = self.shape()
        if pick.chance(20):
            options["type"] = pick.of([int, float, ml.Tensor[float], ml.Tensor[int], ml.Tensor])
        if pick.chance(15):
            options["differentiable"] = pick.chance(50)
        if pick.chance(15):
            options["value"] = pick.of([2, 2.5, [1, 2], None, ml.Constant.EPSILON])
        try:
            return ml.IOKey(**options)
        except MithrilError:
            return ml.IOKey()

    def shape(self):
        items = [1, 2, 3, "N", "M", None, ("V", ...), ("W", ...)]
        return [self.pick.of(items) for _ in range(self.pick.below(4))]

    def wire(self):
        model = self.model if self.pick.chance(85) else self.foreign
        keys = list(model.conns.all)
        return model[self.pick.of(keys)] if keys else self.pick.of(self.keys)

    def name(self):
        keys = list(self.model.conns.all)
        return self.pick.of(keys) if keys and self.pick.chance(60) else self.pick.of(NAMES)

    def child(self):
        makers = [
            ml.Relu, ml.Add, ml.Multiply, ml.MatrixMultiply, ml.Buffer, ml.Shape, ml.Transpose,
            lambda: ml.Linear(3), lambda: ml.Linear(2, name="head"), lambda: ml.Mean(axis=ml.TBD),
            lambda: ml.models.Reshape((2, -1)), lambda: ml.Add(right=1.5), self.nested,
            lambda: ml.Lambda(lambda x: x * 2 + abs(x)), lambda: ml.models.Concat(axis=0),
            lambda: self.pick.of(self.children) if self.children else ml.Relu(),
        ]  # fmt: skip
        child = self.pick.of(makers)()
        self.children.append(child)
        return child

    def nested(self):
        model = ml.Model(name=self.pick.of([None, "block"]))
        model |= ml.Linear(3)(input="x", output="h")
        model |= ml.Relu()(input="h", output="y")
        if self.pick.chance(50):
            model.expose_keys("y")
        return model

    def tensor(self):
        if self.pick.chance(50):
            self.tensors.append(ml.Tensor([[1.0], [2.0]]))
        return self.pick.of(self.tensors)

    def expression(self):
        pick = self.pick
        left = pick.of([self.wire(), *self.keys, *self.results])
        makers = [
            lambda: left + 1, lambda: 2.0 * left, lambda: left @ self.wire(), lambda: -left,
            lambda: left.mean(axis=0), lambda: left.shape[0], lambda: left[0], lambda: left[1:],
            lambda: left.reshape((left.shape[0], -1)), lambda: left[self.wire()], lambda: left.T,
            lambda: left - self.tensor(), lambda: ml.Relu()(left), lambda: ml.Linear(2)(left),
            lambda: left.eq(3), lambda: abs(left) % 2, lambda: scaled(left, self.wire()),
        ]  # fmt: skip
        result = pick.of(makers)()
        self.results.append(result)
        return result

    def argument(self):
        pick = self.pick
        makers = [
            self.name, self.name, lambda: "", lambda: ml.NOT_GIVEN, lambda: None,
            self.wire, lambda: pick.of(self.keys), self.tensor, lambda: 2.5, lambda: (1, 2),
            lambda: [self.wire(), self.tensor()], lambda: ((self.wire(), 1), [pick.of(self.keys)]),
            lambda: ml.TBD, object, lambda: [[1], [1, 2]], lambda: slice(0, 2), lambda: ml.float32,
            lambda: pick.of(self.results) if self.results else 1,
        ]  # fmt: skip
        return pick.of(makers)()

    def arguments(self, child):
        keys = [*child.input_keys, *child.output_keys, "nonsense"]
        return {key: self.argument() for key in keys[:-1] if self.pick.chance(55)} | (
            {"nonsense": 1} if self.pick.chance(2) else {}
        )

    # --- calls ------------------------------------------------------------------------------
    def plan(self):
        """One call: everything that it is given exists before it starts."""
        pick, model = self.pick, self.model
        if pick.chance(55):
            return self.plan_extension()
        key, name = self.wire() if pick.chance(50) else self.name(), self.name()
        shape, other = self.shape(), self.name()
        value = pick.of([2, 2.5, None, (1, 2), self.tensor(), "text"])
        free, kind = pick.of(self.keys), pick.of([int, ml.Tensor[float], ml.Tensor[int], 3])
        plans = [
            lambda: model.set_shapes({key: shape}),
            lambda: model.set_shapes({key: shape, name: shape}),
            lambda: model.set_types({key: kind}),
            lambda: model.set_values({key: value}, initial=True),
            lambda: model.set_differentiability({key: value}),
            lambda: model.expose_keys(key),
            lambda: model.expose_keys(name, **{other.replace("$", "e"): key}),
            lambda: model.merge_connections(key, name, name=other),
            lambda: model.merge_connections(key, name),
            lambda: model.rename_key(key, name),
            lambda: model.set_cin(key, name),
            lambda: model.set_cout(key),
            lambda: model.set_cout(),
            lambda: model.bind_state_keys(key, name, value),
            lambda: free.set_shapes(shape),
            lambda: free.set_value(value),
            lambda: free.set_type(kind),
            lambda: free.set_key(name),
            lambda: self.constraints.append(model.add_constraint(equal_shapes, [key, name])),
            lambda: self.constraints.append(
                model.add_constraint(refuse_rank_two, [key], dependencies=self.constraints[-1:])
            ),
            lambda: model.add_constraint(meddling(model), [key]),
        ]
        return pick.of(plans)

    def plan_extension(self):
        pick, model, child = self.pick, self.model, self.child()
        if pick.chance(30):
            self.safely(self.expression)
        given = self.arguments(child)
        request = pick.of(["connect", "call", "plain"])
        plus = pick.chance(35)

        def extend():
            target = child
            if request == "connect":
                target = child.connect(**given)
            elif request == "call":
                target = child(**given)
            return model + target if plus else model | target

        if self.results and pick.chance(8):
            results = self.results[-2:]
            return lambda: ml.Model.create(*results, out=results[0])
        return extend

    def safely(self, make):
        """Runs what is no call under test."""
        try:
            return make()
        except MithrilError:
            return None

    # --- what must not change ---------------------------------------------------------------
    def snapshot(self):
        models = [self.model, self.foreign, *self.children]
        wires = [*self.keys, *self.results]
        return (
            [model._node.dump() for model in models],
            [tensor._used for tensor in self.tensors],
            [(w._wire.attached, w._wire.pending, w._wire.key_name, w._key_spec) for w in wires],
            len(self.model._children),
            [(c.keys, c._number) for c in self.constraints],
        )


@ml.models.functional
def scaled(x, by):
    return x * by


def equal_shapes(a, b):
    """Both are of the shape that one of them is known to have."""
    for one, other in ((a, b), (b, a)):
        if one.shape is not None:
            other.set_shape(one.shape)
    return a.shape is not None and None not in a.shape


def refuse_rank_two(a):
    if a.shape is not None and len(a.shape) == 2:
        raise Refused
    return False


def meddling(model):
    def constraint(a):
        model.set_cout()
        return True

    return constraint


@given(st.data())
def test_failed_calls_leave_no_trace(data):
    world = World(Pick(data))
    for _ in range(CALLS_IN_A_ROW):
        call = world.plan()
        before = world.snapshot()
        try:
            call()
        except InternalError:
            raise
        except (MithrilError, Refused, TypeError):  # a signature's own TypeError
            assert world.snapshot() == before


# --- order ----------------------------------------------------------------------------------------

WIRES = ["w0", "w1", "w2", "w3", "w4"]
OPS = [ml.Relu, ml.Add, ml.Multiply, ml.MatrixMultiply, ml.Tanh, lambda: ml.Linear(3)]


def keeps_rows(a, b):
    """The first sizes of two tensors are equal."""
    if a.shape and b.shape:
        a.tie(0, b, 0)
        return True
    return False


def plan_calls(pick):
    """Calls whose wires all have names, each a function of the model."""
    calls = []
    for i in range(1, len(WIRES)):
        make, output = pick.of(OPS), WIRES[i]
        readers = [pick.of(WIRES[:i]) for _ in range(2)]
        form = pick.of(["connect", "call", "key"])

        def extend(model, make=make, output=output, readers=readers, form=form):
            child = make()
            order = [k for k in child._node.connect_order if k not in ("weight", "bias")]
            given = dict(zip(order, readers, strict=False)) | {"output": output}
            if form == "key":
                given = {key: ml.IOKey(name) for key, name in given.items()}
            model |= child(**given) if form == "call" else child.connect(**given)

        calls.append(extend)
    return calls


def plan_facts(pick):
    """Calls that may stand anywhere once all wires are there."""
    shapes = [[pick.of([2, 3, "N", "M", None]) for _ in range(2)] for _ in range(2)]
    wires = [pick.of(WIRES) for _ in range(5)]
    return [
        lambda model: model.set_shapes({wires[0]: shapes[0]}),
        lambda model: model.set_shapes({wires[1]: shapes[1]}),
        lambda model: model.set_types({wires[2]: ml.Tensor[float]}),
        lambda model: model.add_constraint(keeps_rows, [wires[3], wires[4]]),
        lambda model: model.set_differentiability({"w0": True}),
    ]


def facts_of(model):
    shapes = model.get_shapes()
    names = {}

    def canonical(item):
        # Symbols by their first appearance: their numbers follow the order of calls.
        return item if isinstance(item, int) else names.setdefault(item, f"s{len(names)}")

    keys = [key for key in WIRES if key in shapes]
    return [
        (
            key,
            shapes[key] and [canonical(item) for item in shapes[key]],
            model.conns.get_type(key),
            model._node.differentiable(key),
            model.conns.get_key_type(key),
        )
        for key in keys
    ]


def after(calls):
    model = ml.Model()
    try:
        for call in calls:
            call(model)
    except MithrilError:
        return None
    return model


@given(st.data())
def test_facts_do_not_depend_on_the_order(data):
    pick = Pick(data)
    extensions, facts = plan_calls(pick), plan_facts(pick)
    first = after([*extensions, *facts])
    shuffled = [*data.draw(st.permutations(extensions)), *data.draw(st.permutations(facts))]
    second = after(shuffled)
    if first is None or second is None:
        return  # which of two clashing calls fails depends on their order
    assert facts_of(first) == facts_of(second)
