#!/bin/bash
# The C++ tests of a build folder, shared out over JOBS processes; options of GoogleTest may follow.
# The emulator of CUDA is their driver, where there is a compiler for it.
eval "$(python3 "$(dirname "$0")/../tests/python/emulated_cuda.py")"
export GTEST_TOTAL_SHARDS=${JOBS:-$(nproc)}
processes=()
for ((i = 0; i < GTEST_TOTAL_SHARDS; i++)); do
  GTEST_SHARD_INDEX=$i "$1/mithril_tests" --gtest_brief=1 "${@:2}" &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do wait "$process" || status=1; done
exit $status
