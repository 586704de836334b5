# SPDX-License-Identifier: BSD-3-Clause
"""Memory behind a dma-buf."""

from __future__ import annotations

import errno

from nupa.verbs.base import PyverbsCM
from nupa.verbs.base.errors import PyverbsRDMAError


class DmaBuf(PyverbsCM):
    """Memory of *size* bytes behind a dma-buf."""

    drm_fd: int
    fd: int
    map_offset: int
    size: int
    handle: int

    def __init__(self, size: int, gpu: int = 0, gtt: int = 0) -> None:  # noqa: ARG002
        raise PyverbsRDMAError(f"Failed to allocate dmabuf of size {size}", errno.EOPNOTSUPP)
