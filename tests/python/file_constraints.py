"""Constraints of models that tests write to files, registered once."""

import functools

import mithril as ml


@ml.constraints.register
def equal_rows(a, b):
    """Equal sizes of the first axes."""
    if not a.shape or not b.shape:
        return False
    a.tie(0, b, 0)
    return True


@functools.partial(ml.constraints.register, name="a name of\nmy own é\0")
def widen(*edges):
    for edge in edges[1:]:
        if edges[0].shape and None not in edges[0].shape:
            edge.set_shape([len(edges), *edges[0].shape])
