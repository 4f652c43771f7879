"""The ProcessGroupGloo underneath a ProcessGroupHCCL: it carries the messages between the ranks."""

import os
from datetime import timedelta

import torch.distributed as dist

_LOCAL_HOSTS = ("localhost", "::1", "ip6-localhost")


def make_gloo(store, rank: int, size: int, timeout: timedelta):
    """Connects to the other ranks through `store`; all of them must call.

    Waits for them no longer than `timeout`, or HCCL_CONNECT_TIMEOUT seconds if that is set and less.
    """
    options = dist.ProcessGroupGloo._Options()
    options._devices = [_device(store)]
    options._threads = 1  # only Gloo's send and recv are used, which need no worker thread
    options._timeout = min(timeout, _connect_timeout(timeout))
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, options)
    gloo._set_default_timeout(timeout)
    return gloo


def _connect_timeout(default: timedelta) -> timedelta:
    text = os.environ.get("HCCL_CONNECT_TIMEOUT", "")
    if not text:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"HCCL_CONNECT_TIMEOUT={text!r} is not valid: expected a positive number of seconds")
    return timedelta(seconds=int(text))


def _device(store):
    """Where to listen. By default Gloo asks for the address of the machine's own name, which need not be known or be
    reachable; ranks whose master is the local host are all on this machine, and its loopback device serves them."""
    if "GLOO_SOCKET_IFNAME" not in os.environ and _all_local(store):
        return dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        return dist.ProcessGroupGloo.create_device(interface=interface)
    return dist.ProcessGroupGloo.create_default_device()  # falls back to loopback if the name is unknown


def _all_local(store) -> bool:
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    local_ranks = os.environ.get("LOCAL_WORLD_SIZE")
    if local_ranks is not None and local_ranks == os.environ.get("WORLD_SIZE"):
        return True
    host = store.host if isinstance(store, dist.TCPStore) else os.environ.get("MASTER_ADDR", "")
    return host in _LOCAL_HOSTS or host.startswith("127.")
