#include "launcher/schedulers/slurm_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kHostBytesMax = 255;  // RFC 1035, section 2.3.4
constexpr size_t kDigitsMax = 9;       // of a number in brackets
constexpr uint32_t kTasksMax = 1'000'000;
constexpr uint64_t kTimePartMax = 1'000'000;  // of days, hours, minutes, seconds

absl::Status BadList(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the host list ", Quoted(text), " can't be read: ", what));
}

absl::Status TooMany(absl::string_view what, size_t most) {
  return absl::ResourceExhaustedError(absl::StrCat("the list names more than ", most, " ", what,
                                                   ", which is all that ddprun takes"));
}

// All digits, and few enough of them. nullopt: something else.
std::optional<uint32_t> ReadDigits(absl::string_view text) {
  uint32_t value = 0;
  const bool digits = !text.empty() && text.size() <= kDigitsMax &&
                      std::all_of(text.begin(), text.end(), [](char c) {
                        return absl::ascii_isdigit(static_cast<unsigned char>(c));
                      });
  if (!digits || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

// The numbers of "01-03,7" as they are written: 01 02 03 7.
absl::StatusOr<std::vector<std::string>> ExpandRanges(absl::string_view ranges, size_t most) {
  std::vector<std::string> numbers;
  for (absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    const bool single = range.find('-') == absl::string_view::npos;
    const std::optional<uint32_t> first = ReadDigits(ends.first);
    const std::optional<uint32_t> last = single ? first : ReadDigits(ends.second);
    if (!first.has_value() || !last.has_value()) {
      return BadList(range, "brackets hold numbers and ranges, as in [01-03,7]");
    }
    if (*last < *first) return BadList(range, "the range runs backwards");
    if (*last - *first >= most || numbers.size() + (*last - *first) >= most) {
      return TooMany("hosts", most);
    }
    for (uint32_t number = *first; number <= *last; ++number) {
      const std::string digits = absl::StrCat(number);
      const size_t zeros = ends.first.size() - std::min(digits.size(), ends.first.size());
      numbers.push_back(absl::StrCat(std::string(zeros, '0'), digits));
    }
  }
  return numbers;
}

// Every combination of what is so far and of what comes next.
absl::StatusOr<std::vector<std::string>> Combine(const std::vector<std::string>& heads,
                                                 const std::vector<std::string>& tails,
                                                 size_t most) {
  if (heads.size() * tails.size() > most) return TooMany("hosts", most);
  std::vector<std::string> names;
  names.reserve(heads.size() * tails.size());
  for (const std::string& head : heads) {
    for (const std::string& tail : tails) {
      if (head.size() + tail.size() > kHostBytesMax) return BadList(head, "a name is too long");
      names.push_back(absl::StrCat(head, tail));
    }
  }
  return names;
}

// One item of the list, which commas outside of brackets divide.
absl::StatusOr<std::vector<std::string>> ExpandHosts(absl::string_view item, size_t most) {
  std::vector<std::string> names = {""};
  absl::string_view rest = item;
  while (!rest.empty()) {
    const size_t open = rest.find('[');
    if (const absl::string_view literal = rest.substr(0, open); !literal.empty()) {
      if (literal.find(']') != absl::string_view::npos) return BadList(item, "']' without '['");
      DDPRUN_ASSIGN_OR_RETURN(names, Combine(names, {std::string(literal)}, most));
    }
    if (open == absl::string_view::npos) break;
    const size_t close = rest.find(']', open);
    if (close == absl::string_view::npos) return BadList(item, "'[' has no ']'");
    const absl::string_view ranges = rest.substr(open + 1, close - open - 1);
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> numbers, ExpandRanges(ranges, most));
    DDPRUN_ASSIGN_OR_RETURN(names, Combine(names, numbers, most));
    rest.remove_prefix(close + 1);
  }
  return names;
}

// Where the item ends that `text` begins with: at a comma outside of brackets, or at its end.
size_t EndOfItem(absl::string_view text) {
  bool within = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') within = true;
    if (text[i] == ']') within = false;
    if (text[i] == ',' && !within) return i;
  }
  return text.size();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view text, size_t hosts_max) {
  const bool printable = std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return absl::ascii_iscntrl(byte) || absl::ascii_isspace(byte) || byte >= 0x80;
  });
  if (!printable) return BadList(text, "names are printable ASCII without blanks");
  std::vector<std::string> hosts;
  for (absl::string_view rest = text;;) {
    const size_t end = EndOfItem(rest);
    if (end == 0) return BadList(text, "a name is empty");
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            ExpandHosts(rest.substr(0, end), hosts_max));
    if (hosts.size() + names.size() > hosts_max) return TooMany("hosts", hosts_max);
    hosts.insert(hosts.end(), names.begin(), names.end());
    if (end == rest.size()) return hosts;
    rest.remove_prefix(end + 1);
  }
}

absl::StatusOr<std::vector<uint32_t>> ExpandCounts(absl::string_view text, size_t counts_max) {
  std::vector<uint32_t> counts;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    absl::string_view number = item;
    std::optional<uint32_t> times = 1;
    if (const size_t open = item.find("(x"); open != absl::string_view::npos) {
      number = item.substr(0, open);
      absl::string_view repeat = item.substr(open + 2);
      times = absl::ConsumeSuffix(&repeat, ")") ? ReadDigits(repeat) : std::nullopt;
    }
    const std::optional<uint32_t> count = ReadDigits(number);
    if (!count.has_value() || *count > kTasksMax || times.value_or(0) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the list ", Quoted(text), " can't be read: it is written as 2(x3),1"));
    }
    if (*times > counts_max || counts.size() + *times > counts_max) {
      return TooMany("counts", counts_max);
    }
    counts.insert(counts.end(), *times, *count);
  }
  return counts;
}

std::optional<absl::Duration> ReadSlurmTime(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  absl::Duration time;
  if (const size_t dash = text.find('-'); dash != absl::string_view::npos) {
    const std::optional<uint32_t> days = ReadDigits(text.substr(0, dash));
    if (!days.has_value() || *days > kTimePartMax) return std::nullopt;
    time = *days * absl::Hours(24);
    text.remove_prefix(dash + 1);
    if (std::count(text.begin(), text.end(), ':') != 2) return std::nullopt;
  }
  absl::Duration clock;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() > 3) return std::nullopt;
  for (absl::string_view part : parts) {
    const std::optional<uint32_t> value = ReadDigits(part);
    if (!value.has_value() || *value > kTimePartMax) return std::nullopt;
    clock = 60 * clock + absl::Seconds(*value);
  }
  return time + clock;
}

std::string ReadScontrolField(absl::string_view text, absl::string_view name) {
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"))) {
    if (absl::ConsumePrefix(&word, name) && absl::ConsumePrefix(&word, "=")) {
      return std::string(word);
    }
  }
  return "";
}

}  // namespace ddprun::launcher
