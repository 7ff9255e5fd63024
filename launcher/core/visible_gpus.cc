#include "launcher/core/visible_gpus.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {
namespace {

std::optional<size_t> GpuOfEntry(const std::vector<std::string>& uuids, absl::string_view entry) {
  int64_t number = 0;
  if (absl::SimpleAtoi(entry, &number)) {
    if (number < 0 || number >= static_cast<int64_t>(uuids.size())) return std::nullopt;
    return static_cast<size_t>(number);
  }
  if (!absl::StartsWith(entry, "GPU-")) return std::nullopt;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (absl::StartsWithIgnoreCase(uuids[i], entry)) return i;
  }
  return std::nullopt;
}

}  // namespace

std::vector<size_t> VisibleGpus(const std::vector<std::string>& uuids,
                                const std::optional<std::string>& visible) {
  std::vector<size_t> numbers;
  if (!visible.has_value()) {
    for (size_t i = 0; i < uuids.size(); ++i) numbers.push_back(i);
    return numbers;
  }
  for (const absl::string_view entry : absl::StrSplit(*visible, ',')) {
    const std::optional<size_t> gpu = GpuOfEntry(uuids, absl::StripAsciiWhitespace(entry));
    if (!gpu.has_value()) break;
    numbers.push_back(*gpu);
  }
  return numbers;
}

}  // namespace ddprun::launcher
