# SPDX-License-Identifier: BSD-3-Clause
"""Cluster files: what they may say, and what is said of wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nupa.topology.error import TopologyError
from nupa.trunk import file as cluster_file
from nupa.trunk.cluster import MACHINES_MAX, Cluster, Machine
from nupa.trunk.file import ClusterText, read

PAGE = Path(__file__).parents[3] / "docs" / "trunk.md"

TRUNK = """
[[trunk]]
by = "ucx"
"""
MACHINES = """
[[machine]]
name = "alpha"
address = "192.0.2.1"
[[machine]]
name = "beta"
address = "192.0.2.2"
"""


def parse(text: str, *, topology: str = "") -> Cluster:
    return ClusterText("cluster.toml", text, topology).parse()


def refused(text: str) -> str:
    with pytest.raises(TopologyError) as caught:
        parse(text)
    assert str(caught.value).startswith("cluster.toml:"), caught.value
    return str(caught.value)


def hosts(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    return {machine.name: machine.hosts for machine in cluster.machines}


def test_hosts_are_divided_evenly_in_order() -> None:
    cluster = parse(f'topology = "storage16"\n{MACHINES}{TRUNK}')
    assert hosts(cluster) == {
        "alpha": tuple(f"server{number}" for number in range(8)),
        "beta": tuple(f"server{number}" for number in range(8, 16)),
    }
    assert cluster.name == "cluster"
    assert cluster.machine_of("server9").name == "beta"


def test_the_first_machines_have_one_more_where_hosts_do_not_divide() -> None:
    third = '[[machine]]\nname = "gamma"\naddress = "192.0.2.3"\n'
    cluster = parse(f'topology = "gpu24"\n{MACHINES}{third}{TRUNK}')
    assert [len(each) for each in hosts(cluster).values()] == [8, 8, 8]
    inline = '[[switch]]\nname = "s"\nports = 9\n[[host]]\nname = "h"\ncount = 5\nswitch = "s"\n'
    cluster = parse(f"{inline}{MACHINES}{third}{TRUNK}")
    assert [len(each) for each in hosts(cluster).values()] == [2, 2, 1]


def test_a_machine_may_name_its_hosts_and_the_others_share_the_rest() -> None:
    text = MACHINES.replace('"192.0.2.1"', '"192.0.2.1"\nhosts = ["server3", "server1"]')
    cluster = parse(f'topology = "storage16"\n{text}{TRUNK}')
    assert cluster.machine("alpha").hosts == ("server1", "server3")
    assert len(cluster.machine("beta").hosts) == 14


def test_an_inline_topology_has_trunks_between_switches_beside_that_of_ucx() -> None:
    text = """
