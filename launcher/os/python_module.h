#ifndef DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_
#define DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// "module: /usr/bin/python3 ran the script, and has no torch; /opt/venv/bin/python3 ($VIRTUAL_ENV)
// has it: …", for a worker whose last words are that Python has no such module; "" = they are
// others. Another Python is that of $VIRTUAL_ENV, of $CONDA_PREFIX, or python3 of PATH. None is
// run: their folders are searched. Params: words: message and end of stderr; python: that ran the
// script.
std::string MissingModuleFact(
    absl::string_view words, const std::string& python,
    const std::function<std::optional<std::string>(const std::string& name)>& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PYTHON_MODULE_H_
