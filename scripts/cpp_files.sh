#!/bin/bash
# The C and C++ files that are ours.
find csrc tests/cpp -name '*.h' -o -name '*.cc' -o -name '*.c' | sort
