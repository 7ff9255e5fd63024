#ifndef DDPRUN_LAUNCHER_LOGS_LOG_SAMPLER_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_SAMPLER_H_

#include <memory>

#include "absl/status/status.h"
#include "launcher/logs/log_catalog.h"

namespace ddprun::launcher {

// Looks how large the files are that workers write to, as they grow and at most once a second,
// until the catalog is closed (core/log_times.h): what workers write to themselves carries no time.
// On a thread of its own that nobody waits for, since a disk may hang. Error: there is no thread.
// Threads: any.
absl::Status StartLogSampler(std::shared_ptr<LogCatalog> catalog);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_SAMPLER_H_
