#include "rendezvous/wire/text.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr absl::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const absl::string_view character = length == 0 ? kReplacement : text.substr(0, length);
    out.append(character.data(), character.size());
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string CutText(absl::string_view text, size_t bytes_max) {
  DDPRUN_CHECK(bytes_max >= kEllipsis.size(), "no room for an ellipsis");
  // Replacing bytes never shortens a text, so bytes behind the bound can't move into it; three more
  // bytes keep its last character whole.
  std::string out = ValidUtf8(text.substr(0, bytes_max + 3));
  if (text.size() <= bytes_max && out.size() <= bytes_max) return out;
  out.resize(CutLength(out, bytes_max - kEllipsis.size()));
  out.append(kEllipsis.data(), kEllipsis.size());
  return out;
}

std::string CutTextFront(absl::string_view text, size_t bytes_max) {
  DDPRUN_CHECK(bytes_max >= kEllipsis.size(), "no room for an ellipsis");
  std::string valid = ValidUtf8(text);
  if (valid.size() <= bytes_max) return valid;
  size_t begin = valid.size() - (bytes_max - kEllipsis.size());
  while (begin < valid.size() && ContinuesCharacter(valid[begin])) ++begin;
  return absl::StrCat(kEllipsis, valid.substr(begin));
}

}  // namespace ddprun::rendezvous
