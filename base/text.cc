#include "base/text.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

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

namespace {

using Lines = std::vector<absl::string_view>;

// What torch.distributed's excepthook puts before each line of a traceback, once there is a process
// group: "[rank1]: ".
absl::string_view WithoutRank(absl::string_view line) {
  absl::string_view rest = line;
  if (!absl::ConsumePrefix(&rest, "[rank")) return line;
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  rest.remove_prefix(digits);
  if (digits == 0 || !absl::ConsumePrefix(&rest, "]:")) return line;
  absl::ConsumePrefix(&rest, " ");
  return rest;
}

// "ValueError: bad", "torch.cuda.OutOfMemoryError: …", "KeyboardInterrupt": a dotted name that ends
// like Python's own exceptions, alone or before a colon. SyntaxError has no traceback above it.
bool IsException(absl::string_view line) {
  const auto end = std::find_if_not(line.begin(), line.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  });
  const absl::string_view name(line.data(), static_cast<size_t>(end - line.begin()));
  if (end != line.end() && *end != ':') return false;
  return absl::EndsWith(name, "Error") || absl::EndsWith(name, "Exception") ||
         absl::EndsWith(name, "Interrupt");
}

// Python prints tracebacks of exceptions that end nothing, as those in destructors while the
// interpreter ends: "Exception ignored in: <function …>" stands above them.
bool EndsNothing(const Lines& lines, size_t traceback) {
  return traceback > 0 && absl::StartsWith(lines[traceback - 1], "Exception ignored in");
}

// The exception below the traceback at `traceback`: the first line that isn't indented.
absl::string_view BelowTraceback(const Lines& lines, size_t traceback) {
  for (size_t i = traceback + 1; i < lines.size(); ++i) {
    if (!lines[i].empty() && lines[i].front() != ' ' && lines[i].front() != '\t') return lines[i];
  }
  return "";
}

// The last line for which `fits`; "" = none.
template <typename Fits>
absl::string_view Last(const Lines& lines, Fits fits) {
  const auto found = std::find_if(lines.rbegin(), lines.rend(), fits);
  return found == lines.rend() ? "" : *found;
}

bool IsOfAnInterpreter(absl::string_view line) {
  for (const absl::string_view begin : {"error: ", "Error: ", "ERROR: ", "fatal: "}) {
    if (absl::StartsWith(line, begin)) return true;
  }
  for (const absl::string_view sign :
       {": No module named ", ": can't open file ", ": can't find '__main__' module",
        ": Error while finding module specification for ", ": error: ", ": command not found",
        ": error while loading shared libraries: ", ": cannot execute", ": Permission denied"}) {
    if (absl::StrContains(line, sign)) return true;
  }
  return false;
}

}  // namespace

std::string ErrorLine(absl::string_view last_words) {
  Lines lines = absl::StrSplit(last_words, absl::ByAnyChar("\r\n"));
  for (absl::string_view& line : lines) line = WithoutRank(line);
  absl::string_view found;
  for (size_t i = lines.size(); i-- > 0 && found.empty();) {
    if (absl::StartsWith(lines[i], "Traceback (most recent call last)") && !EndsNothing(lines, i)) {
      found = BelowTraceback(lines, i);
    }
  }
  if (found.empty()) found = Last(lines, IsException);
  if (found.empty()) {
    found = Last(lines, [](absl::string_view line) {
      return absl::StartsWith(absl::StripAsciiWhitespace(line), "what():");
    });
  }
  if (found.empty()) found = Last(lines, IsOfAnInterpreter);
  return std::string(absl::StripAsciiWhitespace(found));
}

namespace {

// Levenshtein distance (1966).
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row.back();
}

}  // namespace

std::string NearestWord(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = 3;  // more than two letters apart is no typing error
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance && distance < candidate.size() / 2) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string SignalName(int signal_number) {
  if (const char* name = sigabbrev_np(signal_number); name != nullptr) {
    return absl::StrCat("SIG", name);
  }
  if (signal_number >= SIGRTMIN && signal_number <= SIGRTMAX) {
    const int above = signal_number - SIGRTMIN;
    return above == 0 ? "SIGRTMIN" : absl::StrCat("SIGRTMIN+", above);
  }
  return absl::StrCat("signal ", signal_number);
}

}  // namespace ddprun
