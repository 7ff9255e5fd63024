#include "worker/metrics/json_lines.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace ddprun::worker {
namespace {

namespace fs = std::filesystem;

absl::Status Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("rename '", from, "' to '", to, "'"));
}

// "run/metrics.jsonl" → "run/metrics.1.jsonl", or the first free number.
absl::Status MoveAside(const std::string& path) {
  const fs::path whole(path);
  for (int number = 1;; ++number) {
    const fs::path aside = whole.parent_path() / absl::StrCat(whole.stem().string(), ".", number,
                                                              whole.extension().string());
    std::error_code unknown;
    if (!fs::exists(aside, unknown)) return Rename(path, aside);
  }
}

bool IsUpTo(const std::string& line, int64_t step) {
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return false;
  const auto found = parsed.find("step");
  return found != parsed.end() && found->is_number_integer() && found->get<int64_t>() <= step;
}

// The part of the file that stays, and whether it is less than the whole.
struct Kept {
  std::string text;
  bool less = false;
};

Kept LinesUpTo(const std::string& path, int64_t step) {
  Kept kept;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const bool whole = !file.eof();
    if (whole && IsUpTo(line, step)) {
      absl::StrAppend(&kept.text, line, "\n");
    } else {
      kept.less = true;
    }
  }
  return kept;
}

absl::Status Replace(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  std::error_code missing;
  fs::remove(fresh, missing);
  DDPRUN_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(fresh));
  DDPRUN_RETURN_IF_ERROR(file.Append(text));
  DDPRUN_RETURN_IF_ERROR(file.Sync());
  return Rename(fresh, path);
}

}  // namespace

absl::StatusOr<JsonLines> JsonLines::Open(const std::string& path, int64_t resumed_step,
                                          uint64_t generation) {
  std::error_code missing;
  const uintmax_t size = fs::file_size(path, missing);
  if (!missing && size > 0) {
    if (resumed_step == 0) {
      DDPRUN_RETURN_IF_ERROR(MoveAside(path));
    } else if (const Kept kept = LinesUpTo(path, resumed_step); kept.less) {
      DDPRUN_RETURN_IF_ERROR(Replace(path, kept.text));
    }
  }
  DDPRUN_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  return JsonLines(std::move(file), generation);
}

absl::Status JsonLines::Append(const MetricsRecord& record) {
  return file_.Append(JsonLine(record, generation_));
}

std::string JsonLine(const MetricsRecord& record, uint64_t generation) {
  nlohmann::ordered_json line;
  line["step"] = record.step;
  line["time"] = absl::ToDoubleSeconds(record.time - absl::UnixEpoch());
  line["generation"] = generation;
  for (const auto& [name, value] : record.values) line[name] = value;
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  return line.dump(-1, ' ', /*ensure_ascii=*/false, kReplace) + "\n";
}

}  // namespace ddprun::worker
