#ifndef DDPRUN_LAUNCHER_WATCH_GPU_TEXT_H_
#define DDPRUN_LAUNCHER_WATCH_GPU_TEXT_H_

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
  size_t lost = 0;       // those that are lost to their driver: they have no figures
  size_t told = 0;       // those whose driver tells how busy they are
  uint64_t percent = 0;  // the sum over those
  uint64_t used = 0;     // bytes
  uint64_t total = 0;    // bytes

  void Add(const rendezvous::v1::GpuStatus& gpu);
  void Add(const GpuSum& other);
};

// What a node told of its GPUs, unless that was more than 5 s ago.
GpuSum GpusOf(const rendezvous::v1::NodeStatus& node);
// The GPU of one of its workers: the one with its number where there are as many as workers, all
// of the node's else.
GpuSum GpusOf(const rendezvous::v1::NodeStatus& node, size_t local_rank);

// "97%", their mean; "-" = nobody tells; "lost" = all are.
std::string GpuPercentText(const GpuSum& gpus);
// "61.2/80.0", in GiB; "-" = no GPU, or all are lost.
std::string GpuMemoryText(const GpuSum& gpus);
// "0: 97%, 61.2/80.0 GiB; 1: lost; …", each of them; "" = none.
std::string GpuListText(const rendezvous::v1::NodeStatus& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_GPU_TEXT_H_
