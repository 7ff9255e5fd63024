#include "rendezvous/wire/text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr absl::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026

bool InRange(absl::string_view text, size_t at, uint8_t low, uint8_t high) {
  if (at >= text.size()) return false;
  const auto byte = static_cast<uint8_t>(text[at]);
  return byte >= low && byte <= high;
}

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Bytes of the character at the start of `text`; 0 = no well-formed one.
size_t CharacterLength(absl::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if (lead < 0xE0) return InRange(text, 1, 0x80, 0xBF) ? 2 : 0;
  // The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  if (!InRange(text, 1, low, high) || !InRange(text, 2, 0x80, 0xBF)) return 0;
  if (lead < 0xF0) return 3;
  return InRange(text, 3, 0x80, 0xBF) ? 4 : 0;
}

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
  size_t end = std::min(out.size(), bytes_max - kEllipsis.size());
  while (end > 0 && IsContinuation(out[end])) --end;
  out.resize(end);
  out.append(kEllipsis.data(), kEllipsis.size());
  return out;
}

std::string CutTextFront(absl::string_view text, size_t bytes_max) {
  DDPRUN_CHECK(bytes_max >= kEllipsis.size(), "no room for an ellipsis");
  std::string valid = ValidUtf8(text);
  if (valid.size() <= bytes_max) return valid;
  size_t begin = valid.size() - (bytes_max - kEllipsis.size());
  while (begin < valid.size() && IsContinuation(valid[begin])) ++begin;
  return absl::StrCat(kEllipsis, valid.substr(begin));
}

}  // namespace ddprun::rendezvous
