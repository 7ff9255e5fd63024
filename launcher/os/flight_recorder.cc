#include "launcher/os/flight_recorder.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
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
