# SPDX-License-Identifier: BSD-3-Clause
"""`nupa serve` over TLS, and Redfish tools of others that talk to it."""

from __future__ import annotations

import base64
import json
import re
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nupa.programs.pair import NUPA, Program, ProgramOutcome
from nupa.serve.access.certificate import make_certificate

from ..lab import DEADLINE_S, Lab

USER, PASSWORD = "admin", "correct-horse-9"


@dataclass(frozen=True)
class RedfishLab:
    """The lab, and where its default fabric is served."""

    lab: Lab
    url: str
    cert: Path

    @property
    def env(self) -> dict[str, str]:
        """For tools of requests, which then trust the server's certificate."""
        return {"REQUESTS_CA_BUNDLE": str(self.cert), "SSL_CERT_FILE": str(self.cert)}

    def tool(self, name: str, *arguments: str) -> list[str]:
        """Returns the command line of a tool that pip has installed beside this Python."""
        return [str(Path(sys.executable).with_name(name)), *arguments]

    def run(self, argv: list[str], deadline_s: float = DEADLINE_S) -> ProgramOutcome:
        return self.lab.run(argv, env=self.env, deadline_s=deadline_s)

    def redfishtool(self, *arguments: str) -> ProgramOutcome:
        """Runs redfishtool, which logs in by basic authentication."""
        host = self.url.removeprefix("https://")
        options = ["-r", host, "-S", "Always", "-u", USER, "-p", PASSWORD, "-A", "Basic"]
        return self.run(self.tool("redfishtool", *options, *arguments))

    def post(self, path: str, body: object) -> None:
        """Posts an object, which must make a resource."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        asking = urllib.request.Request(
            f"{self.url}{path}", json.dumps(body).encode(), headers, method="POST"
        )
        context = ssl.create_default_context(cafile=str(self.cert))
        with urllib.request.urlopen(asking, timeout=DEADLINE_S, context=context) as answer:
            assert answer.status == 201


def await_text(server: Program, pattern: str) -> str:
    """Waits until a server prints what matches *pattern*, and returns that."""
    until = time.monotonic() + DEADLINE_S
    while not (found := re.search(pattern, server.said()[0])):
        assert server.running, server.outcome().describe()
        assert time.monotonic() < until, "the server does not start"
        time.sleep(0.02)
    return found[0]


@contextmanager
def served(lab: Lab, *options: str) -> Iterator[RedfishLab]:
    """Serves the lab's default fabric at a free port, until the end."""
    made = make_certificate(["localhost", "127.0.0.1"], lab.build)
    password = lab.build / "password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n")
    argv = [*NUPA, "serve", "--listen", "127.0.0.1:0", "--login", "--allow-changes", *options]
    argv += ["--tls-cert", str(made.cert), "--tls-key", str(made.key)]
    with lab.start([*argv, "--password-file", str(password)]) as server:
        yield RedfishLab(lab, await_text(server, r"https://[^;\s]+"), made.cert)
        server.signal(15)
        server.wait(DEADLINE_S).check()
