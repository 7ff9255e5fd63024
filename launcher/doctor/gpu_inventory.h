#ifndef DDPRUN_LAUNCHER_DOCTOR_GPU_INVENTORY_H_
#define DDPRUN_LAUNCHER_DOCTOR_GPU_INVENTORY_H_

#include <string>
#include <vector>

#include "launcher/doctor/core/machine_facts.h"

namespace ddprun::launcher {

struct GpuInventory {
  DriverFacts driver;
  std::vector<GpuFacts> gpus;
};

// The NVIDIA GPUs of this machine, as the driver's library tells (NvmlLibrary). What a GPU or a
// driver doesn't tell stays empty: error correction of a GeForce, say. Without the library, why is
// in driver.why_not. `root` comes before /proc; for tests.
// Waits for the driver, for ever when a GPU is ill. Threads: any.
GpuInventory TakeGpuInventory(const std::string& root = "");

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_GPU_INVENTORY_H_
