"""What a process executes that takes part in another one's run; its task comes through standard input."""

import logging
import pickle
import sys

from messi.core.processes import leave
from messi.sweeps.one_run import do_run

if __name__ == "__main__":
    logging.getLogger("messi").setLevel(logging.ERROR)  # the leader says the rest
    request = pickle.load(sys.stdin.buffer)  # noqa: S301 (from the process that started this one)
    reason = do_run(**request)
    leave()
    if reason:
        logging.getLogger("messi").error(reason)
        sys.exit(2)
