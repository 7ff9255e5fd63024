#ifndef DDPRUN_TOOLS_DOCTOR_CORE_HARDWARE_ADVICE_H_
#define DDPRUN_TOOLS_DOCTOR_CORE_HARDWARE_ADVICE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tools/doctor/core/machine_facts.h"

namespace ddprun::launcher {

// Initial settings for a machine's GPUs. Pure; threads: any.

// The user's input.
struct AdviceQuestion {
  std::optional<uint64_t> samples;  // of one epoch
  std::optional<uint32_t> batch;    // per GPU, in place of the table's
};

struct HardwareAdvice {
  uint32_t gpus = 0;             // that the workers see: one worker for each
  uint64_t memory = 0;           // of the smallest one, bytes
  uint32_t batch = 0;            // samples per GPU and step
  uint32_t accumulation = 0;     // steps whose gradients make one update
  uint64_t effective_batch = 0;  // batch × GPUs × accumulation
  uint32_t loader_workers = 0;   // DataLoader's num_workers, per GPU
  uint32_t omp_threads = 0;      // per worker: an even share of the usable CPUs
  std::string precision;         // accelerate's words: "bf16", "fp16", "no"
  std::string method;            // "plain", "DDP", "ZeRO-2"
  // If the number of samples is known: whole batches, as DistributedSampler with drop_last counts
  // them, and the updates in an epoch.
  std::optional<uint64_t> steps_per_epoch;
  std::optional<uint64_t> updates_per_epoch;
};

// Chooses by the least memory among the visible GPUs, in GB of 10^9 bytes, as in the names of
// cards. NVML reports 15,360 MiB for a card of 16 GB: in GiB, the memory that a driver keeps for
// itself would move cards into the row below.
//
//   memory    batch  accumulation
//   ≥ 20 GB      16             4
//   14-20 GB     12             5
//   10-14 GB      8             8
//   6-10 GB       4            16
//   < 6 GB        2            32
//
// Method: one GPU → plain; more → ZeRO-2 if DeepSpeed is installed, else DDP. Precision: bf16
// from compute capability 8.0 on, fp16 from 7.0 on. Three loader workers per GPU.
// Returns: nullopt — no GPU is visible, or the memory of none is known.
std::optional<HardwareAdvice> AdviseForHardware(const MachineFacts& facts,
                                                const AdviceQuestion& question);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_CORE_HARDWARE_ADVICE_H_
