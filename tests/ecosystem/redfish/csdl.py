# SPDX-License-Identifier: BSD-3-Clause
"""CSDL of the facts in facts.txt, for DMTF's service validator."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FACTS = Path(__file__).with_name("facts.txt")
_PRIMITIVES = {
    "string": "Edm.String",
    "int": "Edm.Int64",
    "number": "Edm.Decimal",
    "bool": "Edm.Boolean",
    "time": "Edm.DateTimeOffset",
    "guid": "Edm.Guid",
}
_NAMED = {"Status": "Resource.Status", "Protocol": "Protocol.Protocol"}
_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0"><edmx:DataServices>
"""
_TAIL = "</edmx:DataServices></edmx:Edmx>\n"
_EDM = 'xmlns="http://docs.oasis-open.org/odata/ns/edm"'
_CAPABILITIES = {
    "POST": ("InsertRestrictions", "Insertable"),
    "PATCH": ("UpdateRestrictions", "Updatable"),
    "DELETE": ("DeleteRestrictions", "Deletable"),
}
_STATES = (
    *("Enabled", "Disabled", "StandbyOffline", "StandbySpare", "InTest", "Starting", "Absent"),
    *("UnavailableOffline", "Deferring", "Quiesced", "Updating", "Qualified", "Degraded"),
)
_PROTOCOLS = (
    *("PCIe", "AHCI", "UHCI", "SAS", "SATA", "USB", "NVMe", "FC", "iSCSI", "FCoE", "FCP", "FICON"),
    *("NVMeOverFabrics", "SMB", "NFSv3", "NFSv4", "HTTP", "HTTPS", "FTP", "SFTP", "iWARP", "RoCE"),
    *("RoCEv2", "I2C", "TCP", "UDP", "TFTP", "GenZ", "MultiProtocol", "InfiniBand", "Ethernet"),
    *("NVLink", "OEM", "DisplayPort", "HDMI", "VGA", "DVI", "CXL", "UPI", "QPI", "eMMC", "UET"),
    "UALink",
)


@dataclass
class Complex:
    """A complex type: its properties' lines, and the types inside by property."""

    lines: list[str] = field(default_factory=list)
    inner: dict[str, Complex] = field(default_factory=dict)


@dataclass
class Kind:
    """A resource type: its version, "" of a collection; paths, methods, properties."""

    name: str
    version: str
    paths: list[str]
    methods: list[str]
    body: Complex = field(default_factory=Complex)
    enums: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return f"{self.name}.{self.version}" if self.version else self.name


def write(folder: Path) -> None:
    """Writes a CSDL file for each schema."""
    for kind in parse(FACTS.read_text()):
        (folder / f"{kind.name}_v1.xml").write_text(_HEAD + _text(kind) + _TAIL)
    (folder / "Resource_v1.xml").write_text(_HEAD + _resource() + _TAIL)
    protocols = _enum("Protocol", _PROTOCOLS)
    text = f'<Schema {_EDM} Namespace="Protocol">{protocols}</Schema>'
    (folder / "Protocol_v1.xml").write_text(_HEAD + text + _TAIL)


def parse(text: str) -> list[Kind]:
    kinds: list[Kind] = []
    for line in text.splitlines():
        if line.startswith("["):
            head, _, rest = line[1:].partition("]")
            name, _, version = head.partition(" ")
            words = rest.split()
            paths = [f"/redfish/v1{word}" for word in words if word.startswith("/")]
            kinds.append(Kind(name, version, paths, [w for w in words if w in _CAPABILITIES]))
        elif line and not line.startswith("#"):
            _add(kinds[-1], line.split())
    return kinds


def _add(kind: Kind, words: list[str]) -> None:
    *around, name = words[0].split(".")
    if words[1] == "action":
        kind.actions.append(name)
        return
    at, path = kind.body, ""
    for each in around:
        inner = each.rstrip("*")
        path += inner
        if inner not in at.inner:
            at.inner[inner] = Complex()
            kind_of = f"{kind.namespace}.{path}"
            kind_of = f"Collection({kind_of})" if each.endswith("*") else kind_of
            at.lines.append(f'<Property Name="{inner}" Type="{kind_of}" Nullable="false"/>')
        at = at.inner[inner]
    at.lines.append(_property(kind, path + name, name, words[1:]))


def _property(kind: Kind, unique: str, name: str, words: list[str]) -> str:
    navigation = words[0] == "link"
    if navigation:
        inner = f"{words[1]}.{words[1]}"
    elif "|" in words[0]:
        kind.enums.append(_enum(unique, words[0].split("|")))
        inner = f"{kind.namespace}.{unique}"
    else:
        inner = _PRIMITIVES.get(words[0]) or _NAMED[words[0]]
    given = f"Collection({inner})" if "*" in words else inner
    tag = "NavigationProperty" if navigation else "Property"
    permission = "ReadWrite" if "rw" in words else "Read"
    notes = f'<Annotation Term="OData.Permissions" EnumMember="OData.Permission/{permission}"/>'
    notes += '<Annotation Term="Redfish.Required"/>' if "!" in words else ""
    return f'<{tag} Name="{name}" Type="{given}">{notes}</{tag}>'


