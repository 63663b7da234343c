"""The C compiler of `CBackend` and the objects that it keeps, with C written by hand."""

import ctypes
import os
import pickle
import platform
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import mithril as ml
import pytest
from mithril.backends.with_manualgrad import object_cache
from mithril.backends.with_manualgrad.c_backend import utils
from mithril.backends.with_manualgrad.c_backend.flags import FIXED_FLAGS
from mithril.backends.with_manualgrad.c_backend.utils import Compiler
from mithril.backends.with_manualgrad.object_cache import ObjectCache
from mithril.errors import (
    ArgumentError,
    CompilerError,
    CompilerWarning,
    DeviceNotAvailable,
    DTypeError,
    SignatureError,
)

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]

TWICE = "int twice(int x) { return 2 * x; }\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the objects of backends that this test makes."""
    monkeypatch.setattr(object_cache._core, "cache_dir", lambda: str(tmp_path / "cache"))
    return tmp_path / "cache" / "c"


@pytest.fixture
def script(tmp_path):
    """Makes a compiler of a shell script; "$@" are its arguments."""

    def made(text, name="mycc"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return made


def result(path):
    return ctypes.CDLL(path).twice(21)


def objects(folder):
    return sorted(path.name for path in folder.iterdir())


# --- the compiler ---------------------------------------------------------------------------------


def test_a_text_becomes_an_object(folder):
    backend = ml.CBackend()
    path = backend._build(TWICE, "twice")
    assert Path(path).parent == folder and result(path) == 42
    assert os.path.isabs(backend.compiler) and backend.flags[:5] == FIXED_FLAGS


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_compilers_by_name(name, folder):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    backend = ml.CBackend(compiler=name, flags="-O1 -g")
    assert backend.compiler == shutil.which(name)
    assert backend.flags == (*FIXED_FLAGS, "-O1", "-g")
    assert result(backend._build(TWICE, "twice")) == 42


def test_threads_are_those_of_openmp(folder):
    text = "#ifdef _OPENMP\nint twice(int x) { return x; }\n#else\n#error one thread\n#endif\n"
    assert result(ml.CBackend(threads=2)._build(text, "twice")) == 21
    with pytest.raises(CompilerError, match="one thread"):
        ml.CBackend()._build(text, "twice")


def test_a_processor_that_the_compiler_does_not_know(script, folder):
    compiler = script('case "$*" in *march=native*) exit 1;; esac; exec cc "$@"')
    backend = ml.CBackend(compiler=compiler)
    assert backend.flags[5:] == ("-O3",)
    assert result(backend._build(TWICE, "twice")) == 42
    with pytest.raises(CompilerError):
        ml.CBackend(compiler=compiler, flags="-march=native")


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceNotAvailable, match="none of cc, gcc, clang") as raised:
        ml.CBackend()
    assert "apt-get install gcc" in raised.value.hint
    with pytest.raises(DeviceNotAvailable, match="no C compiler 'tcc'"):
        ml.CBackend(compiler="tcc")
    assert ml.CBackend is not None and isinstance(ml.get_backend("numpy"), ml.NumpyBackend)


def test_import_needs_no_compiler(tmp_path):
    code = "import mithril as ml; from mithril import *; print(ml.CBackend.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "CBackend\n"


def test_a_compiler_that_fails(script, folder):
    broken = script('echo "no disk" >&2; exit 3')
    with pytest.raises(CompilerError, match="failed with exit status 3:\nno disk"):
        ml.CBackend(compiler=broken)
    backend = ml.CBackend()
    with pytest.raises(CompilerError, match="nonsense") as raised:
        backend._build("nonsense;\n#error here\n", "broken")
    assert raised.value.code == "MTH804" and isinstance(raised.value, RuntimeError)
    assert not folder.exists() or not objects(folder)


def test_a_compiler_that_is_killed(script, folder):
    with pytest.raises(CompilerError, match="was killed by SIGKILL") as raised:
        ml.CBackend(compiler=script("kill -9 $$"))
    assert raised.value.hint == "is memory short?"


def test_a_compiler_that_writes_nothing(script, folder):
    with pytest.raises(CompilerError, match="wrote no object, and said:\nas if"):
        ml.CBackend(compiler=script("echo as if"))


def test_no_temporary_files(folder, monkeypatch):
    backend = ml.CBackend()
    monkeypatch.setattr(utils.tempfile, "TemporaryDirectory", lambda **_: Path("/no/such").stat())
    with pytest.raises(CompilerError, match="no file can be written for .*: .*No such file"):
        backend._build(TWICE, "twice")


