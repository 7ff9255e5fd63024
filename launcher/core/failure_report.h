#ifndef DDPRUN_LAUNCHER_CORE_FAILURE_REPORT_H_
#define DDPRUN_LAUNCHER_CORE_FAILURE_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/verdict.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {

// Advice for a known kind of failure (launcher/advice).
struct Advice {
  std::string rule;  // name of the kind: "cuda_out_of_memory"
  std::string line;  // the line, the worker's or ours, by which it was recognized
  std::string text;  // what happened and what helps, in one paragraph
  std::string next;  // the command to run next, one line
};

struct ReportOptions {
  std::string entry_point;                         // LaunchPlan::entry_point
  absl::TimeZone time_zone = absl::UTCTimeZone();  // of the times shown
  // Workers of this node that ended because ddprun stopped them; listed as such.
  std::vector<rendezvous::WorkerFailure> stopped;
  // For the first root cause; nullopt = its kind is unknown.
  std::optional<Advice> advice;
  bool runs_python = true;  // LaunchPlan::runs_python
};

// The report that a user reads when a job has failed: torchrun's ChildFailedError block, with its
// fields in its order. The other failures come first, at most ten of them and how many more there
// are. The first cause over all nodes (R12) comes last, at the end of the console, with all that is
// known about it. Several first causes are shown as a tie. Failures and texts that a verdict to
// many nodes leaves out (R8) are counted, and the node that has them is named. Sentences are
// wrapped at 80 columns, lines of a worker aren't. Control characters in a worker's texts don't
// reach the terminal. Returns: whole lines; "" when the verdict is neither kFailed nor
// kFailedForGood. Threads: any.
std::string FailureReport(const rendezvous::Verdict& verdict, const ReportOptions& options);

// How a worker ended, in words: "killed by SIGSEGV (11, segmentation fault), core dumped",
// "exited with code 3", "could not be started: …". One line.
std::string DescribeFailure(const rendezvous::WorkerFailure& failure);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_FAILURE_REPORT_H_
