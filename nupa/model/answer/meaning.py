# SPDX-License-Identifier: BSD-3-Clause
"""Names of stages in words, for explanations."""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "post": "the program writes the work request",
    "doorbell": "the doorbell reaches the adapter",
    "descriptor fetch": "the adapter fetches the work request",
    "payload fetch": "the adapter fetches the payload: it was not inline",
    "rendezvous": "the handshake before messages above the eager limit",
    "software": "the library or the kernel, at both ends",
    "issue": "the access leaves the core and reaches the port",
    "first packet": "both adapters store and forward the first packet",
    "serialisation": "bytes and headers leave a port at its rate",
    "switches": "the hops",
    "media": "cables and transceivers",
    "target's answer": "the target of a read or an atomic answers",
    "receive": "the target takes a receive",
    "write to memory": "the target's adapter writes the payload",
    "arrival": "data reach the core, or a store is visible",
    "completion": "the completion is written, and the program sees it",
    "acknowledgement": "the requester learns of the end",
    "waiting for a port": "other messages pass the sender's or the target's port",
    "jitter": "waits beside the stages, of slow runs",
    "launch": "the library starts its kernels",
    "library": "the library's steps: flags, copies, synchronisation",
    "computation": "the program computes",
    "tensor parallel": "the exchanges of tensor-parallel ranks",
    "pipeline": "activations pass to the next stage of the pipeline",
    "pipeline bubble": "stages of the pipeline wait for the first and the last micro-batches",
    "experts": "tokens travel to their experts and back",
    "gradients": "the exchange of gradients, as far as computation does not hide it",
    "optimizer": "the update of the weights",
    "submit": "the initiator's protocol takes the request",
    "serve": "the target's protocol takes the request",
    "memory": "weights and caches are read from memory",
    "dispatch": "tokens travel to the ranks of their experts",
    "combine": "results of experts travel back",
    "drive": "the drive reads or writes the block",
    "copies in the stack": "the kernel copies the payload",
    "queues": "packets wait for others",
    "message rate": "a queue pair issues no more messages a second",
    "messages in flight": "the round trip over the messages outstanding",
    "flow rate": "one queue pair, stream or channel reaches no more",
    "single rate": "messages of one packet are fetched one after the other",
    "bus": "the host's bus at an endpoint",
    "window": "bytes in flight that credits or a window permit",
    "kernels": "the library's kernels on the GPU copy no faster: the ports could",
    "in-network reduction": "the switches reduce at this part of their rate",
    "channels": "the library's channels reach no more",
    "channels to one peer": "the library's channels to one peer reach no more",
    "library's channels": "the library's channels reach no more",
}


def meaning(stage: str) -> str:
    """Returns what a stage is; of `serialisation, net` and `sharing leaf up`, with the place."""
    if stage in MEANINGS:
        return MEANINGS[stage]
    kind, _, place = stage.partition(", ")
    if kind in MEANINGS and place:
        return f"{MEANINGS[kind]}: {place}"
    if stage.startswith("wait: "):
        return f"requests queue: {stage.removeprefix('wait: ')}"
    if stage.startswith("sharing "):
        return f"others use the links {stage.removeprefix('sharing ')}"
    return "bytes and headers on these links at their rate" if stage.endswith(_WAYS) else ""


_WAYS = (" out", " in", " up", " down")
