# SPDX-License-Identifier: BSD-3-Clause
"""The commands that are served by the switch, by a multi-logical device and by mailboxes, as
docs/cxl.md lists them.  `python -m nupa.cxl.site.served` prints the list."""

from __future__ import annotations

from collections.abc import Mapping

from nupa.cxl.device.expander import Expander
from nupa.cxl.device.mld import Mld
from nupa.cxl.fm.server.component import Component
from nupa.cxl.fm.server.session import Inbox
from nupa.cxl.function.cci import Command, Effect
from nupa.cxl.site.site import Site

_STEP = 256 << 20
#: CXL 3.1 8.2.9, table 8-215, and 7.6.7: by the upper byte of the opcode.
SETS = {
    0x00: "information and status",
    0x01: "events",
    0x02: "firmware update",
    0x03: "timestamp",
    0x04: "logs",
    0x05: "features",
    0x40: "identify memory device",
    0x41: "capacity, labels",
    0x42: "health, alerts",
    0x43: "media, poison",
    0x44: "sanitize",
    0x48: "dynamic capacity",
    0x51: "physical switch",
    0x52: "virtual switch",
    0x53: "MLD port",
    0x54: "MLD component",
    0x56: "dynamic capacity management",
    0xC0: "vendor specific",
}


def served() -> dict[str, Mapping[int, Command]]:
    """Returns the commands by opcode, of each server."""
    with Site(1, [_STEP], [_STEP], dynamic_bytes=2 * _STEP) as site:
        sld, mld = site.devices[1], site.devices[2]
        device = site.manager.device(2)
        assert isinstance(sld, Expander)
        assert isinstance(mld, Mld)
        assert device is not None
        mailbox = {**sld.memory.mailbox.commands, **mld.logical[0].memory.mailbox.commands}
        return {
            "switch": _of(site.manager.component),
            "MLD": _of(device),
            "mailbox": mailbox,
        }


def _of(component: Component) -> Mapping[int, Command]:
    return {**component.commands, **Inbox(component.feed).commands}


def markdown() -> list[str]:
    """Returns the lines of the table: a row for each set of commands with the same servers."""
    tables = served()
    rows: dict[tuple[int, str], list[str]] = {}
    for opcode in sorted({opcode for commands in tables.values() for opcode in commands}):
        having = [name for name, commands in tables.items() if opcode in commands]
        row = rows.setdefault((opcode >> 8, ", ".join(having)), [])
        row.append(_shown(tables[having[0]][opcode]))
    head = ["| commands | of | opcode and name (effects) |", "|---|---|---|"]
    return head + [
        f"| {SETS[code]} | {having} | {'; '.join(row)} |" for (code, having), row in rows.items()
    ]


def _shown(command: Command) -> str:
    effects = [_name(each) for each in Effect if each & command.effects]
    return f"{command.opcode:04x} {command.name}" + (f" ({', '.join(effects)})" if effects else "")


def _name(effect: Effect) -> str:
    return str(effect.name).lower().replace("_", " ")


if __name__ == "__main__":
    print("\n".join(markdown()))
