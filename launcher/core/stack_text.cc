#include "launcher/core/stack_text.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

constexpr absl::string_view kPySpy = "py-spy";
constexpr absl::string_view kInstall = "python3 -m pip install py-spy";

// "#0  0x00007f… in poll ()" of gdb, "    wait (threading.py:320)" of py-spy.
bool IsFunction(absl::string_view line) {
  if (line.size() > 1 && line[0] == '#' && absl::ascii_isdigit(static_cast<unsigned char>(line[1])))
    return true;
  return absl::StartsWith(line, "    ") && absl::EndsWith(line, ")") &&
         absl::StrContains(line, " (");
}

}  // namespace

std::string WithoutEmptyStacks(absl::string_view text) {
  std::string kept;
  std::string thread;  // its line and functions, until one with a name comes
  bool is_named = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "Thread ")) {
      thread = absl::StrCat(line, "\n");
      is_named = false;
    } else if (IsFunction(line)) {
      absl::StrAppend(&thread, line, "\n");
      is_named = is_named || !absl::StrContains(line, " in ?? ()");
      if (is_named) kept.append(std::exchange(thread, ""));
    }
  }
  return kept;
}

std::string StackFact(absl::string_view tool, bool has_text, bool is_python) {
  if (tool == kPySpy && has_text) return "";
  if (tool.empty()) {
    return absl::StrCat(
        "stack: not read, because neither py-spy nor gdb is installed on this node; ",
        is_python ? kInstall : "apt install gdb", " is enough for the next time");
  }
  if (!has_text) {
    return absl::StrCat(
        "stack: ", tool, " showed none in time",
        is_python && tool != kPySpy ? absl::StrCat("; ", kInstall, ", which is quicker") : "",
        "; where it may not trace, sysctl kernel.yama.ptrace_scope says so");
  }
  if (!is_python) return "";
  return absl::StrCat("stack: read by gdb, without Python's functions; ", kInstall,
                      " adds them the next time");
}

}  // namespace ddprun::launcher
