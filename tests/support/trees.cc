#include "tests/support/trees.h"

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string InSourceTree(absl::string_view path) {
  return absl::StrCat(DDPRUN_SOURCE_DIR, "/", path);
}

std::string InBuildTree(absl::string_view path) {
  return absl::StrCat(DDPRUN_BUILD_DIR, "/", path);
}

}  // namespace ddprun
