"""Run by TestJupyterHubPorts, as root: ports of 127.0.0.1 that belong to root and to nobody."""

import asyncio
import os
import pwd
import socket
import types
import unittest

from grange_jupyterhub import ports

NOBODY = pwd.getpwnam("nobody").pw_uid


def listen(uid, address="127.0.0.1", port=0):
    """Return a socket of a user that listens."""
    os.seteuid(uid)
    try:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((address, port))
        s.listen()
        return s
    finally:
        os.seteuid(0)


class Batch:
    """What batchspawner returns: the port that the job has told."""

    def __init__(self, user, ip, port):
        self.user, self.ip, self.port, self.status = types.SimpleNamespace(name=user), ip, port, None

    async def start(self):
        return self.ip, self.port

    async def poll(self):
        return self.status


class Spawner(ports.CheckedPort, Batch):
    pass


class Test(unittest.TestCase):
    def test_owner(self):
        for uid in (0, NOBODY):
            with listen(uid) as s:
                self.assertEqual(ports.owner_here(s.getsockname()[1]), uid)
        with listen(NOBODY, "0.0.0.0") as s:
            self.assertIsNone(ports.owner_here(s.getsockname()[1]))
        with listen(0) as s:
            port = s.getsockname()[1]
        self.assertIsNone(ports.owner_here(port))

    def test_connected(self):
        """A connection from the port is no listener."""
        with listen(NOBODY) as s, socket.socket() as c:
            c.connect(s.getsockname())
            self.assertIsNone(ports.owner_here(c.getsockname()[1]))

    def start(self, user, ip, port):
        spawner = Spawner(user, ip, port)
        return spawner, asyncio.run(spawner.start())

    def test_start(self):
        with listen(NOBODY) as s:
            port = s.getsockname()[1]
            self.assertEqual(self.start("nobody", "127.0.0.1", port)[1], ("127.0.0.1", port))
            for user, ip in (("root", "127.0.0.1"), ("nobody", "127.0.0.2"), ("nobody", "192.0.2.1")):
                with self.assertRaises(RuntimeError):
                    self.start(user, ip, port)
        with self.assertRaises(RuntimeError):
            self.start("nobody", "127.0.0.1", port)

    def test_poll(self):
        with listen(NOBODY) as s:
            port = s.getsockname()[1]
            spawner, _ = self.start("nobody", "127.0.0.1", port)
            self.assertIsNone(asyncio.run(spawner.poll()))
        self.assertIsNone(asyncio.run(spawner.poll()))
        with listen(0, port=port):
            self.assertEqual(asyncio.run(spawner.poll()), 1)
        spawner.status = 3
        self.assertEqual(asyncio.run(spawner.poll()), 3)


if __name__ == "__main__":
    unittest.main()
