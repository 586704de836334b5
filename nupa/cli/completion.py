# SPDX-License-Identifier: BSD-3-Clause
"""`nupa completion`: prints a script that completes the command in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from nupa.cli.common.command import Subparsers, add_command

_EPILOG = """\
The script is made from the options and commands of this version.  Names of fabrics are those that
are up.

examples:
  source <(nupa completion bash)        in ~/.bashrc: for each shell
  nupa completion bash > ~/.local/share/bash-completion/completions/nupa
  nupa completion zsh > ~/.zfunc/_nupa  with ~/.zfunc in $fpath
  nupa completion fish > ~/.config/fish/completions/nupa.fish
"""
_NAMES = "nupa ls 2>/dev/null | tail -n +2 | cut -d ' ' -f 1"
_PREAMBLE = {
    "bash": f'_nupa_fabrics() {{\n  compgen -W "$({_NAMES})" -- "$1"\n}}\n',
    "zsh": f"_nupa_fabrics() {{\n  compadd -- $({_NAMES})\n}}\n",
}
_FABRICS = {"bash": "_nupa_fabrics", "zsh": "_nupa_fabrics", "fish": f"({_NAMES})"}
# Words behind -- are a program's: its name, then its files.
_BASH_PROGRAM = """
_nupa() {
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -- ]] || continue
    local kind=-f
    ((i + 1 == COMP_CWORD)) && kind=-c
    mapfile -t COMPREPLY < <(compgen $kind -- "${COMP_WORDS[COMP_CWORD]}")
    return
  done
  _shtab_nupa
}
complete -o bashdefault -F _nupa nupa
"""
#: Arguments that are files and folders, by their names.
_FILES = ("file", "read", "write", "capture", "plot", "policy", "svg", "topology", "qemu")
_FOLDERS = ("record", "to")


def add_parser(subparsers: Subparsers) -> None:
    what = "print a script that completes `nupa` in a shell"
    parser = add_command(subparsers, "completion", what, _EPILOG, run)
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])


def run(args: argparse.Namespace) -> int:
    from nupa.base.errors import LocalError
    from nupa.cli import build_parser

    try:
        import shtab
    except ImportError as error:
        raise LocalError("completion needs shtab: `pip install shtab`") from error
    parser = build_parser([])
    for action in _actions(parser):
        if action.dest in ("fabric", "named"):
            action.complete = _FABRICS  # type: ignore[attr-defined]
        elif action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    script = shtab.complete(parser, args.shell, preamble=_PREAMBLE.get(args.shell, ""))
    print(script + _BASH_PROGRAM if args.shell == "bash" else script)
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yields the arguments of a command and of those below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
