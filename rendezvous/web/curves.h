#ifndef DDPRUN_RENDEZVOUS_WEB_CURVES_H_
#define DDPRUN_RENDEZVOUS_WEB_CURVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/instant.h"
#include "ddprun/rendezvous/v1/status.pb.h"
#include "rendezvous/web/core/curve_book.h"

namespace ddprun::rendezvous {

// Figures that are older are those of a driver, or a node, that doesn't answer any more.
inline constexpr uint64_t kFiguresFreshMs = 5000;

// What a status says for the curves. Params: now: when it was asked for. Pure; threads: any.
std::vector<JobReading> ReadingsOf(const v1::GetStatusReply& reply, Instant now);

// The curves as docs/STATUS.md has them: for each job `latest` and `whole`, each a list of ages in
// milliseconds and for each figure a list as long, oldest first. null: nobody told; "nan", "inf",
// "-inf" are what JSON has no number for. Pure; threads: any.
std::string CurvesJson(const CurveBook& book, Instant now);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_CURVES_H_
