"""A hub with Daylight for two groups, on one machine: `jupyterhub -f jupyterhub_config.py`, or `make hub`.

The authenticator and the spawner are those for trying things out. Put your own in their place; the rest can stay.
"""

import os
from pathlib import Path

from jupyter_ext.hub import check_server, daylight

c = get_config()  # noqa: F821  # JupyterHub's

home = Path(os.environ.get("DAYLIGHT_HUB_HOME", "daylight-hub")).absolute()

# Who there is: everybody with one password, the admin with another.
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = os.environ["DAYLIGHT_HUB_PASSWORD"]
c.SharedPasswordAuthenticator.admin_password = os.environ["DAYLIGHT_HUB_ADMIN_PASSWORD"]
c.Authenticator.allowed_users = {"dave", "danielle", "eve"}
c.Authenticator.admin_users = {"ada"}

# Notebook servers: processes of this machine, each with a folder of its own. All of one Unix user!
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(home / "homes" / "{username}")
c.Spawner.args = ["--allow-root"] if os.getuid() == 0 else []

# A notebook server may have slots, too ({"slots": 1} beside a start by the hub's API): no more than quotas allow.
# kubespawner_config.py is how people choose them on a form.
c.Spawner.pre_spawn_hook = check_server()

# What groups may have. 2 of the slots are vision's whenever they want them; nobody has all.
c.JupyterHub.load_groups = {
    "vision": {
        "users": ["dave", "danielle"],
        "properties": {"daylight": {"guarantee": 2, "limit": 3, "slot_hours": "500/7d"}},
    },
    "speech": {"users": ["eve"], "properties": {"daylight": {"limit": 3, "weight": 2}}},
}

# Daylight: one call. Everybody may submit; ada may also manage it.
daylight(
    c,
    home=str(home / "daylight"),
    url=os.environ.get("DAYLIGHT_SERVICE_URL", "http://127.0.0.1:10180"),
    admins=["ada"],
    slots=4,
)
