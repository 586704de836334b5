# SPDX-License-Identifier: BSD-3-Clause
"""Every figure and table of a profile.  docs/model.md says where each enters a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from nupa.model.profile.figure import Kind

#: A fabric's table `packets`: what a full link, a sender, and equal paths do with packets, and when
#: a switch forwards.  The order is that of the enums in csrc/model/packets.h.
FlowControl = Literal["drop", "trim", "credits", "pause"]
Transport = Literal["line", "pull", "dcqcn", "window"]
Spread = Literal["flow", "packet", "adaptive"]
Switching = Literal["cut-through", "store"]

KINDS: Mapping[str, Kind] = {
    # --- a port and its packets: one direction --------------------------------------------
    "rate": Kind("B/s", +1, "bytes on the wire of one port, headers included"),
    "efficiency": Kind(
        "1", +1, "share of the rate that long messages reach", positive=True, most=1
    ),
    "mtu": Kind("B", 0, "payload of a full packet", positive=True),
    "header": Kind("B", -1, "bytes on the wire of a packet beside its payload"),
    "line": Kind("B", 0, "payload of a full load or store on the wire", positive=True),
    "line_header": Kind("B", -1, "bytes on the wire of a load or store beside its payload"),
    "ports": Kind(
        "1", 0, "ports of an endpoint, which a long transfer uses together", positive=True
    ),
    # --- the stages of one message ---------------------------------------------------------
    "post": Kind("ns", -1, "the program posts: the work request is written"),
    "doorbell": Kind("ns", -1, "the doorbell reaches the adapter"),
    "descriptor": Kind("ns", -1, "the adapter fetches the work request, if not inline"),
    "inline": Kind("B", 0, "payload that travels with the work request"),
    "fetch": Kind("ns", -1, "the adapter fetches the payload, if not inline"),
    "packet_copy": Kind("ns/B", -1, "store and forward of the first packet at both adapters"),
    "hop": Kind("ns", -1, "one switch"),
    "write": Kind("ns", -1, "the target's adapter writes the payload to memory"),
    "respond": Kind("ns", -1, "the target of a read or an atomic answers"),
    "completion": Kind("ns", -1, "the completion is written, and the program sees it"),
    "issue": Kind("ns", -1, "a load or store leaves the core and reaches the port"),
    "arrive": Kind("ns", -1, "a load's data reach the core; a store is visible to the target"),
    "jitter": Kind("ns", -1, "waits beside the stages, 0 in a quiet run"),
    "polled": Kind(
        "ns", 0, "recorded: from a landed write to the post of a program that awaits it"
    ),
    "copied": Kind("1", 0, "1: the posting program itself moves the data, and is busy meanwhile"),
    "receive": Kind("ns", -1, "beyond a write: a send takes a receive at its target"),
    "rendezvous": Kind("ns", -1, "the handshake before messages above *eager*"),
    "eager": Kind("B", 0, "messages up to this size go without a handshake"),
    "software": Kind("ns", -1, "a library's or the kernel's own time at both ends"),
    # --- many messages ---------------------------------------------------------------------
    "message_rate": Kind("1/s", +1, "messages that one queue pair issues"),
    "read_rate": Kind("1/s", +1, "reads that one queue pair issues"),
    "single_rate": Kind("B/s", +1, "bytes that a queue pair reaches with messages of one packet"),
    "host_copy": Kind("B", 0, "messages up to this size are copied from a GPU by the processor"),
    "agree": Kind("B", 0, "messages above this size cost a library's proxy more"),
    "window": Kind("B", +1, "bytes in flight that credits or a congestion window permit"),
    "flow_rate": Kind("B/s", +1, "bytes that one queue pair, stream or channel reaches"),
    "bus": Kind("B/s", +1, "the host's bus at an endpoint"),
    # --- switches and domains --------------------------------------------------------------
    "radix": Kind("1", 0, "ports of one switch", positive=True),
    "domain": Kind("1", 0, "endpoints of the largest domain", positive=True),
    "buffer": Kind("B", 0, "packet buffer of one switch port"),
    "reduce_efficiency": Kind(
        "1", +1, "share of the rate that in-network reduction reaches", positive=True, most=1
    ),
    "reduce_latency": Kind("ns", -1, "base latency of an in-network collective"),
    "reduce_ranks": Kind("1", 0, "ranks from which in-network reduction is chosen"),
    # --- storage: work/storage.py ----------------------------------------------------------
    "submit": Kind("ns", -1, "a core of the initiator, for a block's request and completion"),
    "serve": Kind("ns", -1, "a core of the target, for a block"),
    "cores": Kind("1", +1, "cores of a target that serve blocks", positive=True),
    "capsule": Kind("B", 0, "a command on the wire, beside its data"),
    "in_capsule": Kind("B", 0, "data of a write that travel with the command"),
    "reply": Kind("B", 0, "a completion on the wire"),
    "drives": Kind("1", +1, "drives of a target, over which its blocks are spread", positive=True),
    "read_latency": Kind("ns", -1, "a drive's own time for a small read"),
    "write_latency": Kind("ns", -1, "a drive's own time for a small write"),
    "read_stream": Kind("B/s", +1, "bytes that a drive reads"),
    "write_stream": Kind("B/s", +1, "bytes that a drive writes"),
    "read_blocks": Kind("1/s", +1, "blocks that a drive reads"),
    "write_blocks": Kind("1/s", +1, "blocks that a drive writes"),
    # --- accelerators: work/training -------------------------------------------------------
    "flops": Kind("1/s", +1, "operations on 16-bit numbers, dense, multiplications and additions"),
    "flops_share": Kind("1", +1, "share of them that matrices reach", positive=True, most=1),
    "memory": Kind("B", 0, "memory of an accelerator", positive=True),
    "memory_rate": Kind("B/s", +1, "bytes that its memory reads or writes"),
    "memory_share": Kind("1", +1, "share of that rate that kernels reach", positive=True, most=1),
    # --- packets: engine/protocol.py -------------------------------------------------------
    "control": Kind("B", -1, "bytes on the wire of an acknowledgement or a trimmed packet"),
    "acks": Kind("1", 0, "packets that one acknowledgement covers; 0: all of a message"),
    "credit": Kind("B", 0, "unit of a link's credits"),
    "paths": Kind("1", 0, "paths over which a sender spreads the packets of a message"),
    "ecn_low": Kind("B", 0, "queue from which switches mark packets"),
    "ecn_high": Kind("B", 0, "queue from which switches mark each packet"),
    "ecn_share": Kind("1", 0, "share of packets that are marked just below *ecn_high*"),
    "xoff": Kind("B", 0, "waiting packets of an input from which it pauses its link"),
    "xon": Kind("B", 0, "waiting packets of an input below which its link resumes"),
    "pull": Kind("1", 0, "packets that one pull of the receiver grants"),
    "pull_rate": Kind("1", +1, "share of its rate that a receiver pulls"),
    "adapt": Kind("ns", 0, "interval after which trimmed packets lower the rate of pulls"),
    "timeout": Kind("ns", -1, "missing packets are sent again after this"),
    "notify": Kind("ns", 0, "DCQCN: the least time between two notifications of a flow"),
    "recover": Kind("ns", -1, "DCQCN: the rate rises after each such time"),
    "increase": Kind("B/s", +1, "DCQCN: additive increase"),
    "rate_least": Kind("B/s", +1, "DCQCN: the rate falls no lower"),
    "switch_energy": Kind("pJ/b", -1, "a bit that passes a switch, without its media"),
    "adapter_energy": Kind("pJ/b", -1, "a bit that leaves or enters an endpoint"),
    # --- media -----------------------------------------------------------------------------
    "propagation": Kind("ns/m", -1, "the signal, a metre"),
    "conversion": Kind("ns", -1, "both ends of the medium, for a signal that passes"),
    "reach": Kind("m", +1, "the longest path"),
    "energy": Kind("pJ/b", -1, "both ends, a bit at full rate"),
    "price": Kind("1", -1, "price class: 1 is cheapest"),
    "year": Kind("1", 0, "the year in which it can be bought"),
}

#: Tables of a library: rows and columns have names, and each cell is a number of that dimension.
TABLES: Mapping[str, Kind] = {
    # --- the library's own estimate, by which it chooses -----------------------------------
    "estimate_base": Kind("ns", -1, "base latency, by algorithm"),
    "estimate_hop": Kind("ns", -1, "latency of a step, by algorithm and kind of link"),
    "estimate_link": Kind("B/s", +1, "rate of an endpoint's links, by fabric"),
    "estimate_speed": Kind("B/s", +1, "rates that one channel may have, by generation"),
    "estimate_ll": Kind("B/s", +1, "limit of LL, by generation"),
    "estimate_channel": Kind("B/s", +1, "limit of one channel, by algorithm and generation"),
    "estimate_tree": Kind("1", 0, "correction of trees for 64 B, 128 B, and so on"),
    "estimate_share": Kind("1", +1, "shares of a rate that the estimate takes"),
    # --- a fabric's part in the library ----------------------------------------------------
    "fabric": Kind("1", 0, "generation of the GPU (3 is Ampere), and what is enabled"),
    "channels": Kind("1", 0, "the most channels of a collective, by fabric"),
    "kernel_rate": Kind("1", +1, "share of a port's rate that kernels reach, by fabric"),
    "channel_rate": Kind("B/s", +1, "rate of one channel, by fabric"),
    "peer_rate": Kind("1", +1, "share of a port's rate towards one and towards many peers"),
    "channel_bytes": Kind("B", 0, "bytes from which another channel is opened"),
    "wire": Kind("1", 0, "bytes on the wire for a byte of payload"),
    # --- the library's time ----------------------------------------------------------------
    "launch": Kind("ns", -1, "a kernel's launch, and of each further GPU of a process"),
    "hop_time": Kind("ns", -1, "the library's part of a step, by pattern and fabric"),
    "chunk": Kind("B", 0, "chunks of in-network reduction, the largest first"),
    "chunk_time": Kind("ns", -1, "synchronisation of a chunk of in-network reduction"),
}
