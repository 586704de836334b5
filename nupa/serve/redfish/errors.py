# SPDX-License-Identifier: BSD-3-Clause
"""Errors of Redfish: DSP0266 8.6, with messages of DMTF's Base registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_REGISTRY = "Base.1.19"


def error_body(
    message_id: str, arguments: Sequence[str], *, text: str, related: str | None = None
) -> dict[str, Any]:
    """Returns the body of an error: a message of the registry, and a text."""
    info: dict[str, Any] = {
        "@odata.type": "#Message.v1_1_1.Message",
        "MessageId": f"{_REGISTRY}.{message_id}",
        "Message": text,
        "MessageArgs": list(arguments),
        "Severity": "Critical",
        "Resolution": "None",
    }
    if related is not None:
        info["RelatedProperties"] = [related]
    return {
        "error": {
            "code": info["MessageId"],
            "message": text,
            "@Message.ExtendedInfo": [info],
        }
    }
