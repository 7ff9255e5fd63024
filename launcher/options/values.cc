#include "launcher/options/values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/address.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':' ||
         c == '-' || c == '%';  // '%' precedes the scope of a link-local address
}

// A port in 1 to 5 digits, or nullopt.
std::optional<uint16_t> ReadPort(absl::string_view text) {
  uint32_t port = 0;
  if (text.empty() || text.size() > 5 || !std::all_of(text.begin(), text.end(), IsDigit) ||
      !absl::SimpleAtoi(text, &port) || port > std::numeric_limits<uint16_t>::max()) {
    return std::nullopt;
  }
  return static_cast<uint16_t>(port);
}

absl::Status CheckHost(const Argument& argument, absl::string_view host) {
  if (host.empty()) return BadValue(argument, "has no host; give HOST or HOST:PORT");
  if (host.size() > rendezvous::kNameBytesMax) {
    return BadValue(argument,
                    absl::StrCat("the host is longer than ", rendezvous::kNameBytesMax, " bytes"));
  }
  if (!std::all_of(host.begin(), host.end(), IsHostCharacter)) {
    return BadValue(argument, absl::StrCat("'", host,
                                           "' is no host name and no IP address; "
                                           "give a name, 10.0.0.1 or [::1]"));
  }
  return absl::OkStatus();
}

// "3" or "4-7", both ends included and below kWorkersPerNodeMax; nullopt for anything else.
struct RankSpan {
  uint32_t first = 0;
  uint32_t last = 0;
};
std::optional<RankSpan> ReadRankSpan(absl::string_view text) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  const std::optional<int64_t> first = ReadInteger(ends.front());
  const std::optional<int64_t> last = ReadInteger(ends.back());
  if (!first.has_value() || !last.has_value() || *first < 0 || *first > *last ||
      *last >= int64_t{rendezvous::kWorkersPerNodeMax}) {
    return std::nullopt;
  }
  return RankSpan{.first = static_cast<uint32_t>(*first), .last = static_cast<uint32_t>(*last)};
}

// "rank:digit" of a stream list.
bool ReadStreamItem(absl::string_view item, StreamChoice* choice) {
  const std::vector<absl::string_view> parts = absl::StrSplit(item, ':');
  if (parts.size() != 2 || parts[1].size() != 1 || parts[1][0] < '0' || parts[1][0] > '3') {
    return false;
  }
  const auto streams = static_cast<uint32_t>(parts[1][0] - '0');
  if (parts[0] == "*") {
    choice->all = streams;
    return true;
  }
  if (parts[0].empty() || !IsDigit(parts[0].front()) || !IsDigit(parts[0].back())) return false;
  const std::optional<RankSpan> span = ReadRankSpan(parts[0]);
  if (!span.has_value()) return false;
  for (uint32_t rank = span->first; rank <= span->last; ++rank) choice->by_rank[rank] = streams;
  return true;
}

}  // namespace

absl::Status BadValue(const Argument& argument, absl::string_view what) {
  return PlanError(absl::StrCat(argument.source, " ", Quoted(argument.text), ": ", what));
}

absl::Status BadWord(const Argument& argument, absl::string_view what) {
  return UsageError(absl::StrCat(argument.source, " ", Quoted(argument.text), ": ", what));
}

std::optional<int64_t> ReadInteger(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const bool negative = absl::ConsumePrefix(&text, "-");
  if (!negative) absl::ConsumePrefix(&text, "+");
  if (text.empty() || !IsDigit(text.front()) || !IsDigit(text.back())) return std::nullopt;
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsDigit(text[i])) {
      digits += text[i];
    } else if (text[i] != '_' || !IsDigit(text[i + 1])) {  // the last one is a digit
      return std::nullopt;
    }
  }
  int64_t value = 0;
  // On overflow SimpleAtoi stores the bound, which every range check then names.
  const bool fits = absl::SimpleAtoi(absl::StrCat(negative ? "-" : "", digits), &value);
  if (!fits) {
    return negative ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  }
  return value;
}

std::optional<bool> ReadBoolean(absl::string_view text) {
  const std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
  for (absl::string_view yes : {"true", "t", "yes", "y", "on"}) {
    if (word == yes) return true;
  }
  for (absl::string_view no : {"false", "f", "no", "n", "off"}) {
    if (word == no) return false;
  }
  const std::optional<int64_t> number = ReadInteger(word);
  if (!number.has_value()) return std::nullopt;
  return *number != 0;
}

