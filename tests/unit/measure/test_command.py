# SPDX-License-Identifier: BSD-3-Clause
"""`nupa demo` as its users start it."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from nupa.fabric import registry
from nupa.netdev import state
from nupa.programs.pair import NUPA


def demo(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the demo, which leaves no fabric."""
    argv = [*NUPA, "demo", *arguments]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    ) as program:
        try:
            output, errors = program.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
    assert f"demo-{program.pid}" not in registry.names()
    return subprocess.CompletedProcess(argv, program.returncode, output, errors)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mover", ["cma", "relay"])
def test_the_demo_sends_intact_files_by_each_operation_and_leaves_no_fabric(
    mover: str, tmp_path: Path
) -> None:
    # As in a checkout of which the package was installed elsewhere.
    (tmp_path / "nupa").mkdir()
    (tmp_path / "nupa" / "__init__.py").write_text("raise ImportError('not the installed one')")
    done = demo("--quick", "--json", "--mover", mover, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert [transfer["operation"] for transfer in found["transfers"]] == ["write", "read", "send"]
    for transfer in found["transfers"]:
        assert transfer["sent_sha256"] == transfer["received_sha256"]
    assert found["mover"] == mover
    fabrics = ["ib-hdr", "roce-400", "nupa-448"]
    # On a busy machine the time may be over before a latency is measured, which a note says.
    assert [at["fabric"] for at in found["elsewhere"]] == fabrics * bool(found["latency"])
    assert "[1/7]" in done.stderr


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = demo("--plot", str(tmp_path / "demo.xyz"))
    assert done.returncode == 2
    assert "'.xyz' was given" in done.stderr
    assert "[1/" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_demo_its_programs_its_network_and_its_fabric(number: int) -> None:
    argv = [*NUPA, "demo", "--quick"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        lines = iter(demo.stderr.readline, "")
        assert any("by fio" in line for line in lines)  # by now its network comes up
        name = f"demo-{demo.pid}"
        assert name in registry.names()
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=30)
    assert demo.returncode == 128 + number, errors
    assert name not in registry.names()
    assert name not in state.names()
    assert not [process for process in processes() if name in process]


def processes() -> list[str]:
    """Returns the command lines of all processes that we may look at."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found
