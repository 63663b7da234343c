"""`summary` and notebook output. Options: logical-api 2.12; physical: physical-api 2.2, 2.3."""

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import mithril as ml
import pytest
from mithril.errors import MithrilError

from tests.python.drawing.test_svg import HOSTILE, hostile

TAGS = {"div", "p", "b", "code", "table", "tr", "th", "td", "details", "summary",
        "svg", "title", "rect", "path", "text"}  # fmt: skip


def net():
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="first")(input="x", weight="w", bias="b", output="h")
    model |= ml.Relu(name="act")(input="h", output="y")
    model.expose_keys("y")
    return model


def compiled(model=None, **options):
    options = {"data_keys": {"x"}, "shapes": {"x": ["n", 3]}, **options}
    return ml.compile(model or net(), ml.CpuBackend(), **options)


def rows_of(text):
    split = (line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    return {first.rstrip(":"): rest for first, rest in split}


def test_the_whole_compiled_model(capsys):
    compiled().summary()
    rows = rows_of(capsys.readouterr().out)
    assert rows["backend"] == "CpuBackend (cpu)"
    assert rows["precision"] == "32 bits" and rows["device"] == "cpu"
    assert rows["outputs"] == "y" and rows["data"] == "x" and rows["constants"] == "--"
    assert rows["parameters"] == "16"  # 4 * 3 + 4
    assert rows["w"].split() == ["trainable", "float32", "[4,", "3]", "12"]
    assert rows["y"].split() == ["output", "float32", "[None,", "4]"]


def test_options_of_the_compiled_model(capsys):
    model = net()
    pm = compiled(model)
    pm.summary(shapes=False, types=True, print_info=False)
    out = capsys.readouterr().out
    assert "backend" not in out and "[4, 3]" not in out and "float tensor" in out
    pm.summary(verbose=True, symbolic=True, name="mine")
    out = capsys.readouterr().out
    assert "mine" in out and "first" in out and "'w'" in out and "CpuBackend" in out
    pm.summary(model=model, print_info=False)
    out = capsys.readouterr().out
    assert "net" in out and "act" in out and "trainable" not in out
    pm.summary(model=next(iter(model.dag)), print_info=False)
    assert "act" not in capsys.readouterr().out


def test_open_sizes_count_as_more(capsys):
    model = net()
    ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [None, None]}).summary()
    assert rows_of(capsys.readouterr().out)["parameters"] == ">4"


@pytest.mark.parametrize(
    "arguments", [{"depth": 1}, {"depth": -1}, {"depth": "1"}, {"model": ml.Relu()}, {"model": 3}]
)
def test_bad_arguments(arguments):
    with pytest.raises(MithrilError):
        compiled().summary(**arguments)


def test_deeper_tables(capsys):
    outer = ml.Model(name="outer")
    outer |= net()(x="x", y="out")
    outer.expose_keys("out")
    compiled(outer).summary(model=outer, depth=1, print_info=False)
    out = capsys.readouterr().out
    assert "outer" in out and "first" in out
    compiled(outer).summary(model=outer, print_info=False)
    assert "first" not in capsys.readouterr().out


# --- models --------------------------------------------------------------------------------------


def printed(capsys, model, **options):
    model.summary(**options)
    return capsys.readouterr().out


def parameters_of(text):
    """Key -> what its row says in the last column, and the total."""
    lines = text.splitlines()
    at = next(line for line in lines if "Parameters" in line).index("Parameters")
    rows = {line.split()[0]: line[at:] for line in lines if line.startswith(" ") and line[at:]}
    return rows, lines[-1].removeprefix("parameters: ")


def test_the_table_of_a_model(capsys):
    model = net()
    model.set_shapes(x=["N", 300])
    rule = "-" * 77
    assert (
        printed(capsys, model, types=True, symbolic=True)
        == f"""\
{"net".rjust(40)}
{rule}
Model Name  Keys      Shapes    Types                Connections   Parameters
{rule}
first       Inputs:
              weight  [4, 300]  Tensor[float]        'w'           1,200
              input   [N, 300]  Tensor[int | float]  'x'
              bias    [4]       Tensor[float]        'b'           4
            Outputs:
              output  [N,   4]  Tensor[float]        act.input
{rule}
act         Inputs:
              input   [N,   4]  Tensor[float]        first.output
            Outputs:
              output  [N,   4]  Tensor[float]        'y'
{rule}

parameters: 1,204
"""
    )


