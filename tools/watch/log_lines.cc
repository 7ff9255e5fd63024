#include "tools/watch/log_lines.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kLineBytesMax = 64U << 10;

absl::string_view StreamOf(const LogLines::Source& source) {
  return source.is_stderr ? "stderr" : "stdout";
}

std::string JsonLine(const LogLines::Source& source, absl::string_view text) {
  const nlohmann::ordered_json line = {{"node", source.node},
                                       {"rank", source.rank},
                                       {"local_rank", source.local_rank},
                                       {"generation", source.generation},
                                       {"restart_count", source.restart_count},
                                       {"stream", StreamOf(source)},
                                       {"line", text}};
  return absl::StrCat(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

}  // namespace

std::string LogLines::LineOf(const Source& source, absl::string_view text) const {
  if (form_ == OutputForm::kJson) return JsonLine(source, text);
  if (form_ == OutputForm::kText) return absl::StrCat("[rank", source.rank, "]:", text, "\n");
  return absl::StrCat("[", source.node, " rank", source.rank, " generation", source.generation, " ",
                      StreamOf(source), "]:", text, "\n");
}

std::string LogLines::Add(const Source& source, absl::string_view bytes) {
  std::string& part = parts_[source];
  std::string lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const absl::string_view piece = bytes.substr(0, end);
    part.append(piece.data(), piece.size());
    bytes.remove_prefix(end == absl::string_view::npos ? bytes.size() : end + 1);
    if (end == absl::string_view::npos && part.size() < kLineBytesMax) break;
    absl::StrAppend(&lines, LineOf(source, std::exchange(part, "")));
  }
  if (part.empty()) parts_.erase(source);
  return lines;
}

std::string LogLines::End(const Source& source) {
  const auto found = parts_.find(source);
  if (found == parts_.end()) return "";
  std::string line = LineOf(source, found->second);
  parts_.erase(found);
  return line;
}

std::string LogLines::EndAll(bool is_stderr) {
  std::vector<Source> sources;
  for (const auto& [source, part] : parts_) {
    if (source.is_stderr == is_stderr) sources.push_back(source);
  }
  std::string lines;
  for (const Source& source : sources) absl::StrAppend(&lines, End(source));
  return lines;
}

}  // namespace ddprun::launcher
