#ifndef DDPRUN_BENCH_LOAD_LOAD_BOUNDS_H_
#define DDPRUN_BENCH_LOAD_LOAD_BOUNDS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ddprun::bench {

// What a job of 4,096 agents may cost on two cores that service and agents share (docs/SCALE.md):
// a line for each figure whose median over the runs is beyond its bound, or that is missing, by its
// name. Params: reports: of one run each, as LoadRun gives them.
std::vector<std::string> MissedBounds(const nlohmann::json& reports);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_LOAD_BOUNDS_H_