def test_parameters_are_what_compile_trains(capsys):
    outer = ml.Model(name="outer")
    outer |= net()(x="x", y="out")
    outer |= ml.Linear(2)(input="out", output="z")
    outer |= ml.LayerNorm()(input="z")
    outer.set_shapes(x=["N", 3])
    pm = ml.compile(outer, ml.CpuBackend(), data_keys={"x"}, safe_names=False)
    sizes = [value.size for value in pm.get_parameters().values()]
    _, total = parameters_of(printed(capsys, outer, depth=3))
    assert total == str(sum(sizes)) and sum(sizes) == 12 + 4 + 8 + 2 + 2 + 2


def test_what_counts_as_a_parameter(capsys):
    model = ml.Model()
    model |= ml.Linear(4)(input="x", weight="w", bias="b", output="h")
    model |= ml.Linear(4)(input="h", weight="w", bias="b", output="y")
    rows, total = parameters_of(printed(capsys, model))
    assert rows["weight"] == "16" and rows["bias"] == "4" and total == "20"
    model = ml.Model()
    model |= ml.Relu()(input="raw", output="made")
    model |= ml.Linear(4)(input="x", weight="made", bias="b", output="h")
    model.set_shapes(x=[2, 3])
    rows, total = parameters_of(printed(capsys, model))
    assert rows == {"bias": "4"} and total == "4"  # `made` is computed
    model.set_differentiability(b=False)
    assert parameters_of(printed(capsys, model)) == ({}, "0")
    assert parameters_of(printed(capsys, ml.Linear(2))) == ({"weight": ">0", "bias": "2"}, ">2")


def test_open_sizes(capsys):
    rows, total = parameters_of(printed(capsys, net()))
    assert rows == {"weight": ">0", "bias": "4"} and total == ">4"


def test_alternative_shapes_keep_their_names(capsys):
    model = ml.Model()
    model |= ml.Buffer()(input="x", output="y")
    model.set_shapes(x=["a", ("V", ...)])
    model.set_shapes(x=[("W", ...), "b"])
    lines = printed(capsys, model, alternative_shapes=True, symbolic=True).splitlines()
    rows = [line.split("[")[1].split("]")[0] for line in lines if "[" in line]
    assert len(rows) == 4 and rows[:2] == rows[2:]
    assert len(set(rows)) == 2


class Checked(HTMLParser):
    """Tags must be known, closed in order, and have no handler or reference."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS
        assert not [a for a, _ in attrs if a.startswith("on") or a in ("href", "src")]
        self.tags.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError("a comment")


def parsed(html):
    parser = Checked()
    parser.feed(html)
    parser.close()
    assert not parser.open
    ET.fromstring(html)  # it is XML, too
    return parser


def test_notebooks_show_a_table_and_a_picture():
    model = net()
    model.set_shapes(x=["N", 3])
    found = parsed(model._repr_html_())
    assert "svg" in found.tags
    for text in ("net", "Model", "first", "weight", "[4, 3]", "[N, 3]", "'w'", "act.input", "12"):
        assert text in found.texts, text
    found = parsed(compiled()._repr_html_())
    for text in ("PhysicalModel", "CpuBackend (cpu)", "[4, 3]", "trainable", "16"):
        assert text in found.texts, text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name):
    try:
        model = hostile(name)
    except MithrilError:
        return  # refused at composition, with a typed error
    plain = parsed(hostile("plain")._repr_html_()).tags
    assert parsed(model._repr_html_()).tags == plain
    try:
        pm = ml.compile(model, ml.NumpyBackend())
    except MithrilError:
        return
    parsed(pm._repr_html_())


def test_large_models_have_no_picture():
    model = ml.Model()
    for i in range(250):
        model |= ml.Relu()(input=f"x{i}", output=f"x{i + 1}")
    assert "svg" not in parsed(model._repr_html_()).tags
    outer = ml.Model()
    model.expose_keys("x250")
    outer |= model(x0="x", x250="y")
    assert "svg" in parsed(outer._repr_html_()).tags  # closed


def test_empty_models():
    parsed(ml.Model()._repr_html_())
    parsed(ml.Relu()._repr_html_())
