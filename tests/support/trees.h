#ifndef DDPRUN_TESTS_SUPPORT_TREES_H_
#define DDPRUN_TESTS_SUPPORT_TREES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// The paths of a file of the checkout that the test was built in, and of what was built there;
// `path` counts from the checkout's root, or from the build's. Functions, since a path in a unit's
// own command keeps ccache from knowing the unit in another checkout.
std::string InSourceTree(absl::string_view path);
std::string InBuildTree(absl::string_view path);

}  // namespace ddprun

#endif  // DDPRUN_TESTS_SUPPORT_TREES_H_
