# SPDX-License-Identifier: BSD-3-Clause
"""The policy by which hosts, accelerators and devices are admitted to a fabric.

Rules are read in order.  The first rule that is about a newcomer, by its kind and name, judges it.
A newcomer that no rule is about is admitted or refused by the policy's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from nupa.topology.error import TopologyError
from nupa.topology.tenants import MEMBER_KINDS

#: A property of a newcomer: what it says of itself, or what the fabric knows of its port.
Fact = str | int
DEFAULTS = ("admit", "refuse")
_MIN, _MAX = "min_", "max_"


class AdmissionRule(NamedTuple):
    """A rule: the newcomers that it is about, and its requirements.

    *kinds*: of MEMBER_KINDS, empty: all.  *allow*: patterns of names.  *require*: a property's
    value, `min_` and `max_` of a number.  *vendor*, *serial*: patterns, of which the newcomer's
    matches one.  *tenant*, *partitions*: of those that are admitted.
    """

    name: str
    kinds: tuple[str, ...] = ()
    allow: tuple[str, ...] = ("*",)
    require: tuple[tuple[str, str], ...] = ()
    vendor: tuple[str, ...] = ()
    serial: tuple[str, ...] = ()
    tenant: str = ""
    partitions: tuple[str, ...] = ()

    def is_about(self, kind: str, name: str) -> bool:
        return (not self.kinds or kind in self.kinds) and any(
            fnmatchcase(name, pattern) for pattern in self.allow
        )

    def objection(self, facts: Mapping[str, Fact]) -> str:
        """Returns the first requirement that the newcomer does not meet; empty: it meets all."""
        for key, wanted in self.require:
            bound = next((word for word in (_MIN, _MAX) if key.startswith(word)), "")
            found = facts.get(key.removeprefix(bound))
            if found is None:
                return f"{key.removeprefix(bound)} is not known, {key} = {wanted} is required"
            if not _meets(bound, found, wanted):
                return f"{key.removeprefix(bound)} is {found}, {key} = {wanted} is required"
        for key, patterns in (("vendor", self.vendor), ("serial", self.serial)):
            found = facts.get(key)
            if not patterns:
                continue
            if found is None or not any(fnmatchcase(str(found), each) for each in patterns):
                said = "not known" if found is None else str(found)
                return f"{key} is {said}, one of {', '.join(patterns)} is required"
        return ""


class Verdict(NamedTuple):
    """*why*: the rule, and for a refusal its requirement that is not met."""

    admitted: bool
    why: str
    tenant: str = ""
    partitions: tuple[str, ...] = ()


class Admission(NamedTuple):
    """A policy; the empty one admits all."""

    rules: tuple[AdmissionRule, ...] = ()
    default: str = "admit"

    def judge(self, kind: str, name: str, facts: Mapping[str, Fact]) -> Verdict:
        """Judges a newcomer by its kind (of MEMBER_KINDS), name and properties.

        >>> wide = AdmissionRule("wide", allow=("host*",), require=(("min_width", "4"),))
        >>> policy = Admission((wide,))
        >>> policy.judge("host", "host1", {"width": 2}).why
        'rule wide: width is 2, min_width = 4 is required'
        >>> policy.judge("host", "host1", {"width": 8}).admitted
        True
        """
        for rule in self.rules:
            if rule.is_about(kind, name):
                objection = rule.objection(facts)
                if objection:
                    return Verdict(False, f"rule {rule.name}: {objection}")
                return Verdict(True, f"rule {rule.name}", rule.tenant, rule.partitions)
        if self.default == "admit":
            return Verdict(True, "no rule is about it, and the default is admit")
        return Verdict(False, f"no rule is about the {kind} {name}, and the default is refuse")

    def check(self, tenants: Mapping[str, object], partitions: Mapping[str, str]) -> None:
        """Raises TopologyError for a wrong word, and for a tenant or partition that is not there.

        *partitions*: the name of each, with that of its tenant.
        """
        if self.default not in DEFAULTS:
            raise TopologyError(
                f"[admission]: `default` is {self.default!r}: choose {' or '.join(DEFAULTS)}"
            )
        for rule in self.rules:
            for kind in rule.kinds:
                if kind not in MEMBER_KINDS:
                    raise TopologyError(
                        f"rule {rule.name!r}: `kind` is {kind!r}: choose {', '.join(MEMBER_KINDS)}"
                    )
            if rule.tenant and rule.tenant not in tenants:
                raise TopologyError(
                    f"rule {rule.name!r}: there is no tenant {rule.tenant!r}; the tenants are: "
                    f"{', '.join(tenants) or 'none'}"
                )
            for partition in rule.partitions:
                if partitions.get(partition) not in ("", rule.tenant):
                    raise TopologyError(
                        f"rule {rule.name!r}: {partition!r} is no partition of "
                        f"{f'tenant {rule.tenant!r}' if rule.tenant else 'the fabric itself'}"
                    )


def _meets(bound: str, found: Fact, wanted: str) -> bool:
    if not bound:
        return str(found) == wanted
    if not (str(found).isdecimal() and wanted.isdecimal()):
        return False
    return int(found) >= int(wanted) if bound == _MIN else int(found) <= int(wanted)
