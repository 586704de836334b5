# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: N801
"""Constants of memory regions, windows and domains."""

from enum import IntEnum, IntFlag


class ibv_access_flags(IntFlag):
    """Access rights to a memory region or through a QP (man 3 ibv_reg_mr)."""

    IBV_ACCESS_LOCAL_WRITE = 1 << 0
    IBV_ACCESS_REMOTE_WRITE = 1 << 1
    IBV_ACCESS_REMOTE_READ = 1 << 2
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3
    IBV_ACCESS_MW_BIND = 1 << 4
    IBV_ACCESS_ZERO_BASED = 1 << 5
    IBV_ACCESS_ON_DEMAND = 1 << 6
    IBV_ACCESS_HUGETLB = 1 << 7
    IBV_ACCESS_FLUSH_GLOBAL = 1 << 8
    IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9
    IBV_ACCESS_RELAXED_ORDERING = 1 << 20


class ibv_rereg_mr_flags(IntFlag):
    """Attributes that ibv_rereg_mr changes."""

    IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0
    IBV_REREG_MR_CHANGE_PD = 1 << 1
    IBV_REREG_MR_CHANGE_ACCESS = 1 << 2


class ibv_rereg_mr_err_code(IntEnum):
    """Errors of ibv_rereg_mr."""

    IBV_REREG_MR_ERR_INPUT = -1
    IBV_REREG_MR_ERR_DONT_FORK_NEW = -2
    IBV_REREG_MR_ERR_DO_FORK_OLD = -3
    IBV_REREG_MR_ERR_CMD = -4
    IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5


class ibv_mw_type(IntEnum):
    """Memory window types (IBTA 10.6.7.2)."""

    IBV_MW_TYPE_1 = 1
    IBV_MW_TYPE_2 = 2


class ibv_dm_mask(IntFlag):
    """ibv_dm.comp_mask."""

    IBV_DM_MASK_HANDLE = 1 << 0


class ibv_advise_mr_advice(IntEnum):
    """Advice of ibv_advise_mr."""

    IBV_ADVISE_MR_ADVICE_PREFETCH = 0
    IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1
    IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2


class ibv_mr_init_attr_mask(IntFlag):
    """ibv_mr_init_attr.comp_mask."""

    IBV_REG_MR_MASK_IOVA = 1 << 0
    IBV_REG_MR_MASK_ADDR = 1 << 1
    IBV_REG_MR_MASK_FD = 1 << 2
    IBV_REG_MR_MASK_FD_OFFSET = 1 << 3
    IBV_REG_MR_MASK_DMAH = 1 << 4
    IBV_REG_MR_MASK_BUF = 1 << 5


class ibv_parent_domain_init_attr_mask(IntFlag):
    """ibv_parent_domain_init_attr.comp_mask."""

    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2


class ibv_xrcd_init_attr_mask(IntFlag):
    """ibv_xrcd_init_attr.comp_mask."""

    IBV_XRCD_INIT_ATTR_FD = 1 << 0
    IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1
    IBV_XRCD_INIT_ATTR_RESERVED = 1 << 2
