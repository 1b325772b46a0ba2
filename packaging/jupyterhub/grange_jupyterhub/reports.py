"""Restricts what jobs tell the hub by batchspawner's API to the port of their server.

batchspawner sets every attribute of a user's spawner that a request of the user's job names. Some of them are commands
that the hub runs on its own host as itself. Import this module in jupyterhub_config.py.
"""

from batchspawner.api import BatchSpawnerAPIHandler
from jupyterhub.apihandlers import default_handlers
from tornado import web


def is_port_alone(data):
    """Report whether the body of a request is {"port": PORT}."""
    return isinstance(data, dict) and list(data) == ["port"] and type(data["port"]) is int and 0 < data["port"] < 65536


class PortHandler(BatchSpawnerAPIHandler):
    def post(self):
        if not is_port_alone(self.get_json_body()):
            raise web.HTTPError(400, "a job reports the port of its server, and nothing else")
        return super().post()


default_handlers[:] = [
    (path, PortHandler if handler is BatchSpawnerAPIHandler else handler, *more)
    for path, handler, *more in default_handlers
]
