# SPDX-License-Identifier: BSD-3-Clause
"""Schemas of our own: CSDL files of this folder, and the JSON Schema made of each."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

FOLDER = Path(__file__).parent / "schemas"
_EDM = "{http://docs.oasis-open.org/odata/ns/edm}"
_TYPES = {
    "Edm.Int64": {"type": "integer"},
    "Edm.String": {"type": "string"},
    "Edm.Boolean": {"type": "boolean"},
}
_LINK = {"$ref": "http://redfish.dmtf.org/schemas/v1/odata-v4.json#/definitions/idRef"}


def names() -> list[str]:
    """Returns the names of our schemas, as NupaZone."""
    return sorted(path.name.removesuffix("_v1.xml") for path in FOLDER.glob("*_v1.xml"))


@cache
def csdl(name: str) -> str:
    """Returns the CSDL file of a schema."""
    return (FOLDER / f"{name}_v1.xml").read_text()


def namespaces(name: str) -> list[str]:
    """Returns the namespaces of a schema, the newest last."""
    return [each.attrib["Namespace"] for each in _schemas(name)]


def kind_of(name: str) -> str:
    """Returns the type of its objects, as NupaZone.v1_0_0.Zone."""
    newest = _schemas(name)[-1]
    return f"{newest.attrib['Namespace']}.{_complex(newest)[0].attrib['Name']}"


def _schemas(name: str) -> list[ET.Element]:
    return list(ET.fromstring(csdl(name)).iter(f"{_EDM}Schema"))


def _complex(schema: ET.Element) -> list[ET.Element]:
    return schema.findall(f"{_EDM}ComplexType")


@cache
def json_schema(name: str) -> dict[str, Any]:
    """Returns the newest version of a schema as JSON Schema."""
    newest = _schemas(name)[-1]
    namespace = newest.attrib["Namespace"]
    definitions: dict[str, Any] = {}
    for kind in _complex(newest):
        properties = [*kind.findall(f"{_EDM}Property"), *kind.findall(f"{_EDM}NavigationProperty")]
        definitions[kind.attrib["Name"]] = {
            "type": "object",
            "additionalProperties": False,
            "patternProperties": {"^([a-zA-Z_][a-zA-Z0-9_]*)?@(odata|Redfish|Message)\\.": {}},
            "properties": {each.attrib["Name"]: _property(each, namespace) for each in properties},
        }
    for kind in newest.findall(f"{_EDM}EnumType"):
        members = [each.attrib["Name"] for each in kind.findall(f"{_EDM}Member")]
        definitions[kind.attrib["Name"]] = {"type": "string", "enum": members}
    title = kind_of(name)
    return {
        "$id": f"/redfish/v1/Schemas/{namespace}.json",
        "$schema": "http://redfish.dmtf.org/schemas/v1/redfish-schema-v1.json",
        "$ref": f"#/definitions/{title.rpartition('.')[2]}",
        "title": f"#{title}",
        "owningEntity": "Nupa",
        "definitions": definitions,
    }


def _property(element: ET.Element, namespace: str) -> dict[str, Any]:
    kind = element.attrib["Type"]
    inner = kind.removeprefix("Collection(").removesuffix(")")
    if element.tag.endswith("NavigationProperty"):
        found: dict[str, Any] = dict(_LINK)
    elif inner in _TYPES:
        found = dict(_TYPES[inner])
    else:
        found = {"$ref": f"#/definitions/{inner.removeprefix(f'{namespace}.')}"}
    if inner != kind:
        found = {"type": "array", "items": found}
    for note in element.findall(f"{_EDM}Annotation"):
        if note.attrib["Term"] == "OData.Description":
            found["description"] = note.attrib["String"]
        if note.attrib.get("EnumMember") == "OData.Permission/Read":
            found["readonly"] = True
    return found
