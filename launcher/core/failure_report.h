#ifndef DDPRUN_LAUNCHER_CORE_FAILURE_REPORT_H_
#define DDPRUN_LAUNCHER_CORE_FAILURE_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/message.h"

namespace ddprun::launcher {

// What is known of a failure of a kind that people know (launcher/advice).
struct Advice {
  std::string rule;  // its name: "cuda_out_of_memory"
  std::string line;  // the worker's, or ours, that told
  std::string text;  // what happened and what helps, in one paragraph
  std::string next;  // the command to run next, one line
};

struct ReportOptions {
  std::string entry_point;                         // LaunchPlan::entry_point
  absl::TimeZone time_zone = absl::UTCTimeZone();  // of the times shown
  // Workers of this node that ended because ddprun stopped them; listed as such.
  std::vector<rendezvous::WorkerFailure> stopped;
  // About the first root cause; nullopt = it is of no kind that is known.
  std::optional<Advice> advice;
};

// What a user reads when a job has failed: torchrun's ChildFailedError block, with
// its fields in its order. The other failures come first, at most ten of them and how
// many more there are; the first cause over all nodes (R12) comes last, where one looks, with what
// else is known about it. Several first causes are shown as a tie. What a verdict to many nodes
// leaves out (R8) is counted, and who has it is named. Sentences are wrapped at 80
// columns; lines of the worker's own are not. Texts of workers can't steer the terminal.
// Returns: whole lines; "" when the verdict is neither kFailed nor kFailedForGood. Threads: any.
std::string FailureReport(const rendezvous::Verdict& verdict, const ReportOptions& options);

// How a worker ended, in words: "killed by SIGSEGV (11, segmentation fault), core dumped",
// "exited with code 3", "could not be started: …". One line.
std::string DescribeFailure(const rendezvous::WorkerFailure& failure);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_FAILURE_REPORT_H_
