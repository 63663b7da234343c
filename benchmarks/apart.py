"""PyTorch in a process of its own: as its users find it, and with an allocator that keeps memory.

glibc gives memory of large tensors back to the system and takes it again, page by page, in every
step, unless larger ones were there before; the environment below makes it keep what it has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import Contender, LeftOut, Settings

TUNED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class Child:
    """Does a step for each line that it is sent, and answers with a line."""

    def __init__(self, task: tuple[Any, ...], malloc: dict[str, str], threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.apart", str(threads), *map(str, task)]
        self.process: Any = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **malloc},
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


@contextmanager
def pytorch(
    *task: Any, malloc: dict[str, str] = TUNED
) -> Iterator[Callable[[Settings], Contender]]:
    """What builds that contender of TASKS; its process ends with the block."""
    children: list[Child] = []

    def build(settings: Settings) -> Contender:
        import torch  # noqa: F401  (its absence is told here)

        children.append(Child(task, malloc, settings.threads))
        return Contender(children[-1].step)

    try:
        yield build
    finally:
        for child in children:
            child.close()


# --- what is done in the process ------------------------------------------------------------------


def resnet18(settings: Settings, batch: str) -> Contender:
    from benchmarks.generated import by_hand
    from benchmarks.nets import Resnet

    return by_hand(Resnet(18, int(batch)).job, "torch", False, True, settings)


def gpt2(settings: Settings) -> Contender:
    from benchmarks.nets import Gpt2

    return Gpt2().torch_step(settings)


def rows(settings: Settings, kind: str, height: str, width: str) -> Contender:
    from benchmarks.engine import random_rows, torch_rows

    return torch_rows(kind, random_rows((int(height), int(width))), settings)


TASKS: dict[str, Callable[..., Contender]] = {"resnet18": resnet18, "gpt2": gpt2, "rows": rows}


def serve(threads: str, task: str, *arguments: str) -> None:
    contender = TASKS[task](Settings(threads=int(threads)), *arguments)
    print("ready", flush=True)
    for _ in sys.stdin:
        contender.run()
        print("done", flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
