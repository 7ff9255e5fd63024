#ifndef DDPRUN_TOOLS_WATCH_OPERATE_OPTIONS_H_
#define DDPRUN_TOOLS_WATCH_OPERATE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/query_options.h"

namespace ddprun::launcher {

// `ddprun drain`: a node leaves a job.
struct DrainOptions : QueryOptions {
  std::string node;    // id, host name or group rank
  std::string reason;  // for people; "" = none
  bool undo = false;   // the machine may join again
  bool wait = true;    // until the node has left
};

// `ddprun events`: what happened to a job.
struct EventsOptions : QueryOptions {
  bool follow = false;
  OutputForm form = OutputForm::kText;
  uint64_t after = 0;  // only events with larger numbers
  // Only events that are not older.
  absl::Duration since = absl::InfiniteDuration();
};

// `ddprun top`: a job on the terminal.
struct TopOptions : QueryOptions {
  absl::Duration interval = absl::Seconds(1);  // between two looks
};

// `ddprun logs`: the output of the workers.
struct LogsOptions : QueryOptions {
  std::optional<uint32_t> rank;  // only this rank
  std::optional<uint64_t> tail;  // only so many last lines of each file
  // Only output of this last time.
  absl::Duration since = absl::InfiniteDuration();
  OutputForm form = OutputForm::kText;
  bool follow = false;
  bool raw = false;  // unchanged bytes, without prefixes
};

// Errors: usage and plan errors (argument.h). `arguments` come after the command's own name.
absl::StatusOr<OptionsOrHelp<DrainOptions>> ParseDrainOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host);
absl::StatusOr<OptionsOrHelp<EventsOptions>> ParseEventsOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host);

absl::StatusOr<OptionsOrHelp<TopOptions>> ParseTopOptions(const std::vector<std::string>& arguments,
                                                          const EnvironmentLookup& environment,
                                                          const Host& host);

absl::StatusOr<OptionsOrHelp<LogsOptions>> ParseLogsOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_OPERATE_OPTIONS_H_
