#ifndef DDPRUN_LAUNCHER_CORE_VISIBLE_GPUS_H_
#define DDPRUN_LAUNCHER_CORE_VISIBLE_GPUS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {

// Which of a machine's GPUs a process sees: all, or what CUDA_VISIBLE_DEVICES=`visible` lists, by
// number or UUID, up to the first entry that names none, as CUDA reads it.
// Params: uuids — of all GPUs, in the driver's order, "" = unknown; visible — nullopt = it isn't
// set.
// Returns: numbers into `uuids`, in the order of the list; it may name one twice.
// Pure; threads: any.
std::vector<size_t> VisibleGpus(const std::vector<std::string>& uuids,
                                const std::optional<std::string>& visible);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_VISIBLE_GPUS_H_
