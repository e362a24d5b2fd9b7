"""Every test here runs over each store by the `backend` fixture. Rows have ids of their own: nothing is cleared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.simulation.kernel import Kernel
from tests.simulation.table import SimulatedTable
from tests.simulation.weather import Weather
from tests.support.stores import TABLE, Backend, directly, embedded_backend, memory_backend, moto_backend


@pytest.fixture(scope="module")  # not longer: moto's mock reaches every botocore client of the process
def _moto() -> Iterator[Backend]:
    with moto_backend() as backend:
        yield backend


@pytest.fixture(scope="session")
def _embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with embedded_backend(tmp_path_factory.mktemp("embedded") / "state") as backend:
        yield backend


@pytest.fixture(scope="session")
def _direct(_embedded: Backend) -> Backend:
    return directly(_embedded)


def _simulated() -> Backend:
    """The simulator's table, its index without a lag."""
    return Backend("simulated", SimulatedTable(Kernel(1), Weather(lag=0), table=TABLE).execute)


@pytest.fixture(params=["memory", "simulated", "moto", "embedded", "direct"])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "memory":
        return memory_backend()
    if request.param == "simulated":
        return _simulated()
    found: Backend = request.getfixturevalue(f"_{request.param}")
    return found


_numbers = itertools.count(1)


@pytest.fixture
def new_id() -> Callable[[], str]:
    """Ids no other test of this run has used."""
    return lambda: f"t{next(_numbers):05d}"
