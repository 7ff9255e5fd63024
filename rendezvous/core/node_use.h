#ifndef DDPRUN_RENDEZVOUS_CORE_NODE_USE_H_
#define DDPRUN_RENDEZVOUS_CORE_NODE_USE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

// Figures of a node for people who watch; nothing is decided by them.
namespace ddprun::rendezvous {

// What a GPU does (proto GpuStatus has the units).
struct GpuUse {
  uint32_t index = 0;
  std::optional<uint32_t> utilization;  // percent, 0 to 100; nullopt = the driver doesn't report it
  uint64_t memory_used = 0;             // bytes
  uint64_t memory_total = 0;            // bytes
  bool lost = false;                    // the driver has lost it; the other fields are unknown

  friend bool operator==(const GpuUse&, const GpuUse&) = default;
};

// How the workers of a node with --warm on start (proto WarmStatus).
struct WarmUse {
  uint32_t warm_workers = 0;
  uint32_t cold_workers = 0;
  absl::Duration saved;
  uint64_t parked_bytes = 0;
  std::string why_cold;

  friend bool operator==(const WarmUse&, const WarmUse&) = default;
};

// A worker that is suspected to hold up the job (proto HoldUp).
struct HoldUp {
  absl::Duration lasted;
  std::string why;

  friend bool operator==(const HoldUp&, const HoldUp&) = default;
};

// How the workers of a generation started, on all of its nodes with --warm on.
struct WarmStart {
  uint32_t warm_workers = 0;  // warm_workers + cold_workers > 0
  uint32_t cold_workers = 0;
  absl::Duration saved;  // time saved by the worker that gained most

  friend bool operator==(const WarmStart&, const WarmStart&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NODE_USE_H_
