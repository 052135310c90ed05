"""Communicate between ranks: Horovod, torch.distributed, or a single process."""
