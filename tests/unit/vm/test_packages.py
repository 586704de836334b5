# SPDX-License-Identifier: BSD-3-Clause
"""apt with a state of its own: what it is told, and what is made of its answers.  No network."""

import errno
import stat
from pathlib import Path

import pytest

from nupa.fabric import FabricError, LocalError
from nupa.vm.boot import packages

MIRROR = "http://mirror.example/debian/"

TARGETS = """\
https://other.example/linux/debian bookworm stable Docker
http://mirror.example/debian-security bookworm-security main Debian-Security
http://mirror.example/debian bookworm main Debian
http://second.example/debian bookworm main Debian
"""


def test_the_mirror_is_where_debian_itself_comes_from() -> None:
    assert packages.parse_mirror(TARGETS) == "http://mirror.example/debian"


def test_without_lists_the_mirror_is_what_looks_like_one() -> None:
    text = """\
https://other.example/linux/debian bookworm stable $(LABEL)
http://mirror.example/debian-security bookworm-security main $(LABEL)
http://mirror.example/debian/ bookworm main $(LABEL)
"""
    assert packages.parse_mirror(text) == "http://mirror.example/debian/"
    assert packages.parse_mirror("http://mirror.example/debian bookworm main") is not None


@pytest.mark.parametrize(
    "text",
    ["", "\n \n", "http://mirror.example/ubuntu noble main Ubuntu\n", TARGETS.splitlines()[0]],
)
def test_another_archive_is_no_mirror_of_debian(text: str) -> None:
    assert packages.parse_mirror(text) is None


def test_sources_are_both_suites_signed_by_debian() -> None:
    lines = packages.sources(MIRROR, (packages.STABLE, packages.BACKPORTS)).splitlines()
    assert [line.partition("] ")[2].split() for line in lines] == [
        [MIRROR, "trixie", "main"],
        [MIRROR, "trixie-backports", "main"],
    ]
    assert all(line.startswith("deb [signed-by=/usr/share/keyrings/") for line in lines)
    # On a machine with apt-file, apt would download tables of contents, too.
    assert all(" target=Packages] " in line for line in lines)


@pytest.mark.parametrize(
    "mirror", ["", "mirror", "http://a b/", "http://a/\ndeb x", "[x] http://a/"]
)
def test_what_is_no_address_is_refused(mirror: str) -> None:
    with pytest.raises(LocalError, match="not the address"):
        packages.sources(mirror, [packages.STABLE])


def test_all_of_apts_state_is_in_the_folder(tmp_path: Path) -> None:
    lines = packages.configuration(tmp_path, "sid").splitlines()
    settings = dict(line.rstrip(";").split(" ", 1) for line in lines if not line.startswith("#"))
    for name in ("Dir::State", "Dir::State::status", "Dir::Cache", "Dir::Etc::sourcelist"):
        assert settings[name].startswith(f'"{tmp_path}')
    for name in ("Dir::Etc::sourceparts", "Dir::Etc::preferencesparts"):
        assert settings[name] == '"/dev/null"'
    assert settings["APT::Architecture"] == '"amd64"'
    assert settings["APT::Default-Release"] == '"sid"'
    assert settings["APT::Install-Recommends"] == '"false"'
    assert "#clear APT::Update;" in lines


def test_a_folder_that_apt_cannot_be_told_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="quotation mark"):
        packages.configuration(tmp_path / 'a"b', "sid")


def test_what_apt_would_fetch_is_counted() -> None:
    text = """\
Reading package lists...
'http://mirror.example/pool/a_1_amd64.deb' a_1_amd64.deb 1000 SHA256:ab
'http://mirror.example/pool/b%3a1_all.deb' b_1%3a1_all.deb 234 SHA256:cd
"""
    assert packages.parse_uris(text) == (2, 1234)
    with pytest.raises(FabricError, match="nothing"):
        packages.parse_uris("Reading package lists...\n")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_missing_programs_are_named_with_what_to_do(programs: Path) -> None:
    script(programs / "dpkg-deb", "exit 0")
    with pytest.raises(LocalError, match=r"^apt missing.*Debian or Ubuntu") as caught:
        packages.check_programs()
    assert caught.value.errno == errno.ENOENT


