#include "worker/env/start_request.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ddprun::worker {
namespace {

// Strings outside the block are never freed, like those of setenv(3), because others may point to
// them.
struct Outside {
  std::deque<std::string> strings;
  std::deque<std::vector<char*>> arrays;
};
Outside& Forever() {
  static Outside* const forever = new Outside;
  return *forever;
}

// The memory of an environment's strings: those that the process began with, then the room.
class Block {
 public:
  // The kernel puts the strings one behind the other.
  explicit Block(char** began) {
    for (; *began != nullptr && !absl::StartsWith(*began, kRoomBegins); ++began) {
      kept_.emplace(*began, *began);
    }
    next_ = end_ = *began;
    for (; *began != nullptr; ++began) end_ = *began + std::strlen(*began) + 1;
  }

  // Stores the variable; returns its place.
  char* Put(const std::string& variable) {
    if (const auto kept = kept_.find(variable); kept != kept_.end()) return kept->second;
    const size_t bytes = variable.size() + 1;
    if (static_cast<size_t>(end_ - next_) < bytes) {
      return Forever().strings.emplace_back(variable).data();
    }
    char* const place = next_;
    std::memcpy(place, variable.c_str(), bytes);
    next_ += bytes;
    kept_.emplace(variable, place);
    return place;
  }

  void ClearRest() {
    if (next_ != nullptr) std::memset(next_, 0, static_cast<size_t>(end_ - next_));
  }

 private:
  std::map<std::string, char*, std::less<>> kept_;
  char* next_ = nullptr;
  char* end_ = nullptr;
};

}  // namespace

void SetEnvironment(char** began, const std::vector<std::string>& variables) {
  Block block(began);
  for (const std::string& variable : variables) {
    if (absl::StartsWith(variable, kWorkerTag)) block.Put(variable);
  }
  std::vector<char*>& pointers = Forever().arrays.emplace_back();
  for (const std::string& variable : variables) pointers.push_back(block.Put(variable));
  pointers.push_back(nullptr);
  block.ClearRest();
  environ = pointers.data();
}

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
