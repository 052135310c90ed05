"""Print the seconds of each test file as CSV, the longest first, from pytest's JUnit report.

python scripts/durations.py REPORT.xml > tests/durations.csv      `make durations` runs the suite and does so
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from xml.etree import ElementTree


def main(report: str) -> int:
    """Sum up the test cases of a report by file."""
    tests: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        module = [part for part in case.get("classname", "").split(".") if not part.startswith("Test")]
        file = "/".join(module) + ".py"
        tests[file] += 1
        seconds[file] += float(case.get("time", 0))
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(["file", "tests", "seconds"])
    longest = sorted(seconds.items(), key=lambda each: each[1], reverse=True)
    rows.writerows([file, tests[file], round(spent)] for file, spent in longest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
