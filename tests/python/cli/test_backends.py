"""`mithril backends`: what is here, and how a backend runs each op."""

import mithril as ml
import pytest
from mithril.backends import registry
from mithril.cli.__main__ import main
from mithril.errors import DeviceNotAvailable


def sections(text):
    """Heading, without its count -> ops."""
    found, title = {}, ""
    for line in text.splitlines():
        if line.endswith(")") and " (" in line and not line.startswith(" "):
            title = line.rpartition(" (")[0]
            found[title] = ""
        elif title:
            found[title] += line
    return {key: set(text.replace(" ", "").split(",")) for key, text in found.items()}


class Absent(ml.NumpyBackend):
    def __init__(self):
        raise DeviceNotAvailable("Absent: no device\n  help: buy one")


@pytest.fixture
def absent():
    ml.register_backend("absent", Absent)
    yield
    del registry._registered["absent"]


def test_all_backends_with_what_is_missing(absent, capsys):
    assert main(["backends"]) == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert lines["numpy"].startswith("NumpyBackend(")
    assert lines["absent"] == "not here: Absent: no device"


def test_a_backend_that_is_not_here(absent, capsys):
    assert main(["backends", "absent"]) == 1
    assert "no device" in capsys.readouterr().err
    assert main(["backends", "nupmy"]) == 1
    assert "did you mean 'numpy'" in capsys.readouterr().err


def test_every_op_of_the_engine_stands_in_one_section(capsys):
    assert main(["backends", "cpu", "--ops"]) == 0
    found = sections(capsys.readouterr().out)
    ops = [op["name"] for op in ml._core.ops() if op["samples"]]
    assert sorted(name for names in found.values() for name in names) == sorted(ops)
    assert {"matmul", "exp", "attention"} <= found["native"]
    assert "dropout_attention" in found["emulated, made of other ops"]
