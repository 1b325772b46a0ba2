"""A spawner for one host without a batch system: each server is a command of `grange exec`, in a VM of its own."""

import asyncio
import html
import json
import math
import subprocess

from jupyterhub.spawner import LocalProcessSpawner
from jupyterhub.utils import random_port
from traitlets import Bool, Unicode, default


class GrangeSpawner(LocalProcessSpawner):
    """The process that the hub starts, signals and waits for is `grange exec`, as the user: JupyterHub's own spawner
    of local processes does that. The VM and its limits are the agent's."""

    grange = Unicode("grange", help="The program, where it is not in the hub's PATH.").tag(config=True)

    pool = Unicode(help="Pool of the host that VMs are of; empty: of none.").tag(config=True)

    choose_pool = Bool(
        False, help="Let users choose among the pools that they may use; pool is what is chosen at first."
    ).tag(config=True)

    image = Unicode(help="Image of the VMs; empty: the pool's, or the host's default.").tag(config=True)

    publish_to = Unicode(
        "jupyterhub",
        help="[publish.NAME] of the agent's configuration that has the accounts of the hub and of its proxy.",
    ).tag(config=True)

    def exec_command(self):
        """`grange exec` with its flags. In the VM the server's port has the same number as on the host."""
        # One word each: what users send by the API is a value, and never another flag.
        flags = {"publish": f"{self.port}:{self.port}@{self.publish_to}", "pool": self.chosen_pool(), "image": self.image}
        if self.mem_limit:
            flags["memory"] = f"{self.mem_limit >> 20}M"
        if self.cpu_limit:
            flags["cpus"] = math.ceil(self.cpu_limit)
        return [self.grange, "exec", *(f"--{flag}={value}" for flag, value in flags.items() if value)]

    def chosen_pool(self):
        if self.choose_pool:
            return str(self.user_options.get("pool") or self.pool)
        return self.pool

    async def start(self):
        if self.port == 0:
            self.port = random_port()
        # The server's own command is one word behind it, for a shell in the VM.
        self.shell_cmd = [*self.exec_command(), "--", "/bin/sh", "-c"]
        # The hub's own input is nobody's.
        self.popen_kwargs = {"stdin": subprocess.DEVNULL, **self.popen_kwargs}
        return await super().start()

    @default("options_form")
    def _options_form_default(self):
        return self.pools_form if self.choose_pool else ""

    async def pools_form(self, spawner):
        """A form with the pools that the user may use. The agent judges again what is chosen."""
        options = "".join(
            '<option value="{0}"{1}>{0} {2}</option>'.format(
                html.escape(p["name"]),
                " selected" if p["name"] == self.pool else "",
                html.escape(p.get("about", "")),
            )
            for p in await self.pools()
            if not p.get("batch")
        )
        return f'<label for="pool">Pool</label><select class="form-control" name="pool" id="pool">{options}</select>'

    async def pools(self):
        """The pools of this host that are the user's to use."""
        process = await asyncio.create_subprocess_exec(
            self.grange,
            "pool",
            "list",
            "--json",
            preexec_fn=self.make_preexec_fn(self.user.name),
            env=self.get_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError("grange pool list failed: the log has its message")
        return json.loads(out) or []

    def options_from_form(self, form):
        return {"pool": form["pool"][0]} if form.get("pool") else {}
