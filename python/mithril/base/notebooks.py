"""Cells of notebooks: the number that their reader sees, in place of the file that IPython made."""

from __future__ import annotations

import linecache
import re
import sys

_labels: dict[str, str] = {}


def cell(file: str) -> str:
    """ "In[3]" for the file name of a cell's code, whose lines are found under it from then on."""
    label = _labels.get(file)
    if label is None:
        label = _labels[file] = _label(file)
        if label != file and linecache.getlines(file):
            # As IPython keeps them: without a time, so that nobody looks for the file.
            lines = linecache.getlines(file)
            linecache.cache[label] = (sum(map(len, lines)), None, lines, label)
    return label


def _label(file: str) -> str:
    shell = _shell()
    if shell is not None:
        found = shell.compile.format_code_name(file)
        if found is not None and re.fullmatch(r"In\[\d+\]", found[1].replace(" ", "")):
            return str(found[1].replace(" ", ""))
    numbered = re.match(r"<ipython-input-(\d+)-", file)
    return f"In[{numbered[1]}]" if numbered else file


def _shell():
    """IPython, where this runs in it."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


__all__ = ["cell"]
