"""Notebook servers as jobs of Slurm, by batchspawner, and trainings as other jobs of the same Slurm, by Daylight.

    jupyterhub -f batchspawner_config.py

The hub runs as root on a machine with Slurm's commands, such as a login node. Its users are accounts of the cluster.
Set up the account `daylight` and the spawn helper first: docs/guides/unix-accounts.md.
"""

import os

import batchspawner  # noqa: F401  # adds the route by which a server tells the hub its port

from jupyter_ext.hub import daylight

c = get_config()  # noqa: F821  # JupyterHub's

# Where nodes reach the hub and the service: an address of this machine on the cluster's network.
here = os.environ.get("DAYLIGHT_HUB_ADDRESS", "10.0.0.1")
c.JupyterHub.hub_ip = here

# Who may sign in: accounts of the machine, by PAM, in the group of the spawn helper.
c.LocalAuthenticator.allowed_groups = {"hub-users"}

# The path of slurm.conf, where it is not the default. A hub passes variables on to sbatch and services only if told.
slurm = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
c.Spawner.environment = dict(slurm)

# A notebook server is a job of its user: small, since trainings are jobs of their own.
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.exec_prefix = "runuser -u {username} --"  # the hub is root and needs no sudo
c.SlurmSpawner.req_partition = os.environ.get("DAYLIGHT_HUB_PARTITION", "notebooks")
c.SlurmSpawner.req_nprocs = "1"
c.SlurmSpawner.req_memory = "2G"
c.SlurmSpawner.req_runtime = os.environ.get("DAYLIGHT_HUB_RUNTIME", "12:00:00")  # no longer than the partition allows
# Not by srun: batchspawner's --export lets a step have the hub's variables only, and not the PATH of the prologue.
c.SlurmSpawner.req_srun = ""
# A job begins with the login environment of its user: say where the notebook servers' programs are.
c.SlurmSpawner.req_prologue = os.environ.get("DAYLIGHT_HUB_PROLOGUE", 'export PATH="/opt/daylight/bin:$PATH"')
c.Spawner.start_timeout = 600  # such a job waits in the site's queue, too
c.Spawner.http_timeout = 120

# Trainings are jobs of those who submit them, in the pools of that file (c.Daylight.pools).
daylight(
    c,
    home=os.environ.get("DAYLIGHT_HUB_HOME", "/srv/daylight"),
    url=os.environ.get("DAYLIGHT_SERVICE_URL", f"http://{here}:10180"),
    accounts=os.environ.get("DAYLIGHT_ACCOUNT", "daylight"),
    admins=["ada"],
    options=[f"--config={os.environ.get('DAYLIGHT_CONFIG', '/etc/daylight.py')}"],
    environment=slurm,
)
