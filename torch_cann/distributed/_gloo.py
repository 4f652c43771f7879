"""The ProcessGroupGloo underneath a ProcessGroupHCCL: it carries the messages between the ranks."""

import os
from datetime import timedelta

import torch.distributed as dist

_LOCAL_HOSTS = ("localhost", "::1", "ip6-localhost")


def make_gloo(
    store, rank: int, size: int, timeout: timedelta, connect_timeout: timedelta, address: str, interface: str
):
    """Connects to the other ranks through `store`; all of them must call.

    Args:
        timeout: of each message.
        connect_timeout: how long to wait for the other ranks, if that is less.
        address: of this host, to listen on; "" for any. HCCL_IF_IP.
        interface: of the network, to listen on; "" for any. HCCL_SOCKET_IFNAME.
    """
    options = dist.ProcessGroupGloo._Options()
    options._devices = [_device(store, address, interface)]
    options._threads = 1  # only Gloo's send and recv are used, which need no worker thread
    options._timeout = min(timeout, connect_timeout)
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, options)
    gloo._set_default_timeout(timeout)
    return gloo


def _device(store, address: str, interface: str):
    """Where to listen: HCCL's variables come first, then Gloo's own. By default Gloo asks for the address of the
    machine's own name, which need not be known or be reachable; ranks whose master is the local host are all on this
    machine, and its loopback device serves them."""
    if address:
        return dist.ProcessGroupGloo.create_device(hostname=address)
    interface = interface or os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        return dist.ProcessGroupGloo.create_device(interface=interface)
    if _all_local(store):
        return dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    return dist.ProcessGroupGloo.create_default_device()  # falls back to loopback if the name is unknown


def _all_local(store) -> bool:
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    local_ranks = os.environ.get("LOCAL_WORLD_SIZE")
    if local_ranks is not None and local_ranks == os.environ.get("WORLD_SIZE"):
        return True
    host = store.host if isinstance(store, dist.TCPStore) else os.environ.get("MASTER_ADDR", "")
    return host in _LOCAL_HOSTS or host.startswith("127.")
