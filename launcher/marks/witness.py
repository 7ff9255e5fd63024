"""Runs beside the training of a worker that marks.py counts the steps of, from its default process group on: a file of its own,
because interpreters that never join one need not compile it."""

import os
import sys
import time

_MARK = 8  # words of the page
_COLLECTIVES, _LOOKED, _LOOKS, _PLACES, _JUMPS, _TIMEOUT, _FLAGS, _WATCHER = 48, 49, 50, 51, 52, 53, 54, 55
_AT_LOCKS, _FINAL = 1, 2  # flags
_PLACE, _USER_PLACE, _GROUPS = (512, 480), (1024, 512), (1536, 2560)  # texts: where, and how many bytes

LOOK_SECONDS = 0.25
GROWTH = 64  # blocks of memory by which a look finds more than the one before: something is made
STANDS = 8  # looks without a step after which it is looked at what the threads wait for
LEARN_SECONDS = 20  # after which a program that has no optimizer of torch's has imported what it needs
GROUPS = 64
# A program may catch the time-out of a collective, and go on: what ends sooner than --hang_timeout is left to torch.
LONG_TIMEOUT_MS = 600000
# Functions of torch.distributed that wait until all members of the group have called them.
COLLECTIVES = frozenset((
    "all_reduce", "all_reduce_coalesced", "broadcast", "barrier", "all_gather", "all_gather_into_tensor", "gather", "scatter",
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single"))
# Threads that begin no collectives: (the end of a file's name, its function or "").
IDLE = (("tqdm/_monitor.py", ""), ("torch/utils/data/_utils/pin_memory.py", ""), ("multiprocessing/queues.py", "_feed"),
        ("event_file_writer.py", ""))


class Witness:
    """A thread beside the training that reports what the kernel doesn't know: how many collectives this rank has begun in each
    group, which shows the rank that others wait for; and, while no step ends, where the training's thread is: at work, in a
    loop, in a collective, at a lock."""

    def __init__(self, memory):
        import _thread
        import atexit
        import dis
        import opcode
        self.pid = os.getpid()
        self.page = memoryview(memory).cast("Q")
        self.text = memoryview(memory)
        self.over = False
        self.instructions = dis.get_instructions
        self.jumps = {code for code, name in enumerate(opcode.opname) if "JUMP" in name}
        self.libraries = os.path.dirname(os.__file__) + os.sep
        self.thread = _thread.get_ident()  # that trains
        self.own = 0
        self.progress = None
        self.looks = self.blocks = self.grown = 0
        self.places = set()
        self.backends = {}  # by the name of a group
        self.learning_ends = time.monotonic() + LEARN_SECONDS
        self.locks = {}  # whether an instruction of a function acquires a lock: (code, offset)
        self.looking = _thread.allocate_lock()
        pause = _thread.allocate_lock()
        pause.acquire()
        atexit.register(self.end)

        def run():
            self.own = _thread.get_ident()
            self.page[_WATCHER] = _thread.get_native_id()
            while not pause.acquire(True, LOOK_SECONDS):
                with self.looking:
                    if self.over:
                        return
                    try:
                        self.look()
                    except Exception:  # a group that is being made: the next look has it
                        pass

        _thread.start_new_thread(run, ())

    def end(self):
        """No look is under way when the interpreter ends, which ends threads wherever they are."""
        self.over = True
        if os.getpid() != self.pid:  # a forked child has no such thread
            return
        with self.looking:
            try:
                if self.look_at_groups(None):
                    self.page[_FLAGS] = _FINAL
                    self.page[_LOOKED] = time.monotonic_ns()
            except Exception:
                pass

    def look(self):
        page, frames = self.page, None
        begun = self.collectives()
        if begun and time.monotonic() >= self.learning_ends:
            self.learning_ends = float("inf")
            getattr(sys, "_ddprun_learn", int)()  # for warm starts (launcher/warm/diary.py), unless an optimizer has stepped
        if (page[_MARK], begun) != self.progress:
            self.progress = page[_MARK], begun
            self.looks = self.grown = page[_LOOKS] = page[_JUMPS] = page[_PLACES] = page[_FLAGS] = 0
            self.places = set()
            self.locks = {}
        else:
            frames = sys._current_frames()
            frames.pop(self.own, None)
            self.look_at(frames.get(self.thread), frames)
            if self.looks >= STANDS and self.looks % 2 == 0:
                ended = self.has_ended(frames.get(self.thread))
                page[_FLAGS] = _AT_LOCKS if not ended and all(map(self.at_lock, frames.values())) else 0
        self.look_at_groups(frames)
        page[_COLLECTIVES] = begun
        page[_LOOKED] = time.monotonic_ns()

    @staticmethod
    def has_ended(frame):
        """The program is over, and the interpreter waits for its threads: what they wait for keeps no training up."""
        code = frame.f_code if frame is not None and frame.f_back is None else None
        return code is not None and code.co_name == "_shutdown" and code.co_filename.endswith("threading.py")

    @staticmethod
    def behind_the_end(frames):
        """The frame, and the name, of a thread that the interpreter waits for after the program's end; None = there is none."""
        threading = sys.modules["threading"]
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon and thread.ident in frames:
                return frames[thread.ident], thread.name
        return None

    def look_at(self, frame, frames):
        if frame is None:
            return
        more = ""
        if self.has_ended(frame):
            found = self.behind_the_end(frames)
            if found is not None:
                frame, more = found[0], " (thread %s; the interpreter waits for its end)" % found[1][:80]
        code, page = frame.f_code, self.page
        blocks = sys.getallocatedblocks()
        self.grown += self.looks > 0 and abs(blocks - self.blocks) > GROWTH
        self.blocks = blocks
        self.looks += 1
        self.places.add(code)
        page[_PLACES] = len(self.places) + self.grown
        page[_JUMPS] += code.co_code[frame.f_lasti] in self.jumps
        page[_LOOKS] = self.looks
        where, user = [], ""
        while frame is not None and (len(where) < 8 or not user):
            code = frame.f_code
            place = "%s:%d in %s" % (os.path.basename(code.co_filename), frame.f_lineno or 0, code.co_name)
            if len(where) < 8:
                where.append(place)
            if not user and not self.in_library(code.co_filename):
                user = place + more
            frame = frame.f_back
        self.write(_PLACE, " < ".join(where))
        self.write(_USER_PLACE, user)

    def in_library(self, path):
        return path.startswith(("<frozen", self.libraries)) or "-packages" + os.sep in path

    def write(self, place, text):
        offset, size = place
        text = text.encode("utf-8", "replace")[:size - 1].decode("utf-8", "ignore").encode()
        self.text[offset:offset + size] = text.ljust(size, b"\0")

    def at_lock(self, frame):
        """It stands in the acquisition of a lock, as far as the instruction shows."""
        key = frame.f_code, frame.f_lasti
        if key not in self.locks:
            self.locks[key] = self.acquires(*key)
        return self.locks[key]

    def acquires(self, code, offset):
        method, current = "", None
        for instruction in self.instructions(code):
            if instruction.offset > offset:
                break
            current = instruction
            if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR", "LOAD_SPECIAL"):
                method = instruction.argval if instruction.opname != "LOAD_SPECIAL" else "acquire"
        if current is None:
            return False
        return current.opname in ("BEFORE_WITH", "SETUP_WITH") or ("CALL" in current.opname and method == "acquire")

    def look_at_groups(self, frames):
        """Writes what was begun in which groups, and the collective that is waited in; False if there is no default group."""
        module = sys.modules.get("torch.distributed.distributed_c10d")
        world = module.GroupMember.WORLD if module is not None else None
        if world is None:
            return False
        groups = list(module._world.pg_map)[:GROUPS]
        call, waits_for = self.inside(frames, world) if frames else ("", "")
        lines = ["%s\t%s" % (call, waits_for)]
        for group in groups:
            try:
                lines.append("%s\t%d\t%d" % (group.group_name, group._get_sequence_number_for_group(), group.size()))
            except Exception:  # its backend doesn't count
                pass
        self.write(_GROUPS, "\n".join(lines))
        self.page[_TIMEOUT] = max(self.backend(group)[1] for group in groups)
        return True

    def inside(self, frames, world):
        """The collective of Gloo that the training waits in, if no other thread could begin one meanwhile; and its group."""
        frame = frames.get(self.thread)
        code = frame.f_code if frame is not None else None
        if code is None or code.co_name not in COLLECTIVES or not code.co_filename.endswith("distributed_c10d.py"):
            return "", ""
        for thread, other in frames.items():
            if thread != self.thread and not self.begins_nothing(other):
                return "", ""
        group = frame.f_locals.get("group") or world
        backend, timeout = self.backend(group)
        return (code.co_name, group.group_name) if backend == "gloo" and timeout >= LONG_TIMEOUT_MS else ("", "")

    @staticmethod
    def begins_nothing(frame):
        while frame is not None:
            path, name = frame.f_code.co_filename, frame.f_code.co_name
            if any(path.endswith(end) and function in ("", name) for end, function in IDLE):
                return True
            frame = frame.f_back
        return False

    def backend(self, group):
        """Name and time-out in milliseconds of a group's backend; 0 = not known."""
        name = group.group_name
        if name not in self.backends:
            self.backends[name] = "", 0
            torch = sys.modules["torch"]
            for device in "cuda", "cpu":
                try:
                    timeout = group._get_backend(torch.device(device)).options._timeout
                except Exception:
                    continue
                self.backends[name] = group.name(), max(self.backends[name][1], int(timeout.total_seconds() * 1000))
        return self.backends[name]

    @staticmethod
    def collectives():
        try:
            return sys.modules["torch.distributed.distributed_c10d"].GroupMember.WORLD._get_sequence_number_for_group() + 1
        except Exception:  # there is no group, or it doesn't count
            return 0
