#ifndef DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_
#define DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// A worker in Python, as it was started.
struct PythonStart {
  std::string python;       // the interpreter
  std::string entry_point;  // path of the script, or with is_module the name of a module
  bool is_module = false;   // python3 -m
  std::string folder;       // the working folder, absolute
  std::function<std::optional<std::string>(const std::string& name)> environment;
};

// Why a worker's Python lacks a module: "module: /usr/bin/python3 ran the script, and has no torch;
// <where it is, or where it was looked for>"; "" = its last words are others. Nothing is run or
// imported: folders are searched, in this order:
//   1. another active Python ($VIRTUAL_ENV, $CONDA_PREFIX, python3 of PATH) has the module;
//   2. it lies in a folder from the script's, or the working one, up to the project's root;
//   3. it is a well-known one (PackageOfModule());
//   4. it lies one folder below those;
//   5. a module with nearly this name lies in one of them.
// Params: words: message and end of stderr. Bound: some hundred stat(2) and 64 directories.
std::string MissingModuleFact(absl::string_view words, const PythonStart& start);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_
