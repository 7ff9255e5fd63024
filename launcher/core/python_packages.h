#ifndef DDPRUN_LAUNCHER_CORE_PYTHON_PACKAGES_H_
#define DDPRUN_LAUNCHER_CORE_PYTHON_PACKAGES_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The distribution on PyPI that has a well-known module: "opencv-python" for "cv2"; "" = this table
// doesn't know the module. Whoever registers a name on PyPI owns it, and pip runs its code, so a
// name that is guessed from the module's would install a stranger's package.
absl::string_view PackageOfModule(absl::string_view module);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_PYTHON_PACKAGES_H_
