"""`mithril bench`: figures of real runs, in processes of their own; devices and failures told."""

import json
import statistics
import sys
import time

import pytest
from mithril.cli import _bench_run, bench
from mithril.cli.__main__ import main

RATES = {"median": 2.0, "low": 1.0, "high": 3.0}


def test_json_of_two_backends(capsys):
    words = ["bench", "mlp", "--backends=numpy,cpu", "--train", "--repeats=3", "--warm-up=1"]
    assert main([*words, "--batch=4", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [r["backend"] for r in results] == ["numpy", "cpu"]
    for result in results:
        assert result["device"] == "cpu" and result["model"] == "mlp" and result["batch"] == 4
        for kind in ("inference", "train"):
            rates = result[kind]
            assert 0 < rates["low"] <= rates["median"] <= rates["high"] and rates["repeats"] == 3
        assert 0.01 < result["memory"]["median"] < 4  # GB of a process


def test_tables(monkeypatch, capsys):
    """The guide's numbers stand beside those measured, labelled as its own."""
    found = {"device": "cpu", "inference": {"median": 12.0, "low": 10.0, "high": 14.0},
             "memory": {"median": 0.5, "low": 0.5, "high": 0.5}}  # fmt: skip
    monkeypatch.setattr(bench, "_in_its_own_process", lambda task: {**task, **found})
    assert main(["bench", "resnet18", "--backends=numpy", "--memory"]) == 0
    out = capsys.readouterr().out
    assert "Inference speed (images/second)\n" in out and "original guide" in out
    line = next(line for line in out.splitlines() if line.startswith("resnet18  numpy"))
    assert line.split() == ["resnet18", "numpy", "cpu", "12", "10", "to", "14", "20"]
    assert "1 image at once, a process for each row; medians of 10 calls after 2" in out
    assert "Training" not in out


def test_several_devices_are_refused_unless_asked_for(monkeypatch, capsys):
    rates = {"median": 1.0, "low": 1.0, "high": 1.0}
    devices, asked = {"numpy": "cpu", "torch": "cuda:0"}, []
    monkeypatch.setattr(
        bench,
        "_in_its_own_process",
        lambda task: (
            asked.append(task) or {**task, "device": devices[task["backend"]], "inference": rates}
        ),
    )
    words = ["bench", "mlp", "--backends=numpy,torch"]
    assert main(words) == 2
    assert asked == [{"backend": "numpy"}, {"backend": "torch"}]  # nothing was measured
    assert "numpy on cpu, torch on cuda:0" in capsys.readouterr().err
    assert main([*words, "--mixed-devices"]) == 0


def test_a_failure_is_a_line_and_a_status(monkeypatch, capsys):
    monkeypatch.setattr(bench, "_in_its_own_process", lambda task: {**task, "error": "gone"})
    assert main(["bench", "mlp", "--backends=numpy"]) == 1
    assert "numpy mlp: gone" in capsys.readouterr().out


def test_all_are_those_that_are_here(monkeypatch, capsys):
    """A backend that lacks its device is told; it is a failure only where it was named."""

    def found(task):
        if task["backend"] == "cuda":
            return {**task, "error": "no driver", "absent": True}
        return {**task, "device": "cpu", "inference": RATES}

    monkeypatch.setattr(bench, "_in_its_own_process", found)
    assert main(["bench", "mlp"]) == 0
    out, told = capsys.readouterr()
    assert "cuda is not here: no driver" in out and "mlp    cuda" not in out
    assert "measuring mlp on numpy" in told and "measuring mlp on cuda" not in told
    assert main(["bench", "mlp", "--backends=numpy,cuda"]) == 1
    assert "cuda mlp: no driver" in capsys.readouterr().out


def test_devices_of_backends(capsys):
    _bench_run.main(json.dumps({"backend": "numpy"}))
    assert json.loads(capsys.readouterr().out) == {"device": "cpu"}


def test_what_a_backend_raises_is_told(capsys):
    task = {"backend": "numpy", "model": "none", "batch": 1, "train": False}
    _bench_run.main(json.dumps(task))
    assert json.loads(capsys.readouterr().out)["error"].startswith("KeyError")


@pytest.mark.parametrize("words", [["resnet19"], ["mlp", "--batch=0"], []])
def test_arguments_that_do_not_fit(words):
    with pytest.raises(SystemExit):
        main(["bench", *words])


def test_unknown_backends(capsys):
    assert main(["bench", "mlp", "--backends=numppy"]) == 2
    assert "did you mean 'numpy'" in capsys.readouterr().err


def test_rates_are_of_the_seconds():
    seconds = [0.5, 0.25, 1.0, 0.3]
    rates = _bench_run._rates(seconds, 8)
    assert rates["median"] == 8 / statistics.median(seconds)
    assert (rates["low"], rates["high"], rates["repeats"]) == (8.0, 32.0, 4)


def test_slow_models_are_called_less_often():
    class Waiting:
        def block_until_ready(self, out):
            calls.append(out)

    def timed(seconds):
        calls.clear()
        task = {"warm_up": 3, "repeats": 50, "seconds": seconds}
        return len(_bench_run._timed(lambda: time.sleep(0.02), Waiting(), task)), len(calls)

    calls = []
    assert timed(0) == (1, 2)  # warm once, timed once
    few, whole = timed(0.2)
    assert 1 <= few <= 10 and whole == few + 3
    assert timed(100) == (50, 53)
    found = {"median": 2.0, "low": 1.0, "high": 4.0, "repeats": 1}
    assert bench._spread(found, 10) == "1 to 4 (1 call)"
    assert bench._spread({**found, "repeats": 3}, 10) == "1 to 4 (3 calls)"
    assert bench._spread({**found, "repeats": 10}, 10) == "1 to 4"
    del found["repeats"]  # memory
    assert bench._spread(found, 10) == "1 to 4"


def test_a_plot(monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from matplotlib import image

    def measured(task):
        more = {"train": RATES} if task["backend"] == "cpu" else {}
        return {**task, "device": "cpu", "inference": RATES, **more}

    monkeypatch.setattr(bench, "_in_its_own_process", measured)
    path = tmp_path / "speed.png"
    assert main(["bench", "mlp", "--backends=numpy,cpu", "--plot", str(path)]) == 0
    assert "Inference speed" in capsys.readouterr().out
    pixels = image.imread(path)
    colours = {tuple(row) for row in pixels.reshape(-1, pixels.shape[-1]).round(2)}
    blue, orange = (0.12, 0.47, 0.71), (1.0, 0.5, 0.05)  # matplotlib's first two
    assert all(any(c[:3] == colour for c in colours) for colour in (blue, orange))
    small = pixels.shape[0]
    assert main(["bench", "mlp", "--backends=cpu", "--train", "--plot", str(path)]) == 0
    assert image.imread(path).shape[0] == 2 * small  # a chart more


def test_a_plot_without_matplotlib(monkeypatch, tmp_path, capsys):
    """Told before anything is measured, with the line to type."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(bench, "_in_its_own_process", lambda task: pytest.fail("measured"))
    assert main(["bench", "mlp", "--backends=numpy", "--plot", str(tmp_path / "a.png")]) == 2
    told = capsys.readouterr().err
    assert "matplotlib is not installed" in told and "pip install matplotlib" in told


@pytest.mark.parametrize(("name", "text"), [("a.jpg", "ends in .png"), ("no/a.png", "no folder")])
def test_names_of_plots(name, text, tmp_path, capsys):
    assert main(["bench", "mlp", "--backends=numpy", "--plot", str(tmp_path / name)]) == 2
    assert text in capsys.readouterr().err
