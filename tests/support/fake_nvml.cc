// NVIDIA's driver library as far as ddprun calls it, for machines without GPUs. The GPUs come from
// files:
//
//   FAKE_NVML_HOLDERS  one GPU. The processes that the file lists, one pid a line, hold its
//                      memory; each call adds a byte to that path + ".looks". "hang" in it blocks
//                      the call for ever.
//   FAKE_NVML_GPUS     one GPU for each line "name=NVIDIA L4;memory_mib=23034;…"; what a line
//                      doesn't say, that GPU doesn't support. Keys: see the functions below. A line
//                      "init=18" lets nvmlInit fail with that number, "init=hang" for ever. Each
//                      nvmlInit adds a byte to that path + ".inits".
//                      "lost=handle" and "lost=later": the GPU fell off the bus before, after its
//                      handle was asked for.
//
// Without a readable file nvmlInit fails.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace {

using LongCount = unsigned long long;  // NOLINT(google-runtime-int): the library's type
using Fields = std::map<std::string, std::string>;

constexpr int kNotSupported = 3;
constexpr int kGpuIsLost = 15;

struct Process {
  unsigned int pid;
  LongCount memory;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned int numbers[5];
  char bus_id[32];
};
struct Utilization {
  unsigned int gpu;
  unsigned int memory;
};
struct Memory {
  LongCount total;
  LongCount free;
  LongCount used;
};

const char* Holders() {
  const char* path = std::getenv("FAKE_NVML_HOLDERS");
  return path != nullptr && access(path, R_OK) == 0 ? path : nullptr;
}

Fields Parse(const std::string& line) {
  Fields fields;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(';', at), line.size());
    const size_t equals = line.find('=', at);
    if (equals < end)
      fields[line.substr(at, equals - at)] = line.substr(equals + 1, end - equals - 1);
    at = end + 1;
  }
  return fields;
}

const std::vector<Fields>& Gpus() {
  static const std::vector<Fields> gpus = [] {
    std::vector<Fields> read;
    const char* path = std::getenv("FAKE_NVML_GPUS");
    std::ifstream file(path == nullptr ? "" : path);
    for (std::string line; std::getline(file, line);) read.push_back(Parse(line));
    if (read.empty() && Holders() != nullptr) read.emplace_back();
    return read;
  }();
  return gpus;
}

// A device is the number of its GPU, from 1.
std::string Field(const void* device, const char* key) {
  const Fields& fields = Gpus().at(reinterpret_cast<size_t>(device) - 1);
  const auto found = fields.find(key);
  return found == fields.end() ? "" : found->second;
}

template <typename Number>
int Answer(const void* device, const char* key, Number* number, LongCount unit = 1) {
  const std::string text = Field(device, key);
  if (text.empty()) return kNotSupported;
  *number = static_cast<Number>(std::stoull(text) * unit);
  return 0;
}

int AnswerText(const std::string& value, char* text, unsigned int size) {
  if (value.empty()) return kNotSupported;
  std::snprintf(text, size, "%s", value.c_str());
  return 0;
}

// "4242:1000,4243:2000", pids and MiB.
std::vector<Process> ProcessesOf(const void* device) {
  std::vector<Process> processes;
  const std::string list = Field(device, "processes");
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const size_t colon = list.find(':', at);
    processes.push_back({.pid = static_cast<unsigned int>(std::stoul(list.substr(at))),
                         .memory = std::stoull(list.substr(colon + 1)) << 20,
                         .gpu_instance = 0,
                         .compute_instance = 0});
    at = end + 1;
  }
  return processes;
}

void AddHolders(const std::string& path, std::vector<Process>* processes) {
  std::ofstream(path + ".looks", std::ios::app) << '.';
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    while (word == "hang") pause();
    processes->push_back({.pid = static_cast<unsigned int>(std::stoul(word)),
                          .memory = 0,
                          .gpu_instance = 0,
                          .compute_instance = 0});
  }
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  constexpr int kDriverNotLoaded = 9;
  if (const char* path = std::getenv("FAKE_NVML_GPUS"); path != nullptr) {
    std::ofstream(std::string(path) + ".inits", std::ios::app) << '.';
  }
  if (Gpus().empty()) return kDriverNotLoaded;
  const auto init = Gpus().front().find("init");
  if (init == Gpus().front().end()) return 0;
  while (init->second == "hang") pause();
  return std::stoi(init->second);
}

// torch asks by this name, and counts GPUs only where the first line has "torch=1".
int nvmlInit() {
  constexpr int kDriverNotLoaded = 9;
  return Gpus().empty() || Gpus().front().count("torch") == 0 ? kDriverNotLoaded : nvmlInit_v2();
}
int nvmlShutdown() { return 0; }

int nvmlSystemGetDriverVersion(char* text, unsigned int size) {
  return AnswerText("550.54.15", text, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(Gpus().size());
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = reinterpret_cast<void*>(size_t{index} + 1);
  return Field(*device, "lost") == "handle" ? kGpuIsLost : 0;
}

int nvmlDeviceGetName(void* device, char* text, unsigned int size) {
  return AnswerText(Field(device, "name"), text, size);
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned int size) {
  return AnswerText(Field(device, "uuid"), text, size);
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* pci) {
  return AnswerText(Field(device, "pci"), pci->bus_id, sizeof(pci->bus_id));
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (!Field(device, "lost").empty()) return kGpuIsLost;
  if (Answer(device, "memory_mib", &memory->total, LongCount{1} << 20) != 0) return kNotSupported;
  memory->free = memory->total;
  Answer(device, "free_mib", &memory->free, LongCount{1} << 20);
  memory->used = memory->total - memory->free;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  while (Field(device, "utilization") == "hang") pause();
  return Answer(device, "utilization", &rates->gpu);
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  const std::string text = Field(device, "compute");  // "8.9"
  if (text.empty()) return kNotSupported;
  *major = std::stoi(text);
  *minor = std::stoi(text.substr(text.find('.') + 1));
  return 0;
}
int nvmlDeviceGetEccMode(void* device, unsigned int* now, unsigned int* later) {
  *later = 1;
  return Answer(device, "ecc", now);
}
int nvmlDeviceGetMigMode(void* device, unsigned int* now, unsigned int* later) {
  *later = 0;
  return Answer(device, "mig", now);
}
int nvmlDeviceGetPersistenceMode(void* device, unsigned int* on) {
  return Answer(device, "persistence", on);
}
int nvmlDeviceGetTotalEccErrors(void* device, int kind, int counter, LongCount* count) {
  if (counter != 0) return kNotSupported;
  return Answer(device, kind == 0 ? "corrected" : "uncorrected", count);
}
int nvmlDeviceGetRemappedRows(void* device, unsigned int* corrected, unsigned int* uncorrected,
                              unsigned int* pending, unsigned int* failed) {
  *corrected = *uncorrected = *failed = 0;
  Answer(device, "remap_failed", failed);
  return Answer(device, "remap_pending", pending);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, Process* found) {
  constexpr int kInsufficientSize = 7;
  if (!Field(device, "lost").empty()) return kGpuIsLost;
  std::vector<Process> processes = ProcessesOf(device);
  if (const char* path = Holders()) AddHolders(path, &processes);
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(processes.size());
  for (size_t i = 0; i < processes.size() && i < room; ++i) found[i] = processes[i];
  return *count <= room ? 0 : kInsufficientSize;
}

}  // extern "C"
