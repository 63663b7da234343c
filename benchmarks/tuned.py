"""PyTorch in a process of its own whose allocator keeps memory: what its users get by tuning.

glibc gives memory of large tensors back to the system and takes it again, page by page, in every
step; the environment below makes it keep what it has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from benchmarks.harness import Contender, LeftOut, Settings

ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class Child:
    """Does a step for each line that it is sent, and answers with a line."""

    def __init__(self, batch: int, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.tuned", str(batch), str(threads)]
        self.process: Any = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        if self.process.stdout.readline() != "ready\n":
            raise LeftOut("its process ended")

    def step(self) -> None:
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "done\n":
            raise RuntimeError("the process that steps PyTorch ended")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def resnet18_step(batch: int, settings: Settings, children: list[Child]) -> Contender:
    import torch  # noqa: F401  (its absence is told here)

    children.append(Child(batch, settings.threads))
    return Contender(children[-1].step)


def serve(batch: int, threads: int) -> None:
    from benchmarks.generated import by_hand
    from benchmarks.nets import Resnet

    contender = by_hand(Resnet(18, batch).job, "torch", False, True, Settings(threads=threads))
    print("ready", flush=True)
    for _ in sys.stdin:
        contender.run()
        print("done", flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
