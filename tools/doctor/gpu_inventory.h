#ifndef DDPRUN_TOOLS_DOCTOR_GPU_INVENTORY_H_
#define DDPRUN_TOOLS_DOCTOR_GPU_INVENTORY_H_

#include <string>
#include <vector>

#include "tools/doctor/core/machine_facts.h"

namespace ddprun::launcher {

struct GpuInventory {
  DriverFacts driver;
  std::vector<GpuFacts> gpus;
};

// The NVIDIA GPUs of this machine, from the driver's library (NvmlLibrary). Facts that a GPU or a
// driver doesn't report stay empty (error correction of a GeForce, for example). Without the
// library, driver.why_not says why. `root` comes before /proc; for tests. Waits for the driver,
// forever if a GPU is broken. Threads: any.
GpuInventory TakeGpuInventory(const std::string& root = "");

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_GPU_INVENTORY_H_