def test_a_compiler_that_is_no_program(tmp_path, folder):
    path = tmp_path / "text"
    path.write_bytes(b"\x7fELF nothing of the kind")
    path.chmod(0o755)
    with pytest.raises(CompilerError, match="cannot be run"):
        ml.CBackend(compiler=path)


def test_what_a_compiler_prints_is_bounded(script, folder):
    endless = script("head -c 10000000 /dev/zero | tr '\\0' x; exit 1")
    with pytest.raises(CompilerError) as raised:
        ml.CBackend(compiler=endless)
    assert len(str(raised.value)) < 8000


def test_warnings_are_shown(folder):
    backend = ml.CBackend(flags="-O1 -Wunused-variable")
    text = "int twice(int x) { int unused = 1; return 2 * x; }"
    with pytest.warns(CompilerWarning, match="unused variable 'unused'|unused variable ‘unused’"):
        path = backend._build(text, "twice")
    assert result(path) == 42


BAD = [
    ({"compiler": 7}, SignatureError),
    ({"compiler": ""}, ArgumentError),
    ({"compiler": "c\0c"}, ArgumentError),
    ({"flags": 7}, SignatureError),
    ({"flags": [7]}, SignatureError),
    ({"flags": "-D'open"}, ArgumentError),
    ({"flags": ["-D\0"]}, ArgumentError),
    ({"flags": "-march=no-such-one"}, CompilerError),
    ({"flags": "-O3 -ffast-math"}, ArgumentError),  # NaN would be 0, and the processor's mode other
    ({"flags": "-fsanitize=address"}, ArgumentError),  # its runtime would end the process
    ({"threads": 0}, ArgumentError),
    ({"threads": 2.0}, SignatureError),
    ({"cache": "yes"}, SignatureError),
    ({"dtype": "int32"}, DTypeError),
    ({"device": "cuda"}, DeviceNotAvailable),
    ({"optimize": 3}, SignatureError),
]


FLAGS_REFUSED = {
    "changes what the text means": ["-Dfloat=double", "-DTWO=2", "-UTWO", "-I/usr/include",
                                    "-include", "-imacros", "-funsigned-char", "-fshort-enums"],
    "changes results": ["-Ofast", "-ffast-math", "-ffp-contract=fast", "-std=gnu89", "-ansi",
                        "-fstrict-aliasing", "-mfpmath=387", "-mrecip", "-mdaz-ftz"],
    "takes functions from the object": ["-fvisibility=hidden", "-s", "-nostdlib"],
    "makes code for other callers": ["-m32", "-mx32", "-mabi=ms", "-mregparm=3"],
    "makes no shared object": ["-shared", "-c", "-E", "-S", "-o", "-omodel", "-x", "-M", "-MMD",
                               "-r", "-fsyntax-only", "-static", "-pie", "-v", "-save-temps"],
    "makes models write files": ["--coverage", "-pg", "-fprofile-generate"],
    "needs a runtime": ["-fsanitize=undefined"],
    "is no flag": ["model.c", "-", "@flags"],
    "is of no kind that is taken": ["-Wl,-s", "-Wp,-Dx", "-Wa,-x", "-fplugin=x", "-specs=x", "-B/x",
                                    "-O9", "-O3 -g", "-lm", "-Xlinker", "-wrapper", "-ftrapv"],
}  # fmt: skip


@pytest.mark.parametrize("why", FLAGS_REFUSED)
def test_flags_that_change_the_program_are_refused(why, folder):
    for flag in FLAGS_REFUSED[why]:
        with pytest.raises(ArgumentError, match=f"'{re.escape(flag)}' {why}") as raised:
            ml.CBackend(flags=["-O2", flag])
        assert "warnings (-Wall" in raised.value.hint


def test_flags_that_optimize_are_taken(folder):
    taken = "-O3 -march=native -mtune=native -mfma -funroll-loops -fno-inline -flto -fPIC -Wall -g3"
    backend = ml.CBackend(flags=f"{taken} -fno-tree-vectorize -L/nowhere -std=c99 -pipe -w")
    assert result(backend._build(TWICE, "twice")) == 42


