# JupyterHub as a site of grange configures it; what differs from test to test is in a file.
import json
import os

import batchspawner  # noqa: F401  for the way by which its jobs report their ports

with open(os.environ["GRANGE_TEST_HUB"]) as f:
    s = json.load(f)
c = get_config()  # noqa: F821

c.JupyterHub.bind_url = s["url"]
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{s['hub']}"
c.JupyterHub.db_url = f"sqlite:///{s['dir']}/hub.sqlite"
c.JupyterHub.cookie_secret_file = f"{s['dir']}/cookie"
c.ConfigurableHTTPProxy.should_start = False  # it runs as an account of its own
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{s['proxy_api']}"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = s["password"]
c.Authenticator.allowed_users = {"julia", "jack"}
c.JupyterHub.services = [{"name": "test", "api_token": s["token"]}]
c.JupyterHub.load_roles = [{"name": "test", "services": ["test"], "scopes": ["admin:servers", "admin:users"]}]

c.Spawner.cmd = [f"{s['venv']}/bin/jupyterhub-singleuser"]
c.Spawner.environment = {"JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp", **s["environment"]}
# an emulated VM on a busy machine
c.Spawner.start_timeout = c.Spawner.http_timeout = 900
c.Spawner.args = ["--MappingKernelManager.kernel_info_timeout=600"]

if s["slurm"]:
    c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
    c.SlurmSpawner.exec_prefix = "setpriv --reuid={username} --regid={username} --init-groups"
    c.SlurmSpawner.batchspawner_singleuser_cmd = f"{s['venv']}/bin/grange-singleuser"
    c.SlurmSpawner.state_exechost_exp = "127.0.0.1"  # the hub is on the host where jobs run
    c.SlurmSpawner.req_options = str(s["port"])  # of the host, for another port of the VM: options add up
    c.SlurmSpawner.batch_script = """#!/bin/sh
#SBATCH --vm=micro
#SBATCH --vm-publish=8888@hub
#SBATCH --vm-publish=9998,9999:{{options}}
#SBATCH --mem=1400M
#SBATCH --chdir={{homedir}}
#SBATCH --output={{homedir}}/server.log
{{cmd}}
"""
else:
    c.JupyterHub.spawner_class = "grange"
    c.GrangeSpawner.grange = s["grange"]
    c.GrangeSpawner.publish_to = "hub"
    c.GrangeSpawner.choose_pool = True
