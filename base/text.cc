#include "base/text.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

constexpr size_t kQuotedBytesMax = 120;
constexpr char kEscape = '\x1b';

// Index after the escape sequence that begins at `start`.
size_t SkipEscape(absl::string_view bytes, size_t start) {
  size_t i = start + 1;
  if (i >= bytes.size()) return i;
  if (bytes[i] == '[') {  // CSI: parameters 0x20-0x3f, then one final byte 0x40-0x7e
    ++i;
    while (i < bytes.size() && bytes[i] >= 0x20 && bytes[i] <= 0x3f) ++i;
    return i < bytes.size() && bytes[i] >= 0x40 && bytes[i] <= 0x7e ? i + 1 : i;
  }
  if (bytes[i] == ']') {  // OSC: up to BEL or ESC backslash; never past its line
    ++i;
    while (i < bytes.size() && bytes[i] != '\a' && bytes[i] != '\n' && bytes[i] != kEscape) ++i;
    if (i < bytes.size() && bytes[i] == '\a') return i + 1;
    if (i + 1 < bytes.size() && bytes[i] == kEscape && bytes[i + 1] == '\\') return i + 2;
    return i;
  }
  // Two bytes, with intermediates 0x20-0x2f in between (choice of a character set).
  while (i < bytes.size() && bytes[i] >= 0x20 && bytes[i] <= 0x2f) ++i;
  return i < bytes.size() && bytes[i] >= 0x30 && bytes[i] <= 0x7e ? i + 1 : i;
}

bool StartsName(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool ContinuesName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// The name at the start of `text`; "" = none.
absl::string_view LeadingName(absl::string_view text) {
  if (text.empty() || !StartsName(text[0])) return {};
  size_t length = 1;
  while (length < text.size() && ContinuesName(text[length])) ++length;
  return text.substr(0, length);
}

}  // namespace

std::vector<std::string> WrapText(absl::string_view text, size_t width) {
  std::vector<std::string> lines;
  for (absl::string_view paragraph : absl::StrSplit(text, '\n')) {
    std::string line;
    for (absl::string_view word : absl::StrSplit(paragraph, ' ', absl::SkipEmpty())) {
      if (!line.empty() && line.size() + 1 + word.size() > width) {
        lines.push_back(std::move(line));
        line.clear();
      }
      absl::StrAppend(&line, line.empty() ? "" : " ", word);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string Printable(absl::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size();) {
    const char c = bytes[i];
    if (c == kEscape) {
      i = SkipEscape(bytes, i);
      continue;
    }
    ++i;
    if (c == '\r') {
      if (i >= bytes.size() || bytes[i] != '\n') text += '\n';
    } else if (c == '\n' || c == '\t' || !absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      text += c;
    }
  }
  return text;
}

size_t CharacterLength(absl::string_view bytes) {
  const auto byte = [bytes](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!ContinuesCharacter(bytes[i])) return 0;
  }
  const unsigned second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return length;
}

bool ContinuesCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80; }

size_t CutLength(absl::string_view text, size_t bytes_max) {
  size_t end = std::min(text.size(), bytes_max);
  while (end > 0 && end < text.size() && ContinuesCharacter(text[end])) --end;
  return end;
}

bool IsUtf8(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = CharacterLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string Shown(absl::string_view value, size_t bytes_max) {
  const absl::string_view shown = value.substr(0, CutLength(value, bytes_max));
  return absl::StrCat(IsUtf8(shown) ? absl::Utf8SafeCHexEscape(shown) : absl::CHexEscape(shown),
                      shown.size() < value.size() ? "…" : "");
}

std::string Quoted(absl::string_view value) {
  return absl::StrCat("'", Shown(value, kQuotedBytesMax), "'");
}

std::string CountText(uint64_t count, absl::string_view noun) {
  return CountText(absl::StrCat(count), noun);
}

std::string CountText(absl::string_view count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == "1" ? "" : "s");
}

std::string BytesText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " bytes");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Substitute(absl::string_view text, const std::map<std::string, std::string>& values) {
  std::string result;
  while (!text.empty()) {
    const size_t dollar = text.find('$');
    result.append(text.data(), dollar == absl::string_view::npos ? text.size() : dollar);
    if (dollar == absl::string_view::npos) break;
    text.remove_prefix(dollar);
    if (text.size() > 1 && text[1] == '$') {
      result += '$';
      text.remove_prefix(2);
      continue;
    }
    const bool braced = text.size() > 1 && text[1] == '{';
    const size_t name_at = braced ? 2 : 1;
    const absl::string_view name = LeadingName(text.substr(name_at));
    size_t end = name_at + name.size();
    const bool closed = !braced || (end < text.size() && text[end] == '}');
    if (braced && closed) ++end;
    const auto found = name.empty() || !closed ? values.end() : values.find(std::string(name));
    if (found == values.end()) {
      result += '$';  // what follows is copied as ordinary text
      text.remove_prefix(1);
    } else {
      result += found->second;
      text.remove_prefix(end);
    }
  }
  return result;
}

std::string BaseName(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path;
  const size_t slash = path.rfind('/', end);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(begin, end + 1 - begin);
}

uint64_t StableHash(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3U;
  }
  return hash;
}

}  // namespace ddprun
