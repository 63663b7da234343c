#!/bin/bash
# The C and C++ files that are ours.
find csrc tests/cpp tests/fuzz tests/emulated_cuda -name '*.h' -o -name '*.cc' -o -name '*.c' | sort