OWN_FLAGS = {
    "-Dfloat=double": "float has 8 bytes",
    "-Dmithril_probe=other": "cannot be used here: .*mithril_probe",
    "-fvisibility=hidden": "cannot be used here: .*mithril_probe",
    "-O3 -march=native -ffast-math": "NaN is left out",
    "-O3 -mfma -ffp-contract=fast": "products are fused with sums",
    "-O3 -fassociative-math -fno-signed-zeros": "sums are in another order",
    "-O3 -mfpmath=387 -fexcess-precision=fast": "numbers have more digits than float32",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86-64")
@pytest.mark.parametrize("flags", OWN_FLAGS)
def test_compilers_with_flags_of_their_own(flags, script, folder):
    """They make other programs: what they make is looked at before a model's is."""
    with pytest.raises(CompilerError, match=OWN_FLAGS[flags]):
        ml.CBackend(compiler=script(f'exec gcc "$@" {flags}'))


def test_instructions_that_the_processor_lacks(script, folder, tmp_path):
    trap = tmp_path / "trap.h"
    trap.write_text("__attribute__((constructor)) static void trap(void) { __builtin_trap(); }")
    with pytest.raises(CompilerError, match="cannot be used here: a call ends with signal"):
        ml.CBackend(compiler=script(f'exec cc "$@" -include {trap}'))


@pytest.mark.parametrize(("options", "error"), BAD, ids=[str(options) for options, _ in BAD])
def test_arguments_that_are_refused(options, error, folder):
    with pytest.raises(error):
        ml.CBackend(**options)


def test_a_backend_can_be_pickled(folder):
    backend = ml.CBackend(dtype="float64", flags="-O1", threads=2)
    copy = pickle.loads(pickle.dumps(backend))
    assert (copy.flags, copy.threads, copy.default_dtype) == (backend.flags, 2, "float64")


# --- objects on disk ------------------------------------------------------------------------------


def counted(backend):
    """A list that grows with every object that is made."""
    made, make = [], backend._compiler.shared_object

    class Counting(Compiler):
        def shared_object(self, text, name):
            made.append(name)
            return make(text, name)

    of = backend._compiler
    backend._compiler = Counting(of.path, of.flags, of.identity)
    return made


def test_an_object_is_made_once(folder):
    for expected in ([1], []):
        backend = ml.CBackend()
        made = counted(backend)
        paths = {backend._build(TWICE, "twice") for _ in range(2)}
        assert len(paths) == 1 and len(made) == len(expected)
    assert len(objects(folder)) == 1


def test_keys_tell_texts_flags_and_compilers_apart(script, folder):
    backends = [ml.CBackend(), ml.CBackend(flags="-O1"), ml.CBackend(compiler=script('cc "$@"'))]
    keys = {backend._compiler.key_of(text) for backend in backends for text in (TWICE, "")}
    assert len(keys) == 6


def test_a_newer_compiler_makes_objects_anew(script, folder):
    path = script('exec cc "$@"')
    old = ml.CBackend(compiler=path)
    time.sleep(0.01)
    script('exec cc -D__VERSION__=\\"new\\" "$@"')
    with_new = ml.CBackend(compiler=path, flags="-w -O3")
    assert old._compiler.key_of(TWICE) != with_new._compiler.key_of(TWICE)


def test_without_a_cache_nothing_is_kept(folder):
    backend = ml.CBackend(cache=False)
    made = counted(backend)
    path = backend._build(TWICE, "twice")
    assert result(path) == 42 and not folder.exists()
    assert backend._build(TWICE, "twice") == path and len(made) == 1


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damaged_objects_are_made_again(damage, folder):
    backend = ml.CBackend()
    path = Path(backend._build(TWICE, "twice"))
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    path.write_bytes({"cut": whole[:-1000], "changed": bytes(changed), "empty": b""}[damage])
    assert result(backend._build(TWICE, "twice")) == 42
    assert path.read_bytes() == whole


@pytest.mark.parametrize("kind", ["file", "read-only", "others", "link"])
def test_folders_that_cannot_be_used(kind, folder, monkeypatch):
    if kind == "file":
        folder.parent.mkdir()
        folder.write_text("no folder")
    elif kind == "link":
        folder.parent.mkdir()
        folder.symlink_to("/proc")
    else:
        folder.mkdir(parents=True)
        folder.chmod(0o777 if kind == "others" else 0o500)
    if kind == "read-only" and os.getuid() == 0:  # root may write anywhere

        def refuses(*_):
            raise PermissionError("read-only file system")

        monkeypatch.setattr(object_cache, "replacing", _refusing(object_cache.replacing, folder))
    path = ml.CBackend()._build(TWICE, "twice")
    assert result(path) == 42 and Path(path).parent != folder


def _refusing(real, folder):
    def replacing(what, path):
        if Path(path).parent == folder:
            raise OSError(30, "Read-only file system")
        return real(what, path)

    return replacing


def test_a_full_disk(folder, monkeypatch):
    def full(what, path):
        if Path(path).parent == folder:
            raise OSError(28, "No space left on device")
        return real(what, path)

    real = object_cache.replacing
    monkeypatch.setattr(object_cache, "replacing", full)
    backend = ml.CBackend()
    path = backend._build(TWICE, "twice")
    assert result(path) == 42 and not objects(folder)
    assert backend._build(TWICE, "twice") == path


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
@pytest.mark.parametrize("option", ["ro", "size=8k"])
def test_mounted_folders(option, folder):
    """A file system that is read-only or full: objects live in the process, as if it were away."""
    folder.mkdir(parents=True)
    mount = f"mount -t tmpfs -o {option},mode=700 none '{folder}'"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    program = [sys.executable, "-c", PROGRAM, str(folder.parent), "cc", "2"]
    listed = [sys.executable, "-c", "import os, sys; print(os.listdir(sys.argv[1]))", str(folder)]
    script = f"{mount} && {shlex.join(program)} && {shlex.join(listed)}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_folder_is_the_users_alone(folder):
    ml.CBackend()._build(TWICE, "twice")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_cache_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(object_cache, "MOST_BYTES", 2500)
    store = ObjectCache(folder)
    for i in range(5):
        path = store.path(f"{i}", lambda i=i: bytes([i]) * 1000)
        os.utime(path, (i, i))
    assert objects(folder) == ["3.so", "4.so"]
    assert store.path("3", lambda: pytest.fail("it is there")) and store.path(
        "9", lambda: b"9" * 1000
    )
    assert objects(folder) == ["3.so", "9.so"]  # 3 was used after 4


def test_what_was_left_behind_is_removed(folder):
    store = ObjectCache(folder)
    store.path("a", lambda: b"a")
    (folder / ".b.so.00.tmp").write_bytes(b"old")
    (folder / ".c.so.00.tmp").write_bytes(b"young")
    os.utime(folder / ".b.so.00.tmp", (1, 1))
    store.path("d", lambda: b"d")
    assert objects(folder) == [".c.so.00.tmp", "a.so", "d.so"]


def test_the_folder_of_the_process_is_made_again(folder):
    """What removes old files from the system's folder may take it."""
    path = Path(ml.CBackend(cache=False)._build(TWICE, "twice"))
    shutil.rmtree(path.parent)
    again = Path(ml.CBackend(cache=False)._build(TWICE, "twice"))
    assert result(again) == 42 and again.parent != path.parent


def test_an_object_that_cannot_be_written(folder, monkeypatch):
    monkeypatch.setattr(object_cache, "_folder_of_process", lambda: "/no/such/folder")
    with pytest.raises(CompilerError, match="an object cannot be written: .*No such file"):
        ml.CBackend(cache=False)._build(TWICE, "twice")


PROGRAM = """
import ctypes, sys, mithril as ml
from mithril.backends.with_manualgrad import object_cache
object_cache._core.cache_dir = lambda: sys.argv[1]
backend = ml.CBackend(compiler=sys.argv[2])
for i in range(int(sys.argv[3])):
    path = backend._build("int twice(int x) { return 2 * x + %d; }" % i, "twice")
    assert ctypes.CDLL(path).twice(21) == 42 + i
"""


def started(folder, compiler="cc", count=4):
    command = [sys.executable, "-c", PROGRAM, str(folder.parent), compiler, str(count)]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)


