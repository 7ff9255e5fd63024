#ifndef DDPRUN_RENDEZVOUS_WEB_CURVES_H_
#define DDPRUN_RENDEZVOUS_WEB_CURVES_H_

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_CURVES_H_
