"""Makes a failing launch smaller: closer to PLAIN, field by field, as long as it fails in the same way."""

from draw import mended
from launch import PLAIN


def size(launch):
    """How far it is from a plain launch."""
    total = 0
    for name, value in launch.__dict__.items():
        if value != PLAIN[name]:
            total += 1 + (len(value) if isinstance(value, (list, dict)) else 0) + (abs(value) if isinstance(value, int) else 0)
    return total


def smaller(launch):
    """Launches that are one step closer to a plain one, the largest steps first."""
    found = []
    if launch.agents > 1:
        found.append(launch.changed(agents=1, nnodes="", nproc_second=0))
    for name, value in launch.__dict__.items():
        if value != PLAIN[name]:
            found.append(launch.changed(**{name: PLAIN[name]}))
    for name, value in launch.__dict__.items():
        if isinstance(value, list):
            found += [launch.changed(**{name: value[:index] + value[index + 1:]}) for index in range(len(value))]
        elif isinstance(value, dict):
            found += [launch.changed(**{name: {key: how for key, how in value.items() if key != left}}) for left in value]
        elif isinstance(value, int) and value > PLAIN[name] + 1:
            found += [launch.changed(**{name: smaller_value}) for smaller_value in (PLAIN[name] + 1, value - 1)]
    seen = []
    for candidate in map(mended, found):
        if candidate not in seen and size(candidate) < size(launch):
            seen.append(candidate)
    return seen


def shrink(launch, fails, plays=60):
    """The smallest launch found for which fails(launch) is true, in so many calls at most."""
    while True:
        for candidate in smaller(launch):
            plays -= 1
            if plays < 0:
                return launch
            if fails(candidate):
                launch = candidate
                break
        else:
            return launch
