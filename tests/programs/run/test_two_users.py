# SPDX-License-Identifier: BSD-3-Clause
"""Two ordinary users, or the root of a user namespace and the real one, and a folder that both may
write.  Neither takes the other's files for its own, and neither stops the other.

tests/unit/fabric/test_ownership.py has each file and each thing that may lie there, in one process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import nupa
from nupa.programs.pair import ProgramOutcome, run
from tests.programs import users
from tests.programs.users import User

DEADLINE_S = 50.0  # what takes longer is held up by another user
NAME = "default"


class Shared:
    """A folder that several users may write, as /dev/shm is, and commands of theirs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, user: User, argv: Sequence[str], *, before: Sequence[str] = ()) -> ProgramOutcome:
        """Runs a command line of *user*; *before* is put before it."""
        env = {"NUPA_DIR": str(self.folder), **user.env}
        return run([*user.prefix, *before, *argv], env=env, deadline_s=DEADLINE_S)

    def nupa(self, user: User, *arguments: str, before: Sequence[str] = ()) -> ProgramOutcome:
        argv = [user.python, "-P", "-m", "nupa.cli", *arguments]
        return self.run(user, argv, before=before)

    def ok(self, user: User, *arguments: str, before: Sequence[str] = ()) -> str:
        """Returns the output of `nupa`, which must succeed without a word on stderr."""
        outcome = self.nupa(user, *arguments, before=before).check()
        assert outcome.stderr == ""
        return outcome.stdout

    def fails(self, user: User, *arguments: str) -> str:
        """Returns the one line that `nupa` says on stderr."""
        outcome = self.nupa(user, *arguments)
        assert outcome.returncode == 1, outcome.describe()
        assert outcome.stderr.startswith("nupa: ")
        assert outcome.stderr.count("\n") == 1
        return outcome.stderr

    def segment(self, user: User, name: str = NAME) -> Path:
        return self.folder / f"nupa-{user.uid}-{name}"


@pytest.fixture
def shared() -> Iterator[Shared]:
    folder = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
    folder.chmod(0o1777)
    yield Shared(folder)
    shutil.rmtree(folder)


@pytest.fixture
def victim(nobody: User) -> User:
    return nobody


@pytest.fixture
def attacker(nobody: User) -> User:
    return users.another(nobody)


def test_two_users_have_fabrics_of_one_name_beside_each_other(
    shared: Shared, victim: User, attacker: User
) -> None:
    for user in (victim, attacker):
        shared.ok(user, "up")
    for user in (victim, attacker):
        (found,) = json.loads(shared.ok(user, "ls", "--json"))
        assert (found["path"], found["owner"]) == (str(shared.segment(user)), user.uid)
        assert "nupa_rdma0" in shared.ok(user, "run", "--", "ibv_devices")
        shared.ok(user, "down")
    assert list(shared.folder.iterdir()) == []


def test_a_segment_that_another_user_made_and_renamed_is_refused(
    shared: Shared, victim: User, attacker: User
) -> None:
    planted = shared.segment(victim)
    shared.ok(attacker, "up")
    mine = shared.segment(attacker)
    assert shared.run(attacker, ["chmod", "666", str(mine)]).ok
    assert shared.run(attacker, ["mv", str(mine), str(planted)]).ok

    for arguments in (
        ["show", NAME],
        ["run", "--fabric", NAME, "--", "ibv_devices"],
        ["run", "--", "ibv_devices"],
        ["port", "host0", "down", "--fabric", NAME],
        ["pool", "ls", "--fabric", NAME],
        ["fault", "ls", "--fabric", NAME],
        ["capture", "--fabric", NAME],
        ["up"],
    ):
        assert f"{planted} belongs to user {attacker.uid}" in shared.fails(victim, *arguments)
    said = shared.fails(victim, "down")
    assert str(planted) in said
    assert f"user {attacker.uid}" in said

    # The library itself, as of a program that was told of it.
    packages = Path(victim.env.get("PYTHONPATH", Path(nupa.__path__[0]).parent))
    told = ["env", f"NUPA_FABRIC={planted}", "NUPA_HOST=host0"]
    told.append(f"LD_LIBRARY_PATH={packages / 'nupa' / 'lib'}")
    outcome = shared.run(victim, ["ibv_devices"], before=told)
    assert "nupa_rdma0" not in outcome.stdout
    assert f"{planted} belongs to user {attacker.uid}" in outcome.stderr

    # The victim has others all the same.
    shared.ok(victim, "up", "--name", "lab")
    assert "nupa_rdma0" in shared.ok(victim, "run", "--fabric", "lab", "--", "ibv_devices")
    shared.ok(victim, "down", "lab")


def plant_empty(shared: Shared, attacker: User, path: Path) -> None:
    assert shared.run(attacker, ["touch", str(path)]).ok


def plant_fifo(shared: Shared, attacker: User, path: Path) -> None:
    assert shared.run(attacker, ["mkfifo", "-m", "666", str(path)]).ok


def plant_folder(shared: Shared, attacker: User, path: Path) -> None:
    assert shared.run(attacker, ["mkdir", "-m", "777", str(path)]).ok


def plant_link(shared: Shared, attacker: User, path: Path) -> None:
    assert shared.run(attacker, ["ln", "-s", str(shared.folder / "target"), str(path)]).ok


