"""Write a submission as a plain Python script that trains in one process without Daylight."""
