"""python3 -m ddprun_torch.run …: ddprun, with this interpreter for the workers."""

import sys

from ddprun_torch.program import become_ddprun

if __name__ == "__main__":
    become_ddprun(sys.argv[1:])
