"""Looks for links that lead nowhere, in a folder of pages and in what they lead to."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_FENCE = re.compile(r"^(```+|~~~+).*?^\1 *$", re.MULTILINE | re.DOTALL)
_OPEN_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\(<?([^()<>\s]*(?:\([^()\s]*\)[^()<>\s]*)*)>?(?:\s+\"[^\"]*\")?\)")
_DEFINED = re.compile(r"^ {0,3}\[[^\]]+\]: +(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#* *$", re.MULTILINE)
_ID = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def problems(folder: Path) -> list[str]:
    """Names each link, anchor and page of a folder that is wrong; nothing is fetched.

    Pages outside of the folder are read, too, where a page leads to them. Where there is an
    ``index.md``, each page of the folder must be found from it.
    """
    _text.cache_clear()
    pages = {page.resolve() for page in folder.glob("*.md")}
    found, unread, read = [], sorted(pages), set()
    while unread:
        page = unread.pop(0)
        if page in read:
            continue
        read.add(page)
        found += [f"{_shown(page, folder)}: {what}" for what in _wrong_in(page)]
        unread += [target for target in _targets(page) if target.suffix == ".md"]
    index = (folder / "index.md").resolve()
    lost = pages - _reachable(index) if index in pages else set()
    return found + [f"{_shown(page, folder)}: no link leads here from index.md" for page in
                    sorted(lost)]  # fmt: skip


def _shown(page: Path, folder: Path) -> Path:
    root = folder.resolve().parent
    return page.relative_to(root) if page.is_relative_to(root) else page


def _reachable(page: Path) -> set[Path]:
    found, unread = set(), [page]
    while unread:
        page = unread.pop()
        if page not in found:
            found.add(page)
            unread += [target for target in _targets(page) if target.suffix == ".md"]
    return found


def _wrong_in(page: Path) -> Iterator[str]:
    text = _text(page)
    if _OPEN_FENCE.search(_FENCE.sub("", text)):
        yield "a block of code is not closed"
    for link in _links(page):
        problem = _problem(page, link)
        if problem:
            yield f"{link}: {problem}"


def _problem(page: Path, link: str) -> str:
    """Says why a link is broken; "" where it is not."""
    if _SCHEME.match(link):
        return _problem_of_address(link)
    path, _, anchor = link.partition("#")
    target = _resolved(page, path)
    if not link or not target.exists():
        return "there is no such file"
    if anchor and target.suffix == ".md" and anchor not in _anchors(target):
        return "the page has no such heading"
    return ""


def _problem_of_address(link: str) -> str:
    parts = urllib.parse.urlsplit(link)
    if parts.scheme == "mailto":
        return "" if "@" in parts.path else "this is no address"
    if parts.scheme not in ("https", "http"):
        return "https is required"
    return "" if "." in parts.netloc else "this is no address"


def _resolved(page: Path, path: str) -> Path:
    return (page.parent / urllib.parse.unquote(path)).resolve() if path else page


def _targets(page: Path) -> list[Path]:
    """Returns the files that a page links to."""
    local = [link.partition("#")[0] for link in _links(page) if not _SCHEME.match(link)]
    paths = [_resolved(page, path) for path in local if path]
    return [path for path in paths if path.is_file()]


@cache
def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _links(page: Path) -> list[str]:
    """Returns the links of a page as they are written, without those in code."""
    text = _CODE.sub("", _FENCE.sub("", _text(page)))
    return [*_LINK.findall(text), *_DEFINED.findall(text)]


def _anchors(page: Path) -> set[str]:
    """The names of a page's headings as GitHub makes them, and those that the page states."""
    text = _FENCE.sub("", _text(page))
    found: dict[str, int] = {}
    names = set(_ID.findall(text))
    for heading in _HEADING.findall(text):
        name = _anchor(heading)
        count = found.get(name, 0)
        found[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def _anchor(heading: str) -> str:
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


__all__ = ["problems"]
