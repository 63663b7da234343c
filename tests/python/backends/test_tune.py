# Covers: mithril/inspection/tuning.py
"""`ml.tune`: tiles of products on devices of OpenCL. Each has the bits of the engine."""

import json
import os
import subprocess
import sys

import mithril as ml
import pytest
from backends.plan_cases import same
from backends.test_opencl_backend import WHY
from formats.c_cases import drawn
from mithril.errors import ArgumentError, SignatureError, UnsupportedError
from mithril.inspection import tuning

pytestmark = [pytest.mark.device, pytest.mark.skipif(WHY is not None, reason=WHY or "")]


@pytest.fixture
def tile():
    """Sets the tile of the device until the test ends."""
    backend = ml.OpenCLBackend()
    before = backend.product_tile

    def set_tile(to):
        backend.product_tile = to

    yield set_tile
    backend.product_tile = before


def network():
    """A product of whole and cut tiles, a convolution, and the gradients of both."""
    model = ml.Model()
    model |= ml.Convolution2D(3, 13, stride=2)(input="x", weight="w", output="h")
    model |= ml.Flatten(start_dim=1)(input="h", output="f")
    model |= ml.MatrixMultiply()(left="f", right="v", output="m")
    model |= ml.Relu()(input="m", output="y")
    model.expose_keys("y")
    return model


SMALL = [(1, 1, 16), (16, 4, 16), (3, 1, 64)]


@pytest.mark.parametrize(
    ("of", "dtype"),
    [
        *((of, "float32") for of in (*SMALL, *tuning.TILES)),
        *((of, "float64") for of in (*SMALL, *tuning.TILES[::3])),
    ],
)
def test_every_tile_has_the_bits_of_the_engine(of, dtype, tile):
    tile(of)
    shapes = {"x": [19, 5, 11, 10], "w": [13, 5, 3, 3], "v": [260, 75]}
    values = {key: drawn(shape, 3).astype(dtype) for key, shape in shapes.items()}
    runs = []
    for backend in (ml.CpuBackend(dtype=dtype), ml.OpenCLBackend(dtype=dtype)):
        pm = ml.compile(
            network(), backend, trainable_keys=set(shapes), shapes=shapes, exact_conv=True
        )
        params = {**pm.get_parameters(), **values}
        outputs, gradients = pm.evaluate(params, {}, output_gradients={"y": drawn([19, 75])})
        runs.append({**outputs, **{f"d{key}": value for key, value in gradients.items()}})
    same(*runs)


def test_tiles_that_are_none(tile):
    backend = ml.OpenCLBackend()
    before = backend.product_tile
    for wrong in ((0, 2, 32), (17, 2, 32), (8, 3, 32), (8, 4, 64), (8, 2, 8), (2**70, 2, 32)):
        with pytest.raises(ArgumentError, match="requires 1 to 16 rows"):
            tile(wrong)
        assert backend.product_tile == before
    for wrong in (None, 8, (8, 2), (8, 2, 32.0), (8, 2, True), "832"):
        with pytest.raises(SignatureError, match="product_tile: requires three integers"):
            tile(wrong)
        assert backend.product_tile == before


def test_other_backends_have_nothing_to_tune():
    with pytest.raises(UnsupportedError, match="CpuBackend has nothing to tune"):
        ml.tune(ml.CpuBackend())
    for wrong in (None, "opencl", 3):
        with pytest.raises(SignatureError, match="tune: requires a backend"):
            ml.tune(wrong)


PROCESS = """
import mithril as ml
from mithril.inspection import tuning
tuning.SIZE, tuning.SECONDS, tuning.TILES = 64, 0.01, tuning.TILES[:2] + ((5, 1, 32),)
backend = ml.OpenCLBackend()
first = backend.product_tile
found = ml.tune(backend) if {tunes} else None
import json
print(json.dumps([first, backend.product_tile, found and [
    found.tile, found.file, found.device, [[t, g] for t, g in found.gflops.items()]]]))
"""


def in_process(folder, tunes):
    out = subprocess.run(
        [sys.executable, "-c", PROCESS.replace("{tunes}", str(tunes))],
        env={**os.environ, "MITHRIL_CACHE_DIR": str(folder)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(out.stdout.splitlines()[-1]), out.stderr


def test_what_was_found_is_kept_for_later_processes(tmp_path):
    (first, after, found), _ = in_process(tmp_path, True)
    best, file, device, gflops = found
    assert after == best and device == ml.OpenCLBackend().device_info["name"]
    assert best == max(gflops, key=lambda pair: pair[1])[0] and len(gflops) == 3
    assert all(rate > 0 for _, rate in gflops)
    assert file == str(tmp_path / "opencl" / "tiles.json") and list(
        json.loads((tmp_path / "opencl" / "tiles.json").read_text()).values()
    ) == [best]
    kept = tmp_path / "opencl" / "tiles.json"
    other = {name: [7, 1, 64] for name in json.loads(kept.read_text())}
    kept.write_text(json.dumps(other))
    assert in_process(tmp_path, False)[0] == [[7, 1, 64], [7, 1, 64], None]
    for text in ("{", "[]", json.dumps(dict.fromkeys(other, [7, 3, 64])), "3"):
        kept.write_text(text)
        (now, _, _), said = in_process(tmp_path, False)
        assert now == first, (text, said)


KEEPS = """
import sys
from mithril.backends.with_manualgrad.opencl_backend.tiles import keep_tile
sys.stdin.readline()
for number in range(20):
    info = {"platform": "p", "name": f"{sys.argv[1]} {number}", "driver": "1"}
    assert keep_tile(info, (number % 16 + 1, 1, 32))
"""


def test_processes_that_tune_at_once_lose_nothing(tmp_path):
    env = {**os.environ, "MITHRIL_CACHE_DIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", KEEPS, str(i)], env=env, stdin=subprocess.PIPE)
        for i in range(4)
    ]
    for one in started:
        one.stdin.write(b"go\n")
        one.stdin.flush()
    for one in started:
        one.communicate(timeout=120)
        assert one.returncode == 0
    kept = json.loads((tmp_path / "opencl" / "tiles.json").read_text())
    assert kept == {
        f"p / {i} {number} / 1": [number % 16 + 1, 1, 32] for i in range(4) for number in range(20)
    }


def test_without_a_folder_the_process_keeps_it(tmp_path):
    (tmp_path / "opencl").write_text("no folder")
    (_, after, found), _ = in_process(tmp_path, True)
    assert after == found[0] and found[1] is None


def test_a_failure_leaves_the_tile_as_it_was(tile, monkeypatch):
    backend = ml.OpenCLBackend()
    tile((5, 1, 32))

    def fails(_):
        raise ArgumentError("it fails")

    monkeypatch.setattr(tuning, "_gflops", fails)
    with pytest.raises(ArgumentError, match="it fails"):
        ml.tune(backend)
    assert backend.product_tile == (5, 1, 32)
