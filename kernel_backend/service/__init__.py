"""Run the Daylight service, which schedules and stores trainings: observe the cluster, decide, apply decisions."""
