"""As little as it takes to read a peer's memory: ten lines on each side."""

from __future__ import annotations

import struct
import threading

from loopback import HERE, THERE

from livedma.rdma import Device, cm


def serve(device: Device, listener: cm.Listener) -> None:
    pd = device.protection_domain()
    region = pd.register(bytearray(b"hello from afar"), "remote_read")
    for request in listener:
        where = struct.pack("!QI", region.va, region.rkey)
        with request.accept(pd=pd, private_data=where) as connection:
            connection.wait_disconnected()


def read(device: Device, address: str) -> bytes:
    with cm.connect(device, address, 7174) as connection:
        va, rkey = struct.unpack_from("!QI", connection.private_data)
        memory = bytearray(15)
        region = connection.pd.register(memory)
        connection.qp.post_send(1, "READ", [region[:]], remote_va=va, rkey=rkey)
        assert connection.cq.wait(timeout=10)[0].status == "SUCCESS"
        return bytes(memory)


def test_a_peers_memory_is_read() -> None:
    with Device(THERE) as there, cm.listen(there, 7174) as listener:
        server = threading.Thread(target=serve, args=(there, listener))
        server.start()
        with Device(HERE) as here:
            assert read(here, THERE) == b"hello from afar"
        listener.close()
        server.join(10)
        assert not server.is_alive()
