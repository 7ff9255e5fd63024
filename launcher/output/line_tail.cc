#include "launcher/output/line_tail.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {

void LineTail::Add(absl::string_view bytes) {
  if (bytes.size() > kBytesMax) {
    cut_ = true;
    bytes.remove_prefix(bytes.size() - kBytesMax);
    bytes_.clear();
  }
  absl::StrAppend(&bytes_, bytes);
  if (bytes_.size() > 2 * kBytesMax) {
    cut_ = true;
    bytes_.erase(0, bytes_.size() - kBytesMax);
  }
}

std::string LineTail::Lines() const {
  absl::string_view text = bytes_;
  bool cut = cut_;
  if (text.size() > kBytesMax) {
    // One byte more shows whether the first line is whole.
    text.remove_prefix(text.size() - kBytesMax - 1);
    cut = text.front() != '\n';
    text.remove_prefix(1);
  }
  absl::ConsumeSuffix(&text, "\n");
  if (text.empty()) return "";
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  size_t first = lines.size() > kLinesMax ? lines.size() - kLinesMax : 0;
  if (first == 0 && cut && lines.size() > 1) first = 1;
  std::string result;
  for (size_t i = first; i < lines.size(); ++i) {
    absl::string_view line = lines[i];
    while (absl::ConsumeSuffix(&line, "\r")) {
    }
    if (const size_t frame = line.rfind('\r'); frame != absl::string_view::npos) {
      line.remove_prefix(frame + 1);
    }
    absl::StrAppend(&result, line, "\n");
  }
  return result;
}

}  // namespace ddprun::launcher
