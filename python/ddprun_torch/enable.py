"""python3 -m ddprun_torch.enable [--remove]: makes this environment look at DDPRUN_SHIM.

Writes one .pth file into site-packages; each start of the interpreter reads it, and does nothing
further unless DDPRUN_SHIM is 1.
"""

import os
import sys
import sysconfig

NAME = "ddprun_torch.pth"


def pth_path():
    return os.path.join(sysconfig.get_paths()["purelib"], NAME)


def pth_text():
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # site.py runs a line that begins with "import". A package that is gone is a warning there.
    return f"{folder}\nimport os; os.environ.get('DDPRUN_SHIM') == '1' and __import__('ddprun_torch').install()\n"


def main(arguments):
    if arguments not in ([], ["--remove"]):
        print("usage: python3 -m ddprun_torch.enable [--remove]", file=sys.stderr)
        return 2
    try:
        if arguments:
            os.unlink(pth_path())
            print(f"removed {pth_path()}")
        else:
            with open(pth_path(), "w", encoding="utf-8") as sink:
                sink.write(pth_text())
            print(f"wrote {pth_path()}; DDPRUN_SHIM=1 makes torchrun's Python entry points use ddprun")
    except OSError as error:
        print(f"ddprun_torch: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
