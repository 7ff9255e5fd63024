// NVIDIA's driver library as far as launcher/os/gpu_memory.cc calls it, for machines without GPUs:
// one GPU, whose memory is held by the processes that the file FAKE_NVML_HOLDERS lists, one pid a
// line; each call adds a byte to that path + ".looks". Without that file nvmlInit fails; "hang" in
// it blocks the call for ever.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

struct Process {
  unsigned int pid;
  unsigned long long memory;  // NOLINT(google-runtime-int): the library's type
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

extern "C" {

int nvmlInit_v2() {
  const char* path = std::getenv("FAKE_NVML_HOLDERS");
  return path != nullptr && access(path, R_OK) == 0 ? 0 : 9;
}
int nvmlShutdown() { return 0; }

int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 1;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int /*index*/, void** device) {
  *device = nullptr;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* /*device*/, unsigned int* count, Process* found) {
  const std::string path = std::getenv("FAKE_NVML_HOLDERS");
  std::ofstream(path + ".looks", std::ios::app) << '.';
  std::ifstream file(path);
  const unsigned int room = *count;
  *count = 0;
  for (std::string word; file >> word;) {
    while (word == "hang") pause();
    if (*count < room) found[*count] = {.pid = static_cast<unsigned int>(std::stoul(word))};
    ++*count;
  }
  return *count <= room ? 0 : 7;
}

}  // extern "C"
