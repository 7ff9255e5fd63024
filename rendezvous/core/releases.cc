#include "rendezvous/core/releases.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace ddprun::rendezvous {
namespace {

// "1.4.2" → {1, 4}.
std::optional<std::pair<uint32_t, uint32_t>> LineOf(absl::string_view release) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(release, absl::MaxSplits('.', 2));
  std::pair<uint32_t, uint32_t> line;
  if (numbers.size() < 2 || !absl::SimpleAtoi(numbers[0], &line.first) ||
      !absl::SimpleAtoi(numbers[1], &line.second)) {
    return std::nullopt;
  }
  return line;
}

}  // namespace

bool MayMeet(absl::string_view one, absl::string_view other) {
  if (one == other) return true;
  const auto first = LineOf(one);
  const auto second = LineOf(other);
  if (!first || !second) return true;
  if (first->first != second->first) return false;
  const uint32_t above = std::max(first->second, second->second);
  return above - std::min(first->second, second->second) <= 1;
}

}  // namespace ddprun::rendezvous
