#ifndef DDPRUN_LAUNCHER_CORE_STACK_TEXT_H_
#define DDPRUN_LAUNCHER_CORE_STACK_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// What gdb's "thread apply all backtrace" or py-spy's "dump" wrote, without threads that have no
// function of a known name under their line; "" = none has one, so that nobody takes a tool's
// greeting for a stack.
// Any bytes are fine; linear. Pure.
std::string WithoutEmptyStacks(absl::string_view text);

// A fact of a failure (docs/LOGS.md#facts) of a hung worker whose stacks are not those that help
// most: how the next report has them. "" = nothing is missing.
// Params: tool: that was run, "" = none is installed; has_text: it wrote stacks; is_python: the
// worker is one of Python.
std::string StackFact(absl::string_view tool, bool has_text, bool is_python);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_STACK_TEXT_H_
