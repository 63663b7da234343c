"""Installs what pyproject.toml lists: `build` (and run time) requirements, or an extra by name."""

import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH_CPU = "https://download.pytorch.org/whl/cpu"


def requirements(name: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    if name == "build":
        return project["build-system"]["requires"] + project["project"]["dependencies"]
    return project["project"]["optional-dependencies"][name]


def reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/torch/", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def main() -> int:
    wanted = requirements(sys.argv[1])
    command = [sys.executable, "-m", "pip", "install", "-qq", *wanted]
    # PyPI's PyTorch for Linux brings gigabytes of CUDA; its own index has the CPU build.
    needs_torch = any(item.startswith("torch") for item in wanted)
    if needs_torch and sys.platform == "linux" and reachable(TORCH_CPU):
        command += ["--extra-index-url", TORCH_CPU]
    print("installing into .venv:", *wanted, flush=True)
    status = subprocess.call(command)
    if status == 0 and sys.argv[1] == "test":
        # ggml-python is built here, with cc and CMake; NVRTC is there for few platforms.
        install_if_possible("ggml", "ggml")
        install_if_possible("cuda-test", "NVRTC")
    return status


def install_if_possible(extra: str, title: str) -> None:
    """Without it its tests are skipped."""
    wanted = requirements(extra)
    print("installing into .venv:", *wanted, flush=True)
    if subprocess.call([sys.executable, "-m", "pip", "install", "-qq", *wanted]) != 0:
        print(f"no {title}: its tests will be skipped", flush=True)


if __name__ == "__main__":
    sys.exit(main())
