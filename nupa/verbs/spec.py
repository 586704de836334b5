# SPDX-License-Identifier: BSD-3-Clause
"""What a flow matches, under pyverbs' module name: this device has none."""

from nupa.verbs.unsupported import EthSpec, Ipv4ExtSpec, Ipv6Spec, Spec, TcpUdpSpec

__all__ = ["EthSpec", "Ipv4ExtSpec", "Ipv6Spec", "Spec", "TcpUdpSpec"]
