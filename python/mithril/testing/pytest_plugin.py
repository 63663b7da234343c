"""The pytest plug-in: backends as a fixture, and checks of models on all of them.

`--mithril-backends=numpy,torch` says which backends there are. A test that takes the fixture
`backend` runs once on each; `assert_same_on_all_backends(model, shapes=…)` and
`assert_gradients(model, shapes=…)` fail with the report of what differs. A `backend` fixture or
parameter of one's own takes the place of this one. The suite of all ops runs by
``pytest --pyargs mithril.testing --mithril-backend=NAME``.

Importing this module loads neither an array library nor the engine.
"""

from __future__ import annotations

from typing import Any

import pytest

DEFAULT = "numpy,cpu"
_NAME = "mithril_backend_name"  # parametrised in place of `backend`, which others may define
_OP = "mithril_op_name"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("mithril").addoption(
        "--mithril-backends",
        "--mithril-backend",
        dest="mithril_backends",
        metavar="NAMES",
        default=DEFAULT,
        help=f"backends to run, by comma (default: {DEFAULT})",
    )


def _names(config: pytest.Config) -> list[str]:
    given = config.getoption("mithril_backends")
    names = [name.strip() for name in given.split(",") if name.strip()]
    from mithril.backends.registry import available_backends
    from mithril.errors import suggestion

    known = available_backends()
    for name in names:
        if name not in known:
            raise pytest.UsageError(
                f"--mithril-backends: no backend named {name!r}{suggestion(name, known)};"
                f" known: {', '.join(known)}"
            )
    return names


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if _NAME in metafunc.fixturenames:
        metafunc.parametrize(_NAME, _names(metafunc.config), scope="session")
    if _OP in metafunc.fixturenames:
        from mithril.testing.backend_tests import CREATION, op_names

        metafunc.parametrize(_OP, [*CREATION, *op_names()])


def _made(name: str) -> Any:
    from mithril.backends.registry import get_backend
    from mithril.errors import DeviceNotAvailable

    try:
        return get_backend(name)
    except DeviceNotAvailable as error:
        return pytest.skip(str(error).splitlines()[0])


@pytest.fixture(scope="session")
def backend(mithril_backend_name: str) -> Any:
    """Each backend of `--mithril-backends` in turn; the test is skipped where it is missing."""
    return _made(mithril_backend_name)


@pytest.fixture
def assert_same_on_all_backends(request: pytest.FixtureRequest) -> Any:
    """`mithril.testing.assert_same_on_all_backends` with the backends of `--mithril-backends`."""
    from mithril.testing import assertions

    def check(model: Any, backends: Any = None, **options: Any) -> Any:
        chosen = _names(request.config) if backends is None else backends
        return assertions.assert_same_on_all_backends(model, chosen, **options)

    return check


@pytest.fixture
def assert_gradients(request: pytest.FixtureRequest) -> Any:
    """`mithril.testing.assert_gradients` with the backends of `--mithril-backends`."""
    from mithril.testing import assertions

    def check(model: Any, backends: Any = None, **options: Any) -> Any:
        chosen = _names(request.config) if backends is None else backends
        return assertions.assert_gradients(model, chosen, **options)

    return check


__all__ = ["assert_gradients", "assert_same_on_all_backends", "backend"]
