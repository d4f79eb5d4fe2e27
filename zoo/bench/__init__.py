"""What `zoo bench` runs."""

import os

# torch reads this once, when it is loaded: its profiler would tell stderr of every start and stop.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
