#include "tools/preflight/torch_stage.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/tool_output.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kPython = absl::Seconds(10);
constexpr absl::Duration kOthers = absl::Seconds(20);
constexpr char kHasTorch[] =
    "import importlib.util; print('yes' if importlib.util.find_spec('torch') else 'no')";

std::string TorchKey(uint32_t node) { return absl::StrCat("ddprun_preflight/torch/", node); }
constexpr char kAgreed[] = "ddprun_preflight/torch_agreed";

// "" = it has.
std::string WhyNoTorch(const std::string& python) {
  if (python.empty()) return absl::StrCat(Hostname(), " has no Python");
  const absl::StatusOr<std::string> answer = ToolOutput({python, "-c", kHasTorch}, kPython);
  if (!answer.ok()) return absl::StrCat(Hostname(), ": ", answer.status().message());
  if (absl::StripAsciiWhitespace(*answer) == "yes") return "";
  return absl::StrCat(python, " of ", Hostname(), " has no torch");
}

}  // namespace

absl::StatusOr<std::string> AgreeOnTorch(const CheckMember& place, bool first_worker,
                                         const std::string& python, Meeting* meeting) {
  const auto deadline = [] { return MonotonicNow() + kOthers; };
  if (first_worker) {
    const std::string own = WhyNoTorch(python);
    DDPRUN_RETURN_IF_ERROR(meeting->Set(TorchKey(place.node), own, deadline()));
  }
  if (first_worker && place.node == 0) {
    std::string why;
    for (uint32_t node = 0; node < place.nodes && why.empty(); ++node) {
      DDPRUN_ASSIGN_OR_RETURN(why, meeting->Get(TorchKey(node), deadline()));
    }
    DDPRUN_RETURN_IF_ERROR(meeting->Set(kAgreed, why, deadline()));
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string agreed, meeting->Get(kAgreed, deadline()));
  return Printable(agreed);
}

}  // namespace ddprun::launcher
