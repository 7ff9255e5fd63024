"""What healthy programs do for some seconds while their peers wait for them: each function is copied, as text, into programs that
odd_programs.py writes. The collectives in which some ranks are late are in odd_collectives.py."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from time import monotonic, sleep

# ---------------------------------------------------------------- helpers


def outside(code, *words, fds=()):
    """An interpreter that isn't this process's child runs `code`."""
    detach = "import os, sys\nfrom time import sleep\nif os.fork(): os._exit(0)\nos.setsid()\n"
    subprocess.run([sys.executable, "-I", "-S", "-c", detach + code, *map(str, words)], pass_fds=fds, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, check=True)


def fresh(name):
    """A path that is only this rank's, beside the program."""
    return os.path.join(tempfile.mkdtemp(dir=os.path.dirname(os.path.abspath(sys.argv[0]))), name)


# ---------------------------------------------------------------- children


def child_sleeps(seconds):
    subprocess.run(["sleep", str(seconds)], check=True)


def child_computes(seconds):
    code = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass\n"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(seconds)], check=True)


def child_output(seconds):
    subprocess.run(["sh", "-c", f"sleep {seconds}; echo done"], capture_output=True, check=True)


def child_pipeline(seconds):
    subprocess.run(["sh", "-c", f"(sleep {seconds}; echo done) | cat | cat > /dev/null"], check=True)


def child_reads_slowly(seconds):
    """An upload: the pipe to the child is full until it reads."""
    code = "import sys\nfrom time import sleep\nsleep(float(sys.argv[1]))\nsys.stdin.buffer.read()\n"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(seconds)], input=bytes(1 << 20), check=True)


def process_joined(seconds):
    import multiprocessing
    child = multiprocessing.get_context("fork").Process(target=sleep, args=(seconds,))
    child.start()
    child.join()


def process_queue(seconds):
    import multiprocessing
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def fill():
        sleep(seconds)
        queue.put("item")

    child = context.Process(target=fill)
    child.start()
    queue.get()
    child.join()


def process_lock(seconds):
    """A semaphore in shared memory that a child has."""
    import multiprocessing
    context = multiprocessing.get_context("fork")
    lock, told, tell = context.Lock(), *context.Pipe(False)

    def hold():
        with lock:
            tell.send(1)
            sleep(seconds)

    child = context.Process(target=hold)
    child.start()
    told.recv()
    with lock:
        child.join()


def process_pool(seconds):
    import multiprocessing
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(sleep, [seconds])


def loader(seconds):
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            sleep(seconds)
            return index

    list(DataLoader(Slow(), num_workers=1))


# ---------------------------------------------------------------- servers and files


def server_slow(seconds):
    import http.client
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outside("import socket\ns = socket.socket(fileno=int(sys.argv[1]))\nc, _ = s.accept()\nc.recv(999)\n"
                "sleep(float(sys.argv[2]))\nc.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')\n",
                listener.fileno(), seconds, fds=[listener.fileno()])
        connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1])
    connection.request("GET", "/")
    connection.getresponse().read()


def server_retried(seconds):
    """Each request has a time-out, and is made again."""
    import http.client
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outside("import socket\ns = socket.socket(fileno=int(sys.argv[1]))\nsleep(float(sys.argv[2]))\nwhile 1:\n"
                "  c, _ = s.accept()\n  s.settimeout(20)\n  try:\n    c.recv(999)\n"
                "    c.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')\n  except OSError: pass\n",
                listener.fileno(), seconds, fds=[listener.fileno()])
        port = listener.getsockname()[1]
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/")
            connection.getresponse().read()
            return
        except TimeoutError:
            pass


def socket_accept(seconds):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outside("import socket\nsleep(float(sys.argv[2]))\nsocket.create_connection(('127.0.0.1', int(sys.argv[1])))\n",
                listener.getsockname()[1], seconds)
        listener.accept()


def socket_receive(seconds):
    ours, its = socket.socketpair()
    outside("import socket\ns = socket.socket(fileno=int(sys.argv[1]))\nsleep(float(sys.argv[2]))\ns.send(b'x')\n",
            its.fileno(), seconds, fds=[its.fileno()])
    its.close()
    ours.recv(1)


