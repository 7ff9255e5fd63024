#include "launcher/logs/log_folders.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "launcher/core/output_layout.h"
#include "launcher/os/folders.h"

namespace ddprun::launcher {
namespace {

constexpr int kRandomLetters = 8;

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

std::string TemporaryFolder() {
  const std::vector<std::string> bases = TemporaryFolders();
  const auto base = std::find_if(bases.begin(), bases.end(),
                                 [](const std::string& path) { return TryFolder(path).ok(); });
  return absl::StrCat(base == bases.end() ? bases.front() : *base, "/torchelastic_",
                      RandomName(kRandomLetters));
}

}  // namespace

LogFolders::LogFolders(const std::string& log_dir, const std::string& run_id)
    : root_(Absolute(log_dir.empty() ? TemporaryFolder() : log_dir)),
      temporary_(log_dir.empty()),
      run_(absl::StrCat(root_, "/", RunFolderName(run_id, RandomName(kRandomLetters)))) {}

absl::StatusOr<std::string> LogFolders::MakeAttempt(uint32_t restart_count, uint64_t generation) {
  std::string attempt = absl::StrCat(run_, "/", AttemptFolderName(restart_count));
  std::error_code ignored;
  if (std::filesystem::exists(attempt, ignored)) {
    attempt = absl::StrCat(run_, "/", AttemptFolderName(restart_count, generation));
  }
  DDPRUN_RETURN_IF_ERROR(MakeFolders(attempt));
  return attempt;
}

}  // namespace ddprun::launcher
