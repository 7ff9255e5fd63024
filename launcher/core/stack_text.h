#ifndef DDPRUN_LAUNCHER_CORE_STACK_TEXT_H_
#define DDPRUN_LAUNCHER_CORE_STACK_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The output of gdb's "thread apply all backtrace" or py-spy's "dump", without threads that have no
// function of a known name; "" = no thread has one, so that a tool's greeting isn't taken for a
// stack. Accepts any bytes; linear. Pure.
std::string WithoutEmptyStacks(absl::string_view text);

// A fact (docs/LOGS.md#facts) about a hung worker whose most useful stacks are missing: how the
// next report can have them. "" = nothing is missing. Params: tool: the tool that was run, "" =
// none is installed; has_text: the tool wrote stacks; is_python: the worker runs Python.
std::string StackFact(absl::string_view tool, bool has_text, bool is_python);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_STACK_TEXT_H_