bool ReadMemorySize(absl::string_view text, std::optional<uint64_t>* bytes,
                    std::optional<double>* percent) {
  double number = 0;
  if (absl::ConsumeSuffix(&text, "%")) {
    if (!absl::SimpleAtod(text, &number) || !(number >= 0 && number <= 100)) return false;
    *percent = number;
    return true;
  }
  constexpr std::pair<const char*, double> kUnits[] = {
      {"KiB", 1024.0}, {"MiB", 1024.0 * 1024}, {"GiB", 1024.0 * 1024 * 1024}};
  double unit = 1;
  for (const auto& [name, size] : kUnits) {
    if (absl::ConsumeSuffix(&text, name)) unit = size;
  }
  constexpr double kBytesMax = 1e15;
  if (!absl::SimpleAtod(text, &number) || !(number >= 0 && number * unit <= kBytesMax)) {
    return false;
  }
  *bytes = static_cast<uint64_t>(number * unit);
  return true;
}

std::optional<absl::Duration> ReadDuration(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (double seconds = 0; absl::SimpleAtod(text, &seconds)) {
    if (!std::isfinite(seconds)) return std::nullopt;
    return absl::Seconds(seconds);
  }
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) ||
      absl::AbsDuration(duration) == absl::InfiniteDuration())
    return std::nullopt;
  return duration;
}

std::string DurationText(absl::Duration duration) {
  const int64_t hours = absl::ToInt64Hours(duration);
  if (hours > 0 && absl::Hours(hours) == duration) return absl::StrCat(hours, "h");
  return absl::StrCat(absl::ToDoubleSeconds(duration));
}

absl::StatusOr<int64_t> ParseInteger(const Argument& argument, int64_t min, int64_t max) {
  const std::optional<int64_t> value = ReadInteger(argument.text);
  if (!value.has_value()) return BadWord(argument, "is not a whole number");
  if (*value < min || *value > max) {
    return BadValue(argument, absl::StrCat("must be from ", min, " to ", max));
  }
  return *value;
}

absl::StatusOr<absl::Duration> ParseDuration(const Argument& argument, absl::Duration min,
                                             absl::Duration max) {
  const std::optional<absl::Duration> value = ReadDuration(argument.text);
  if (!value.has_value()) {
    return BadWord(argument, "is not a number of seconds; give for example 30, 0.5, 150ms or 3m");
  }
  if (*value < min && max == absl::InfiniteDuration()) {
    return BadValue(argument, absl::StrCat("must be at least ", absl::FormatDuration(min)));
  }
  if (*value < min || *value > max) {
    return BadValue(argument, absl::StrCat("must be from ", absl::FormatDuration(min), " to ",
                                           absl::FormatDuration(max)));
  }
  return *value;
}

absl::StatusOr<NodeRange> ParseNodeRange(const Argument& argument) {
  const std::vector<absl::string_view> parts = absl::StrSplit(argument.text, ':');
  const std::optional<int64_t> min = ReadInteger(parts.front());
  const std::optional<int64_t> max = ReadInteger(parts.back());
  if (parts.size() > 2 || !min.has_value() || !max.has_value()) {
    return BadValue(argument, "is not a number of nodes; give N or MIN:MAX, for example 2 or 1:4");
  }
  if (*min < 1) return BadValue(argument, "a job needs at least 1 node");
  if (*min > *max) {
    return BadValue(argument,
                    absl::StrCat("MIN is greater than MAX; did you mean ", *max, ":", *min, "?"));
  }
  constexpr int64_t kMost = rendezvous::kNodesMax;
  if (*min > kMost) return BadValue(argument, absl::StrCat("at most ", kMost, " nodes"));
  return NodeRange{.min = static_cast<uint32_t>(*min),
                   .max = static_cast<uint32_t>(std::min(*max, kMost))};
}

absl::StatusOr<std::string> ParseHost(const Argument& argument) {
  absl::string_view host = absl::StripAsciiWhitespace(argument.text);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  if (std::count(host.begin(), host.end(), ':') == 1) {
    return BadValue(argument, "has a port; give the host alone, and the port as --master_port");
  }
  DDPRUN_RETURN_IF_ERROR(CheckHost(argument, host));
  return std::string(host);
}

