"""`python -m tfplace.capture OPTIONS SCRIPT ARGUMENTS...`: how `tfplace record` and `simulate` run a program.

OPTIONS is a JSON object of the keyword arguments of `tfplace.capture.runner.record`. The program is the main program
of this process: its output, exit code, signals and traceback are its own.
"""

from __future__ import annotations

import json
import sys

from tfplace.capture.runner import record
from tfplace.errors import TfplaceError

BAD_INPUT = 2


def main() -> None:
    """Run the program; end as it ends."""
    options, target, *arguments = sys.argv[1:]
    try:
        record(target, arguments, **json.loads(options))
    except TfplaceError as error:
        print(f"tfplace: error: {error}", file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
    except Exception as error:
        # as Python would: the program's frames only, not those of this file
        below = error.__traceback__.tb_next if error.__traceback__ else None
        while below is not None and below.tb_frame.f_globals.get("__name__") == record.__module__:
            below = below.tb_next
        sys.excepthook(type(error), error.with_traceback(below), below)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
