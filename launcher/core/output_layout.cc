#include "launcher/core/output_layout.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun::launcher {

bool KeepsFiles(const OutputPlan& output) { return output.log_dir != "/dev/null"; }

StreamSink SinkOf(const OutputPlan& output, OutputStream stream, uint32_t local_rank) {
  const std::map<uint32_t, StreamSink>& sinks =
      stream == OutputStream::kStdout ? output.stdout_sinks : output.stderr_sinks;
  const auto found = sinks.find(local_rank);
  const StreamSink sink = found == sinks.end() ? StreamSink::kInherit : found->second;
  const bool shown =
      output.local_ranks_filter.empty() || output.local_ranks_filter.contains(local_rank);
  if (shown || sink == StreamSink::kFile) return sink;
  return sink == StreamSink::kTee ? StreamSink::kFile : StreamSink::kDiscard;
}

std::string RunFolderName(absl::string_view run_id, absl::string_view random) {
  return absl::StrCat(absl::StrReplaceAll(run_id, {{"/", "_"}}), "_", random);
}

std::string AttemptFolderName(uint32_t restart_count) {
  return absl::StrCat("attempt_", restart_count);
}

std::string AttemptFolderName(uint32_t restart_count, uint64_t generation) {
  return absl::StrCat(AttemptFolderName(restart_count), ".g", generation);
}

}  // namespace ddprun::launcher
