"""A process that loads what it is sent, so that a crash or a hang is seen from outside.

    with Loader() as loader:
        loader.load("model", b"{}")  # "ParseError"

`python loading.py folder` is the other side.
"""

import importlib
import os
import resource
import select
import struct
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

SECONDS = 10  # ten times the contract's figure
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # which keeps freed memory


class Loader:
    """Starts the process when it is needed, and again after it died."""

    def __init__(self):
        self._process = None
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop()
        self._folder.cleanup()

    def _stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def load(self, kind, raw):
        """How loading ended: "loaded", the name of a typed error, or what must not be."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, self._folder.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # the same mithril
            )
            assert self._process.stdout.readline() == b"ready\n"
        self._process.stdin.write(struct.pack("<16sQ", kind.encode(), len(raw)) + raw)
        self._process.stdin.flush()
        found, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        answer = self._process.stdout.readline().decode().strip() if found else "HANGS"
        if answer in ("", "HANGS"):
            answer = answer or f"CRASHES with {self._process.wait()}"
            self._stop()
        return answer


# --- the other side ------------------------------------------------------------------------------


def serve():
    sys.path.append(str(Path(__file__).parents[1]))
    importlib.import_module("file_constraints")  # registers what files name
    import mithril as ml
    from mithril.errors import InternalError, MithrilError
    from mithril.formats import dict_to_model, read_safetensors

    path = os.path.join(sys.argv[1], "file")

    def file(raw):
        with open(path, "wb") as out:
            out.write(raw)
        return path

    def dictionary(raw):
        import json

        return dict_to_model(json.loads(raw))

    kinds = {
        "model": ml.Model.from_json,
        "saved": lambda raw: ml.load(file(raw)),
        "tensors": lambda raw: read_safetensors(file(raw)),
        "dictionary": dictionary,
    }
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr
    ml.Model.from_json(ml.Relu().to_json())
    print("ready", file=answers, flush=True)
    while head := sys.stdin.buffer.read(24):
        kind, size = struct.unpack("<16sQ", head)
        raw = sys.stdin.buffer.read(size)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            kinds[kind.rstrip(b"\0").decode()](raw)
            answer = "loaded"
        except InternalError as error:
            answer = f"INTERNAL {error}"
        except MithrilError as error:
            str(error)
            answer = type(error).__name__
        except BaseException as error:
            answer = f"UNTYPED {type(error).__name__} {error}"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > 4 * size // 1024 + (64 << 10) and not SANITIZED:
            answer = f"TAKES {grown} KiB"
        print(answer.replace("\n", " ")[:300], file=answers, flush=True)


if __name__ == "__main__":
    serve()
