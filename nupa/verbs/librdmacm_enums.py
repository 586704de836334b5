# SPDX-License-Identifier: BSD-3-Clause
"""Another name that pyverbs has for the enumerations of rdma_cm."""

from nupa.verbs import cm_enums
from nupa.verbs.cm_enums import *  # noqa: F403

__all__ = cm_enums.__all__
