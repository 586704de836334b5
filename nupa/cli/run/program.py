# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH110, PTH118, PTH120
"""Runs a program as its parent, for `nupa run`, `nupa net exec` and `nupa shell`.

It sets the environment, forwards signals, and ends as the program ended.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NoReturn

import nupa
from nupa.base.errors import NupaError
from nupa.cli.common.command import EXIT_ERROR, fail
from nupa.cli.run.reach import unreached
from nupa.vm.files.place import bell_of

if TYPE_CHECKING:
    from nupa.fabric import Fabric

_LIBRARIES = os.path.join(os.path.dirname(os.path.realpath(nupa.__file__)), "lib")
_SHIM = os.path.join(_LIBRARIES, "libnupa_shim.so")
# For programs that bring their own: LD_LIBRARY_PATH comes after DT_RPATH.
_DROP_IN = [os.path.join(_LIBRARIES, name) for name in ("libibverbs.so.1", "librdmacm.so.1")]
# As in env(1) and timeout(1).
EXIT_CANNOT_RUN = 126
EXIT_NOT_FOUND = 127

# Signals that others may send us for the program.  Not SIGTSTP: a shell stops and continues both.
_FORWARDED = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
}
WAITED = {*_FORWARDED, signal.SIGCHLD}
# As in subprocess.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def environment(fabric: str, host: str, mover: str | None) -> dict[str, str]:
    """Returns our environment, with the variables that attach a program to a fabric's path."""
    env = dict(os.environ, NUPA_FABRIC=fabric, NUPA_HOST=host)
    env.pop("NUPA_MOVER", None)
    env.pop("NUPA_LOOPBACK", None)
    bell = bell_of(fabric)
    if bell and env.get("NUPA_BELL") != "":
        env["NUPA_BELL"] = bell
    if mover:
        env["NUPA_MOVER"] = mover
    _prepend(env, "LD_LIBRARY_PATH", _LIBRARIES)
    # The thread sanitizer sees our memcpy, but not the atomics that order it.
    _prepend(env, "TSAN_OPTIONS", "ignore_noninstrumented_modules=1")
    if os.path.exists(_SHIM):
        drop_in = [] if env.get("NUPA_PRELOAD") == "0" else _DROP_IN
        # The shim stands in for the kernel, so it comes behind the program's own libraries.
        _prepend(env, "LD_PRELOAD", *drop_in)
        env["LD_PRELOAD"] = ":".join([*filter(None, env["LD_PRELOAD"].split(":")), _SHIM])
        # gcc's sanitizer refuses to be other than the first library, though it works.
        _prepend(env, "ASAN_OPTIONS", "verify_asan_link_order=0")
    return env


def tell_if_unreached(command: list[str], env: Mapping[str, str]) -> None:
    """Says on stderr why the program will not load our libraries, where its file shows it."""
    if os.environ.get("NUPA_QUIET") or not os.path.exists(_SHIM):
        return
    why = unreached(command[0], env, _SHIM)
    if why:
        fail(why)


def _prepend(env: dict[str, str], key: str, *values: str) -> None:
    # An empty element would mean the current folder (ld.so(8)); those of ours are from a `nupa run`
    # around this one.
    old = {"", *values, _SHIM, *_DROP_IN}
    rest = [part for part in env.get(key, "").split(":") if part not in old]
    env[key] = ":".join([*values, *rest])


def run_on(
    fabric: Fabric,
    command: list[str],
    env: dict[str, str],
    prepare: Callable[[], None] | None = None,
    beside: AbstractContextManager[object] | None = None,
) -> int:
    """Runs the program, closes *fabric*, and returns its exit code; or dies as it died.

    *prepare* is called in its process first; a NupaError there is one line on stderr.  *beside* is
    entered before the program starts and left after its end, with our signals blocked.
    """
    # If our parent ignored SIGCHLD, there would be nothing to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    try:
        with fabric, beside or nullcontext():
            status = _run(command, env, before, prepare)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return status if status >= 0 else _die_by(-status)


def _run(
    command: list[str],
    env: dict[str, str],
    mask: set[int | signal.Signals],
    prepare: Callable[[], None] | None,
) -> int:
    """Returns the program's exit code, or minus its signal; *mask* is its signal mask."""
    if prepare is None:
        try:
            child = os.posix_spawnp(
                command[0], command, env, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
            )
        except OSError as error:
            return _cannot_run(command, error)
    else:
        child = os.fork()
        if child == 0:
            _become(command, env, mask, prepare)
    while True:
        got = signal.sigwaitinfo(WAITED)
        if got.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        # A terminal signals the whole foreground group (SI_KERNEL, > 0), so the program, too.
        elif got.si_code <= 0:
            os.kill(child, got.si_signo)


def _become(
    command: list[str],
    env: dict[str, str],
    mask: set[int | signal.Signals],
    prepare: Callable[[], None],
) -> NoReturn:
    """Prepares and becomes the program; runs in the child."""
    code = EXIT_ERROR
    try:
        prepare()
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(command[0], command, env)
    except NupaError as error:
        fail(str(error))
    except OSError as error:
        code = _cannot_run(command, error)
    finally:
        os._exit(code)


def _cannot_run(command: list[str], error: OSError) -> int:
    found = not isinstance(error, FileNotFoundError)
    return fail(
        f"cannot run {command[0]}: {error.strerror}",
        EXIT_CANNOT_RUN if found else EXIT_NOT_FOUND,
    )


def _die_by(number: int) -> NoReturn:
    """Ends this process by the same signal, without a second core dump."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    # Only reached for a signal whose default action is not to end the process.
    os._exit(128 + number)
