#include <algorithm>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "tools/doctor/core/machine_findings.h"

namespace ddprun::launcher {
namespace {

using GpuNumbers = std::vector<size_t>;

std::string GpusText(const GpuNumbers& gpus) {
  return absl::StrCat(gpus.size() == 1 ? "GPU " : "GPUs ", absl::StrJoin(gpus, ", "));
}

// The visible GPUs that answer and for which `is` holds, by their number in the machine.
template <typename Predicate>
GpuNumbers Those(const MachineFacts& facts, Predicate is) {
  GpuNumbers numbers;
  for (const size_t i : AnsweringGpus(facts)) {
    if (is(facts.gpus[i])) numbers.push_back(i);
  }
  return numbers;
}

// Without words when all GPUs would do.
std::vector<std::string> RunWithout(const MachineFacts& facts, const GpuNumbers& left_out) {
  GpuNumbers others;
  for (const size_t i : AnsweringGpus(facts)) {
    if (std::find(left_out.begin(), left_out.end(), i) == left_out.end()) others.push_back(i);
  }
  if (others.empty()) return {};
  return {absl::StrCat("CUDA_VISIBLE_DEVICES=", absl::StrJoin(others, ","),
                       " ddprun --nproc_per_node gpu train.py  # leaves out ", GpusText(left_out))};
}

void CheckDriver(const MachineFacts& facts, std::vector<Finding>* findings) {
  const DriverFacts& driver = facts.driver;
  if (driver.gpus_of_kernel == 0 || driver.why_not.empty()) return;
  std::vector<std::string> fix = {"nvidia-smi  # does it answer?",
                                  "sudo dmesg | grep -i -e xid -e nvrm | tail"};
  if (!facts.container.empty()) {
    fix.push_back("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …");
  } else if (absl::StrContains(driver.why_not, "another version")) {
    fix = {"sudo reboot  # the driver was updated while the old one stayed loaded"};
  }
  findings->push_back(
      {Severity::kError, "driver_not_answering",
       absl::StrCat("the kernel has ", CountText(driver.gpus_of_kernel, "NVIDIA GPU"), ", but ",
                    driver.why_not),
       "CUDA and NCCL may not find the GPUs either", std::move(fix)});
}

void CheckVisible(const MachineFacts& facts, std::vector<Finding>* findings) {
  const std::string* list = EnvironmentValue(facts, "CUDA_VISIBLE_DEVICES");
  if (list == nullptr || facts.gpus.empty()) return;
  const std::vector<std::string> entries = absl::StrSplit(*list, ',');
  const size_t visible = VisibleGpus(facts).size();
  if (visible >= entries.size() || absl::StartsWith(entries[visible], "MIG-")) return;
  if (list->empty() || *list == "-1" || absl::StrContains(*list, "NoDevFiles")) {
    findings->push_back(
        {Severity::kNote,
         "gpus_hidden",
         absl::StrCat("CUDA_VISIBLE_DEVICES=", Shown(*list, 200), " hides ",
                      facts.gpus.size() == 1 ? "the only GPU"
                                             : absl::StrCat("all ", facts.gpus.size(), " GPUs")),
         "workers run on CPUs",
         {"unset CUDA_VISIBLE_DEVICES"}});
    return;
  }
  findings->push_back(
      {Severity::kError,
       "visible_devices_wrong",
       absl::StrCat(Quoted(entries[visible]), " of CUDA_VISIBLE_DEVICES=", Shown(*list, 200),
                    facts.gpus.size() == 1
                        ? std::string(" isn't the only GPU")
                        : absl::StrCat(" is none of the ", facts.gpus.size(), " GPUs")),
       "CUDA stops reading there, so that workers see fewer GPUs than are listed",
       {"nvidia-smi -L  # what is there", "unset CUDA_VISIBLE_DEVICES"}});
}

// CUDA may count without it, so that the others are named by what doesn't change.
std::vector<std::string> RunOnAnswering(const MachineFacts& facts) {
  std::vector<std::string> uuids;
  for (const size_t i : AnsweringGpus(facts)) uuids.push_back(facts.gpus[i].uuid);
  if (uuids.empty() || absl::c_linear_search(uuids, "")) return {};
  return {absl::StrCat("CUDA_VISIBLE_DEVICES=", absl::StrJoin(uuids, ","),
                       " ddprun --nproc_per_node gpu train.py  # runs on those that answer")};
}

void CheckLost(const MachineFacts& facts, std::vector<Finding>* findings) {
  for (const size_t i : VisibleGpus(facts)) {
    const std::string& why_not = facts.gpus[i].why_not;
    if (why_not.empty()) continue;
    std::vector<std::string> fix = {
        "sudo dmesg | grep -i -e xid -e nvrm | tail  # Xid 79: it fell off the bus",
        "sudo reboot  # power off and on if that doesn't help; replace it if it comes back"};
    for (std::string& line : RunOnAnswering(facts)) fix.push_back(std::move(line));
    findings->push_back({Severity::kError, "gpu_not_answering",
                         absl::StrCat("GPU ", i, " doesn't answer: ", why_not),
                         "workers on it fail or hang, and with it CUDA may find no GPU at all",
                         std::move(fix)});
  }
}

std::string UserText(const GpuFacts& gpu) {
  std::vector<std::string> users;
  for (const GpuProcess& process : gpu.processes) {
    std::string text = absl::StrCat("pid ", process.pid);
    if (!process.name.empty()) absl::StrAppend(&text, " (", process.name, ")");
    if (process.memory.has_value()) absl::StrAppend(&text, " ", BytesText(*process.memory));
    users.push_back(std::move(text));
  }
  return absl::StrJoin(users, ", ");
}

void CheckUsers(const MachineFacts& facts, std::vector<Finding>* findings) {
  const GpuNumbers used = Those(facts, [](const GpuFacts& gpu) { return !gpu.processes.empty(); });
  if (!used.empty()) {
    std::vector<std::string> users;
    std::vector<uint32_t> pids;
    for (const size_t i : used) {
      users.push_back(absl::StrCat("GPU ", i, ": ", UserText(facts.gpus[i])));
      for (const GpuProcess& process : facts.gpus[i].processes) pids.push_back(process.pid);
    }
    std::sort(pids.begin(), pids.end());
    pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
    Finding finding{
        .severity = Severity::kWarning,
        .id = "gpus_in_use",
        .what = absl::StrCat("other processes compute on ", GpusText(used), " (",
                             absl::StrJoin(users, "; "), ")"),
        .why = "memory runs out sooner, and all ranks wait for the slowest",
        .fix = {absl::StrCat("ps -o pid,user,etime,args -p ", absl::StrJoin(pids, ","))}};
    for (std::string& line : RunWithout(facts, used)) finding.fix.push_back(std::move(line));
    findings->push_back(std::move(finding));
  }
  // The memory belongs to a crashed context, or to a process of another container.
  const GpuNumbers taken = Those(facts, [](const GpuFacts& gpu) {
    return gpu.processes.empty() && gpu.memory.has_value() && gpu.memory_free.has_value() &&
           *gpu.memory_free < *gpu.memory - *gpu.memory / 5;
  });
  if (taken.empty()) return;
  Finding finding{.severity = Severity::kWarning,
                  .id = "gpu_memory_taken",
                  .what = absl::StrCat("more than a fifth of the memory of ", GpusText(taken),
                                       " is taken, by processes that can't be seen from here"),
                  .why = "memory runs out sooner",
                  .fix = {"sudo fuser -v /dev/nvidia*"}};
  for (std::string& line : RunWithout(facts, taken)) finding.fix.push_back(std::move(line));
  findings->push_back(std::move(finding));
}

void CheckMixed(const MachineFacts& facts, std::vector<Finding>* findings) {
  std::map<std::string, GpuNumbers> models;
  for (const size_t i : AnsweringGpus(facts)) models[facts.gpus[i].name].push_back(i);
  if (models.size() < 2) return;
  std::vector<std::string> texts;
  const GpuNumbers* most = nullptr;
  for (const auto& [name, gpus] : models) {
    texts.push_back(absl::StrCat(name, " (", GpusText(gpus), ")"));
    if (most == nullptr || gpus.size() > most->size()) most = &gpus;
  }
  GpuNumbers others;
  for (const size_t i : AnsweringGpus(facts)) {
    if (std::find(most->begin(), most->end(), i) == most->end()) others.push_back(i);
  }
  std::vector<std::string> fix = RunWithout(facts, others);
  fix.emplace_back(
      "export CUDA_DEVICE_ORDER=PCI_BUS_ID  # so that numbers mean what nvidia-smi "
      "shows");
  findings->push_back(
      {Severity::kWarning, "gpus_mixed",
       absl::StrCat("the GPUs are of different models: ", absl::StrJoin(texts, ", ")),
       "every step takes as long as the slowest, and the batch must fit the "
       "smallest; without CUDA_DEVICE_ORDER CUDA counts the fastest first",
       std::move(fix)});
}

void CheckErrors(const MachineFacts& facts, std::vector<Finding>* findings) {
  const GpuNumbers wrong =
      Those(facts, [](const GpuFacts& gpu) { return gpu.ecc_uncorrected.value_or(0) > 0; });
  if (!wrong.empty()) {
    std::vector<std::string> fix = {"nvidia-smi -q -d ECC,ROW_REMAPPER"};
    for (const size_t i : wrong) {
      fix.push_back(absl::StrCat("sudo nvidia-smi --gpu-reset -i ", i));
    }
    for (std::string& line : RunWithout(facts, wrong)) fix.push_back(std::move(line));
    findings->push_back({Severity::kError, "gpu_memory_errors",
                         absl::StrCat("memory errors that could not be corrected on ",
                                      GpusText(wrong), " since the driver was loaded"),
                         "workers there are killed (Xid 48, 63, 94, 95), or compute on with wrong "
                         "numbers",
                         std::move(fix)});
  }
  for (const size_t i :
       Those(facts, [](const GpuFacts& gpu) { return gpu.remap_failed.value_or(false); })) {
    findings->push_back({Severity::kError, "gpu_memory_worn",
                         absl::StrCat("GPU ", i, " has no spare rows left for bad memory"),
                         "it will fail; NVIDIA replaces such GPUs", RunWithout(facts, {i})});
  }
  for (const size_t i : Those(facts, [](const GpuFacts& gpu) {
         return gpu.remap_pending.value_or(false) && !gpu.remap_failed.value_or(false);
       })) {
    findings->push_back({Severity::kWarning,
                         "gpu_reset_needed",
                         absl::StrCat("GPU ", i, " replaces a bad row of memory at its next reset"),
                         "until then workers on it may be killed",
                         {absl::StrCat("sudo nvidia-smi --gpu-reset -i ", i)}});
  }
}

void CheckModes(const MachineFacts& facts, std::vector<Finding>* findings) {
  const GpuNumbers unprotected = Those(facts, [](const GpuFacts& gpu) { return gpu.ecc == false; });
  if (!unprotected.empty() && unprotected.size() < AnsweringGpus(facts).size()) {
    findings->push_back(
        {Severity::kNote,
         "ecc_differs",
         absl::StrCat("error correction is off on ", GpusText(unprotected), " and on on others"),
         "they have different memory and speed",
         {"sudo nvidia-smi -e 1  # then reboot"}});
  }
  const GpuNumbers unloaded =
      Those(facts, [](const GpuFacts& gpu) { return gpu.persistence == false; });
  if (!unloaded.empty()) {
    findings->push_back({Severity::kNote,
                         "persistence_off",
                         absl::StrCat("the driver of ", GpusText(unloaded),
                                      " is unloaded when nobody uses them (persistence mode off)"),
                         "starts and restarts take seconds longer",
                         {"sudo nvidia-smi -pm 1"}});
  }
}

// 0 = not a version.
int MajorOf(const std::string& version) {
  int major = 0;
  return absl::SimpleAtoi(version.substr(0, version.find('.')), &major) ? major : 0;
}

void CheckPython(const MachineFacts& facts, std::vector<Finding>* findings) {
  const PythonFacts& python = facts.python;
  if (!python.why_not.empty()) {
    findings->push_back({Severity::kWarning,
                         "python_not_answering",
                         absl::StrCat("Python can't be asked: ", python.why_not),
                         "scripts may not start either",
                         {absl::StrCat(python.path, " -c 'import sys; print(sys.version)'")}});
  }
  if (python.torch.empty() || facts.driver.gpus_of_kernel + facts.gpus.size() == 0) return;
  const int newest = facts.driver.cuda.value_or(0);
  const std::string newest_text = CudaVersionText(newest);
  const std::vector<std::string> fix = {absl::StrCat(
      python.path, " -m pip uninstall torch  # then install one that was built for CUDA",
      newest == 0 ? "" : absl::StrCat(" ", newest_text, " or an older ", newest / 1000, ".x"))};
  if (python.torch_cuda.empty()) {
    findings->push_back({Severity::kError, "torch_without_cuda",
                         absl::StrCat("torch ", python.torch, " of ", python.path,
                                      " was built without CUDA, and there are GPUs"),
                         "torch.cuda.is_available() is False, NCCL isn't there", fix});
  } else if (newest != 0 && MajorOf(python.torch_cuda) > newest / 1000) {
    findings->push_back(
        {Severity::kError, "driver_too_old",
         absl::StrCat("torch ", python.torch, " was built for CUDA ", python.torch_cuda,
                      ", the driver ", facts.driver.version, " runs ", newest_text, " at most"),
         "'The NVIDIA driver on your system is too old'", fix});
  }
}

}  // namespace

void FindGpuTroubles(const MachineFacts& facts, std::vector<Finding>* findings) {
  CheckDriver(facts, findings);
  CheckVisible(facts, findings);
  CheckLost(facts, findings);
  CheckErrors(facts, findings);
  CheckUsers(facts, findings);
  CheckMixed(facts, findings);
  CheckModes(facts, findings);
  CheckPython(facts, findings);
}

}  // namespace ddprun::launcher