def test_processes_that_compile_the_same_text(folder):
    processes = [started(folder) for _ in range(4)]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert len(objects(folder)) == 4


def test_kill_while_compiling(script, folder):
    """Everybody is killed while the compiler runs."""
    going = folder.parent / "going"
    slow = script(f'if [ -e "{going}" ]; then echo >> "{going}"; sleep 60; fi\nexec cc "$@"')
    folder.parent.mkdir(parents=True)
    going.touch()
    process = started(folder, slow)
    while not going.stat().st_size:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    going.unlink()
    assert started(folder, slow).wait() == 0
    assert len(objects(folder)) == 4


def test_kill_at_any_moment(folder):
    """What is in the folder afterwards is whole, whenever a process was killed."""
    for delay in (0.3, 0.4, 0.5, 0.6, 0.7):
        process = started(folder, count=1000)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    paths = list(folder.glob("*.so")) if folder.exists() else []
    assert all(ObjectCache(folder)._found(path.stem) == str(path) for path in paths)


def test_the_folder_of_the_process_goes_with_it(tmp_path):
    code = (
        "import ctypes, mithril as ml; path = ml.CBackend(cache=False)._build('int i;', 'i')\n"
        "ctypes.CDLL(path); print(path)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    path = Path(out.stdout.strip())
    assert path.name.endswith(".so") and not path.parent.exists()
