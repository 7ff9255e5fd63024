#ifndef DDPRUN_TOOLS_WATCH_LOG_LINES_H_
#define DDPRUN_TOOLS_WATCH_LOG_LINES_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/string_view.h"
#include "launcher/options/query_options.h"

namespace ddprun::launcher {

// Assembles the pieces of many workers' logs into lines: "[rank3]:loss 0.1", wide "[host1/1 rank3
// generation2 stderr]:loss 0.1", or one JSON object a line. Lines of more than 64 KiB are split.
// Threads: one at a time.
class LogLines {
 public:
  explicit LogLines(OutputForm form = OutputForm::kText) : form_(form) {}

  // One stream of one worker in one generation.
  struct Source {
    uint64_t generation = 0;
    uint32_t rank = 0;
    bool is_stderr = false;
    std::string node;  // its id
    uint32_t local_rank = 0;
    uint32_t restart_count = 0;

    friend auto operator<=>(const Source&, const Source&) = default;
  };

  // Returns the lines that are complete now, with their ends.
  std::string Add(const Source& source, absl::string_view bytes);
  // The source has ended. Returns its incomplete line, completed; "" = none.
  std::string End(const Source& source);
  // The same for all sources of stdout or stderr.
  std::string EndAll(bool is_stderr);

 private:
  std::string LineOf(const Source& source, absl::string_view text) const;

  const OutputForm form_;
  std::map<Source, std::string> parts_;  // incomplete lines
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_LOG_LINES_H_
