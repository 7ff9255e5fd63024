#ifndef DDPRUN_BASE_NEAREST_H_
#define DDPRUN_BASE_NEAREST_H_

#include <string>
#include <vector>

namespace ddprun {

// The candidate that a typing error of one or two letters makes to `word`, for "did you mean"; "" =
// none. Of several the first of the nearest. Pure; threads: any.
std::string NearestWord(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace ddprun

#endif  // DDPRUN_BASE_NEAREST_H_
