#include "launcher/cli/version_text.h"

#include "absl/strings/str_cat.h"
#include "base/version.h"

namespace ddprun::launcher {

std::string VersionText(const BuildFacts& facts, const std::string& glibc) {
  return absl::StrCat("ddprun ", kVersion, "\n", "commit ", facts.commit, "\n", "needs glibc ",
                      glibc.empty() ? "(unknown)" : glibc, "\n", "tested with torch ", facts.torch,
                      "; the workers' store with ", facts.torch_oldest, " to ", facts.torch_newest,
                      "\n");
}

}  // namespace ddprun::launcher
