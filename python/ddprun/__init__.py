"""ddprun for training scripts in Python: progress marks, stop steps and error files. Nothing but the standard library.

    import ddprun

    @ddprun.record
    def main():
        for step in range(first, last):
            if ddprun.stop_at(step):  # marks the step; true when a node is about to be taken away
                save(step)
                return
            train(step)

Everything here does nothing under other launchers. What the marks are for: docs/PROGRESS.md.
"""

from ddprun.errors import record
from ddprun.progress import Phase, add_data_wait, mark, report, stop_at, timed

__all__ = ["Phase", "add_data_wait", "mark", "record", "report", "stop_at", "timed"]
