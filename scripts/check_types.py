"""Checks the types of the code that users read: README, docs and examples, as strictly as theirs.

The blocks of a page become one file under build/lint/pages/, each on the lines that it has in the
page; mypy (--strict) and pyright (basedpyright, which brings its own Node) read them and examples/
with the stubs that the build makes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "lint"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Frameworks are checked by their own people, and slow to read.
UNTYPED = ("torch", "jax", "mlx", "ml_dtypes", "optax", "sklearn", "matplotlib")
# Page -> what it shows that is wrong, which has to be found.
SHOWN_WRONG = {"errors.py": ("Dense", "out_features")}


class Finding(NamedTuple):
    """What a checker says of a line."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def code_of(page: Path) -> str:
    """The blocks of a page as one program, on their lines."""
    text, code = page.read_text(encoding="utf-8"), ""
    for block in BLOCK.finditer(text):
        code += "\n" * (text.count("\n", 0, block.start(1)) - code.count("\n")) + block[1]
    return code


def write_pages(folder: Path = OUT / "pages") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    files = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if code := code_of(page):
            files.append(folder / f"{page.stem}.py")
            files[-1].write_text(code, encoding="utf-8")
    return files


def by_mypy(files: Iterable[Path], out: Path = OUT) -> list[Finding]:
    config = "[mypy]\nstrict = True\npython_version = 3.11\n"
    # In the README the name of one backend becomes that of another.
    config += "allow_redefinition_new = True\nlocal_partial_types = True\n"
    config += f"mypy_path = {ROOT / 'python'}:{ROOT}\nexplicit_package_bases = True\n"
    config += f"cache_dir = {OUT / 'mypy_cache'}\n[mypy-mithril.*]\nignore_errors = True\n"
    for module in UNTYPED:
        config += f"[mypy-{module}.*]\nignore_missing_imports = True\nfollow_imports = skip\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "mypy.ini").write_text(config)
    text = _output("mypy", "--config-file", str(out / "mypy.ini"), *map(str, files))
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", text, re.MULTILINE)
    if not found and "Success" not in text:
        raise SystemExit(f"mypy failed:\n{text}")
    return [Finding(file, int(line), f"{said} (mypy)") for file, line, said in found]


def by_pyright(files: Iterable[Path], out: Path = OUT) -> list[Finding]:
    settings = {
        "include": [str(file) for file in files],
        "extraPaths": [str(ROOT / "python"), str(ROOT)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
        "reportMissingImports": False,
        "reportMissingModuleSource": False,
        "reportPossiblyUnboundVariable": False,  # what a loop leaves
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "pyrightconfig.json").write_text(json.dumps(settings, indent=2))
    text = _output("basedpyright", "--project", str(out / "pyrightconfig.json"), "--outputjson")
    try:
        report = json.loads(text)["generalDiagnostics"]
    except ValueError:
        raise SystemExit(f"pyright failed:\n{text}") from None
    return [
        Finding(r["file"], r["range"]["start"]["line"] + 1, f"{r['message']} (pyright)")
        for r in report
        if r["severity"] == "error"
    ]


def _output(tool: str, *arguments: str) -> str:
    """Returns the output of a tool, which sees no activated .venv: pyright reads frameworks."""
    command = [sys.executable, "-m", tool, *arguments]
    own = str(Path(sys.executable).parent)
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != own)
    env = {**os.environ, "PATH": path}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return run.stdout or run.stderr


def unexpected(findings: list[Finding]) -> list[str]:
    """Findings but those of code that is shown to be wrong, and what of that was not found."""
    out = []
    left = {(file, name) for file, names in SHOWN_WRONG.items() for name in names}
    for finding in findings:
        file = Path(finding.file).name
        shown = [name for name in SHOWN_WRONG.get(file, ()) if f'"{name}"' in finding.text]
        left -= {(file, name) for name in shown}
        out += [] if shown else [str(finding)]
    return [*out, *(f"{file}: {name!r} is wrong, and was not found" for file, name in sorted(left))]


def main() -> int:
    files = [*write_pages(), *sorted((ROOT / "examples").glob("*.py"))]
    problems = [*unexpected(by_mypy(files)), *unexpected(by_pyright(files))]
    print("\n".join(problems) or f"{len(files)} pages and examples: clean")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
