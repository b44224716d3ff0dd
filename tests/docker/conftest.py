"""An engine, and what runs on it for a whole session: NATS, a control plane, the image under test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support import containers
from support.buses import NatsBackend
from support.containers import ControlPlane, Engine, NatsContainer


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with containers.engine() as found:
        yield found


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    return containers.built_image(engine)


@pytest.fixture(scope="session")
def control_plane(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with containers.control_plane(engine, tmp_path_factory.mktemp("control-plane")) as started:
        yield started


@pytest.fixture
def nats_container(engine: Engine) -> Iterator[NatsContainer]:
    with NatsContainer(engine) as server:
        yield server


@pytest.fixture
async def nats_backend(nats_container: NatsContainer) -> AsyncIterator[NatsBackend]:
    """Takes the place of the one with a server process, so that the bus's contracts run here as they stand."""
    backend = NatsBackend(nats_container)
    yield backend
    await backend.close()
