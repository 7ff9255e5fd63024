#ifndef DDPRUN_LAUNCHER_WATCH_LOG_LINES_H_
#define DDPRUN_LAUNCHER_WATCH_LOG_LINES_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/string_view.h"
#include "launcher/options/output_form.h"

namespace ddprun::launcher {

// Makes whole lines of what comes in pieces from many workers' logs: "[rank3]:loss 0.1", wide
// "[host1/1 rank3 generation2 stderr]:loss 0.1", or as JSON, a line each. Lines of more than 64 KiB
// come in pieces. Threads: one at a time.
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

  // The lines that are complete now, each ended.
  std::string Add(const Source& source, absl::string_view bytes);
  // Nothing more comes from there: what is left, as a line; "" = nothing is.
  std::string End(const Source& source);
  // The same of all that is left on stdout or stderr.
  std::string EndAll(bool is_stderr);

 private:
  std::string LineOf(const Source& source, absl::string_view text) const;

  const OutputForm form_;
  std::map<Source, std::string> parts_;  // what has no end yet
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_LOG_LINES_H_