def _enum(name: str, members: tuple[str, ...] | list[str]) -> str:
    inside = "".join(f'<Member Name="{member}"/>' for member in members)
    return f'<EnumType Name="{name}">{inside}</EnumType>'


def _text(kind: Kind) -> str:
    uris = "".join(f"<String>{path.replace('{}', '{Id}')}</String>" for path in kind.paths)
    notes = f'<Annotation Term="Redfish.Uris"><Collection>{uris}</Collection></Annotation>'
    for method, (term, name) in _CAPABILITIES.items():
        allowed = str(method in kind.methods).lower()
        notes += (
            f'<Annotation Term="Capabilities.{term}"><Record>'
            f'<PropertyValue Property="{name}" Bool="{allowed}"/></Record></Annotation>'
        )
    if not kind.version:
        member = kind.name.removesuffix("Collection")
        notes += f'<NavigationProperty Name="Members" Type="Collection({member}.{member})">'
        notes += '<Annotation Term="Redfish.Required"/></NavigationProperty>'
        base = "Resource.v1_0_0.ResourceCollection"
        return _schema(
            kind.name, f'<EntityType Name="{kind.name}" BaseType="{base}">{notes}</EntityType>'
        )
    base = "Resource.v1_0_0.Resource"
    first = f'<EntityType Name="{kind.name}" BaseType="{base}" Abstract="true">{notes}</EntityType>'
    body = "".join(kind.body.lines)
    if kind.actions:
        body += f'<Property Name="Actions" Type="{kind.namespace}.Actions" Nullable="false"/>'
    inside = (
        f'<EntityType Name="{kind.name}" BaseType="{kind.name}.{kind.name}">{body}</EntityType>'
    )
    inside += "".join(kind.enums) + _complexes("", kind.body)
    if kind.actions:
        inside += '<ComplexType Name="Actions"/>'
    actions = "".join(f'<Action Name="{each}" IsBound="true"/>' for each in kind.actions)
    return _schema(kind.name, first + actions) + _schema(kind.namespace, inside)


def _complexes(path: str, body: Complex) -> str:
    found = ""
    for name, inner in body.inner.items():
        lines = "".join(inner.lines)
        found += f'<ComplexType Name="{path}{name}">{lines}</ComplexType>'
        found += _complexes(path + name, inner)
    return found


def _schema(namespace: str, inside: str) -> str:
    return f'<Schema {_EDM} Namespace="{namespace}">{inside}</Schema>\n'


def _resource() -> str:
    """Returns what all resources have: Resource_v1.xml."""
    required = '<Annotation Term="Redfish.Required"/>'
    identity = "".join(
        f'<Property Name="{name}" Type="Edm.String" Nullable="false">{required}</Property>'
        for name in ("Id", "Name")
    )
    description = '<Property Name="Description" Type="Edm.String"/>'
    oem = '<Property Name="Oem" Type="Resource.Oem" Nullable="false"/>'
    name = f'<Property Name="Name" Type="Edm.String" Nullable="false">{required}</Property>'
    pattern = (
        '<Annotation Term="Redfish.DynamicPropertyPatterns"><Collection><Record>'
        '<PropertyValue Property="Pattern" String="[A-Za-z0-9_]+"/>'
        '<PropertyValue Property="Type" String="Resource.OemObject"/>'
        "</Record></Collection></Annotation>"
    )
    plain = (
        '<EntityType Name="Item" Abstract="true"/><EntityType Name="Resource" Abstract="true"/>'
        f'<ComplexType Name="Oem">{pattern}</ComplexType>'
        '<ComplexType Name="OemObject" Abstract="true"/>'
        f"{_enum('State', _STATES)}{_enum('Health', ('OK', 'Warning', 'Critical'))}"
        '<ComplexType Name="Status"><Property Name="State" Type="Resource.State"/>'
        '<Property Name="Health" Type="Resource.Health"/>'
        '<Property Name="HealthRollup" Type="Resource.Health"/></ComplexType>'
    )
    rest = f"{description}{oem}</EntityType>"
    base = ' BaseType="Resource.Resource" Abstract="true"'
    first = (
        f'<EntityType Name="Resource"{base}>{identity}{rest}'
        f'<EntityType Name="ResourceCollection"{base}>{name}{rest}'
    )
    return _schema("Resource", plain) + _schema("Resource.v1_0_0", first)
