#!/usr/bin/env python3
"""glibc_stubs.py TARGET FOLDER: what a C compiler needs to link with another version of glibc: Scrt1.o and libraries that have
that version's symbols and nothing else. ziglang makes them; TARGET is Zig's word: x86_64-linux-gnu.2.28."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

# Of what Zig would link with: how it begins and ends.
WANTED = re.compile(r"\S+/(Scrt1\.o|lib\w+\.so\.\d+|libc_nonshared\.a)(?=\s|$)")


def main():
    target, folder = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        program = os.path.join(cache, "main.c")
        with open(program, "w", encoding="ascii") as sink:
            sink.write("int main(void) { return 0; }\n")
        # Zig makes the libraries when it links, and shows the command, with where they are. None of its own code is in them.
        shown = subprocess.run([sys.executable, "-m", "ziglang", "cc", "-v", "-target", target, "-pie", "-fPIE", program, "-o",
                                os.path.join(cache, "main")],
                               stderr=subprocess.PIPE, text=True, check=False,
                               env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache})
        files = {os.path.basename(match.group()): match.group() for match in WANTED.finditer(shown.stderr)}
        if shown.returncode != 0 or not {"Scrt1.o", "libc.so.6", "libc_nonshared.a"} <= files.keys():
            sys.exit(f"{sys.executable} -m ziglang made no libraries of {target} (is ziglang installed?):\n{shown.stderr[-4000:]}")
        for name, path in files.items():
            shutil.copy(path, os.path.join(folder, name))
    for name in files:
        if ".so." in name:
            os.symlink(name, os.path.join(folder, name[:name.index(".so.")] + ".so"))
    # As glibc's own libc.so. Last, since it says that all is there.
    os.unlink(os.path.join(folder, "libc.so"))
    with open(os.path.join(folder, "libc.so"), "w", encoding="ascii") as sink:
        sink.write("GROUP ( -l:libc.so.6 -l:libc_nonshared.a AS_NEEDED ( -l:libld.so.2 ) )\n")


if __name__ == "__main__":
    main()
