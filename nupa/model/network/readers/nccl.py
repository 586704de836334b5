# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's and RCCL's topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): one server.

Elements nest as devices do: <cpu>, <pci>, <gpu> with <nvlink> or <xgmi>, <nic> with <net>.  For
more ranks than it has GPUs, equal servers are joined by their network adapters and one switch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nupa.model.errors import ModelError
from nupa.model.network.bare import at_rate, bare, cable
from nupa.model.network.graph import Graph, LinkKind
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.network.readers.xml import Element
from nupa.model.network.readers.xml import parse as parse_xml
from nupa.model.profile.profile import Profile, load

GPUS_MAX = 1024
CPUS_MAX = 1024
#: Compute capability -> generation of NVLink, links of a GPU, GB/s of a link and direction.
_NVLINK = {60: (1, 4, 20.0), 70: (2, 6, 25.0), 80: (3, 12, 25.0), 90: (4, 18, 25.0),
           100: (5, 18, 50.0)}  # fmt: skip
#: GB/s of an XGMI link and direction by gfx number, as RCCL counts them.
_XGMI = {906: 24.0, 908: 24.0, 910: 36.0, 940: 48.0}
_MBPS = 1.25e5
#: A PCIe lane's bytes/s for a GT/s: 128b/130b.
_LANE = 1e9 / 8 * 128 / 130
#: Between sockets, whose rate the file does not have.
_SOCKETS_BYTES_PER_S = 20e9
_LINKS = ("nvlink", "xgmi")


@dataclass
class _Server:
    """The devices of one server, as the file has them."""

    root: Element
    gpus: list[Element] = field(default_factory=list)
    nets: list[Element] = field(default_factory=list)
    bus: dict[str, int] = field(default_factory=dict)  #: of a GPU's PCI address: its index


