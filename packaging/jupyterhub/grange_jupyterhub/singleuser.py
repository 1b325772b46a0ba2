"""grange-singleuser COMMAND: run a single-user server in the VM of a batch job.

It takes the place of batchspawner-singleuser: the port that the server listens on is one of the VM, and the hub gets the
one of the host, where grange publishes it. Only the standard library is used: a VM may be slow to import more.
"""

import json
import os
import sys
import urllib.request
from urllib.parse import urlsplit, urlunsplit

PUBLISHED = "GRANGE_PUBLISHED"  # PORT=ADDRESS:PORT, the first one in the VM, and the second one on its host


def published(text):
    """Return the ports of the first pair, in the VM and on the host."""
    here, _, there = text.split()[0].partition("=")
    return int(here), int(there.rpartition(":")[2])


def report(port):
    """Send the hub the port, as batchspawner-singleuser does."""
    request = urllib.request.Request(
        os.environ["JUPYTERHUB_API_URL"] + "/batchspawner",
        data=json.dumps({"port": port}).encode(),
        headers={
            "Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"],
            "Content-Type": "application/json",
        },
    )
    urllib.request.urlopen(request, timeout=60).close()


def main():
    if len(sys.argv) < 2:
        sys.exit("grange-singleuser: no command\n  try: grange-singleuser jupyterhub-singleuser")
    if not os.environ.get(PUBLISHED):
        sys.exit("grange-singleuser: no port of this VM is published\n  try: #SBATCH --vm-publish=8888@jupyterhub")
    inside, outside = published(os.environ[PUBLISHED])
    report(outside)
    url = urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", ""))
    os.environ["JUPYTERHUB_SERVICE_URL"] = urlunsplit(
        url._replace(scheme=url.scheme or "http", netloc=f"127.0.0.1:{inside}")
    )
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
