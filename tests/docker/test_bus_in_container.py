"""The bus's contracts on the NATS server of the image that a cluster runs, instead of the one from PyPI."""

from __future__ import annotations

import pytest

from contracts.bus.test_contract_history import HistoryContract
from contracts.bus.test_contract_publisher import PublisherContract
from contracts.bus.test_contract_transport import TransportContract
from support.buses import OnNats

pytestmark = [
    pytest.mark.docker,
    # A published port takes connections while the server behind it is away, and the library forgets such a connection unclosed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class TestContainerTransport(OnNats, TransportContract):
    pass


class TestContainerPublisher(OnNats, PublisherContract):
    pass


class TestContainerHistory(OnNats, HistoryContract):
    pass
