#include "launcher/marks/step_marks.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/os/files.h"

namespace ddprun::launcher {

absl::StatusOr<StepMarks> StepMarks::Create(std::string folder, Settings settings) {
  DDPRUN_RETURN_IF_ERROR(MakeFolders(folder));
  DDPRUN_RETURN_IF_ERROR(WriteFile(folder + "/sitecustomize.py", kMarksSource));
  DDPRUN_RETURN_IF_ERROR(WriteFile(folder + "/_ddprun_witness.py", kWitnessSource));
  return StepMarks(std::move(folder), settings);
}

void StepMarks::Prepare(const EnvironmentLookup& inherited,
                        std::vector<std::string>* environment) const {
  std::optional<std::string> before = inherited("PYTHONPATH");
  std::erase_if(*environment, [&before](const std::string& variable) {
    absl::string_view value = variable;
    if (!absl::ConsumePrefix(&value, "PYTHONPATH=")) return false;
    before = std::string(value);
    return true;
  });
  std::string path = folder_;
  if (before.has_value()) {
    environment->push_back(absl::StrCat("DDPRUN_MARK_PYTHONPATH=", *before));
    if (!before->empty()) absl::StrAppend(&path, ":", *before);
  }
  environment->push_back(absl::StrCat("PYTHONPATH=", path));
  if (!settings_.count_steps) environment->push_back("DDPRUN_MARK_OFF=1");
  if (settings_.in_process_restart) environment->push_back("DDPRUN_IN_PROCESS_RESTART=1");
}

}  // namespace ddprun::launcher
