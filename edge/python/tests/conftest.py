import pytest

import fluvial


@pytest.fixture
def federation():
    with fluvial.testing.LocalFederation(sites=4, aggregators=2) as local:
        yield local
