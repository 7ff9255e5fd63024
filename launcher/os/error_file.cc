#include "launcher/os/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

using nlohmann::json;

constexpr size_t kBytesMax = 1 << 20;
// How much of a file that can't be understood is shown.
constexpr size_t kExcerptBytes = 2000;

// Up to kBytesMax + 1 bytes, so that a longer file is noticed.
absl::StatusOr<std::string> ReadBounded(const std::string& path) {
  // Without O_NONBLOCK a FIFO of that name would hold us up.
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open error file '", path, "'"));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("error file '", path, "' is no regular file"));
  }
  std::string bytes(kBytesMax + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t n = read(fd.get(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read error file '", path, "'"));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  bytes.resize(size);
  return bytes;
}

// Deeper than any error file; the parser's own stack is bounded by it.
constexpr int kDepthMax = 64;

// The number of the escape "\\ud83d" that begins at `at`; -1 = none does.
int EscapedUnit(absl::string_view text, size_t at) {
  uint32_t unit = 0;
  if (text.size() < at + 6 || text.substr(at, 2) != "\\u") return -1;
  return absl::SimpleHexAtoi(text.substr(at + 2, 4), &unit) ? static_cast<int>(unit) : -1;
}

bool IsHighSurrogate(int unit) { return unit >= 0xd800 && unit < 0xdc00; }
bool IsLowSurrogate(int unit) { return unit >= 0xdc00 && unit < 0xe000; }

// Python writes halves of characters (surrogateescape: bytes that are no UTF-8) as escapes that no
// strict parser takes. They become U+FFFD; all else stays.
std::string WithoutLoneSurrogates(absl::string_view bytes) {
  std::string text(bytes);
  for (size_t at = text.find('\\'); at != std::string::npos; at = text.find('\\', at)) {
    const int unit = EscapedUnit(text, at);
    if (IsHighSurrogate(unit) && IsLowSurrogate(EscapedUnit(text, at + 6))) {
      at += 12;
    } else if (IsHighSurrogate(unit) || IsLowSurrogate(unit)) {
      text.replace(at + 2, 4, "fffd");
      at += 6;
    } else {
      at += unit >= 0 ? 6 : 2;
    }
  }
  return text;
}

// Discarded when it isn't JSON, or is nested too deep.
json Parse(absl::string_view bytes) {
  const auto callback = [](int depth, json::parse_event_t /*event*/, json& /*parsed*/) {
    return depth <= kDepthMax;
  };
  return json::parse(WithoutLoneSurrogates(bytes), callback, /*allow_exceptions=*/false);
}

// Whatever bytes its texts have.
std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Any JSON value as text for people.
std::string Text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "";
  return Dump(value);
}

std::string Field(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? "" : Text(*found);
}

// Seconds from a number or from a text that holds one; 0 when it is neither.
int64_t Seconds(const json& object) {
  double seconds = 0;
  if (!absl::SimpleAtod(Field(object, "timestamp"), &seconds)) return 0;
  constexpr double kSecondsMax = 1e12;
  return seconds > 0 && seconds < kSecondsMax ? static_cast<int64_t>(seconds) : 0;
}

ErrorFile FromJson(const json& root) {
  const auto message = root.find("message");
  if (!message->is_object()) return {.message = Text(*message), .timestamp = Seconds(root)};
  ErrorFile file{.message = Field(*message, "message")};
  const auto extra = message->find("extraInfo");
  if (extra != message->end() && extra->is_object()) {
    file.traceback = Field(*extra, "py_callstack");
    file.timestamp = Seconds(*extra);
  }
  return file;
}

ErrorFile NotUnderstood(const std::string& path, absl::string_view why, absl::string_view bytes) {
  return {.message = absl::StrCat("error file '", path, "' ", why,
                                  "; it begins: ", bytes.substr(0, kExcerptBytes))};
}

}  // namespace

absl::StatusOr<std::string> ReadErrorFileBytes(const std::string& path) {
  DDPRUN_ASSIGN_OR_RETURN(std::string bytes, ReadBounded(path));
  if (bytes.empty()) return absl::NotFoundError(absl::StrCat("error file '", path, "' is empty"));
  return bytes;
}

absl::StatusOr<ErrorFile> ReadErrorFile(const std::string& path) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string bytes, ReadErrorFileBytes(path));
  return ParseErrorFile(path, bytes);
}

ErrorFile ParseErrorFile(const std::string& path, absl::string_view bytes) {
  if (bytes.size() > kBytesMax) return NotUnderstood(path, "is longer than 1 MiB", bytes);
  const json root = Parse(bytes);
  if (root.is_discarded()) return NotUnderstood(path, "is not valid JSON", bytes);
  if (!root.is_object() || !root.contains("message")) {
    return NotUnderstood(path, "is JSON without a \"message\"", bytes);
  }
  return FromJson(root);
}

std::optional<std::string> WithErrorCode(absl::string_view bytes, int error_code) {
  if (bytes.size() > kBytesMax) return std::nullopt;
  json root = Parse(bytes);
  if (!root.is_object() || !root.contains("message")) return std::nullopt;
  if (!root["message"].is_object()) return std::string(bytes);
  root["message"]["errorCode"] = error_code;
  return Dump(root);
}

std::string FormatErrorFile(const ErrorFile& error) {
  const json extra = {{"py_callstack", error.traceback},
                      {"timestamp", absl::StrCat(error.timestamp)}};
  return Dump({{"message", {{"message", error.message}, {"extraInfo", extra}}}});
}

}  // namespace ddprun::launcher
