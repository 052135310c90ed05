"""Run gangs as pods of a Kubernetes namespace, one pod for each node of the gang."""