def test_a_missing_keyring_is_named(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        script(programs / name, "exit 0")
    monkeypatch.setattr(packages, "_KEYRING", tmp_path / "absent.gpg")
    with pytest.raises(LocalError, match="apt-get install debian-archive-keyring"):
        packages.check_programs()


def test_the_mirror_may_be_named(monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    assert not list(programs.iterdir())  # apt is not asked
    monkeypatch.setenv(packages.MIRROR_VARIABLE, MIRROR)
    assert packages.find_mirror() == MIRROR


def test_a_machine_without_a_mirror_is_told_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch, programs: Path
) -> None:
    monkeypatch.delenv(packages.MIRROR_VARIABLE, raising=False)
    script(programs / "apt-get", "echo http://mirror.example/ubuntu noble main Ubuntu")
    with pytest.raises(LocalError, match="set NUPA_VM_MIRROR"):
        packages.find_mirror()


def test_a_mirror_that_fails_is_told_with_what_apt_said(tmp_path: Path, programs: Path) -> None:
    script(programs / "apt-get", "echo 'E: Could not resolve mirror.example' >&2; exit 100")
    apt = packages.Apt(tmp_path / "apt", MIRROR, pytest.fail)
    with pytest.raises(FabricError, match="is there a network") as caught:
        apt.update()
    assert "Could not resolve" in str(caught.value)
    assert MIRROR in str(caught.value)


def test_apt_is_given_the_configuration_and_a_plain_locale(tmp_path: Path, programs: Path) -> None:
    script(programs / "apt-get", f'echo "$@ $LC_ALL" >> {tmp_path}/calls')
    lines: list[str] = []
    packages.Apt(tmp_path / "apt", MIRROR, lines.append).update()
    called = (tmp_path / "calls").read_text().split()
    assert called[:2] == ["-c", str(tmp_path / "apt" / "apt.conf")]
    assert called[-1] == "C.UTF-8"
    assert (tmp_path / "apt/state/status").read_text() == ""
    assert "lists of packages" in lines[0]


def test_the_kernel_is_the_one_that_the_stable_suite_names(tmp_path: Path, programs: Path) -> None:
    script(
        programs / "apt-cache",
        f"""echo "$4" > {tmp_path}/asked
echo 'Package: linux-image-amd64'
echo 'Depends: linux-base (>= 4), linux-image-6.12.107+deb13-amd64 (= 6.12.107-1)'""",
    )
    apt = packages.Apt(tmp_path / "apt", MIRROR, pytest.fail)
    name = apt.dependency("linux-image-amd64", r"linux-image-6\.12\..*")
    assert name == "linux-image-6.12.107+deb13-amd64"
    assert (tmp_path / "asked").read_text() == "linux-image-amd64/trixie\n"
    with pytest.raises(FabricError, match="names no package"):
        apt.dependency("linux-image-amd64", r"linux-image-7\..*")


def test_a_package_is_fetched_and_unpacked_with_its_size_told(
    tmp_path: Path, programs: Path
) -> None:
    script(
        programs / "apt-get",
        """case "$*" in
*--print-uris*) echo "'http://m/thing.deb' thing.deb 2500000 SHA256:ab" ;;
*) : > thing.deb ;;
esac""",
    )
    script(programs / "dpkg-deb", ': > "$3/unpacked"')
    lines: list[str] = []
    apt = packages.Apt(tmp_path / "apt", MIRROR, lines.append)
    apt.single("kernel", "thing", tmp_path / "target")
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["unpacked"]
    assert lines[0] == "kernel: downloading 1 package, 2 MB"
    assert lines[1].startswith("kernel: 2 MB, downloaded in ")


def test_versions_are_those_of_the_files_that_apt_would_fetch(
    tmp_path: Path, programs: Path
) -> None:
    script(
        programs / "apt-get",
        """echo "'http://m/p/perl_5.40.1-6_amd64.deb' perl_5.40.1-6_amd64.deb 1 SHA256:ab"
echo "'http://m/g/g_1%3a2-3_all.deb' g_1%3a2-3_all.deb 1 SHA256:cd"
""",
    )
    apt = packages.Apt(tmp_path / "apt", MIRROR, pytest.fail, ["sid"])
    assert apt.versions(["perl"]) == {"perl": "5.40.1-6", "g": "1:2-3"}
    assert " sid main" in (tmp_path / "apt/sources.list").read_text()


def test_a_damaged_package_is_told(tmp_path: Path, programs: Path) -> None:
    script(programs / "dpkg-deb", "echo 'dpkg-deb: error: not a Debian format archive' >&2; exit 2")
    with pytest.raises(FabricError, match="not a Debian format archive"):
        packages.unpack([tmp_path / "x.deb"], tmp_path / "target")
