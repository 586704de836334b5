# SPDX-License-Identifier: BSD-3-Clause
"""Errors of Redfish: DSP0266 8.6, with messages of DMTF's Base registry."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nupa.base.errors import FabricError, NupaError

REGISTRY = "Base.1.19"


class _Kind(NamedTuple):
    status: int
    text: str
    resolution: str


#: Messages of the registry that we send: HTTP status, text (%1, %2: arguments), what to do.
_KINDS = {
    "Success": _Kind(200, "The request completed.", "None."),
    "AccessDenied": _Kind(403, "Access to %1 is denied.", "Use another account."),
    "ActionNotSupported": _Kind(
        400, "The resource has no action %1.", "Use an action of its property Actions."
    ),
    "ActionParameterUnknown": _Kind(
        400, "The action %1 has no parameter %2.", "Leave the parameter out."
    ),
    "CreateLimitReachedForResource": _Kind(
        400, "The collection has as many resources as it may have.", "Delete a resource first."
    ),
    "GeneralError": _Kind(400, "The request was refused.", "See the message."),
    "HeaderInvalid": _Kind(400, "The header %1 has a value that is not valid.", "Correct it."),
    "InsufficientPrivilege": _Kind(
        403, "The account has no right to do this.", "Use another account."
    ),
    "InternalError": _Kind(500, "The service failed.", "Report it."),
    "MalformedJSON": _Kind(400, "The body is not an object in JSON.", "Correct the body."),
    "NoValidSession": _Kind(401, "The request has no valid credentials.", "Log in."),
    "OperationNotAllowed": _Kind(
        405, "The resource does not take this method.", "Use a method of the header Allow."
    ),
    "PayloadTooLarge": _Kind(413, "The body is too large.", "Send less."),
    "PreconditionFailed": _Kind(
        412, "The resource has another ETag.", "Read the resource again, then repeat the request."
    ),
    "PropertyMissing": _Kind(400, "The property %1 is required.", "Add it."),
    "PropertyNotWritable": _Kind(400, "The property %1 cannot be written.", "Leave it out."),
    "PropertyUnknown": _Kind(400, "The property %1 is not known here.", "Leave it out."),
    "PropertyValueConflict": _Kind(
        400, "The property %1 does not go together with %2.", "Change one of them."
    ),
    "PropertyValueFormatError": _Kind(
        400, "The value %1 of the property %2 has another format than it must.", "Correct it."
    ),
    "PropertyValueNotInList": _Kind(
        400, "The value %1 of the property %2 is none of the allowed ones.", "Choose another."
    ),
    "PropertyValueTypeError": _Kind(
        400, "The value %1 of the property %2 has another type than it must.", "Correct it."
    ),
    "QueryNotSupported": _Kind(501, "The query parameter %1 is not supported.", "Leave it out."),
    "ResourceAlreadyExists": _Kind(
        409, "A resource %1 whose property %2 is %3 exists.", "Choose another value."
    ),
    "ResourceCannotBeDeleted": _Kind(405, "The resource cannot be deleted.", "None."),
    "ResourceInUse": _Kind(409, "The resource is in use.", "End its use first."),
    "ResourceMissingAtURI": _Kind(404, "There is no resource at %1.", "Correct the URI."),
    "ServiceTemporarilyUnavailable": _Kind(
        503, "The fabric cannot be read now.", "Repeat the request after %1 seconds."
    ),
}
#: Errors of the fabric that have a message of their own.
_BY_ERRNO = {
    errno.EBUSY: "ResourceInUse",
    errno.EEXIST: "ResourceInUse",
    errno.ENOSPC: "CreateLimitReachedForResource",
    errno.ENOMEM: "CreateLimitReachedForResource",
    errno.EDQUOT: "CreateLimitReachedForResource",
    errno.EPERM: "AccessDenied",
    errno.EACCES: "AccessDenied",
}


class RedfishError(Exception):
    """An answer that is an error.

    message_id: of the Base registry, with *arguments*; text: more than the registry says; related:
    the JSON pointer of the property at fault.
    """

    def __init__(
        self,
        message_id: str,
        *arguments: object,
        text: str = "",
        related: str | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message_id, *arguments, text)
        self.message_id = message_id
        self.arguments = [str(argument)[:200] for argument in arguments]
        self.text = text
        self.related = related
        self.status = status or _KINDS[message_id].status

    @classmethod
    def of(cls, error: NupaError) -> RedfishError:
        """Returns the answer to an error of the fabric."""
        if isinstance(error, FabricError) and error.errno not in _BY_ERRNO:
            return cls("ServiceTemporarilyUnavailable", 1, text=str(error))
        message_id = _BY_ERRNO.get(error.errno, "GeneralError")
        arguments = ["the fabric"] if message_id == "AccessDenied" else []
        return cls(message_id, *arguments, text=str(error))

    def info(self) -> dict[str, Any]:
        """Returns the entry of @Message.ExtendedInfo."""
        return message(self.message_id, self.arguments, text=self.text, related=self.related)


def message(
    message_id: str, arguments: Sequence[str] = (), *, text: str = "", related: str | None = None
) -> dict[str, Any]:
    """Returns a Message object; *text*: in place of the registry's."""
    kind = _KINDS[message_id]
    shown = kind.text
    for number, argument in enumerate(arguments, 1):
        shown = shown.replace(f"%{number}", f"'{argument}'")
    severity = "OK" if kind.status < 300 else "Critical" if kind.status >= 500 else "Warning"
    info: dict[str, Any] = {
        "@odata.type": "#Message.v1_1_1.Message",
        "MessageId": f"{REGISTRY}.{message_id}",
        "Message": text or shown,
        "MessageArgs": list(arguments),
        "MessageSeverity": severity,
        "Resolution": kind.resolution,
    }
    if related is not None:
        info["RelatedProperties"] = [related]
    return info


def error_body(infos: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the body of an error with these messages."""
    found = list(infos)
    several = len(found) > 1
    return {
        "error": {
            "code": f"{REGISTRY}.GeneralError" if several else found[0]["MessageId"],
            "message": "Several errors were found." if several else found[0]["Message"],
            "@Message.ExtendedInfo": found,
        }
    }
