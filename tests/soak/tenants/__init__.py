# SPDX-License-Identifier: BSD-3-Clause
"""The tenants' soak: partitions, members and rates change at random while hosts write to, read from
and send to each other.  No byte crosses between tenants, and no byte is wrong."""
