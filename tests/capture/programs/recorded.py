"""Runs another program of this folder under `record`. Usage: recorded.py [--step NAME] [-m] PROGRAM ARGS..."""

import os
import sys

from tfplace.capture.runner import record

arguments = sys.argv[1:]
options = {}
if arguments[0] == "--step":
    options["step"], arguments = arguments[1], arguments[2:]
if arguments[0] == "-m":
    sys.path.insert(0, os.path.dirname(__file__))
    record(arguments[1], arguments[2:], module=True, path="trace.pb", **options)
else:
    record(os.path.join(os.path.dirname(__file__), arguments[0]), arguments[1:], path="trace.pb", **options)
