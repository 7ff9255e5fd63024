#include "ddprun/session_options.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun {

SessionOptions SessionOptions::Part(const std::string& part) const {
  SessionOptions result = *this;
  absl::StrAppend(&result.name, " ", part);
  for (std::string* folder : {&result.training.output_dir, &result.training.checkpoint_dir}) {
    if (!folder->empty()) absl::StrAppend(folder, "/", part);
  }
  return result;
}

}  // namespace ddprun
