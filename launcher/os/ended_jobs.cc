#include "launcher/os/ended_jobs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/core/environment.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/files.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFileBytesMax = 1 << 16;
constexpr size_t kTextBytesMax = 2000;
constexpr size_t kNameBytesMax = 40;  // of a run id in a file's name
// .local/state/ddprun/ended: a home that isn't there, as that of user nobody, is not made.
constexpr int kFoldersMade = 4;
constexpr char kSuffix[] = ".json";
constexpr int64_t kLastMs = 253'402'300'799'999;  // of the year 9999

// The fields by their names, which users' programs read, too.
constexpr std::pair<const char*, std::string EndedJob::*> kTexts[] = {
    {"run_id", &EndedJob::run_id},   {"description", &EndedJob::description},
    {"outcome", &EndedJob::outcome}, {"reason", &EndedJob::reason},
    {"rule", &EndedJob::rule},       {"node", &EndedJob::node},
    {"host", &EndedJob::host},       {"logs", &EndedJob::logs}};
constexpr std::pair<const char*, int64_t EndedJob::*> kNumbers[] = {
    {"status", &EndedJob::status},
    {"generation", &EndedJob::generation},
    {"restart_count", &EndedJob::restart_count},
    {"max_restarts", &EndedJob::max_restarts},
    {"began_ms", &EndedJob::began_ms},
    {"ended_ms", &EndedJob::ended_ms}};

// One name for all agents of a job. It has a hash, because two run ids may differ only in letters
// that a file's name can't have.
std::string FileName(const std::string& run_id, uint64_t term) {
  std::string name = run_id.substr(0, kNameBytesMax);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  }
  const uint64_t hash = StableHash(absl::StrCat(term, "\n", run_id));
  return absl::StrCat(name, "-", absl::Hex(hash, absl::kZeroPad16));
}

std::optional<EndedJob> ReadEndedJob(const std::string& path) {
  const absl::StatusOr<std::string> bytes = launcher::ReadFile(path, kFileBytesMax);
  return bytes.ok() ? ParseEndedJob(*bytes) : std::nullopt;
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("rename '", from, "'"));
}

// The regular files in a folder; none if it can't be read.
std::vector<std::filesystem::path> FilesIn(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    if (each->is_regular_file(error)) files.push_back(each->path());
  }
  return files;
}

// Makes a folder and those on the way to it, `missing_max` in all at most. If that fails, so does
// the write into the folder.
void MakeFolder(const std::string& path, int missing_max) {
  if (mkdir(path.c_str(), 0700) == 0 || errno != ENOENT || missing_max == 1) return;
  MakeFolder(path.substr(0, path.rfind('/')), missing_max - 1);
  mkdir(path.c_str(), 0700);
}

void RemoveOldest(const std::string& folder) {
  std::vector<std::filesystem::path> files = FilesIn(folder);
  if (files.size() <= kEndedJobsMax) return;
  std::error_code error;
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> by_age;
  by_age.reserve(files.size());
  for (std::filesystem::path& path : files) {
    const auto time = std::filesystem::last_write_time(path, error);
    by_age.emplace_back(time, std::move(path));
  }
  std::sort(by_age.begin(), by_age.end());
  by_age.resize(by_age.size() - kEndedJobsMax);
  for (const auto& [time, path] : by_age) std::filesystem::remove(path, error);
}

}  // namespace

std::string EndedJobsFolder() {
  const std::string folder = UserFolder(ProcessEnvironment, "XDG_STATE_HOME", ".local/state");
  return folder.empty() ? "" : folder + "/ddprun/ended";
}

// All agents of a job write to one file, and the last one's record stays. But an agent that ended
// without a verdict doesn't replace a record that has one. A `ddprun rendezvous` may have had an
// earlier job of that run id, which ended before this agent began: the record of that job is
// renamed first, to a name with the time of its end.
absl::Status RecordEndedJob(const std::string& folder, EndedJob job, uint64_t term) {
  MakeFolder(folder, kFoldersMade);
  const std::string path = absl::StrCat(folder, "/", FileName(job.run_id, term));
  if (const auto former = ReadEndedJob(path + kSuffix); former.has_value()) {
    const bool had_verdict = !former->rule.empty();
    if (had_verdict && former->ended_ms < job.began_ms) {
      DDPRUN_RETURN_IF_ERROR(
          Rename(path + kSuffix, absl::StrCat(path, "-", former->ended_ms, kSuffix)));
    } else if (had_verdict && job.rule.empty()) {
      return absl::OkStatus();
    } else {
      job.began_ms = std::min(job.began_ms, former->began_ms);
    }
  }
  // Processes of machines that share the folder may have one id, so the draft has the host's name.
  const std::string own = absl::StrCat(path, ".", Hostname());
  DDPRUN_RETURN_IF_ERROR(WriteFile(own, FormatEndedJob(job)));
  DDPRUN_RETURN_IF_ERROR(Rename(own, path + kSuffix));
  RemoveOldest(folder);
  return absl::OkStatus();
}

std::vector<EndedJob> ReadEndedJobs(const std::string& folder) {
  std::vector<EndedJob> jobs;
  for (const std::filesystem::path& path : FilesIn(folder)) {
    if (path.extension() != kSuffix) continue;
    if (auto job = ReadEndedJob(path); job.has_value()) jobs.push_back(*std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const EndedJob& a, const EndedJob& b) {
    return std::pair(b.ended_ms, a.run_id) < std::pair(a.ended_ms, b.run_id);
  });
  return jobs;
}

std::string FormatEndedJob(const EndedJob& job) {
  Json object = {{"version", 1}};
  for (const auto& [name, field] : kTexts) object[name] = (job.*field).substr(0, kTextBytesMax);
  for (const auto& [name, field] : kNumbers) object[name] = job.*field;
  return absl::StrCat(object.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
}

std::optional<EndedJob> ParseEndedJob(absl::string_view bytes) {
  const Json object = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  EndedJob job;
  for (const auto& [name, field] : kTexts) {
    const auto value = object.find(name);
    if (value == object.end() || !value->is_string()) return std::nullopt;
    job.*field = value->get<std::string>();
  }
  for (const auto& [name, field] : kNumbers) {
    const auto value = object.find(name);
    if (value == object.end() || !value->is_number_integer()) return std::nullopt;
    job.*field = value->get<int64_t>();
    if (job.*field < 0 || job.*field > kLastMs) return std::nullopt;
  }
  if (job.run_id.empty() || job.outcome.empty()) return std::nullopt;
  return job;
}

}  // namespace ddprun::launcher
