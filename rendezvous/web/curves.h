#ifndef DDPRUN_RENDEZVOUS_WEB_CURVES_H_
#define DDPRUN_RENDEZVOUS_WEB_CURVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "ddprun/rendezvous/v1/status.pb.h"
#include "rendezvous/web/core/curve_book.h"

namespace ddprun::rendezvous {

// Older figures come from a driver, or a node, that no longer answers.
inline constexpr uint64_t kFiguresFreshMs = 5000;

// The readings of a status for the curves. Params: now: when it was asked for. Pure; threads: any.
std::vector<JobReading> ReadingsOf(const v1::GetStatusReply& reply, Instant now);

// The curves as in docs/STATUS.md: for each job `latest` and `whole`, each with a list of ages in
// milliseconds and a list of the same length for each figure, oldest first. null: not reported;
// "nan", "inf", "-inf": values that JSON has no number for. Pure; threads: any.
std::string CurvesJson(const CurveBook& book, Instant now);

// A status in Prometheus' text format; docs/MONITORING.md has the names and labels. Times are in
// seconds. Params: started: the start of the service's process. Pure; threads: any.
// Source: https://prometheus.io/docs/instrumenting/exposition_formats/, text format 0.0.4.
std::string MetricsText(const v1::GetStatusReply& reply, absl::Time started);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_CURVES_H_
