#include "launcher/core/witness.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {

void ReadGroups(absl::string_view text, Witness* witness) {
  witness->groups.clear();
  witness->inside_group.clear();
  witness->inside_call.clear();
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const std::vector<absl::string_view> inside = absl::StrSplit(lines.front(), '\t');
  if (inside.size() != 2) return;
  for (size_t i = 1; i < lines.size() && i <= rendezvous::kGroupsMax; ++i) {
    const std::vector<absl::string_view> fields = absl::StrSplit(lines[i], '\t');
    rendezvous::GroupProgress group;
    if (fields.size() != 3 || fields[0].empty() ||
        fields[0].size() > rendezvous::kGroupNameBytesMax ||
        !absl::SimpleAtoi(fields[1], &group.sequence) ||
        !absl::SimpleAtoi(fields[2], &group.size)) {
      break;
    }
    group.name = std::string(fields[0]);
    witness->groups.push_back(std::move(group));
  }
  if (inside[0].size() > rendezvous::kGroupNameBytesMax) return;
  for (const rendezvous::GroupProgress& group : witness->groups) {
    if (inside[0].empty() || inside[1] != group.name) continue;
    witness->inside_call = std::string(inside[0]);
    witness->inside_group = group.name;
  }
}

}  // namespace ddprun::launcher
