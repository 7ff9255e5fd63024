#include "worker/env/start_request.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::worker {
namespace {

absl::string_view NameOf(absl::string_view variable) {
  return variable.substr(0, variable.find('='));
}

// The variables by name, as views of the argument.
std::map<absl::string_view, absl::string_view> ByName(const std::vector<std::string>& variables) {
  std::map<absl::string_view, absl::string_view> by_name;
  for (const std::string& variable : variables) by_name.emplace(NameOf(variable), variable);
  return by_name;
}

}  // namespace

std::optional<StartRequest> ParseStartRequest(absl::string_view text) {
  if (text.empty() || text.back() != '\0') return std::nullopt;
  text.remove_suffix(1);
  const std::vector<absl::string_view> words = absl::StrSplit(text, '\0');
  StartRequest request;
  if (words.size() < 3 || !absl::SimpleAtoi(words[0], &request.keeper) || request.keeper <= 0) {
    return std::nullopt;
  }
  for (const absl::string_view number : absl::StrSplit(words[1], ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(number, &request.cpus.emplace_back())) return std::nullopt;
  }
  for (const char letter : {'i', 'o', 'e'}) {
    if (words[2].find(letter) != absl::string_view::npos) request.streams.push_back(letter);
  }
  for (size_t i = 3; i < words.size(); ++i) request.environment.emplace_back(words[i]);
  return request;
}

std::vector<std::string> WithChanges(const std::vector<std::string>& began,
                                     const std::vector<std::string>& now,
                                     std::vector<std::string> wanted) {
  const auto before = ByName(began);
  const auto after = ByName(now);
  const auto drop = [&wanted](absl::string_view name) {
    std::erase_if(wanted, [name](const std::string& variable) { return NameOf(variable) == name; });
  };
  for (const auto& [name, variable] : before) {
    if (!after.contains(name)) drop(name);
  }
  for (const auto& [name, variable] : after) {
    const auto found = before.find(name);
    if (found != before.end() && found->second == variable) continue;
    drop(name);
    wanted.emplace_back(variable);
  }
  return wanted;
}

}  // namespace ddprun::worker
