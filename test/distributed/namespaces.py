"""Two network namespaces joined by a link: two hosts on one machine, as far as processes can tell. Needs root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator

CLONE_NEWNET = 0x40000000
INTERFACE = "cannlink"


class NotAllowed(Exception):
    """This machine does not let us make network namespaces; the text says why."""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def limit_rate(namespace: str, rate: str) -> None:
    """Lets no more than `rate` ("1gbit") leave the namespace, by a token bucket of tc."""
    bucket = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "100ms"]
    command = ["ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", INTERFACE, *bucket]
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextlib.contextmanager
def two_namespaces(rate: str | None = None) -> Iterator[list[str]]:
    """Names of two namespaces with a link whose ends are called INTERFACE; removed at the end.

    Args:
        rate: bits per second in each direction, as tc writes it; None for what the machine gives.

    Raises:
        NotAllowed: there is no command `ip` (or `tc`, with a rate), or no right to use it.
    """
    if shutil.which("ip") is None or (rate and shutil.which("tc") is None):
        raise NotAllowed("network namespaces need the commands ip and tc (Debian: iproute2)")
    tag = uuid.uuid4().hex[:6]
    names = [f"cann{tag}a", f"cann{tag}b"]
    made = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            ip("link", "add", f"c{tag}a", "type", "veth", "peer", "name", f"c{tag}b")
            for index, name in enumerate(names):
                ip("link", "set", f"c{tag}{'ab'[index]}", "netns", name, "name", INTERFACE)
                ip("-n", name, "addr", "add", f"10.77.0.{index + 1}/24", "dev", INTERFACE)
                for interface in ("lo", INTERFACE):
                    ip("-n", name, "link", "set", interface, "up")
                if rate:
                    limit_rate(name, rate)
        except subprocess.CalledProcessError as error:
            raise NotAllowed(f"network namespaces are not allowed here: {error.stderr.strip()}") from error
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def enter(name: str) -> None:
    """Moves the calling process, before it has other threads that matter, into the namespace."""
    with open(f"/var/run/netns/{name}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
