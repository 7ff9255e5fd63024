#ifndef DDPRUN_LAUNCHER_CORE_PYTHON_PACKAGES_H_
#define DDPRUN_LAUNCHER_CORE_PYTHON_PACKAGES_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The distribution on PyPI that has a well-known module: "opencv-python" for "cv2"; "" = this table
// doesn't have the module. Anybody can register a free name on PyPI, and pip runs the package's
// code, so advice to install a name that was guessed from the module's could run a stranger's code.
absl::string_view PackageOfModule(absl::string_view module);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_PYTHON_PACKAGES_H_
