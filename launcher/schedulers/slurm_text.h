#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_TEXT_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_TEXT_H_
