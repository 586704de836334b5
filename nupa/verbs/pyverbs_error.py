# SPDX-License-Identifier: BSD-3-Clause
"""The name under which pyverbs has its exceptions."""

from nupa.verbs.errors import PyverbsError, PyverbsRDMAError, PyverbsUserError

__all__ = ["PyverbsError", "PyverbsRDMAError", "PyverbsUserError"]
