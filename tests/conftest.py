# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of tests in several folders."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.programs.users import User

# A busy machine is slow: that is not a failure of an example.  One profile for all: who
# loads another one loads it for every folder.
hypothesis.settings.register_profile(
    "nupa",
    hypothesis.settings(),
    max_examples=100 if os.environ.get("NUPA_THOROUGH") else 25,
    deadline=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("nupa")


# A shell that starts us in the background has these ignored, and programs that we start inherit it.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(
            _number,
            signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL,
        )

#: Matrices of real programs and long runs, below tests/: `make check` has them, `make test` not.
SLOW = (
    "browser/",
    "cross/test_collectives.py",
    "ecosystem/",
    "net/traffic/test_bulk.py",
    "net/measure/test_benchmarks.py",
    "net/traffic/test_outages.py",
    "net/traffic/test_rdma_and_tcp.py",
    "packet/replay/test_captures.py",
    "programs/pages/",
    "programs/verbs/test_busy.py",
    "programs/rdmacm/test_cm_faults.py",
    "soak/",
    "suites/",
    "trunk/test_deaths.py",
    "trunk/test_devices.py",
    "trunk/test_programs.py",
    "trunk/test_start.py",
    "unit/collectives/test_docs.py",
    "unit/cxl/fm/test_soak.py",
    "unit/measure/test_command.py",
    "unit/measure/test_suite.py",
    "unit/fabric/test_fault_mixtures.py",
    "unit/packet/test_transport.py",
    "unit/model/test_command.py",
    "unit/model/test_validate.py",
    "wire/programs/",
    "wire/test_capture.py",
    "wire/test_losses.py",
    "wire/test_mtu.py",
    "wire/test_raw.py",
)
#: Of tests of real processes `make test` takes the mover that the engine chooses, and ourselves.
OTHER_WAYS = {"cma", "relay", "pool", "denied", "nobody"}
_REAL_PROCESSES = ("cross/", "net/", "programs/")
_TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is slow: by its file, or by its parameters."""
    for item in items:
        where = item.path.relative_to(_TESTS).as_posix()
        callspec = getattr(item, "callspec", None)
        ways = [way for way in callspec.params.values() if isinstance(way, str)] if callspec else []
        if where.startswith(SLOW) or (
            where.startswith(_REAL_PROCESSES) and not OTHER_WAYS.isdisjoint(ways)
        ):
            item.add_marker(pytest.mark.slow)


#: Skips that no package ends: the test is of another user than the one that runs it.
_OF_ANOTHER_USER = ("root may ", "we are an ordinary user", "only root ", "guests are not wanted")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails skipped tests under NUPA_SKIPS=fail, as CI sets it: the machine lacks something for
    them."""
    report = yield
    if (
        os.environ.get("NUPA_SKIPS") == "fail"
        and report.skipped
        and not hasattr(report, "wasxfail")
    ):
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(_OF_ANOTHER_USER):
            report.outcome = "failed"
            report.longrepr = f"skipped, which NUPA_SKIPS=fail forbids: {reason}"
    return report


@pytest.fixture(scope="session")
def nobody() -> Iterator[User]:
    """uid 65534, who may not read where we live, and has no privileges."""
    # Here: it imports pyroute2, which most tests do without.
    from tests.programs import users

    if os.geteuid() != 0:
        pytest.skip("only root can become another user; ours is an ordinary one, and is tested")
    folder = Path(tempfile.mkdtemp(prefix="nupa-test-"))
    yield users.nobody(folder)
    shutil.rmtree(folder)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of segments of this test alone; a file that is left in it at the end is a leak."""
    path = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
    monkeypatch.setenv("NUPA_DIR", str(path))
    monkeypatch.delenv("NUPA_FABRIC", raising=False)
    yield path
    left = [entry.name for entry in path.iterdir()]
    shutil.rmtree(path)
    assert left == []
