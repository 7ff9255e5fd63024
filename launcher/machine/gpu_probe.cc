// Finds the GPUs' places in the machine.
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/machine/topology_probe.h"

namespace ddprun::launcher {
namespace {

constexpr char kFolder[] = "/proc/driver/nvidia/gpus";

struct Gpu {
  std::string pci_id;
  std::string uuid;
  std::string model;
};

// "0000:3b:00.0" as numbers: CUDA numbers GPUs in this order. Other texts come first.
std::tuple<uint32_t, uint32_t, uint32_t, uint32_t> PciOrder(const std::string& id) {
  const std::vector<std::string> parts = absl::StrSplit(id, absl::ByAnyChar(":."));
  uint32_t numbers[4] = {};
  for (size_t i = 0; i < std::min<size_t>(parts.size(), 4); ++i) {
    if (!absl::SimpleHexAtoi(parts[i], &numbers[i])) return {};
  }
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

// Lines "Model: \t\t NVIDIA H100" and "GPU UUID: \t GPU-…".
void ReadInformation(const std::string& path, Gpu* gpu) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    std::string* field = nullptr;
    if (absl::ConsumePrefix(&rest, "Model:")) field = &gpu->model;
    if (absl::ConsumePrefix(&rest, "GPU UUID:")) field = &gpu->uuid;
    if (field != nullptr) *field = std::string(absl::StripAsciiWhitespace(rest));
  }
}

std::vector<Gpu> GpusOfTheDriver(const std::string& root) {
  std::vector<Gpu> gpus;
  const std::string folder = root + kFolder;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(folder.c_str()), closedir);
  if (directory == nullptr) return gpus;
  while (const dirent* entry = readdir(directory.get())) {
    if (entry->d_name[0] == '.') continue;
    Gpu gpu{.pci_id = entry->d_name, .uuid = "", .model = ""};
    ReadInformation(absl::StrCat(folder, "/", gpu.pci_id, "/information"), &gpu);
    gpus.push_back(std::move(gpu));
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const Gpu& a, const Gpu& b) { return PciOrder(a.pci_id) < PciOrder(b.pci_id); });
  return gpus;
}

// Finds a GPU by "GPU-8932f937-d72c-…" or a prefix of it, as CUDA does.
absl::StatusOr<Gpu> ByUuid(const std::vector<Gpu>& gpus, const std::string& entry) {
  absl::string_view uuid = entry;
  const bool of_a_gpu = absl::ConsumePrefix(&uuid, "MIG-") ? absl::StartsWith(uuid, "GPU-") : true;
  uuid = uuid.substr(0, uuid.find('/'));  // MIG-GPU-<uuid>/<instance>/<instance>
  for (const Gpu& gpu : gpus) {
    if (of_a_gpu && absl::StartsWithIgnoreCase(gpu.uuid, uuid)) return gpu;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("where '", entry, "' of CUDA_VISIBLE_DEVICES is can't be found in ", kFolder,
                   "; list GPUs by number or by their own UUIDs (nvidia-smi -L), or use "
                   "--cpu_binding, which needs none"));
}

absl::StatusOr<std::vector<Gpu>> Choose(const std::vector<Gpu>& gpus,
                                        const std::vector<std::string>& visible) {
  std::vector<Gpu> chosen;
  for (const std::string& entry : visible) {
    if (absl::StartsWith(entry, "GPU-") || absl::StartsWith(entry, "MIG-")) {
      DDPRUN_ASSIGN_OR_RETURN(Gpu gpu, ByUuid(gpus, entry));
      chosen.push_back(std::move(gpu));
      continue;
    }
    int64_t index = 0;
    if (!absl::SimpleAtoi(entry, &index) || index < 0 ||
        index >= static_cast<int64_t>(gpus.size())) {
      break;
    }
    chosen.push_back(gpus[static_cast<size_t>(index)]);
  }
  return chosen;
}

absl::StatusOr<GpuPlace> PlaceOf(const Gpu& gpu, const std::string& root) {
  const std::string path =
      absl::StrCat(root, "/sys/bus/pci/devices/", absl::AsciiStrToLower(gpu.pci_id), "/numa_node");
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  GpuPlace place{.pci_id = gpu.pci_id, .numa_node = -1, .model = gpu.model};
  if (absl::SimpleAtoi(text.str(), &place.numa_node)) return place;
  return absl::NotFoundError(
      absl::StrCat("the NUMA node of GPU ", gpu.pci_id, " is not in '", path,
                   "', where the kernel has it; is /sys mounted? --cpu_binding does without it"));
}

}  // namespace

absl::StatusOr<std::vector<GpuPlace>> ProbeGpus(
    const std::optional<std::vector<std::string>>& visible, const std::string& root) {
  std::vector<Gpu> gpus = GpusOfTheDriver(root);
  if (visible.has_value()) {
    DDPRUN_ASSIGN_OR_RETURN(gpus, Choose(gpus, *visible));
  }
  std::vector<GpuPlace> places;
  for (const Gpu& gpu : gpus) {
    DDPRUN_ASSIGN_OR_RETURN(GpuPlace place, PlaceOf(gpu, root));
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace ddprun::launcher