def parse(data: bytes, source: str, name: str, ranks: int = 0) -> Network:
    """Returns one server, or as many as *ranks* GPUs need.  ModelError names file and line."""
    root = parse_xml(data, source)
    if root.tag != "system":
        root.fail("NCCL's topology begins with <system>")
    server = _Server(root, list(root.all("gpu")), list(root.all("net")))
    if not 1 <= len(server.gpus) <= GPUS_MAX:
        root.fail(f"{len(server.gpus)} elements <gpu>: 1 to {GPUS_MAX} are possible")
    cpus = sum(1 for _ in root.all("cpu"))
    if cpus > CPUS_MAX:
        root.fail(f"{cpus} elements <cpu>: {CPUS_MAX} are possible at most")
    for pci in root.all("pci"):
        for child in pci.children:
            if child.tag == "gpu":
                server.bus[pci.attributes.get("busid", "")] = server.gpus.index(child)
    gpus = len(server.gpus)
    servers = max(1, -(-ranks // gpus))
    levels, how = _inside(server)
    if servers > 1:
        levels.append(_outside(server, servers, source))
    notes = [f"GPUs of a server are joined by {how}"]
    if not server.nets:
        notes.append("the file has no <net>: it describes one server")
    return Network(name, tuple(levels), _graph(server, servers, name), tuple(notes))


def _peers(gpu: Element) -> list[Element]:
    return [child for child in gpu.children if child.tag in _LINKS]


def _link_rate(gpu: Element, link: Element) -> float:
    """Returns the bytes/s of all links of an <nvlink> or <xgmi>, a direction."""
    count = link.number("count", 1, 1000)
    if link.tag == "nvlink":
        capability = int(gpu.number("sm", high=1000))
        known = max((sm for sm in _NVLINK if sm <= capability), default=None)
        if known is None:
            gpu.fail(f"sm is {capability}: NVLink begins with 60")
        return count * _NVLINK[known][2] * 1e9
    gfx = int(gpu.number("gcn", 906, 1e6)) if gpu.attributes.get("gcn", "906").isdigit() else 940
    return count * _XGMI[max((known for known in _XGMI if known <= gfx), default=906)] * 1e9


def _domains(server: _Server) -> list[set[int]]:
    """Returns the GPUs that NVLink or XGMI joins, directly or over switches, by domain."""
    domains: list[set[int]] = []
    hub: set[int] = set()
    for index, gpu in enumerate(server.gpus):
        targets = [server.bus.get(link.attributes.get("target", "")) for link in _peers(gpu)]
        if None in targets:
            hub.add(index)
        joined = {index, *(peer for peer in targets if peer is not None)}
        apart = [domain for domain in domains if not domain & joined]
        for domain in domains:
            joined |= domain if domain & joined else set()
        domains = [*apart, joined]
    joined = hub.union(*(domain for domain in domains if domain & hub))
    return [*(domain for domain in domains if not domain & hub), *([joined] if hub else [])]


def _inside(server: _Server) -> tuple[list[NetworkLevel], str]:
    """Returns the levels between the GPUs of the server, and what joins them."""
    gpus = len(server.gpus)
    domains = _domains(server)
    size = len(domains[0])
    nested = all(
        len(domain) == size and max(domain) - min(domain) == size - 1 and min(domain) % size == 0
        for domain in domains
    )
    levels: list[NetworkLevel] = []
    words = []
    if size > 1 and nested:
        profile, word = _direct(server)
        levels.append(NetworkLevel("domain" if size < gpus else "server", size, profile))
        words.append(f"{word} ({size} each)" if size < gpus else word)
    if size < gpus or not levels:
        inner = levels[0].groups if levels else 1
        profile = bare("PCIe", _bus_rate(server), 0.0, server.root.source)
        levels.append(NetworkLevel("server", gpus // inner, profile))
        words.append("PCIe")
    return levels, " and ".join(words)


def _direct(server: _Server) -> tuple[Profile, str]:
    """Returns the profile of the first GPU's links to others."""
    gpu = server.gpus[0]
    links = _peers(gpu)
    rate = sum(_link_rate(gpu, link) for link in links)
    if links[0].tag != "nvlink":
        return bare("XGMI", rate, 0.0, server.root.source, confidence="assumed"), "XGMI"
    sm = max(sm for sm in _NVLINK if sm <= gpu.number("sm"))
    generation, count, each = _NVLINK[sm]
    found = load(f"nvlink{generation}")
    factor = rate / (count * each * 1e9)
    label = f"NVLink {generation}"
    return found if factor == 1 else at_rate(found, factor, label), label


def _bus_rate(server: _Server) -> float:
    gpu = server.gpus[0]
    pci = next((pci for pci in server.root.all("pci") if gpu in pci.children), None)
    if pci is None:
        gpu.fail("it has no <nvlink>, and no <pci> around it")
    return _pci_rate(pci)


def _pci_rate(pci: Element) -> float:
    """Returns the bytes/s of a PCIe link; devices without speed are not on PCIe: NVLink-C2C."""
    speed = pci.number("link_speed", 0.0, 1000)
    width = pci.number("link_width", 0.0, 64)
    return (speed or 16.0) * (width or 16.0) * _LANE


def _outside(server: _Server, servers: int, source: str) -> NetworkLevel:
    if not server.nets:
        raise ModelError(
            f"{source}: {servers} servers were asked, and the file has no <net> that joins them"
        )
    rates = [_net_rate(net) for net in server.nets]
    if len(set(rates)) > 1:
        fastest = max(rates)
        rates = [rate for rate in rates if rate == fastest]  # management ports carry no data
    latency = server.nets[0].number("latency", 0.0) * 1e3
    profile = bare("network adapters", rates[0], 0.0, source)
    nics = len(rates) / len(server.gpus)
    return NetworkLevel("network", servers, profile, 1, cable(latency / 2, source), nics=nics)


def _net_rate(net: Element) -> float:
    rate = net.number("speed") * _MBPS
    if not rate:
        net.fail("speed is 0: no data would pass")
    return rate


def _graph(server: _Server, servers: int, name: str) -> Graph:
    gpus = len(server.gpus)
    graph = Graph(name, gpus * servers)
    core = graph.add_switch() if server.nets and servers > 1 else -1
    for index in range(servers):
        _draw(graph, server, index * gpus, core)
    return graph


def _draw(graph: Graph, server: _Server, first: int, core: int) -> None:
    """Draws one server, whose first GPU is *first*; its adapters lead to *core*, if not -1."""
    sockets: list[int] = []
    for cpu in server.root.all("cpu"):
        node = graph.add_switch()
        if sockets:
            kind = graph.add_kind(LinkKind("sockets", _SOCKETS_BYTES_PER_S))
            for other in sockets:
                graph.add_cable(node, other, kind)
        sockets.append(node)
        _draw_pci(graph, server, cpu, node, first, core)
    hub = -1
    for index, gpu in enumerate(server.gpus):
        for link in _peers(gpu):
            kind = graph.add_kind(LinkKind(link.tag, _link_rate(gpu, link)))
            peer = server.bus.get(link.attributes.get("target", ""))
            if peer is not None:
                if peer != index:
                    graph.add_link(first + index, first + peer, kind)
            else:
                # An NVSwitch: the chips of a server work as one.
                hub = hub if hub >= 0 else graph.add_switch()
                graph.add_cable(first + index, hub, kind)


def _draw_pci(
    graph: Graph, server: _Server, parent: Element, node: int, first: int, core: int
) -> None:
    for child in parent.children:
        if child.tag == "pci":
            kind = graph.add_kind(LinkKind("PCIe", _pci_rate(child)))
            gpus = [each for each in child.children if each.tag == "gpu"]
            for gpu in gpus:
                graph.add_cable(node, first + server.gpus.index(gpu), kind)
            if not gpus:
                switch = graph.add_switch()
                graph.add_cable(node, switch, kind)
                _draw_pci(graph, server, child, switch, first, core)
        elif child.tag == "gpu":
            kind = graph.add_kind(LinkKind("C2C", _SOCKETS_BYTES_PER_S))
            graph.add_cable(node, first + server.gpus.index(child), kind)
        elif child.tag == "nic" and core >= 0:
            for net in child.all("net"):
                kind = graph.add_kind(LinkKind("network", _net_rate(net)))
                graph.add_cable(node, core, kind)
