# SPDX-License-Identifier: BSD-3-Clause
"""The command `nupa serve`: its words, files and messages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nupa.cli import main

pytestmark = pytest.mark.usefixtures("service")
_COMMAND = [sys.executable, "-m", "nupa", "serve", "served"]


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields the process, and what it has printed when it serves."""
    process = subprocess.Popen(
        [*_COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_it_says_where_and_ends_by_sigterm() -> None:
    with running("--listen", "localhost:0") as (process, said):
        assert re.fullmatch(r"served at http://127\.0\.0\.1:\d+; requests only read it\n", said), (
            said
        )
        process.terminate()
        rest, errors = process.communicate(timeout=30)
        assert (process.returncode, rest, errors) == (0, "", "")


def test_it_prints_a_password_and_a_fingerprint_where_they_are_needed() -> None:
    with running("--listen", "127.0.0.1:0", "--tls", "--login") as (process, said):
        assert "https://" in said
        assert process.stdout is not None
        rest = process.stdout.readline() + process.stdout.readline()
        assert re.fullmatch(
            r"self-signed certificate, SHA-256 [0-9a-f:]{95}\nuser admin, password \S{20}\n", rest
        ), rest


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--listen", "nowhere"], 2, "is not an address and port"),
        (["--listen", "127.0.0.1:65536"], 2, "is not an address and port"),
        (["--tls-cert", "c.pem"], 2, "--tls-cert and --tls-key belong together"),
        (["--sunfish", "ftp://a"], 2, "is not a URL"),
        (["--unix", "/nowhere/socket"], 1, "cannot listen at /nowhere/socket"),
        (["--unix", "/tmp/" + "x" * 200], 1, "cannot listen"),
        (["--password-file", "/nowhere"], 1, "password file /nowhere cannot be read"),
        (["--user", "a:b"], 1, "the account 'a:b'"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], 1, "cannot be used"),
    ],
)
def test_what_cannot_be_is_said(
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    message: str,
) -> None:
    # No test listens at the default port.
    place = [] if {"--unix", "--listen"} & set(options) else ["--listen", "127.0.0.1:0"]
    try:
        found = main(["serve", "served", *place, *options])
    except SystemExit as error:
        found = error.code
    assert (found, message in capsys.readouterr().err) == (code, True)


def test_a_password_that_others_may_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text("correct horse\n")
    file.chmod(0o644)
    assert main(["serve", "served", "--listen", "[::1]:0", "--password-file", str(file)]) == 1
    assert "is open to other users" in capsys.readouterr().err


def test_a_missing_library_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "served"]) == 1
    assert "`pip install nupa[serve]`" in capsys.readouterr().err