name = "racks"
[[switch]]
name = "left"
ports = 4
[[switch]]
name = "right"
ports = 4
[[trunk]]
between = ["left", "right"]
[[trunk]]
by = "ucx"
port = 5000
transports = "tcp,rc_verbs"
[[host]]
name = "a"
switch = "left"
[[host]]
name = "b"
switch = "right"
"""
    cluster = parse(text + MACHINES)
    assert cluster.name == "racks"
    assert len(cluster.topology.trunks) == 1
    assert hosts(cluster) == {"alpha": ("a",), "beta": ("b",)}
    assert [machine.port for machine in cluster.machines] == [5000, 5000]
    assert cluster.trunk.transports == "tcp,rc_verbs"


def test_machines_have_defaults() -> None:
    text = MACHINES.replace('address = "192.0.2.1"', "")
    alpha = parse(f'topology = "pair"\n{text}{TRUNK}').machine("alpha")
    assert alpha == Machine("alpha", "alpha", ("host0",))
    assert (alpha.destination, alpha.command, alpha.port) == ("alpha", ("nupa",), 4790)


def test_the_topology_may_be_a_file_beside_it(tmp_path: Path) -> None:
    there = tmp_path / "lab.toml"
    there.write_text('[[switch]]\nname = "s"\nports = 2\n[[host]]\nname = "h"\ncount = 2\n')
    path = tmp_path / "cluster.toml"
    path.write_text(f'topology = "lab.toml"\n{MACHINES}{TRUNK}')
    with pytest.raises(TopologyError, match=r"lab\.toml: .*the key `switch` is missing"):
        read(path).parse()
    there.write_text(there.read_text() + 'switch = "s"\n')
    files = read(path)
    # The text is all that another machine needs.
    assert hosts(ClusterText(*files).parse()) == {"alpha": ("h0",), "beta": ("h1",)}
    there.unlink()
    with pytest.raises(TopologyError, match=r"lab\.toml: No such file"):
        read(path)


def test_generations_follow_from_the_files_and_the_session() -> None:
    one, other = (parse(f'topology = "{name}"\n{MACHINES}{TRUNK}') for name in ("pair", "gpu24"))
    same = parse(f'topology = "pair"\n{MACHINES}{TRUNK}')
    assert one.generation("a") == same.generation("a")
    assert len({one.generation("a"), one.generation("b"), other.generation("a")}) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('topology = "pair"', "there are 0 [[trunk]] tables with `by`"),
        (f'topology = "pair"\n{TRUNK}{TRUNK}{MACHINES}', "there are 2 [[trunk]] tables"),
        (f'topology = "pair"\n{TRUNK}', "there is no [[machine]]"),
        (f'topology = "star"\n{TRUNK}{MACHINES}', "there is no preset 'star'"),
        (f"topology = 3\n{TRUNK}{MACHINES}", "`topology` is 3, not a string"),
        (f'topology = "pair"\nlink_layer = "ethernet"\n{TRUNK}{MACHINES}', "no key `link_layer`"),
        (f"machines = 3\n{TRUNK}{MACHINES}", "there is no key `machines`; the keys are: "),
        (f'topology = "tenants"\n{TRUNK}{MACHINES}', "a cluster has none of them"),
        (
            f'topology = "pair"\n[[trunk]]\nby = "zmq"\n{MACHINES}',
            "[[trunk]] 1: `by` is 'zmq': choose ucx",
        ),
        (
            f'topology = "pair"\n{TRUNK}port = 65536\n{MACHINES}',
            "[[trunk]] 1: `port` is 65536: choose 1 to 65535",
        ),
        (
            f'topology = "pair"\n{TRUNK}rails = 2\n{MACHINES}',
            "[[trunk]] 1: there is no key `rails`; the keys are: by, port, library, transports, "
            "devices",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}hosts = []',
            "[[machine]] 2 ('beta'): `hosts` is []",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}hosts = ["host7"]',
            "machine 'beta': there is no host 'host7'; the hosts are: host0, host1",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}hosts = ["host0", "host1"]',
            "machine 'alpha' has no host: 2 hosts do not suffice for 2 machines",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}[[machine]]\nname = "gamma"\n',
            "machine 'gamma' has no host",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}'.replace("beta", "alpha"),
            "the machine name 'alpha' is used twice",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}'.replace("192.0.2.2", "192.0.2.1"),
            "the machines 'alpha' and 'beta' have the same address 192.0.2.1 and port 4790",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}'.replace("192.0.2.2", "192.0.2.256"),
            "`address` is '192.0.2.256': give an address of IPv4 or IPv6, or a name",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}'.replace("192.0.2.2", "::"),
            "`address` is ::: give the address that the others reach it by",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}ssh = "-oProxyCommand=sh"',
            "`ssh` is '-oProxyCommand=sh': use letters",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}ssh = "a; sh"',
            "`ssh` is 'a; sh': use letters",
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}command = "\'"',
            '`command` is "\'": No closing quotation',
        ),
        (
            f'topology = "pair"\n{TRUNK}{MACHINES}command = " "',
            "`command` is empty: name the program",
        ),
        (
            f'topology = "pair"\n{TRUNK}[[machine]]\nname = "alpha"',
            "there are 1 machines: a cluster has 2 to",
        ),
    ],
)
def test_wrong_files_are_refused_by_table_key_and_allowed_values(text: str, why: str) -> None:
    assert why in refused(text)


def test_machines_and_slots_have_limits() -> None:
    star = '[[switch]]\nname = "s"\nports = 300\n[[host]]\nname = "h"\ncount = 70\nswitch = "s"\n'
    many = [f'[[machine]]\nname = "m{number}"\n' for number in range(MACHINES_MAX + 1)]
    assert len(parse(star + TRUNK + "".join(many[:MACHINES_MAX])).machines) == MACHINES_MAX
    assert f"there are {MACHINES_MAX + 1} machines" in refused(star + TRUNK + "".join(many))
    assert len(parse(f"{star}{TRUNK}{MACHINES}[segment]\nslots = 71").machines) == 2
    said = refused(f"{star}{TRUNK}{MACHINES}[segment]\nslots = 70")
    assert "`slots` is 70: 70 hosts need at least 71" in said


def test_a_topology_file_says_where_a_trunk_of_ucx_belongs() -> None:
    from nupa.topology import file as topology_file

    with pytest.raises(TopologyError, match="`by` is for a file of machines: `nupa trunk up FILE`"):
        topology_file.parse(f'[[switch]]\nname = "s"\nports = 2\n{TRUNK}'.encode(), "x", "x")


def test_the_page_lists_the_keys_that_are_read() -> None:
    section = PAGE.read_text().split("\n## Keys\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\|[^|]*\| (`[^|]+) \|", section, re.MULTILINE)
    listed = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    source = Path(cluster_file.__file__).read_text()
    read_keys = set(re.findall(r'(?:table|top)\.(?:get|any|text|number)\("(\w+)"', source))
    read_keys |= set(re.findall(r'(?:_plain|_words)\(table, "(\w+)"', source))
    assert listed == read_keys
