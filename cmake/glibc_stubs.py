#!/usr/bin/env python3
"""glibc_stubs.py TARGET FOLDER: makes what a C compiler needs to link with another version of glibc: Scrt1.o and libraries that
have that version's symbols and nothing else. ziglang makes them; TARGET is a target of Zig's: x86_64-linux-gnu.2.28."""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

# The files wanted among those that Zig would link.
WANTED = re.compile(r"\S+/(Scrt1\.o|lib\w+\.so\.\d+|libc_nonshared\.a)(?=\s|$)")

# Variables with several names. If a program has a copy of one (R_X86_64_COPY), the linker must make all names those of the copy,
# because glibc itself uses another name than programs. Zig's library has a separate variable for each name.
SAME = {"environ": "__environ", "_environ": "__environ", "program_invocation_name": "__progname_full",
        "program_invocation_short_name": "__progname", "timezone": "__timezone", "daylight": "__daylight", "tzname": "__tzname"}
SHT_DYNSYM, STB_WEAK = 11, 2
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size


def join_names(path):
    """Gives all names of one glibc variable the same address in the library at `path`: weak names for a strong one."""
    with open(path, "rb") as source:
        data = bytearray(source.read())
    start, = struct.unpack_from("<Q", data, 0x28)
    entry, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + entry * index) for index in range(count)]
    table = next(section for section in sections if section[1] == SHT_DYNSYM)
    names = sections[table[6]][4]
    found = {}
    for at in range(table[4], table[4] + table[5], SYMBOL.size):
        name = names + SYMBOL.unpack_from(data, at)[0]
        found[data[name:data.index(b"\0", name)].decode()] = at
    for alias, name in SAME.items():
        _, info, _, section, value, size = SYMBOL.unpack_from(data, found[name])
        own, _, other, *_ = SYMBOL.unpack_from(data, found[alias])
        SYMBOL.pack_into(data, found[alias], own, STB_WEAK << 4 | info & 0xF, other, section, value, size)
    with open(path, "wb") as sink:
        sink.write(data)


def main():
    target, folder = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        program = os.path.join(cache, "main.c")
        with open(program, "w", encoding="ascii") as sink:
            sink.write("int main(void) { return 0; }\n")
        # Zig makes the libraries when it links, and prints the command with their paths. They have no code of Zig's.
        shown = subprocess.run([sys.executable, "-m", "ziglang", "cc", "-v", "-target", target, "-pie", "-fPIE", program, "-o",
                                os.path.join(cache, "main")],
                               stderr=subprocess.PIPE, text=True, check=False,
                               env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache})
        files = {os.path.basename(match.group()): match.group() for match in WANTED.finditer(shown.stderr)}
        if shown.returncode != 0 or not {"Scrt1.o", "libc.so.6", "libc_nonshared.a"} <= files.keys():
            sys.exit(f"{sys.executable} -m ziglang made no libraries of {target} (is ziglang installed?):\n{shown.stderr[-4000:]}")
        for name, path in files.items():
            shutil.copy(path, os.path.join(folder, name))
    join_names(os.path.join(folder, "libc.so.6"))
    for name in files:
        if ".so." in name:
            os.symlink(name, os.path.join(folder, name[:name.index(".so.")] + ".so"))
    # Like glibc's own libc.so. Written last, because its existence means that all is there.
    os.unlink(os.path.join(folder, "libc.so"))
    with open(os.path.join(folder, "libc.so"), "w", encoding="ascii") as sink:
        sink.write("GROUP ( -l:libc.so.6 -l:libc_nonshared.a AS_NEEDED ( -l:libld.so.2 ) )\n")


if __name__ == "__main__":
    main()
