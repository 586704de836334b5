# SPDX-License-Identifier: BSD-3-Clause
"""The protocols of storage, and the kernel's modules for them; a script beside has the commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nupa.vm.boot.unpacked import unpacked


@dataclass(frozen=True)
class StorageProtocol:
    """A target and an initiator, set up by NAME.sh; *variables* are of its environment."""

    name: str
    what: str
    target: tuple[str, ...]  #: modules
    initiator: tuple[str, ...]
    variables: Callable[[Callable[[str], None]], dict[str, str]] = lambda _: {}

    @property
    def script(self) -> str:
        return str(Path(__file__).with_name(f"{self.name}.sh"))


def _open_iscsi(progress: Callable[[str], None]) -> dict[str, str]:
    """Fetches the initiator's programs, which the machine may lack."""
    return {"ISCSI": str(unpacked("open-iscsi.1", ["open-iscsi"], progress))}


PROTOCOLS = (
    StorageProtocol(
        "nvme",
        "NVMe over Fabrics",
        target=("configfs", "null_blk", "nvmet_rdma", "nvmet_tcp"),
        initiator=("nvme_rdma", "nvme_tcp"),
    ),
    StorageProtocol("nfs", "NFS 4.2", target=("nfsd", "rpcrdma"), initiator=("nfsv4", "rpcrdma")),
    StorageProtocol(
        "iser",
        "iSER and iSCSI",
        target=("configfs", "ib_isert", "crc32c_generic"),
        initiator=("ib_iser", "iscsi_tcp", "sd_mod", "crc32c_generic"),
        variables=_open_iscsi,
    ),
)