absl::StatusOr<std::string> ParseStatusPage(const Argument& argument) {
  if (argument.text.empty()) return std::string();
  Endpoint page{.host = "127.0.0.1", .port = ReadPort(argument.text)};
  if (!page.port.has_value()) {
    if (ReadInteger(argument.text).has_value()) {
      return BadValue(argument, "is no port; give one from 0 to 65535");
    }
    DDPRUN_ASSIGN_OR_RETURN(page, ParseEndpoint(argument));
  }
  if (!page.port.has_value()) {
    return BadValue(argument, "has no port; give PORT or HOST:PORT, as in 0.0.0.0:8080");
  }
  return HostPort(page.host, *page.port);
}

absl::StatusOr<Endpoint> ParseEndpoint(const Argument& argument) {
  const absl::string_view text = absl::StripAsciiWhitespace(argument.text);
  Endpoint endpoint;
  absl::string_view host = text;
  const size_t colon = text.rfind(':');
  const size_t bracket = text.rfind(']');
  const bool after_bracket = bracket == absl::string_view::npos || colon == bracket + 1;
  // "fe80::1" has no port: what is before its last colon can't be a host.
  const bool inside_v6 = bracket == absl::string_view::npos && colon != absl::string_view::npos &&
                         colon > 0 && text[colon - 1] == ':';
  if (colon != absl::string_view::npos && after_bracket && !inside_v6) {
    host = text.substr(0, colon);
    endpoint.port = ReadPort(text.substr(colon + 1));
    if (!endpoint.port.has_value()) {
      return BadValue(argument, absl::StrCat(Quoted(text.substr(colon + 1)),
                                             " is no port; give one from 0 to 65535"));
    }
  }
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  DDPRUN_RETURN_IF_ERROR(CheckHost(argument, host));
  endpoint.host = std::string(host);
  return endpoint;
}

absl::StatusOr<std::map<std::string, std::string>> ParseKeyValues(const Argument& argument) {
  std::map<std::string, std::string> values;
  const absl::string_view text = absl::StripAsciiWhitespace(argument.text);
  if (text.empty()) return values;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(parts.front());
    const absl::string_view value =
        parts.size() == 2 ? absl::StripAsciiWhitespace(parts.back()) : absl::string_view();
    if (key.empty() || value.empty()) {
      return BadValue(argument, absl::StrCat(Quoted(item),
                                             " is not KEY=VALUE; give "
                                             "KEY=VALUE,KEY=VALUE without blanks in between"));
    }
    values[std::string(key)] = std::string(value);
  }
  return values;
}

absl::StatusOr<std::vector<uint32_t>> ParseRanks(const Argument& argument) {
  std::vector<uint32_t> ranks;
  for (absl::string_view item : absl::StrSplit(argument.text, ',')) {
    const std::optional<RankSpan> span = ReadRankSpan(item);
    if (!span.has_value()) {
      return BadValue(argument, absl::StrCat(Quoted(item), " is no number from 0 to ",
                                             rendezvous::kWorkersPerNodeMax - 1,
                                             "; give a list such as 0,2,4-7"));
    }
    if (ranks.size() + (span->last - span->first) >= rendezvous::kWorkersPerNodeMax) {
      return BadValue(argument, absl::StrCat("lists more than ", rendezvous::kWorkersPerNodeMax));
    }
    for (uint32_t rank = span->first; rank <= span->last; ++rank) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<std::string> SplitTexts(absl::string_view text) {
  std::vector<std::string> items(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      items.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      items.back() += ',';
      ++i;
    } else {
      items.emplace_back();
    }
  }
  return items;
}

uint32_t StreamChoice::Of(uint32_t local_rank) const {
  const auto found = by_rank.find(local_rank);
  return found == by_rank.end() ? all : found->second;
}

absl::StatusOr<StreamChoice> ParseStreams(const Argument& argument) {
  StreamChoice choice;
  const std::string& text = argument.text;
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '3') {
    choice.all = static_cast<uint32_t>(text[0] - '0');
    return choice;
  }
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    if (!ReadStreamItem(item, &choice)) {
      return BadValue(argument,
                      "give 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for all workers, or "
                      "LOCAL_RANK:DIGIT,… for some, for example 0:1,1:3 or 0-3:1,*:2");
    }
  }
  return choice;
}

}  // namespace ddprun::launcher
