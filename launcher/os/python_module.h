#ifndef DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_
#define DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The distribution on PyPI that has a well-known module: "opencv-python" for "cv2"; "" = this table
// doesn't have the module. Anybody can register a free name on PyPI, and pip runs the package's
// code, so advice to install a name that was guessed from the module's could run a stranger's code.
absl::string_view PackageOfModule(absl::string_view module);

// A worker in Python, as it was started.
struct PythonStart {
  std::string python;       // the interpreter
  std::string entry_point;  // path of the script, or with is_module the name of a module
  bool is_module = false;   // python3 -m
  std::string folder;       // the working folder, absolute
  std::function<std::optional<std::string>(const std::string& name)> environment;
};

// Why a worker's Python lacks a module: "module: /usr/bin/python3 ran the script, and has no torch;
// <where it is, or which folders were searched>"; "" = the worker failed for another reason. Runs
// and imports nothing. Checks in this order:
//   1. another active Python ($VIRTUAL_ENV, $CONDA_PREFIX, python3 of PATH) has the module;
//   2. a folder from the script's, or the working one, up to the project's root has it;
//   3. the module is well known (PackageOfModule());
//   4. a folder one level below those has it;
//   5. one of these folders has a module with nearly the same name.
// Params: words: message and end of stderr. Bound: some hundred stat(2) and 64 directories.
std::string MissingModuleFact(absl::string_view words, const PythonStart& start);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_
