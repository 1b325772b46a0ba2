"""Servers of batch jobs tell the hub their ports themselves: docs/guide/jupyterhub.md, "With Slurm"."""

import pwd
import sys

from . import reports  # noqa: F401  a job sets no attribute of its spawner but the port

LISTENS = "0A"  # the state of a socket that listens, in /proc/net/tcp


def owner(port, lines):
    """Return the user ID of what listens on a port of 127.0.0.1, by the lines of /proc/net/tcp; None: nothing does."""
    here = "%08X:%04X" % (int.from_bytes(bytes([127, 0, 0, 1]), sys.byteorder), port)
    for line in lines:
        # sl local_address rem_address st queues timer retransmits uid timeout inode …
        fields = line.split()
        if len(fields) > 7 and fields[1] == here and fields[3] == LISTENS:
            return int(fields[7])
    return None


def owner_here(port):
    """Return owner() of a port of this host."""
    with open("/proc/net/tcp") as lines:
        return owner(port, lines)


class CheckedPort:
    """For a spawner of batchspawner, whose jobs run on the hub's host: the hub connects to no port that a job names and
    that is another user's. grange publishes a port as the user whose VM it is.

        class Spawner(CheckedPort, batchspawner.SlurmSpawner):
            pass
    """

    checked = None  # the port and its user's ID, when the server has started

    async def start(self):
        ip, port = await super().start()
        uid = pwd.getpwnam(self.user.name).pw_uid
        if ip != "127.0.0.1" or owner_here(port) != uid:
            raise RuntimeError(f"the job names port {port} of {ip}, which {self.user.name} has not published there")
        self.checked = (port, uid)
        return ip, port

    def get_state(self):
        """The hub keeps it over its own restart."""
        state = super().get_state()
        if self.checked:
            state["checked_port"] = self.checked
        return state

    def load_state(self, state):
        super().load_state(state)
        self.checked = state.get("checked_port")

    def clear_state(self):
        super().clear_state()
        self.checked = None

    async def poll(self):
        """The port may have become another user's since: the server has ended then."""
        checked = self.checked  # which super's poll clears when the job has ended
        status = await super().poll()
        if status is not None or checked is None:
            return status
        port, uid = checked
        return None if owner_here(port) in (None, uid) else 1
