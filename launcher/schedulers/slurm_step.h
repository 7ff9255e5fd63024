#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_STEP_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_STEP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/core/environment.h"

namespace ddprun::launcher {

// Parsers of Slurm's texts. Never throw; accept any bytes. Pure; threads: any. Source:
// slurm.conf(5), srun(1), squeue(1) of Slurm 22.05.

// The names of a host list, in its order: "n[1-3,07],gpu-a[08-10]" are n1 n2 n3 n07 gpu-a08 …; a
// name with several brackets ("rack[0-1]n[1-2]") is every combination, the last one fastest. A
// number has at least as many digits as the first one of its range.
// Errors: INVALID_ARGUMENT — brackets without an end, within one another or empty, no number in
// them, a range that runs backwards, an empty name, or a control character; RESOURCE_EXHAUSTED —
// more than `hosts_max` names.    Bound: hosts_max names of at most 255 bytes.
absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view text, size_t hosts_max);

// The counts of "2(x3),1": 2 2 2 1.
// Errors: INVALID_ARGUMENT — not such a list; RESOURCE_EXHAUSTED — more than `counts_max` of them.
absl::StatusOr<std::vector<uint32_t>> ExpandCounts(absl::string_view text, size_t counts_max);

// A time as squeue shows it: "MM:SS", "HH:MM:SS", "D-HH:MM:SS", or seconds alone. nullopt: none,
// as UNLIMITED, NOT_SET and INVALID.
std::optional<absl::Duration> ReadSlurmTime(absl::string_view text);

// The value of a field of `scontrol --oneliner show …`: "10.0.0.1" of NodeAddr in "NodeName=n1
// NodeAddr=10.0.0.1 Port=6818". It ends at a blank. "" = there is no such field.
std::string ReadScontrolField(absl::string_view text, absl::string_view name);

// The Slurm task that this process is, or the batch script of a job of one node. Nodes and tasks of
// a heterogeneous step are numbered over all of its components.
struct SlurmStep {
  std::string job_id;                     // digits
  std::string step_id;                    // digits; "" = the batch script, not started by srun
  uint32_t restart_count = 0;             // how often the job was requeued
  std::vector<std::string> nodes;         // of the step, by node number
  uint32_t node = 0;                      // this node's number
  uint32_t task = 0;                      // this task's, over the step
  uint32_t local_task = 0;                // this task's on its node
  uint32_t local_tasks = 1;               // tasks on this node, this one included
  uint32_t tasks = 1;                     // of the step
  std::optional<uint32_t> gpus;           // of the step on this node; nullopt: Slurm manages none
  bool own_gpus = false;                  // this task sees only some of the step's GPUs
  std::optional<uint32_t> cpus;           // of the step on this node
  std::optional<uint32_t> cpus_per_task;  // as requested for the job
  std::optional<int64_t> end_time;        // of the job, seconds since 1970; Slurm 23.02 and newer

  // The name of this run: "123.0" for a step, "123" for the batch script, and "123.0-restart1"
  // after a requeue, so that processes of the run before can't join.
  std::string RunId() const;
};

// Reads SLURM_*. nullopt: not in a step of Slurm, nor in the batch script of a job of one node.
// Errors: plan errors (argument.h) — a variable can't be read, or is missing.
absl::StatusOr<std::optional<SlurmStep>> ReadSlurmStep(const EnvironmentLookup& environment);

// True in the batch script of a job of several nodes, where ddprun may not have been started on all
// of them.
bool IsBatchScriptOfManyNodes(const EnvironmentLookup& environment);

// The nodes of the step that this process is a task of, if srun has started a task on each of them;
// 1 otherwise: no step, variables that can't be read, or the shell of `srun --pty`, which runs only
// on the first node.
uint32_t NodesOfStep(const EnvironmentLookup& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_STEP_H_
