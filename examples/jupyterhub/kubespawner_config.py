"""GPUs for notebook servers on Kubernetes: to be loaded by a `jupyterhub_config.py` that has called `daylight(c)`.

    load_subconfig("kubespawner_config.py")

The form offers what the user's quotas allow and says what is left of it; the hook refuses what they do not allow,
also where the form was passed by; and Daylight counts what the servers hold beside its own gangs.
"""

from jupyter_ext.hub import check_server, profiles

c = get_config()  # noqa: F821  # JupyterHub's

c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.profile_list = profiles(
    resource="nvidia.com/gpu",
    pools={
        "a100": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
        "t4": {"nvidia.com/gpu.product": "Tesla-T4"},
    },
    images={
        "PyTorch": "quay.io/jupyter/pytorch-notebook:cuda12-latest",
        "Scientific Python": "quay.io/jupyter/scipy-notebook:latest",
    },
)
c.KubeSpawner.pre_spawn_hook = check_server()
