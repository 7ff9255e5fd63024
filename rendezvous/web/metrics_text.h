#ifndef DDPRUN_RENDEZVOUS_WEB_METRICS_TEXT_H_
#define DDPRUN_RENDEZVOUS_WEB_METRICS_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::rendezvous {

// A status in Prometheus' text format; docs/MONITORING.md has the names and labels. Times are in
// seconds. Params: started: the start of the service's process. Pure; threads: any.
// Source: https://prometheus.io/docs/instrumenting/exposition_formats/, text format 0.0.4.
std::string MetricsText(const v1::GetStatusReply& reply, absl::Time started);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_METRICS_TEXT_H_
