# SPDX-License-Identifier: BSD-3-Clause
"""rdma-core's own test suite: its files, the Python that runs them, and what became of each test.

No file of it is ours: it is taken from the package that has it, into a temporary folder.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.programs.pair import NUPA
from nupa.topology.topology import SegmentConfig, star

HERE = Path(__file__).parent
RUNNER = HERE / "runner.py"
DEBIAN_TESTS = Path("/usr/share/doc/rdma-core/tests")
PYPI = HERE.parents[1] / "build" / "pyverbs"  # made by build_pyverbs
PYPI_VERSION = 59
POOL_BYTES = 64 << 20  # the suite takes half of the device memory that there is
DEADLINE_S = 60.0  # of a module: what takes longer hangs

#: Modules for what only these devices have; the others are the generic ones.
PROVIDERS = ("test_mlx5", "test_efa", "test_cuda")


@dataclass(frozen=True)
class Outcome:
    """The result of a test: ok, skipped, failed; *text* is the reason."""

    id: str
    outcome: str
    text: str
    seconds: float = 0.0

    @property
    def generic(self) -> bool:
        return not self.id.split(".")[1].startswith(PROVIDERS)


@dataclass(frozen=True)
class Suite:
    """One version of the suite, unpacked, and the command that runs it, with its environment."""

    version: int
    folder: Path
    python: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()

    def run(self, scratch: Path) -> list[Outcome]:
        """Runs all of it, each generic module on a fabric of its own: an outcome for each test."""
        modules = sorted(path.stem for path in self.folder.glob("tests/test_*.py"))
        parts = [[module] for module in modules if not module.startswith(PROVIDERS)]
        parts.append([module for module in modules if module.startswith(PROVIDERS)])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            done = pool.map(lambda part: self._run_part(part, scratch / part[0]), parts)
        return [outcome for part in done for outcome in part]

    def _run_part(self, modules: Sequence[str], scratch: Path) -> list[Outcome]:
        scratch.mkdir()
        listed, results = scratch / "listed", scratch / "results"
        seed = str(random.randrange(1 << 32))
        said = self.execute(RUNNER, [seed, str(listed), str(results), *modules], scratch)
        if not listed.exists():
            return [Outcome(f"tests.{module}", "failed", said) for module in modules]
        lines = results.read_text().splitlines() if results.exists() else []
        outcomes = [Outcome(**json.loads(line)) for line in lines]
        # Players in processes of their own say there what went wrong.
        outcomes = [
            replace(outcome, text=f"{outcome.text}\nseed {seed}; written meanwhile:\n{said}")
            if outcome.outcome == "failed"
            else outcome
            for outcome in outcomes
        ]
        missing = set(listed.read_text().split()) - {outcome.id for outcome in outcomes}
        return outcomes + [
            Outcome(test, "failed", f"was never done (seed {seed}):\n{said}") for test in missing
        ]

    def execute(self, script: Path, arguments: Sequence[str], scratch: Path) -> str:
        """Runs *script* on a host of a fabric, with both its devices; what was written, and how it
        ended."""
        command = [*self.python, str(script), *arguments]
        topology = star(2)
        topology.segment = SegmentConfig(pool_bytes=POOL_BYTES)
        name = f"{scratch.name}-{os.getpid()}"
        with Fabric.create(name, topology, auto=True) as fabric:
            place = ["--net", "--fabric", fabric.name, "--host", "host0"]
            with subprocess.Popen(
                [*NUPA, "run", *place, "--", *command],
                cwd=self.folder,
                env=dict(os.environ, **dict(self.env)),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            ) as process:
                try:
                    said, _ = process.communicate(timeout=DEADLINE_S)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    said = f"{process.communicate()[0]}\nnot done after {DEADLINE_S:g} s: killed"
                    # Its interface went with it; the files did not.
                    subprocess.run([*NUPA, "net", "down", "--fabric", fabric.name], check=True)
        return f"{said}\nended with {process.returncode}"


@dataclass(frozen=True)
class Skip:
    """Why a test is skipped, and what the suite says then."""

    because: str
    says: str


def read_skips(version: int) -> dict[str, Skip]:
    """Returns the checked-in table of that version of the suite, by test."""
    with (HERE / f"skips_v{version}.toml").open("rb") as file:
        groups = tomllib.load(file)["skip"]
    tests = [test for group in groups for test in group["tests"]]
    assert len(tests) == len(set(tests)), "a test stands twice in the table"
    return {
        f"tests.{test}": Skip(group["because"], group["says"])
        for group in groups
        for test in group["tests"]
    }


def unexpected(outcomes: Iterable[Outcome], skips: dict[str, Skip]) -> list[str]:
    """Lists failures, and skips that the table lacks or has for another reason."""
    found = []
    for outcome in outcomes:
        if outcome.outcome == "failed":
            found.append(f"{outcome.id} failed: {outcome.text}")
        elif outcome.outcome == "skipped" and outcome.generic:
            skip = skips.get(outcome.id)
            if skip is None or skip.says not in outcome.text:
                found.append(f"{outcome.id} was skipped: {outcome.text}")
    return found


def debian_version() -> int:
    """Returns the major version of the system's rdma-core, whose package has the tests."""
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "rdma-core"], capture_output=True, text=True
    )
    if shown.returncode or not (DEBIAN_TESTS / "run_tests.py").exists():
        pytest.skip("there is no rdma-core with its tests: .ci/setup packages test")
    return int(shown.stdout.split(".")[0])


def unpack_debian(folder: Path) -> None:
    """Copies Debian's files into *folder*/tests; the larger ones are compressed."""
    target = folder / "tests"
    target.mkdir()
    for path in DEBIAN_TESTS.iterdir():
        if path.suffix == ".gz":
            (target / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copy(path, target)


def unpack_pypi(folder: Path) -> None:
    """Copies the files of the sdist of PyPI's pyverbs into *folder*/tests."""
    if not (PYPI / "python").exists():
        pytest.skip("PyPI's pyverbs is not built: make build/pyverbs/built")
    shutil.copytree(PYPI / "tests", folder / "tests")
