#ifndef DDPRUN_BENCH_LOAD_LOAD_BOUNDS_H_
#define DDPRUN_BENCH_LOAD_LOAD_BOUNDS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ddprun::bench {

// Checks the cost of a job of 4,096 agents on two cores that service and agents share
// (docs/SCALE.md). Returns a line for each figure that is missing, or has a median over the runs
// beyond its bound. Params: reports: of one run each, made by LoadRun.
std::vector<std::string> MissedBounds(const nlohmann::json& reports);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_LOAD_BOUNDS_H_