def name_server_silent(seconds):
    """Stands for a resolver: asks three times, and goes on without an answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        server.bind(("127.0.0.1", 0))
        client.settimeout(seconds / 3)
        for _ in range(3):
            client.sendto(b"query", server.getsockname())
            try:
                client.recv(512)
            except TimeoutError:
                pass


def file_lock(seconds):
    import fcntl
    path = fresh("lock")
    told, tell = os.pipe()
    outside("import fcntl\nf = open(sys.argv[1], 'w')\nfcntl.flock(f, fcntl.LOCK_EX)\nos.write(int(sys.argv[2]), b'x')\n"
            "sleep(float(sys.argv[3]))\n", path, tell, seconds, fds=[tell])
    os.read(told, 1)
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def fifo(seconds):
    path = fresh("fifo")
    os.mkfifo(path)
    outside("sleep(float(sys.argv[2]))\nopen(sys.argv[1], 'w')\n", path, seconds)
    with open(path, encoding="ascii") as source:
        source.read()


def file_awaited(seconds):
    """Looks for a file now and then, as jobs on shared disks do."""
    path = fresh("file")
    outside("sleep(float(sys.argv[2]))\nopen(sys.argv[1], 'w')\n", path, seconds)
    while not os.path.exists(path):
        sleep(0.3)


def checkpoint(seconds):
    """A large file, with pieces of it synced to the disk."""
    path, end = fresh("checkpoint"), monotonic() + seconds
    with open(path, "wb") as file:
        while monotonic() < end:
            file.write(bytes(1 << 18))
            os.fsync(file.fileno())
            sleep(0.05)
    os.remove(path)


def module_slow(seconds):
    path = fresh("slow_module.py")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"from time import sleep\nsleep({seconds})\n")
    sys.path.insert(0, os.path.dirname(path))
    __import__("slow_module")


# ---------------------------------------------------------------- threads, signals, timers


def sleeps(seconds):
    sleep(seconds)


def thread_joined(seconds):
    thread = threading.Thread(target=sleep, args=(seconds,))
    thread.start()
    thread.join()


def thread_queue(seconds):
    import queue
    items = queue.Queue()
    threading.Thread(target=lambda: (sleep(seconds), items.put(1))).start()
    items.get()


def thread_event(seconds):
    event = threading.Event()
    threading.Timer(seconds, event.set).start()
    event.wait()


def thread_lock(seconds):
    lock, has = threading.Lock(), threading.Event()

    def hold():
        with lock:
            has.set()
            subprocess.run(["sleep", str(seconds)], check=True)

    threading.Thread(target=hold).start()
    has.wait()
    with lock:
        pass


def thread_locks_in_turn(seconds):
    """Three threads wait for each other's locks in a row; the last one's has a time-out."""
    first, second, ready = threading.Lock(), threading.Lock(), threading.Barrier(3)
    never = threading.Lock()
    never.acquire()

    def middle():
        with first:
            ready.wait()
            with second:
                pass

    def last():
        with second:
            ready.wait()
            never.acquire(timeout=seconds)

    for target in (middle, last):
        threading.Thread(target=target).start()
    ready.wait()
    with first:
        pass


def future(seconds):
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as pool:
        pool.submit(sleep, seconds).result()


def coroutine(seconds):
    import asyncio
    asyncio.run(asyncio.sleep(seconds))


def alarm(seconds):
    import signal
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.pause()


def signal_awaited(seconds):
    import signal
    signal.signal(signal.SIGUSR1, lambda *_: None)
    outside("sleep(float(sys.argv[2]))\nos.kill(int(sys.argv[1]), 10)\n", os.getpid(), seconds)
    signal.pause()


def lock_and_signal(seconds):
    """A lock that only the handler of a signal releases."""
    import signal
    lock = threading.Lock()
    lock.acquire()
    signal.signal(signal.SIGUSR1, lambda *_: lock.release())
    outside("sleep(float(sys.argv[2]))\nos.kill(int(sys.argv[1]), 10)\n", os.getpid(), seconds)
    lock.acquire()


def lock_and_native_timer(seconds):
    """A thread that isn't the interpreter's releases it, and isn't there before."""
    import ctypes
    lock, timer = threading.Lock(), ctypes.c_void_p()
    lock.acquire()
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: lock.release())
    # sigevent(3type): a value, a signal's number, SIGEV_THREAD, a function, attributes; itimerspec(3type).
    event = (ctypes.c_uint64 * 8)(0, 2 << 32, ctypes.cast(callback, ctypes.c_void_p).value)
    libc = ctypes.CDLL(None)
    if libc.timer_create(1, event, ctypes.byref(timer)) or libc.timer_settime(
            timer, 0, (ctypes.c_uint64 * 4)(0, 0, int(seconds), 0), None):
        raise OSError("no timer")
    lock.acquire()


def native_sleep(seconds):
    import ctypes
    ctypes.CDLL(None).sleep(int(seconds))


def native_sleep_with_gil(seconds):
    """No other thread of the interpreter runs meanwhile."""
    import ctypes
    ctypes.PyDLL(None).sleep(int(seconds))


def spins(seconds):
    end, value = monotonic() + seconds, 1
    while monotonic() < end:
        value = (value * 1664525 + 1013904223) & 0xffffffff


