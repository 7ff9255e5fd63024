#include "worker/env/environment_block.h"

#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <map>

#include "absl/strings/match.h"
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

}  // namespace ddprun::worker
