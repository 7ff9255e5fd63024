#include "worker/metrics/process_memory.h"

#include <unistd.h>

#include <fstream>

namespace ddprun::worker {

uint64_t ResidentMemoryBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t whole = 0;
  uint64_t resident = 0;
  if (!(file >> whole >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace ddprun::worker
