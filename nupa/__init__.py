# SPDX-License-Identifier: BSD-3-Clause
"""NUPA: software RDMA over an emulated CXL fabric, on any Linux machine.

Knows its version and the providers of classes; imports nothing, so that `nupa run` starts at once.
Its packages are imported by name: `nupa.fabric` (topologies, fabrics, hosts), `nupa.verbs`
(pyverbs' names and behaviour).
"""

__version__ = "0.1.0"

#: Classes that layers above nupa.fabric provide to it, by module; imported at first use.
PROVIDERS = {
    "FabricManager": "nupa.cxl.fm.client.fabric_manager",
    "FabricSite": "nupa.cxl.site.fabric_switch",
}
