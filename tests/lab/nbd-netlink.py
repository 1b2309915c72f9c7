#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""An NBD client that connects a device by netlink with a time limit for dead connections, which nbd-client cannot set.

    nbd-netlink.py SOCKET NAME INDEX TIMEOUT DEAD

The export NAME of the unix socket becomes /dev/nbdINDEX. The kernel repeats a request after TIMEOUT seconds (0: its own
default), and waits DEAD seconds for another connection when this one broke. When it breaks, this program connects again
and gives the kernel the new connection. It runs until it is killed; the device stays.
"""

import os
import select
import socket
import struct
import sys
import time

CONTROL, GETFAMILY, FAMILY_ID, FAMILY_NAME = 16, 3, 1, 2
CONNECT, RECONFIGURE = 1, 3
INDEX, SIZE, BLOCK, TIMEOUT, SERVER_FLAGS, SOCKETS, DEAD = 1, 2, 3, 4, 5, 7, 8
NESTED = 0x8000


def attribute(kind, data):
    return struct.pack("HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)


def word(kind, value):
    return attribute(kind, struct.pack("Q", value))


class Netlink:
    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
        answer = self.command(CONTROL, GETFAMILY, attribute(FAMILY_NAME, b"nbd\0"))
        while answer:
            length, kind = struct.unpack_from("HH", answer)
            if kind == FAMILY_ID:
                self.family = struct.unpack_from("H", answer, 4)[0]
            answer = answer[(length + 3) & ~3 :]

    def command(self, family, command, attributes):
        """Sends a command; the attributes of its answer, or an error."""
        body = struct.pack("BBH", command, 1, 0) + attributes
        # NLM_F_REQUEST, NLM_F_ACK
        self.socket.send(struct.pack("IHHII", len(body) + 16, family, 5, 1, 0) + body)
        found = b""
        while True:
            data = self.socket.recv(65536)
            while data:
                length, kind = struct.unpack_from("IH", data)
                if kind == 2:
                    number = -struct.unpack_from("i", data, 16)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    return found
                found = data[20:length]
                data = data[(length + 3) & ~3 :]


def exactly(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise OSError("the server closed the connection")
        data += piece
    return data


def negotiate(path, name):
    """A connection that is ready for requests, the size of the export, and its flags."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    exactly(connection, 18)
    go = struct.pack(">I", len(name)) + name.encode() + b"\0\0"
    connection.send(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(go)) + go)
    size = flags = None
    while True:
        _, _, kind, length = struct.unpack(">QIII", exactly(connection, 20))
        data = exactly(connection, length)
        if kind == 1:
            return connection, size, flags
        if kind != 3:
            raise OSError(f"the server refuses the export: {kind:x}")
        if data[:2] == b"\0\0":
            size, flags = struct.unpack_from(">QH", data, 2)


def sockets(connection):
    descriptor = attribute(1, struct.pack("I", connection.fileno()))
    return attribute(SOCKETS | NESTED, attribute(1 | NESTED, descriptor))


def main():
    path, name, index, timeout, dead = sys.argv[1:3] + [int(n) for n in sys.argv[3:6]]
    netlink = Netlink()
    connection, size, flags = negotiate(path, name)
    device = attribute(INDEX, struct.pack("I", index))
    limits = word(TIMEOUT, timeout) + word(DEAD, dead) if timeout else word(DEAD, dead)
    words = word(SIZE, size) + word(BLOCK, 512) + word(SERVER_FLAGS, flags) + limits
    netlink.command(netlink.family, CONNECT, device + words + sockets(connection))
    print("connected", flush=True)
    while True:
        poll = select.poll()
        poll.register(connection, select.POLLRDHUP)
        poll.poll()
        while True:
            try:
                connection = negotiate(path, name)[0]
                break
            except OSError:
                time.sleep(0.1)
        # The kernel takes a connection only in place of one that it knows to be dead.
        while True:
            try:
                netlink.command(netlink.family, RECONFIGURE, device + sockets(connection))
                break
            except OSError as error:
                print(error, flush=True)
                time.sleep(0.1)
        print("connected again", flush=True)


main()