def evaluates(seconds):
    import torch
    end = monotonic() + seconds
    with torch.no_grad():
        while monotonic() < end:
            (torch.rand(64, 64) @ torch.rand(64, 64)).sum().item()
            sleep(0.02)


def compiles(seconds):
    """A first torch.compile with a slow backend."""
    import torch

    def slow(graph, _):
        sleep(seconds)
        return graph.forward

    torch.compile(lambda value: value * 2 + 1, backend=slow)(torch.ones(2))


# ---------------------------------------------------------------- people and tools


def terminal_input(seconds):
    import pty
    people, terminal = pty.openpty()
    outside("sleep(float(sys.argv[2]))\nos.write(int(sys.argv[1]), b'yes\\n')\nsleep(1)\n", people, seconds, fds=[people])
    os.dup2(terminal, 0)
    sys.stdin = open(0, encoding="ascii", closefd=False)
    input()


def terminal_debugger(seconds):
    import pdb
    import pty
    people, terminal = pty.openpty()
    outside("sleep(float(sys.argv[2]))\nos.write(int(sys.argv[1]), b'c\\n')\nsleep(1)\n", people, seconds, fds=[people])
    pdb.Pdb(stdin=open(terminal, encoding="ascii"), stdout=open(terminal, "w", encoding="ascii")).set_trace()


def stopped(seconds):
    told, tell = os.pipe()
    outside("pid = int(sys.argv[1])\nos.kill(pid, 19)\nsleep(float(sys.argv[2]))\nos.kill(pid, 18)\n"
            "os.write(int(sys.argv[3]), b'x')\n", os.getpid(), seconds, tell, fds=[tell])
    os.read(told, 1)


def traced(seconds):
    """A debugger that stops all threads, then detaches."""
    import ctypes
    ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, anybody
    told, tell = os.pipe()
    outside("import ctypes\nlibc = ctypes.CDLL(None)\npid = sys.argv[1]\n"
            "threads = [int(t) for t in os.listdir(f'/proc/{pid}/task')]\n"
            "for t in threads:\n  libc.ptrace(0x4206, t, None, None)\n  libc.ptrace(0x4207, t, None, None)\n"  # seize, interrupt
            "  os.waitpid(t, 0x40000000)\n"
            "sleep(float(sys.argv[2]))\nfor t in threads: libc.ptrace(17, t, None, None)\nos.write(int(sys.argv[3]), b'x')\n",
            os.getpid(), seconds, tell, fds=[tell])
    os.read(told, 1)


def frozen(seconds):
    """By a cgroup's freezer, of either version; where there is none to be had it is stopped."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        groups = {kinds: path for _, kinds, path in (line.rstrip("\n").split(":", 2) for line in file)}
    name, state, freeze, thaw = "freezer", "freezer.state", "FROZEN", "THAWED"
    home = "/sys/fs/cgroup/freezer" + groups.get("freezer", "/")
    if "freezer" not in groups:
        name, state, freeze, thaw = "", "cgroup.freeze", "1", "0"
        home = "/sys/fs/cgroup" + groups.get(name, "/")
    folder = os.path.join(home, f"odd-{os.getpid()}")
    try:
        os.mkdir(folder)
        with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    except OSError:
        stopped(seconds)
        return
    reader, writer = os.pipe()
    outside("home, folder, state, freeze, thaw, pid, seconds, done = sys.argv[1:]\n"
            "def put(f, t):\n  with open(f, 'w') as o: o.write(t)\n"
            "put(home + '/cgroup.procs', str(os.getpid()))\nput(folder + '/' + state, freeze)\nsleep(float(seconds))\n"
            "put(folder + '/' + state, thaw)\nput(home + '/cgroup.procs', pid)\nos.rmdir(folder)\nos.write(int(done), b'x')\n",
            home, folder, state, freeze, thaw, os.getpid(), seconds, writer, fds=[writer])
    os.read(reader, 1)


SOLO = (child_sleeps, child_computes, child_output, child_pipeline, child_reads_slowly, process_joined, process_queue,
        process_lock, process_pool, loader, server_slow, server_retried, socket_accept, socket_receive,
        name_server_silent, file_lock, fifo, file_awaited, checkpoint, module_slow, sleeps, thread_joined, thread_queue,
        thread_event, thread_lock, thread_locks_in_turn, future, coroutine, alarm, signal_awaited, lock_and_signal,
        lock_and_native_timer, native_sleep, native_sleep_with_gil, spins, evaluates, compiles, terminal_input,
        terminal_debugger, stopped, traced, frozen)
# Deeds that use a CPU all the time.
BUSY = (child_computes, spins)
HELPERS = (outside, fresh, stopped)
