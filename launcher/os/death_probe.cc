#include "launcher/os/death_probe.h"

#include <glob.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/cgroup.h"

namespace ddprun::launcher {
namespace {

std::optional<uint64_t> OomKills(absl::string_view text) { return NumberOf("oom_kill", text); }

std::optional<uint64_t> Since(std::optional<uint64_t> before, std::optional<uint64_t> now) {
  if (!before.has_value() || !now.has_value()) return std::nullopt;
  return *now > *before ? *now - *before : 0;
}

template <typename Resource>
std::optional<uint64_t> Limit(Resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// The newest file that a pattern of glob(7) names; "" = none.
std::string Newest(const std::string& pattern) {
  glob_t found{};
  std::string newest;
  std::filesystem::file_time_type newest_time;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      std::error_code error;
      const auto time = std::filesystem::last_write_time(found.gl_pathv[i], error);
      if (error || (!newest.empty() && time <= newest_time)) continue;
      newest = found.gl_pathv[i];
      newest_time = time;
    }
  }
  globfree(&found);
  return newest;
}

// File systems that answer at once. One of another machine might never do so, and looking at an
// autofs mounts it; what isn't known may be either.
constexpr absl::string_view kLocal[] = {"ext2",  "ext3",    "ext4", "xfs", "btrfs",
                                        "tmpfs", "overlay", "zfs",  "f2fs"};

// The folder of the file in "OSError: [Errno 28] No space left on device: '/scratch/last.pt'"; "" =
// the words name none.
std::string FolderNamed(absl::string_view words) {
  constexpr absl::string_view kSign = "No space left on device: '";
  const size_t at = words.rfind(kSign);
  if (at == absl::string_view::npos) return "";
  words.remove_prefix(at + kSign.size());
  const std::filesystem::path file(std::string(words.substr(0, words.find('\''))));
  return file.has_parent_path() ? file.parent_path().string() : "";
}

}  // namespace

DeathProbe::DeathProbe(std::string root) : root_(std::move(root)) {
  const std::optional<MemoryCgroup> cgroup = FindMemoryCgroup(root_);
  if (!cgroup.has_value()) return;
  cgroup_ = cgroup->folder;
  is_v2_ = cgroup->is_v2;
}

