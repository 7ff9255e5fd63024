#ifndef DDPRUN_LAUNCHER_LOGS_LOG_SAMPLER_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_SAMPLER_H_

#include <memory>

#include "absl/status/status.h"
#include "launcher/logs/log_catalog.h"

namespace ddprun::launcher {

// Notes the sizes of the workers' log files as they grow, at most once a second, until the catalog
// is closed. The sizes show when a line was written, because the files have no times
// (core/log_times.h). Runs on a detached thread, because a disk may hang. Errors: the thread can't
// be started. Threads: any.
absl::Status StartLogSampler(std::shared_ptr<LogCatalog> catalog);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_SAMPLER_H_
