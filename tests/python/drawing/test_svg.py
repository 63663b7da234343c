"""SVG: parsed by the standard library, for models of every form and for hostile names."""

import time
import xml.etree.ElementTree as ET

import mithril as ml
import pytest
from mithril.errors import MithrilError

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "rect", "path", "text"}
HOSTILE = [
    "</text></svg><script>alert(1)</script>",
    '"/><image href="http://evil/x.png" onload="alert(1)"/>',
    "]]><!--", "&lt;&#60;", "'\"<>&", "-->", "<![CDATA[", "%s{}$", "\\n\\\"];", "x\" ]; evil [",
    "end\nclick n0 call alert()", "`<b>`", "\u202egnp.exe", "\0\x1b[31m", "a" * 5000, "形" * 30,
    "#quot;",
]  # fmt: skip


def hostile(name):
    model = ml.Model(name=name)
    model |= ml.Linear(4, name=name)(input=name, weight=name + "w", output=name + "y")
    inner = ml.Model(name=name + "2")
    inner |= ml.Relu(name=name)(input=name, output=name + "y")
    inner.expose_keys(name + "y")
    model |= inner.connect(**{name: name + "y", name + "y": name + "z"})
    model.expose_keys(name + "z")
    return model


def parsed(picture):
    root = ET.fromstring(picture)
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in ALLOWED
        assert not [a for a in element.attrib if a.startswith("on") or "href" in a]
    return root


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name):
    try:
        model = hostile(name)
    except MithrilError:
        return  # refused at composition, with a typed error
    plain = [e.tag for e in parsed(hostile("plain").plot()).iter()]
    assert [e.tag for e in parsed(model.plot()).iter()] == plain


def test_hostile_names_get_so_far_at_all():
    def is_taken(name):
        try:
            return bool(hostile(name))
        except MithrilError:
            return False

    assert sum(map(is_taken, HOSTILE)) >= 10


def test_every_text_is_there():
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="first")(input="x", output="h")
    model |= ml.Relu(name="act")(input="h", output="y")
    model.expose_keys("y")
    model.set_shapes(x=["N", 3])
    texts = [e.text for e in parsed(model.plot()).iter(f"{SVG}text")]
    for text in ("x", "first", "Linear", "weight [4, 3]", "bias [4]", "[N, 3]", "[N, 4]", "y"):
        assert text in texts


def test_two_thousand_nodes_take_less_than_a_second():
    """Processor time, asserted at ten times the promise: the machine may be busy."""
    model = ml.Model()
    for i in range(1000):
        model |= ml.Linear(4)(input=f"h{i}", output=f"l{i}")
        model |= ml.Relu()(input=f"l{i}", output=f"h{i + 1}")
    model.expose_keys("h1000")
    model.shapes  # noqa: B018 - inference is not what is timed
    start = time.process_time()
    picture = model.plot()
    assert time.process_time() - start < 10
    assert picture.count("<rect") == 2003  # boxes, an input, an output, the background


def test_files_and_formats(tmp_path):
    model = ml.Relu()
    picture = model.plot(file_path=tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == picture == picture._repr_svg_()
    assert model.plot(file_path=str(tmp_path / "a.mmd")).startswith("flowchart TD")
    assert model.plot(file_path=tmp_path / "a.dot").startswith("digraph {")
    assert model.plot("dot")._repr_svg_() is None
    assert "svg" in repr(picture) and len(repr(picture)) < 60


@pytest.mark.parametrize(
    "arguments",
    [{"format": "png"}, {"format": 3}, {"file_path": 3}, {"depth": -1}, {"depth": "1"},
     {"depth": True}, {"file_path": "/nowhere/at/all.svg"}],
)  # fmt: skip
def test_bad_arguments(arguments):
    with pytest.raises(MithrilError):
        ml.Relu().plot(**arguments)
