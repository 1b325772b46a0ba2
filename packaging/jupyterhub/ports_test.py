"""Run by TestJupyterHubPorts, as root: ports of 127.0.0.1 that belong to root and to nobody."""

import asyncio
import json
import os
import pwd
import socket
import sys
import types
import unittest


class HTTPError(Exception):
    pass


class BatchHandler:
    """batchspawner's: it sets all that a job names."""

    def __init__(self, body):
        self.body, self.set = body, {}

    def get_json_body(self):
        return self.body

    def post(self):
        self.set.update(self.body)


def module(name, **names):
    """Make a module of names: JupyterHub and batchspawner need not be installed here."""
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(names)


handlers = [("/api/users", object), ("/api/batchspawner", BatchHandler), ("/api/files", object, {"path": "/"})]
module("batchspawner")
module("batchspawner.api", BatchSpawnerAPIHandler=BatchHandler)
module("jupyterhub")
module("jupyterhub.apihandlers", default_handlers=handlers)
module("tornado", web=types.SimpleNamespace(HTTPError=HTTPError))

from grange_jupyterhub import ports  # noqa: E402

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

    def get_state(self):
        return {"job_id": "7"}

    def load_state(self, state):
        self.job_id = state["job_id"]

    def clear_state(self):
        self.job_id = ""


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
        after = Spawner("nobody", "127.0.0.1", port)  # the hub's next process
        after.load_state(json.loads(json.dumps(spawner.get_state())))
        with listen(0, port=port):
            self.assertEqual(asyncio.run(spawner.poll()), 1)
            self.assertEqual(asyncio.run(after.poll()), 1)
            after.clear_state()
            self.assertIsNone(asyncio.run(after.poll()))
        spawner.status = 3
        self.assertEqual(asyncio.run(spawner.poll()), 3)

    def test_reports(self):
        """A job sets the port of its spawner, and no commands of the hub."""
        handler = handlers[1][1]
        self.assertEqual(handlers[0] + handlers[2], ("/api/users", object, "/api/files", object, {"path": "/"}))
        good = handler({"port": 8888})
        good.post()
        self.assertEqual(good.set, {"port": 8888})
        for body in (
            {"exec_prefix": "id;"},
            {"port": 8888, "batch_query_cmd": "id"},
            {"port": 8888, "checked": None},
            {"port": "8888"},
            {"port": True},
            {"port": 0},
            {"port": 65536},
            {},
            [],
            ["port"],
            None,
        ):
            bad = handler(body)
            with self.assertRaises(HTTPError):
                bad.post()
            self.assertEqual(bad.set, {})


if __name__ == "__main__":
    unittest.main()
