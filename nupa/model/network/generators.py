# SPDX-License-Identifier: BSD-3-Clause
"""Networks by their size: one switch, fat trees, rails, dragonflies and dual networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, prod

from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.network.path import PLAIN, Cable
from nupa.model.profile.profile import Profile, load

RADIX = 64  # of a switch whose profile has none
TIERS_MAX = 3
UPN_DOMAIN = 512
HPN_POD = 15_360
#: Computed in tests: an all-to-all by levels against one over the graph.
DRAGONFLY_NOTES = (
    "links between groups are taken as evenly used, as adaptive routing does; shortest paths alone "
    "reach about three quarters of that in an all-to-all",
)
#: HPN 7.0 (SIGCOMM 2024): the core has 1/15 of the rate of the aggregation.
HPN_CORE = 1 / 15
#: Cables of the dual network, where no medium is given: a row, a hall, a site.
HPN_LENGTHS_M = (20.0, 20.0, 100.0, 500.0)


def _profile(which: str | Profile) -> Profile:
    return load(which) if isinstance(which, str) else which


def _radix(profile: Profile, radix: int) -> int:
    found = radix or int(profile.get("radix", RADIX))
    if found < 4:
        raise ModelError(f"{profile.name}: switches of {found} ports: at least 4 are needed")
    return found


def _links(name: str, links: Sequence[Cable], levels: int) -> Iterator[Cable]:
    if len(links) > levels:
        raise ModelError(f"{name} has {levels} levels of links: media for {len(links)} were given")
    yield from links
    yield from [PLAIN] * (levels - len(links))


def _check_domain(name: str, profile: Profile, endpoints: int) -> None:
    if endpoints < 1:
        raise ModelError(f"{name}: a network has an endpoint at least")
    limit = int(profile.get("domain", endpoints))
    if endpoints > limit:
        raise ModelError(
            f"{name}: {endpoints} endpoints: a domain of {profile.name} has at most {limit}; "
            f"join domains by a second network, as `rail({endpoints},{profile.name},ib-ndr)` does"
        )


def one_switch(
    endpoints: int, profile: str | Profile, *, links: Sequence[Cable] = (), name: str = "switch"
) -> Network:
    """Returns endpoints on one switch, or linked each with each if their profile has no switch."""
    found = _profile(profile)
    _check_domain(found.name, found, endpoints)
    (link,) = _links(found.name, links, 1)
    mesh = found.get("ports", 1.0) > 1 and not found.get("hop")
    level = NetworkLevel("mesh" if mesh else name, endpoints, found, int(not mesh), link, mesh=mesh)
    return Network(found.name, (level,))


def nvl(
    gpus: int = 72, profile: str | Profile = "nvlink5", *, links: Sequence[Cable] = ()
) -> Network:
    """Returns an NVLink domain: each GPU has links to each switch chip of one tier."""
    found = _profile(profile)
    _check_domain(f"nvl({gpus})", found, gpus)
    (link,) = _links(f"nvl({gpus})", links, 1)
    return Network(f"nvl({gpus})", (NetworkLevel("NVLink", gpus, found, 1, link),))


def ualink_pod(
    accelerators: int = 1024,
    profile: str | Profile = "ualink-200g",
    *,
    links: Sequence[Cable] = (),
) -> Network:
    """Returns a UALink pod: one tier of switches, each with a station of every accelerator."""
    found = _profile(profile)
    name = f"ualink_pod({accelerators})"
    _check_domain(name, found, accelerators)
    (link,) = _links(name, links, 1)
    ports = int(found.get("radix", accelerators))
    notes = (
        f"one tier of switches is taken, as its consortium names it: they have {ports} ports each, "
        f"and stations of {accelerators} accelerators are spread over them",
    )
    level = NetworkLevel("UALink", accelerators, found, 1, link)
    return Network(name, (level,), notes=notes if accelerators > ports else ())


def _divided(name: str, whole: int, parts: Sequence[int]) -> tuple[int, ...]:
    """Returns factors of *whole*, each at most its entry of *parts*, the first ones largest."""

    def fit(rest: int, limits: Sequence[int]) -> tuple[int, ...] | None:
        if len(limits) == 1:
            return (rest,) if rest <= limits[0] else None
        for size in range(min(limits[0], rest), 0, -1):
            if rest % size == 0:
                above = fit(rest // size, limits[1:])
                if above is not None:
                    return (size, *above)
        return None

    if whole < 1:
        raise ModelError(f"{name}: {whole} endpoints were asked: a network has one at least")
    if whole > prod(parts):
        raise ModelError(
            f"{name}: {whole} were asked, and switches of these ports join {prod(parts)} at most: "
            "give a larger radix"
        )
    found = fit(whole, parts)
    if found is None or found[0] * 2 <= min(parts[0], whole):
        step = parts[0]
        more = ceil(whole / step) * step
        raise ModelError(
            f"{name}: {whole} does not fill equal groups of up to {' x '.join(map(str, parts))}: "
            f"{more} would"
        )
    return found


def _tree_levels(
    name: str,
    endpoints: int,
    profile: Profile,
    links: Sequence[Cable],
    radix: int,
    taper: float,
    planes: int,
) -> tuple[NetworkLevel, ...]:
    half = radix // 2
    sizes = [(radix,), (half, radix), (half, half, radix)]
    full = [radix, half * radix, half * half * radix]
    tiers = next((tier for tier in range(TIERS_MAX) if endpoints <= full[tier]), None)
    if tiers is None:
        raise ModelError(
            f"{name}: {TIERS_MAX} tiers of {radix} ports join {full[-1]} endpoints at most: "
            f"{endpoints} were asked; give a larger radix"
        )
    groups = _divided(name, endpoints, sizes[tiers])
    media = list(_links(name, links, len(groups)))
    names = ("leaf", "spine", "core")
    return tuple(
        NetworkLevel(
            names[tier],
            count,
            profile,
            2 * tier + 1,
            media[tier],
            taper=taper if tier else 1.0,
            planes=planes,
            stacked=tier > 0,
        )
        for tier, count in enumerate(groups)
    )


def fat_tree(
    endpoints: int,
    profile: str | Profile = "ib-ndr",
    *,
    links: Sequence[Cable] = (),
    radix: int = 0,
    taper: float = 1.0,
    planes: int = 1,
) -> Network:
    """Returns a folded Clos network of one to three tiers, as few as the radix permits.

    *taper* 0.5: the leaves have half as much rate to the spines as to the endpoints.
    """
    found = _profile(profile)
    name = f"fat_tree({endpoints},{found.name})"
    _check_domain(name, found, endpoints)
    levels = _tree_levels(name, endpoints, found, links, _radix(found, radix), taper, planes)
    return Network(name, levels)


def rail(
    gpus: int,
    scale_up: str | Profile = "nvlink4",
    scale_out: str | Profile = "ib-ndr",
    *,
    node: int = 8,
    nics: float = 1.0,
    links: Sequence[Cable] = (),
    radix: int = 0,
    taper: float = 1.0,
    planes: int = 1,
) -> Network:
    """Returns servers of *node* GPUs whose GPUs of one place share leaf switches: a rail.

    Two GPUs of one rail and segment are one switch apart, others three.
    """
    up, out = _profile(scale_up), _profile(scale_out)
    name = f"rail({gpus},{up.name},{out.name})"
    _check_domain(name, up, node)
    if node < 1 or gpus % node:
        raise ModelError(f"{name}: {gpus} GPUs do not fill servers of {node}")
    servers, ports = gpus // node, _radix(out, radix)
    # Each spine has a port for each leaf of its segments, and with cores as many upwards.
    sizes: tuple[int, ...] = (ports // 2, max(1, ports // node))
    if servers > prod(sizes):
        sizes = (ports // 2, max(1, ports // 2 // node), ports)
    groups = _divided(name, servers, sizes)
    media = list(_links(name, links, 1 + len(groups)))
    levels = [NetworkLevel("server", node, up, 1, media[0])]
    levels.append(NetworkLevel("rail", groups[0], out, 1, media[1], 1.0, planes, nics, rails=True))
    for tier, count in enumerate(groups[1:], 1):
        switches = 2 * tier + 1
        levels.append(
            NetworkLevel(
                ("spine", "core")[tier - 1],
                count,
                out,
                switches,
                media[1 + tier],
                taper,
                planes,
                nics,
                stacked=True,
            )
        )
    return Network(name, tuple(levels))


def dragonfly(
    endpoints: int,
    profile: str | Profile = "slingshot-11",
    *,
    links: Sequence[Cable] = (),
    radix: int = 0,
) -> Network:
    """Returns a balanced dragonfly: a quarter of a switch's ports to endpoints, half to its group.

    Kim, Dally, Scott, Abts (ISCA 2008): a = 2 p = 2 h.  A transfer takes the shortest path.
    """
    found = _profile(profile)
    ports = _radix(found, radix)
    name = f"dragonfly({endpoints},{found.name})"
    quarter, half = ports // 4, ports // 2
    limits = (quarter, half, half * quarter + 1)
    if endpoints > quarter * half * limits[2]:
        raise ModelError(
            f"{name}: switches of {ports} ports join {quarter * half * limits[2]} endpoints at "
            f"most: {endpoints} were asked; give a larger radix"
        )
    hosts, switches, groups = _divided(name, endpoints, limits)
    media = list(_links(name, links, 3))
    levels = [NetworkLevel("switch", hosts, found, 1, media[0])]
    if switches > 1:
        local = (half - 1) // (switches - 1) * (switches - 1) / hosts
        levels.append(
            NetworkLevel("group", switches, found, 2, media[1], local, stacked=True, mesh=True)
        )
    if groups > 1:
        each = switches * quarter // (groups - 1)
        # Transfers between groups pass two links of a group, which its switches share.
        passing = 0.5 * levels[-1].taper * switches / (switches - 1) if switches > 1 else 1.0
        taper = min(each * (groups - 1) / (switches * hosts), passing)
        levels.append(
            NetworkLevel("global", groups, found, 4, media[2], taper, stacked=True, mesh=True)
        )
    return Network(name, tuple(levels), notes=DRAGONFLY_NOTES if groups > 1 else ())


def hpn_upn(
    gpus: int = 100_000,
    scale_up: str | Profile = "upn",
    scale_out: str | Profile = "hpn",
    *,
    domain: int = UPN_DOMAIN,
    pod: int = HPN_POD,
    core: float = HPN_CORE,
    links: Sequence[Cable] = (),
) -> Network:
    """Returns a dual network: scale-up domains on UPN, and pods of those on dual-plane HPN.

    Whole domains and pods of equal size are made: 100,000 GPUs are 7 pods of 28 domains of 512.
    """
    up, out = _profile(scale_up), _profile(scale_out)
    name = f"hpn_upn({gpus})"
    if min(gpus, domain, pod) < 1:
        raise ModelError(f"{name}: domain {domain}, pod {pod}: give numbers above 0")
    domain = min(domain, gpus)
    domains = ceil(gpus / domain)
    pods = ceil(gpus / max(pod, domain))
    each = ceil(domains / pods)
    bare = [Cable(None, length) for length in HPN_LENGTHS_M]
    media = [*_links(name, links, 4)]
    media = [*media[: len(links)], *bare[len(links) :]]
    levels = (
        NetworkLevel("UPN", domain, up, 1, media[0]),
        NetworkLevel("HPN", each, out, 1, media[1], planes=2, rails=True),
        NetworkLevel("aggregation", 1, out, 3, media[2], planes=2, stacked=True),
        NetworkLevel("core", pods, out, 5, media[3], core, planes=2, stacked=True),
    )
    made = domain * each * pods
    notes = (f"{gpus} GPUs were asked: whole domains and pods have {made}",)
    return Network(name, levels, notes=notes if made != gpus else ())