std::string DeathProbe::Text(const std::string& path) const {
  std::ifstream file(root_ + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

DeathProbe::Counters DeathProbe::Count() const {
  Counters counters{.host_kills = OomKills(Text("/proc/vmstat"))};
  if (!cgroup_.empty()) {
    counters.cgroup_kills =
        OomKills(Text(cgroup_ + (is_v2_ ? "/memory.events" : "/memory.oom_control")));
  }
  return counters;
}

void DeathProbe::Begin() { before_ = Count(); }

MemoryWitness DeathProbe::Witness() const {
  const Counters now = Count();
  MemoryWitness witness{.cgroup = cgroup_,
                        .cgroup_kills = Since(before_.cgroup_kills, now.cgroup_kills),
                        .host_kills = Since(before_.host_kills, now.host_kills)};
  if (cgroup_.empty()) return witness;
  // v2 says "max" where there is no limit, v1 a number beyond any machine's memory.
  constexpr uint64_t kUnlimited = uint64_t{1} << 60;
  witness.limit_bytes =
      NumberIn(Text(cgroup_ + (is_v2_ ? "/memory.max" : "/memory.limit_in_bytes")));
  if (witness.limit_bytes.value_or(0) >= kUnlimited) witness.limit_bytes.reset();
  witness.peak_bytes =
      NumberIn(Text(cgroup_ + (is_v2_ ? "/memory.peak" : "/memory.max_usage_in_bytes")));
  return witness;
}

std::string DeathProbe::CoreFact(const WorkerEnd& end) const {
  if (!end.core_dumped) return "";
  std::error_code ignored;
  const CorePlace place =
      ExpandCorePattern(Text("/proc/sys/kernel/core_pattern"),
                        NumberIn(Text("/proc/sys/kernel/core_uses_pid")).value_or(0) != 0, end,
                        Hostname(), std::filesystem::current_path(ignored).string());
  if (place.path.empty()) {
    const bool systemd = absl::StrContains(place.program, "systemd-coredump");
    return absl::StrCat("core: given to ", place.program,
                        systemd ? absl::StrCat(" (`coredumpctl info ", end.pid, "`)") : "");
  }
  const std::string found = Newest(place.path);
  return found.empty() ? absl::StrCat("core: not found at ", place.path,
                                      ", where core_pattern puts it; perhaps below the worker's "
                                      "own directory or in another file system")
                       : absl::StrCat("core: ", found);
}

std::string DeathProbe::SharedMemoryFact(const WorkerEnd& end) const {
  if (end.signal != SIGBUS) return "";
  struct statvfs facts {};
  if (statvfs((root_ + "/dev/shm").c_str(), &facts) != 0 || facts.f_blocks == 0) return "";
  const uint64_t size = uint64_t{facts.f_blocks} * facts.f_frsize;
  const uint64_t used = size - uint64_t{facts.f_bavail} * facts.f_frsize;
  return absl::StrCat("memory: ", BytesText(used), " of ", BytesText(size),
                      " of shared memory (/dev/shm) are in use now");
}

// A worker whose output goes to files loses its last words with the disk: the file system of these
// is always looked at. Others only for a worker that says that one is full: which one, its error
// seldom says. A file system of another machine, which might not answer, is looked at where the
// worker's folder or words name it, because the worker has just written there.
std::string DeathProbe::DiskFact(const WorkerEnd& end, const std::string& output_folder) const {
  std::vector<FileSystem> looked_at;
  const auto look = [&](const std::string& folder) {
    struct statvfs facts {};
    if (folder.empty() || statvfs((root_ + folder).c_str(), &facts) != 0) return;
    if ((facts.f_flag & ST_RDONLY) != 0) return;  // an image, which is always full
    looked_at.push_back({.folder = folder,
                         .size_bytes = uint64_t{facts.f_blocks} * facts.f_frsize,
                         .free_bytes = uint64_t{facts.f_bavail} * facts.f_frsize,
                         .files = facts.f_files,
                         .free_files = facts.f_favail});
  };
  look(output_folder);
  if (!SaysFullDisk(end)) return FullDiskFact(looked_at);
  look(FolderNamed(WordsOf(end)));
  if (std::string fact = FullDiskFact(looked_at); !fact.empty()) return fact;
  for (const absl::string_view line : absl::StrSplit(Text("/proc/self/mounts"), '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    const bool is_local = fields.size() > 2 && std::find(std::begin(kLocal), std::end(kLocal),
                                                         fields[2]) != std::end(kLocal);
    if (is_local) look(fields[1]);
  }
  std::error_code ignored;
  if (FullDiskFact(looked_at).empty()) look(std::filesystem::current_path(ignored).string());
  return FullDiskFact(looked_at);
}

std::vector<std::string> DeathProbe::Facts(const WorkerEnd& end,
                                           const std::string& output_folder) const {
  const Limits limits{.core_bytes = Limit(RLIMIT_CORE),
                      .open_files = Limit(RLIMIT_NOFILE),
                      .processes = Limit(RLIMIT_NPROC),
                      .locked_bytes = Limit(RLIMIT_MEMLOCK),
                      .memory_bytes = Limit(RLIMIT_AS),
                      .file_bytes = Limit(RLIMIT_FSIZE),
                      .cpu_seconds = Limit(RLIMIT_CPU)};
  std::vector<std::string> facts = {CoreFact(end), MemoryFact(end, Witness()),
                                    SharedMemoryFact(end), DiskFact(end, output_folder)};
  std::erase(facts, "");
  for (std::string& fact : LimitFacts(end, limits)) facts.push_back(std::move(fact));
  return facts;
}

namespace {

constexpr off_t kCopiedBytesMax = 64 << 20;

}  // namespace

std::vector<std::string> FlightRecorderPrefixes(
    const std::function<std::optional<std::string>(const std::string& name)>& environment) {
  for (const char* name : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}) {
    const std::optional<std::string> prefix = environment(name);
    if (prefix.has_value() && !prefix->empty()) return {*prefix};
  }
  std::vector<std::string> prefixes;
  if (const auto cache = environment("XDG_CACHE_HOME"); cache.has_value() && !cache->empty()) {
    prefixes.push_back(*cache + "/torch/comm_lib_trace_rank_");
  }
  if (const auto home = environment("HOME"); home.has_value() && !home->empty()) {
    prefixes.push_back(*home + "/.cache/torch/comm_lib_trace_rank_");
  }
  prefixes.push_back("/tmp/nccl_trace_rank_");  // before torch 2.7
  return prefixes;
}

std::string CollectFlightRecorderDump(const std::vector<std::string>& prefixes, uint32_t rank,
                                      absl::Time since, const std::string& folder) {
  for (const std::string& prefix : prefixes) {
    const std::string dump = absl::StrCat(prefix, rank);
    struct stat facts {};
    if (stat(dump.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    if (facts.st_size == 0 || absl::TimeFromTimespec(facts.st_mtim) < since) continue;
    const std::string copy = absl::StrCat(folder, "/flight_recorder_rank_", rank);
    std::error_code error;
    const bool copied = !folder.empty() && facts.st_size <= kCopiedBytesMax &&
                        std::filesystem::copy_file(
                            dump, copy, std::filesystem::copy_options::overwrite_existing, error);
    return copied ? copy : dump;
  }
  return "";
}

}  // namespace ddprun::launcher
