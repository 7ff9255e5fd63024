#ifndef DDPRUN_TOOLS_WATCH_STATUS_TEXT_H_
#define DDPRUN_TOOLS_WATCH_STATUS_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ddprun/agent/v1/agent.pb.h"
#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::launcher {

// "850 ms", "12.3 s", "4 min 5 s", "3 h 12 min", "2 d 4 h".
std::string TimeText(uint64_t ms);

// How long the job has been in its phase, as far as a status shows: "running for 1 h 2 min", where
// the time is the job's age, and "closing for 3.0 s (the job is 13 min 2 s old)".
std::string PhaseText(const rendezvous::v1::JobStatus& job);

// "restarts 1 of 3"; "restarts 1" if more were made than the limit, because some restarts don't
// count.
std::string RestartsText(const rendezvous::v1::JobStatus& job);

// "7", or "7 to 9".
std::string RangeText(uint64_t first, uint64_t last);

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

// kWide: also each rank, and all generations that the service remembers.
enum class StatusDetail { kPlain, kWide };

// The text of `ddprun status` for a service at `target` ("host:port"): for each job its nodes with
// the progress of their workers, and its generations. Lines with their ends. Pure; threads: any.
std::string StatusText(const rendezvous::v1::GetStatusReply& reply, const std::string& target,
                       StatusDetail detail = StatusDetail::kPlain);

// The text for a node without contact to its service. Requires: absence. Lines, as above.
std::string NodeStateText(const agent::v1::NodeState& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_STATUS_TEXT_H_
