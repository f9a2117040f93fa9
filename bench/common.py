"""What the benchmarks that are run from the command line share."""

import argparse
import pathlib
import platform


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def names_of(known):
    """An argument type: names of `known`, separated by commas."""
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return names
    return parse
