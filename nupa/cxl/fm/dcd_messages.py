# SPDX-License-Identifier: BSD-3-Clause
"""Opcodes and layouts of dynamic capacity management, 56xxh (CXL 3.1 7.6.7.6)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from nupa.cxl.fm.messages import RecordLayout

POLICIES = 0b1111  # of selection: free, contiguous, prescriptive, shared
TAG_BYTES = 16
BITMAPS_VALID = 0b11
REMOVALS = 0b11  # by tag, and prescriptive
BY_TAG, BY_LIST = 0, 1
FORCED, SANITIZE = 1 << 4, 1 << 5
SHAREABLE = 1 << 3  # of the flags of a region, as in the DSMAS of CDAT


class DcdOpcode(IntEnum):
    """Table 8-215."""

    INFO = 0x5600
    REGIONS = 0x5601
    SET_REGION = 0x5602
    EXTENTS = 0x5603
    ADD = 0x5604
    RELEASE = 0x5605
    ADD_REFERENCE = 0x5606
    REMOVE_REFERENCE = 0x5607
    LIST_TAGS = 0x5608


class InfoHead(NamedTuple):
    """The head of 7.6.7.6.1; eight masks of block sizes follow, 2^n bytes for each bit n."""

    hosts: int
    regions: int
    policies: int
    removals: int
    sanitize: int
    total_units: int


class RegionsRequest(NamedTuple):
    """7.6.7.6.2."""

    host: int
    most: int
    first: int


class RegionsHead(NamedTuple):
    """7.6.7.6.2."""

    host: int
    regions: int
    listed: int


class RegionRecord(NamedTuple):
    """7.6.7.6.2; *decode_units* are of 256 MiB."""

    dpa: int
    decode_units: int
    size: int
    block_bytes: int
    flags: int
    sanitize: int


class Limits(NamedTuple):
    """The limits of 7.6.7.6.2: extents and tags at most, and how many are left."""

    extents: int
    extents_left: int
    tags: int
    tags_left: int


class SetRegion(NamedTuple):
    """7.6.7.6.3."""

    region: int
    block_bytes: int
    sanitize: int


class ExtentsRequest(NamedTuple):
    """7.6.7.6.4."""

    host: int
    most: int
    first: int


class ExtentsHead(NamedTuple):
    """7.6.7.6.4."""

    host: int
    first: int
    listed: int
    total: int
    generation: int


class ExtentRecord(NamedTuple):
    """8.2.9.2.1.6: table of dynamic capacity extents."""

    dpa: int
    size: int
    tag: bytes
    sequence: int


class ChangeRequest(NamedTuple):
    """The request that adds or releases capacity (7.6.7.6.5, 7.6.7.6.6).

    *flags* are a selection policy to add, or a removal policy with FORCED and SANITIZE to release.
    A list has its own tags and region.  A release names no region."""

    host: int
    flags: int
    region: int
    size: int
    tag: bytes
    listed: int


class TagsRequest(NamedTuple):
    """7.6.7.6.9."""

    first: int
    most: int


class TagsHead(NamedTuple):
    """The head of 7.6.7.6.9; *valid*: the bitmaps that are valid."""

    generation: int
    total: int
    listed: int
    valid: int


class TagRecord(NamedTuple):
    """A tag of 7.6.7.6.9; the bitmaps have a bit for each LD."""

    tag: bytes
    kept: int
    accepted: bytes
    offered: bytes


INFO = RecordLayout("BBxxHxxHBxQ", InfoHead)
REGIONS_REQUEST = RecordLayout("HBB", RegionsRequest)
REGIONS = RecordLayout("HBB", RegionsHead)
REGION = RecordLayout("QQQQBxxxBxxx", RegionRecord)
LIMITS = RecordLayout("IIII", Limits)
SET_REGION = RecordLayout("BxxxQBxxx", SetRegion)
EXTENTS_REQUEST = RecordLayout("HxxII", ExtentsRequest)
EXTENTS = RecordLayout("HxxIIIIxxxx", ExtentsHead)
EXTENT = RecordLayout("QQ16sH6x", ExtentRecord)
TAGS_REQUEST = RecordLayout("II", TagsRequest)
TAGS = RecordLayout("IIIBxxx", TagsHead)
TAG = RecordLayout("16sBxxx32s32s", TagRecord)
CHANGE = RecordLayout("HBBQ16sI", ChangeRequest)
