# SPDX-License-Identifier: BSD-3-Clause
"""Another name that pyverbs has for its enumerations."""

from nupa.verbs import enums
from nupa.verbs.enums import *  # noqa: F403

__all__ = enums.__all__
