#!/bin/bash
# What to type to use the package from a shell.
echo "ready: . .venv/bin/activate && export PYTHONPATH=$PWD/python"
