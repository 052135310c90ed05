"""Let ranks communicate: by Horovod, by torch.distributed, or not at all if there is only one."""
