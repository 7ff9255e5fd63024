"""`python3 -m ddprun …`: the same as `ddprun …`, with this interpreter for the workers."""

import sys

from ddprun_torch.program import become_ddprun

if __name__ == "__main__":
    become_ddprun(sys.argv[1:])
