#ifndef DDPRUN_TOOLS_WATCH_GPU_TEXT_H_
#define DDPRUN_TOOLS_WATCH_GPU_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::launcher {

// GPUs in the texts of `ddprun status` and `top`. Pure; threads: any.

// Some GPUs together.
struct GpuSum {
  size_t count = 0;      // of GPUs
  size_t lost = 0;       // GPUs that the driver has lost: they have no figures
  size_t told = 0;       // GPUs with a known utilization
  uint64_t percent = 0;  // the sum of their utilizations
  uint64_t used = 0;     // bytes
  uint64_t total = 0;    // bytes

  void Add(const rendezvous::v1::GpuStatus& gpu);
  void Add(const GpuSum& other);
};

// The last report of a node about its GPUs, unless it is older than 5 s.
GpuSum GpusOf(const rendezvous::v1::NodeStatus& node);
// The GPU of one of the node's workers: the GPU with the worker's number if there are as many GPUs
// as workers, else all GPUs of the node.
GpuSum GpusOf(const rendezvous::v1::NodeStatus& node, size_t local_rank);

// "97%", the mean utilization; "-" = not known; "lost" = all GPUs are.
std::string GpuPercentText(const GpuSum& gpus);
// "61.2/80.0", in GiB; "-" = no GPU, or all are lost.
std::string GpuMemoryText(const GpuSum& gpus);
// "0: 97%, 61.2/80.0 GiB; 1: lost; …", for each GPU; "" = none.
std::string GpuListText(const rendezvous::v1::NodeStatus& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_GPU_TEXT_H_
