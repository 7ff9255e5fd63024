#ifndef DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_FINDINGS_H_
#define DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_FINDINGS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/doctor/core/machine_facts.h"

namespace ddprun::launcher {

// The findings of `ddprun doctor` on a machine. Pure; threads: any.

enum class Severity {
  kError,    // runs fail, or are wrong
  kWarning,  // some runs fail, or are slow
  kNote,     // worth knowing
};
// "error", "warning", "note".
const char* SeverityName(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  std::string id;    // stable, for programs: "shared_memory_small"; docs/ENV.md lists them
  std::string what;  // one sentence with the value that was seen
  std::string why;   // the effect on a run
  std::vector<std::string> fix;  // commands, or lines of a file, ready to be used; may be none

  friend bool operator==(const Finding&, const Finding&) = default;
};

// All findings, errors first, otherwise in a fixed order.
std::vector<Finding> FindTroubles(const MachineFacts& facts);

// A finding, and the machines that have it.
struct SharedFinding {
  Finding finding;
  std::vector<std::string> hosts;
};

// The findings on one machine.
struct MachineFindings {
  std::string host;
  std::vector<Finding> findings;
};

// Merges equal findings of several machines. Errors first, otherwise in the order of the machines.
std::vector<SharedFinding> ShareFindings(const std::vector<MachineFindings>& machines);

// The part of FindTroubles() about GPUs, their driver, and Python's packages for them.
void FindGpuTroubles(const MachineFacts& facts, std::vector<Finding>* findings);

// A variable to set when a run fails or hangs in its communication; in the order in which to try
// them.
struct DebuggingHint {
  const char* command;
  const char* what_for;
};
inline constexpr std::array<DebuggingHint, 7> kDebuggingHints = {{
    {"export NCCL_DEBUG=INFO", "NCCL says which devices and interfaces it uses, and what failed"},
    {"export TORCH_DISTRIBUTED_DEBUG=DETAIL",
     "torch compares what the ranks do, and names the one that differs"},
    {"ping -c 3 OTHER_NODE",
     "does the network lead there; firewalls must let all ports through between the nodes"},
    {"export NCCL_SOCKET_IFNAME=INTERFACE GLOO_SOCKET_IFNAME=INTERFACE",
     "the interface that the nodes share, when they choose different ones"},
    {"export NCCL_IB_DISABLE=1", "without InfiniBand: slower, but shows whether it is the cause"},
    {"export NCCL_P2P_DISABLE=1",
     "without direct copies between GPUs: slower, but shows whether they are the cause"},
    {"init_process_group(\"gloo\", timeout=timedelta(seconds=36000))",
     "in the script: without NCCL, or only its longer timeout where steps rightly take long"},
}};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_FINDINGS_H_
