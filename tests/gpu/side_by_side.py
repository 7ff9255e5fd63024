"""Several jobs of one check at a time: a start costs seconds, nearly all of them of one core."""


class Job:
    """One of the jobs, with an event log and a journal of its own."""

    def __init__(self, case, name, start):
        """`start`: launches it by GpuCase.launch, with case.bed.journal.path as its journal."""
        bed = case.bed
        shared = bed.events, bed.journal
        self.case, self.name = case, name
        self.events = bed.events = bed.follower.follow(bed.path(f"{name}.events.jsonl"))
        self.journal = bed.journal = bed.follower.follow(bed.path(f"{name}.journal.jsonl"))
        self.agent = start()
        bed.events, bed.journal = shared
        case.addCleanup(self._tell_story)

    def _tell_story(self):
        """What a failed case prints has all jobs' lines."""
        self.case.bed.events.lines += self.events.lines
        self.case.bed.journal.lines += self.journal.lines

    def wait(self, condition, what, timeout):
        return self.case.bed.wait(condition, f"{what} of {self.name}", timeout, [self.agent])

    def event(self, name, timeout, **fields):
        """The first event with this name and these fields."""
        return self.wait(lambda: self.events.find(name, **fields), f"event {name} {fields}", timeout)[0]

    def said(self, event, count, timeout, **fields):
        """Lines of the job's workers, once there are so many, by rank."""
        def there():
            lines = self.journal.find(event, **fields)
            return sorted(lines, key=lambda line: line["rank"]) if len(lines) >= count else None
        return self.wait(there, f"{count} lines {event}", timeout)
