import pytest

from layer import Server


@pytest.fixture
def serve():
    servers = []

    def start(**options):
        servers.append(Server(**options))
        return servers[-1]

    yield start
    for s in servers:
        if s.process.poll() is None:
            s.stop()
