#!/bin/bash
# Installs what a purpose (build | test | lint | check) needs from the system when root, else prints the
# one line to type. Looks for the things themselves, so any way of installing them will do.
set -eu

missing=()
need_command() { command -v "$1" >/dev/null || missing+=("$2"); }
need_header() {
  echo "#include <$1>" | ${CXX:-c++} -std=c++20 -E -x c++ - >/dev/null 2>&1 || missing+=("$2")
}

case "$1" in
  build)
    need_command c++ g++
    need_command cmake cmake
    need_command ninja ninja-build
    need_command ccache ccache
    need_header gtest/gtest.h libgtest-dev
    need_header gmock/gmock.h libgmock-dev
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    python3 -c 'import os, sys, sysconfig as s
sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || missing+=(python3-dev)
    ;;
  test)
    # A device for printed OpenCL; its tests are skipped without one.
    ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || missing+=(pocl-opencl-icd)
    /sbin/ldconfig -p 2>/dev/null | grep -q libOpenCL.so.1 || missing+=(ocl-icd-libopencl1)
    need_command oclgrind oclgrind  # runs kernels step by step
    ;;
  lint)
    need_command clang-format clang-format
    need_command clang-tidy clang-tidy
    ;;
  check)
    need_command clang++ clang
    # The sanitizers' run time is a package of its own, one for each version of clang.
    if ! echo 'int main() {}' | clang++ -fsanitize=thread -x c++ - -o /dev/null 2>/dev/null; then
      version=$(clang++ -dumpversion 2>/dev/null || echo 14)
      missing+=("libclang-rt-${version%%.*}-dev")
    fi
    ;;
esac

[ ${#missing[@]} -gt 0 ] || exit 0
line="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" != 0 ]; then
  printf 'missing system packages; as root, type:\n  apt-get update && %s\n' "$line" >&2
  [ "$1" = test ]
  exit
fi
echo "installing system packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
$line -qq </dev/null >/tmp/mithril-apt.log 2>&1 || { cat /tmp/mithril-apt.log; exit 1; }
