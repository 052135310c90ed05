"""Run gangs (all ranks of one attempt) by engines, such as this machine or Slurm; `base.py` defines their interface."""
