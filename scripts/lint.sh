#!/bin/bash
# Every check runs, whatever the ones before it found.
status=0
step() {
  echo "== $1"
  shift
  "$@" || status=1
}
format_cpp() { scripts/cpp_files.sh | xargs clang-format --dry-run -Werror; }
python=.venv/bin/python

step "clang-format" format_cpp
step "clang-tidy" $python scripts/tidy.py --jobs "${JOBS:-2}"
step "ruff check" $python -m ruff check .
step "ruff format" $python -m ruff format --check .
step "mypy" $python -m mypy
step "types in README, docs and examples" $python scripts/check_types.py
[ $status = 0 ] && echo "lint: clean" || echo "lint: findings above"
exit $status
