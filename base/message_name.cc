#include "base/message_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {

std::string NameInMessages(const std::string& name) {
  constexpr size_t kBytesMax = 256;
  constexpr size_t kBytesKept = 50;  // an escaped one is four
  const bool has_control = std::any_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  if (name.size() <= kBytesMax && IsUtf8(name) && !has_control) return name;
  return absl::StrCat(Shown(name, kBytesKept), "_", absl::Hex(StableHash(name), absl::kZeroPad16));
}

}  // namespace ddprun