PLANTED = [plant_empty, plant_fifo, plant_folder, plant_link]


@pytest.mark.parametrize("plant", PLANTED)
def test_a_stray_file_is_listed_and_no_command_minds_it(
    shared: Shared, victim: User, attacker: User, plant: Callable[[Shared, User, Path], None]
) -> None:
    path = shared.segment(victim, "x")
    plant(shared, attacker, path)

    # The only one that it can mean, though it is not called default.
    shared.ok(victim, "up", "--name", "lab")
    listed = shared.ok(victim, "ls")
    assert "nupa_rdma0" in shared.ok(victim, "run", "--", "ibv_devices")
    shared.ok(victim, "down", "lab")

    assert f"{path}" in listed
    assert f"user {attacker.uid}" in listed


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("nupa-{}.lock", ["up"]),
        (".nupa-{}-default.net", ["net", "ls"]),
        (".nupa-{}-default.net", ["net", "down"]),
        (".nupa-{}-default.lock", ["net", "down"]),
        (".nupa-{}-default.fm", ["fm", "ls", "--fabric", NAME]),
    ],
    ids=["control lock", "net ls", "net down", "lock of interfaces", "manager"],
)
def test_another_users_file_is_named_with_its_owner(
    shared: Shared,
    victim: User,
    attacker: User,
    plant: Callable[[Shared, User, Path], None],
    name: str,
    arguments: list[str],
) -> None:
    target = shared.folder / "target"
    target.touch(0o600)
    os.chown(target, victim.uid, -1)
    path = shared.folder / name.format(victim.uid)
    plant(shared, attacker, path)

    said = shared.fails(victim, *arguments)

    assert str(path) in said
    assert f"user {attacker.uid}" in said
    assert target.read_bytes() == b""


def test_another_users_lock_holds_nobody_up(shared: Shared, victim: User, attacker: User) -> None:
    """Also where the victim could open the file, and the attacker has locked it."""
    path = shared.folder / f"nupa-{victim.uid}.lock"
    lock = ["flock", str(path), "sh", "-c", "chmod 666 $0; echo locked; exec cat", str(path)]
    with subprocess.Popen(
        [*attacker.prefix, *lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        said = shared.fails(victim, "up")
        holder.communicate("")
    assert str(path) in said
    assert f"user {attacker.uid}" in said


# --- the own folder ----------------------------------------------------------------------


def test_each_user_has_a_folder_of_its_own_in_dev_shm(
    shared: Shared, victim: User, attacker: User
) -> None:
    for user in (victim, attacker):
        own = f"/dev/shm/nupa-{user.uid}"
        if os.path.lexists(own):
            pytest.skip(f"{own} is there, and in use")
    script = 'ls -ld "${NUPA_FABRIC%/*}"; echo "$NUPA_FABRIC"'
    argv = ["-u", "NUPA_DIR", victim.python, "-P", "-m", "nupa.cli"]
    argv += ["run", "--", "sh", "-c", script]
    for user in (victim, attacker):
        own = f"/dev/shm/nupa-{user.uid}"
        outcome = shared.run(user, argv).check()
        listed, fabric = outcome.stdout.splitlines()
        assert listed.startswith("drwx------ ")
        assert fabric == f"{own}/nupa-{user.uid}-default"
        assert not os.path.lexists(own)


# --- user namespaces ---------------------------------------------------------------------


@pytest.fixture
def as_root(shared: Shared, attacker: User) -> list[str]:
    """Before a command of the attacker: it is root of a user namespace of its own."""
    before = ["unshare", "--map-root-user", "--"]
    tried = shared.run(attacker, ["true"], before=before)
    if not tried.ok:
        pytest.skip(f"no user namespaces here: {tried.stderr.strip()}")
    return before


def test_the_real_root_refuses_what_the_root_of_a_user_namespace_made(
    shared: Shared, attacker: User, as_root: list[str]
) -> None:
    root = users.ourselves()
    shared.ok(attacker, "up", before=as_root)
    planted = shared.segment(root)
    assert planted.stat().st_uid == attacker.uid

    said = shared.fails(root, "show", NAME)
    listed = shared.ok(root, "ls")

    for text in (said, listed):
        assert f"{planted} belongs to user {attacker.uid}" in text
    # And the one who made it has it.
    assert "nupa_rdma0" in shared.ok(attacker, "run", "--", "ibv_devices", before=as_root)


def test_the_root_of_a_user_namespace_refuses_another_users_fabric(
    shared: Shared, victim: User, attacker: User, as_root: list[str]
) -> None:
    shared.ok(victim, "up")
    planted = shared.folder / "nupa-0-default"
    shared.segment(victim).rename(planted)
    planted.chmod(0o666)
    outcome = shared.nupa(attacker, "show", NAME, before=as_root)
    assert outcome.returncode == 1
    # So the kernel shows all users that the namespace does not map.
    assert f"{planted} belongs to user 65534" in outcome.stderr


def test_without_a_mapping_no_file_is_ones_own(shared: Shared, victim: User) -> None:
    before = ["unshare", "--user", "--"]
    if not shared.run(victim, ["true"], before=before).ok:
        pytest.skip("no user namespaces here")
    shared.ok(victim, "up")
    outcome = shared.nupa(victim, "show", before=before)
    assert outcome.returncode == 1
    assert "unshare -r" in outcome.stderr
    shared.ok(victim, "down")
