# SPDX-License-Identifier: BSD-3-Clause
"""Every figure and table of a profile.  docs/model.md says where each enters a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from nupa.model.profile.figure import FigureKind

#: A fabric's table `packets`: what a full link, a sender, and equal paths do with packets, and when
#: a switch forwards.  The order is that of the enums in csrc/model/packets.h.
FlowControl = Literal["drop", "trim", "credits", "pause"]
Transport = Literal["line", "pull", "dcqcn", "window"]
Spread = Literal["flow", "packet", "adaptive", "destination"]
Switching = Literal["cut-through", "store"]

KINDS: Mapping[str, FigureKind] = {
    # --- a port and its packets: one direction --------------------------------------------
    "rate": FigureKind("B/s", +1, "bytes on the wire of one port, headers included"),
    "efficiency": FigureKind(
        "1", +1, "share of the rate that long messages reach", positive=True, most=1
    ),
    "mtu": FigureKind("B", 0, "payload of a full packet", positive=True),
    "header": FigureKind("B", -1, "bytes on the wire of a packet beside its payload"),
    "line": FigureKind("B", 0, "payload of a full load or store on the wire", positive=True),
    "line_header": FigureKind("B", -1, "bytes on the wire of a load or store beside its payload"),
    "ports": FigureKind(
        "1", +1, "ports of an endpoint, which a long transfer uses together", positive=True
    ),
    # --- the stages of one message ---------------------------------------------------------
    "post": FigureKind("ns", -1, "the program posts: the work request is written"),
    "doorbell": FigureKind("ns", -1, "the doorbell reaches the adapter"),
    "descriptor": FigureKind("ns", -1, "the adapter fetches the work request, if not inline"),
    "inline": FigureKind("B", 0, "payload that travels with the work request"),
    "fetch": FigureKind("ns", -1, "the adapter fetches the payload, if not inline"),
    "packet_copy": FigureKind("ns/B", -1, "store and forward of the first packet at both adapters"),
    "hop": FigureKind("ns", -1, "one switch"),
    "write": FigureKind("ns", -1, "the target's adapter writes the payload to memory"),
    "respond": FigureKind("ns", -1, "the target of a read or an atomic answers"),
    "completion": FigureKind("ns", -1, "the completion is written, and the program sees it"),
    "issue": FigureKind("ns", -1, "a load or store leaves the core and reaches the port"),
    "arrive": FigureKind(
        "ns", -1, "a load's data reach the core; a store is visible to the target"
    ),
    "jitter": FigureKind("ns", -1, "waits beside the stages, 0 in a quiet run"),
    "polled": FigureKind(
        "ns", 0, "recorded: from a landed write to the post of a program that awaits it"
    ),
    "receive": FigureKind("ns", -1, "beyond a write: a send takes a receive at its target"),
    "rendezvous": FigureKind("ns", -1, "the handshake before messages above *eager*"),
    "eager": FigureKind("B", 0, "messages up to this size go without a handshake"),
    "software": FigureKind("ns", -1, "a library's or the kernel's own time at both ends"),
    "add_rate": FigureKind("B/s", +1, "bytes of a received vector that a processor adds"),
    # --- many messages ---------------------------------------------------------------------
    "message_rate": FigureKind("1/s", +1, "messages that one queue pair issues"),
    "read_rate": FigureKind("1/s", +1, "reads that one queue pair issues"),
    "single_rate": FigureKind(
        "B/s", +1, "bytes that a queue pair reaches with messages of one packet"
    ),
    "host_copy": FigureKind(
        "B", 0, "messages up to this size are copied from a GPU by the processor"
    ),
    "agree": FigureKind("B", 0, "messages above this size cost a library's proxy more"),
    "peer_channels": FigureKind("1", 0, "channels of a library to one peer over a net"),
    "peer_operations": FigureKind(
        "1", 0, "operations of a channel, beyond which it has fewer channels to a peer"
    ),
    "window": FigureKind("B", +1, "bytes in flight that credits or a congestion window permit"),
    "flow_rate": FigureKind("B/s", +1, "bytes that one queue pair, stream or channel reaches"),
    "bus": FigureKind("B/s", +1, "the host's bus at an endpoint"),
    # --- switches and domains --------------------------------------------------------------
    "radix": FigureKind("1", 0, "ports of one switch", positive=True),
    "domain": FigureKind("1", 0, "endpoints of the largest domain", positive=True),
    "buffer": FigureKind("B", 0, "packet buffer of one switch port"),
    "reduce_efficiency": FigureKind(
        "1", +1, "share of the rate that in-network reduction reaches", positive=True, most=1
    ),
    "reduce_latency": FigureKind("ns", -1, "base latency of an in-network collective"),
    "reduce_ranks": FigureKind("1", 0, "ranks from which in-network reduction is chosen"),
    # --- storage: work/storage.py ----------------------------------------------------------
    "submit": FigureKind("ns", -1, "a core of the initiator, for a block's request and completion"),
    "serve": FigureKind("ns", -1, "a core of the target, for a block"),
    "cores": FigureKind("1", +1, "cores of a target that serve blocks", positive=True),
    "capsule": FigureKind("B", 0, "a command on the wire, beside its data"),
    "in_capsule": FigureKind("B", 0, "data of a write that travel with the command"),
    "reply": FigureKind("B", 0, "a completion on the wire"),
    "drives": FigureKind(
        "1", +1, "drives of a target, over which its blocks are spread", positive=True
    ),
    "read_latency": FigureKind("ns", -1, "a drive's own time for a small read"),
    "write_latency": FigureKind("ns", -1, "a drive's own time for a small write"),
    "read_stream": FigureKind("B/s", +1, "bytes that a drive reads"),
    "write_stream": FigureKind("B/s", +1, "bytes that a drive writes"),
    "read_blocks": FigureKind("1/s", +1, "blocks that a drive reads"),
    "write_blocks": FigureKind("1/s", +1, "blocks that a drive writes"),
    # --- accelerators: work/training -------------------------------------------------------
    "flops": FigureKind(
        "1/s", +1, "operations on 16-bit numbers, dense, multiplications and additions"
    ),
    "flops_share": FigureKind("1", +1, "share of them that matrices reach", positive=True, most=1),
    "memory": FigureKind("B", 0, "memory of an accelerator", positive=True),
    "memory_rate": FigureKind("B/s", +1, "bytes that its memory reads or writes"),
    "memory_share": FigureKind(
        "1", +1, "share of that rate that kernels reach", positive=True, most=1
    ),
    # --- packets: engine/packets/protocol.py -----------------------------------------------------
    "control": FigureKind("B", -1, "bytes on the wire of an acknowledgement or a trimmed packet"),
    "acks": FigureKind("1", 0, "packets that one acknowledgement covers; 0: all of a message"),
    "credit": FigureKind("B", 0, "unit of a link's credits"),
    "paths": FigureKind("1", 0, "paths over which a sender spreads the packets of a message"),
    "ecn_low": FigureKind("B", 0, "queue from which switches mark packets"),
    "ecn_high": FigureKind("B", 0, "queue from which switches mark each packet"),
    "ecn_share": FigureKind("1", 0, "share of packets that are marked just below *ecn_high*"),
    "xoff": FigureKind("B", 0, "waiting packets of an input from which it pauses its link"),
    "xon": FigureKind("B", 0, "waiting packets of an input below which its link resumes"),
    "pull": FigureKind("1", 0, "packets that one pull of the receiver grants"),
    "pull_rate": FigureKind("1", +1, "share of its rate that a receiver pulls"),
    "adapt": FigureKind("ns", 0, "interval after which trimmed packets lower the rate of pulls"),
    "timeout": FigureKind("ns", -1, "missing packets are sent again after this"),
    "notify": FigureKind("ns", 0, "DCQCN: the least time between two notifications of a flow"),
    "recover": FigureKind("ns", -1, "DCQCN: the rate rises after each such time"),
    "recover_bytes": FigureKind("B", -1, "DCQCN: the rate rises after so many bytes, too"),
    "recover_rounds": FigureKind("1", -1, "DCQCN: rises before additive and hyper increase"),
    "alpha": FigureKind("ns", 0, "DCQCN: alpha follows notifications after each such time"),
    "increase": FigureKind("B/s", +1, "DCQCN: additive increase"),
    "hyper": FigureKind("B/s", +1, "DCQCN: hyper increase"),
    "rate_least": FigureKind("B/s", +1, "DCQCN: the rate falls no lower"),
    "switch_energy": FigureKind("pJ/b", -1, "a bit that passes a switch, without its media"),
    "adapter_energy": FigureKind("pJ/b", -1, "a bit that leaves or enters an endpoint"),
    # --- media -----------------------------------------------------------------------------
    "propagation": FigureKind("ns/m", -1, "the signal, a metre"),
    "conversion": FigureKind("ns", -1, "both ends of the medium, for a signal that passes"),
    "reach": FigureKind("m", +1, "the longest path"),
    "energy": FigureKind("pJ/b", -1, "both ends, a bit at full rate"),
    "price": FigureKind("1", -1, "price class: 1 is cheapest"),
    "year": FigureKind("1", 0, "the year in which it can be bought"),
}

#: Tables: rows and columns have names, and each cell is a number of that dimension.
TABLES: Mapping[str, FigureKind] = {
    # --- a fabric whose mover is a processor: engine/moves.py ------------------------------
    "moves": FigureKind(
        "ns",
        -1,
        "messages by size: whole; of it the post; from there to the completion; many, each",
    ),
    # --- a library's own estimate, by which it chooses -----------------------------------
    "estimate_base": FigureKind("ns", -1, "base latency, by algorithm"),
    "estimate_hop": FigureKind("ns", -1, "latency of a step, by algorithm and kind of link"),
    "estimate_link": FigureKind("B/s", +1, "rate of an endpoint's links, by fabric"),
    "estimate_speed": FigureKind("B/s", +1, "rates that one channel may have, by generation"),
    "estimate_ll": FigureKind("B/s", +1, "limit of LL, by generation"),
    "estimate_channel": FigureKind("B/s", +1, "limit of one channel, by algorithm and generation"),
    "estimate_tree": FigureKind("1", 0, "correction of trees for 64 B, 128 B, and so on"),
    "estimate_share": FigureKind("1", +1, "shares of a rate that the estimate takes"),
    # --- a fabric's part in the library ----------------------------------------------------
    "choice": FigureKind("1", 0, "rules of an MPI library: bytes and ranks of an algorithm"),
    "fabric": FigureKind("1", 0, "generation of the GPU (3 is Ampere), and what is enabled"),
    "channels": FigureKind("1", 0, "the most channels of a collective, by fabric"),
    "kernel_rate": FigureKind("1", +1, "share of a port's rate that kernels reach, by fabric"),
    "channel_rate": FigureKind("B/s", +1, "rate of one channel, by fabric"),
    "peer_rate": FigureKind("1", +1, "share of a port's rate towards one and towards many peers"),
    "channel_bytes": FigureKind("B", 0, "bytes from which another channel is opened"),
    "wire": FigureKind("1", 0, "bytes on the wire for a byte of payload"),
    # --- the library's time ----------------------------------------------------------------
    "launch": FigureKind("ns", -1, "a kernel's launch, and of each further GPU of a process"),
    "hop_time": FigureKind("ns", -1, "the library's part of a step, by pattern and fabric"),
    "chunk": FigureKind("B", 0, "chunks of in-network reduction, the largest first"),
    "chunk_time": FigureKind("ns", -1, "synchronisation of a chunk of in-network reduction"),
}
