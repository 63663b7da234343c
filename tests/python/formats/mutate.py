"""Changes of JSON documents that know what a document is made of. `pick` draws: `below(count)`,
`of(items)`.
"""

import json

OTHERS = [
    *(None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e308, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1),
    *(-(2**63), 2**64, 10**30),
    *("", "x", "$1", "$99999999", "a/b", "\0", "\ud800", "\u2028"),
    *([], {}, [None], [[]], {"": 0}, [1, 2, 3], [0], [-1]),
    *({"tuple": []}, {"tuple": [0, 0]}, {"tuple": [-1, 2**62]}),
    {"tuple": [{"tuple": [{"tuple": [1]}, 2]}, "x"]},
    *({"float": "nan"}, {"float": "inf"}, {"dtype": "float"}, {"ellipsis": True}),
    *({"slice": [None, None, None]}, {"slice": [0, -1, 0]}),
    *({"variadic": ""}, {"variadic": "n"}),
    {"tensor": {}},
    {"tensor": {"dtype": "float32", "shape": [0], "data": []}},
    {"tensor": {"dtype": "int", "shape": [2**31, 2**31], "data": []}},
    {"tensor": {"dtype": "bool", "shape": [], "bytes": "AQ=="}},
]


def copied(document):
    return json.loads(json.dumps(document))


def places(document):
    """(container, key) of everything in a document."""
    out, rest = [], [document]
    while rest:
        at = rest.pop()
        keys = range(len(at)) if isinstance(at, list) else list(at)
        out += [(at, key) for key in keys]
        rest += [at[key] for key in keys if isinstance(at[key], list | dict)]
    return out


def insert(container, key, value):
    if isinstance(container, list):
        container.insert(key if isinstance(key, int) else 0, value)
    else:
        container[f"{key}"] = value


def delete(pick, document):
    container, key = pick.of(places(document))
    del container[key]


def replace(pick, document):
    container, key = pick.of(places(document))
    container[key] = copied(pick.of(OTHERS))


def replace_in_value(pick, document):
    """What ops are given: most of what can go wrong there is no matter of the grammar."""
    found = [
        (container, key)
        for container, key in places(document)
        if isinstance(container, dict)
        and container
        and key in ("attrs", "values", "value", "shape")
    ]
    if not found:
        return
    container, key = pick.of(found)
    inner = places(container[key]) if isinstance(container[key], dict | list) else []
    if inner and pick.below(4):
        container, key = pick.of(inner)
    container[key] = copied(pick.of(OTHERS))


def exchange(pick, document):
    (a, i), (b, j) = pick.of(places(document)), pick.of(places(document))
    a[i], b[j] = copied(b[j]), copied(a[i])


def double(pick, document):
    """The same once more: items, or an entry under the name of another one."""
    (a, i), (b, j) = pick.of(places(document)), pick.of(places(document))
    insert(b, j, copied(a[i]))


def rename(pick, document):
    found = [(at, key) for at, key in places(document) if isinstance(at, dict)]
    container, key = pick.of(found)
    _, other = pick.of(found)
    container[other] = container.pop(key)


def refer(pick, document):
    """A text that stands elsewhere: another wire, an ancestor for a part …"""
    found = [(at, key) for at, key in places(document) if isinstance(at[key], str)]
    if not found:
        return
    (a, i), (b, j) = pick.of(found), pick.of(found)
    a[i] = b[j]


def nest(pick, document):
    container, key = pick.of(places(document))
    value = container[key]
    wrap = pick.of([lambda v: [v], lambda v: {"tuple": [v]}, lambda v: {"model": v}])
    for _ in range(pick.of([1, 2, 20, 60])):
        value = wrap(value)
    container[key] = value


def many(pick, document):
    """An item a thousand times."""
    found = [(at, key) for at, key in places(document) if isinstance(at, list)]
    if not found:
        return
    container, key = pick.of(found)
    container[key:key] = [copied(container[key]) for _ in range(pick.of([2, 64, 1000]))]


CHANGES = [delete, replace, replace, replace_in_value, replace_in_value, exchange, double, rename,
           refer, refer, nest, many]  # fmt: skip


def mutated(pick, document):
    """A copy with one change or a few."""
    document = {"": copied(document)}  # the document itself may be changed
    for _ in range(pick.of([1, 1, 1, 2, 4])):
        if places(document):
            pick.of(CHANGES)(pick, document)
    return next(iter(document.values()), None)


def text_of(pick, document):
    """The document as text; now and then text that is no JSON, or has keys twice."""
    text = json.dumps(document, ensure_ascii=bool(pick.below(2))).encode("utf-8", "surrogatepass")
    for _ in range(pick.of([0, 0, 0, 0, 0, 0, 0, 0, 1, 3])):
        at = pick.below(len(text) + 1)
        piece = pick.of([b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\u0000", b"\xff",
                         b"1e400", b"0" * 30, b"-", b"nan", b'"a":1,', b"null", b"\0"])  # fmt: skip
        text = text[:at] + piece + text[at + pick.of([0, 1, 10]) :]
    return text
