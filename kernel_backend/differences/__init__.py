"""Why two experiments gave different results: plain functions of what is known about each."""
