"""The emulator of CUDA: tests/emulated_cuda, built with g++, in place of driver and libraries.

It is a test double: it shows that the backend asks the driver for the right things and that kernels
compute what they should, and nothing of how fast they do. Who sets MITHRIL_CUDA_LIB chooses another
driver, such as the real one: `make test-cuda`.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "tests" / "emulated_cuda"
VARIABLES = {
    "MITHRIL_CUDA_LIB": "driver",
    "MITHRIL_NVRTC_LIB": "nvrtc",
    "MITHRIL_CUBLASLT_LIB": "cublaslt",
    "MITHRIL_CUDNN_LIB": "cudnn",
}
FLAGS = ["-std=c++20", "-O1", "-shared", "-fPIC"]


def use() -> str:
    """Lets this process, which has not imported mithril yet, open the emulator; returns why there
    is none, or nothing."""
    if "MITHRIL_CUDA_LIB" in os.environ:
        return ""
    if shutil.which("g++") is None:
        return "there is no g++ to build the emulator of CUDA with"
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return "the emulator of CUDA runs on Linux on x86-64 only"
    try:
        folder = built()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"the emulator of CUDA cannot be built: {error}"
    for variable, name in VARIABLES.items():
        os.environ[variable] = str(folder / f"{name}.so")
    return ""


def is_used() -> bool:
    return os.environ.get("MITHRIL_CUDA_LIB", "").startswith(str(ROOT))


def built() -> Path:
    """The folder of the libraries, built where these sources have not been built yet."""
    sources = sorted(FOLDER.iterdir())
    text = b"".join(path.read_bytes() for path in sources)
    key = hashlib.sha256(text + str(FOLDER).encode()).hexdigest()[:16]
    folder = ROOT / "build" / "emulated_cuda" / key
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        header = f'-DEMULATED_KERNEL_H="{FOLDER / "kernel.h"}"'
        build = f"-DEMULATED_BUILD={int(key[:6], 16)}"
        for name in VARIABLES.values():
            source, library = FOLDER / f"{name}.cc", made / f"{name}.so"
            subprocess.run(
                ["g++", *FLAGS, header, build, str(source), "-o", str(library), "-ldl"], check=True
            )
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder


NO_CUDA = use()  # the engine reads the environment once, when it is imported

if __name__ == "__main__":  # for a shell: `eval "$(python3 emulated_cuda.py)"`
    for name, value in os.environ.items():
        if name in VARIABLES and is_used():
            print(f"export {name}='{value}'")
