// What a checkpoint of 256 MiB costs training, for checkpoint_bench.py.
//   worker_bench_checkpoint DIRECTORY TIMES [BACKEND]
// With the backend nccl what is saved is the GPU's, and the copy is one to pinned memory of the
// host. Prints a line of JSON, medians in seconds: one memcpy(3) of so much into memory that is
// there, by all workers at once ("copy"), how long SaveAsync keeps training ("stall";
// "first_stall": of the first one, which gets its memory from the kernel), and how long Save does
// ("save"). Then, of a file that isn't in the page cache: how long it takes to read with read(2)
// ("read") and how long Restore does ("restore"); and how often all ranks together have read it
// from the disk ("copies_read").
#include <fcntl.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/run_worker.h"

namespace {

constexpr int64_t kElements = int64_t{64} << 20;

struct Ballast : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::rand({kElements}));
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename Function>
absl::Status Time(std::vector<double>& times, Function&& function) {
  const ddprun::Instant began = ddprun::MonotonicNow();
  const absl::Status status = function();
  times.push_back(absl::ToDoubleSeconds(ddprun::MonotonicNow() - began));
  return status;
}

using ddprun::Checkpointer;
using ddprun::Context;

struct Times {
  std::vector<double> copies;
  std::vector<double> stalls;
  std::vector<double> whole;
  std::vector<double> reads;
  std::vector<double> restores;
  std::vector<double> copies_read;
};

std::string OneCheckpoint(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") return entry.path();
  }
  return "";
}

// Removes the file from the page cache. Requires: no process maps it.
void Evict(const std::string& path) {
  const ddprun::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  fsync(file.get());
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void Read(const std::string& path) {
  const ddprun::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<char> piece(size_t{1} << 20);
  while (read(file.get(), piece.data(), piece.size()) > 0) {
  }
}

// The bytes that the kernel has read from disks for this process.
int64_t DiskBytes() {
  std::ifstream file("/proc/self/io");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("read_bytes: ", 0) == 0) return std::stoll(line.substr(12));
  }
  return 0;
}

absl::Status TimeSaves(Context& context, const std::shared_ptr<Ballast>& module,
                       Checkpointer& checkpointer, int saves, Times& times) {
  const bool on_gpu = context.device().is_cuda();
  torch::Tensor other =
      torch::zeros({kElements}, torch::TensorOptions().pinned_memory(on_gpu));  // on the host
  for (int64_t step = 0; step <= saves; ++step) {
    DDPRUN_RETURN_IF_ERROR(context.Barrier());  // all copy at the same time, as in a Restore
    DDPRUN_RETURN_IF_ERROR(Time(times.copies, [&] {
      if (on_gpu) {
        other.copy_(module->weight.detach());
      } else {
        std::memcpy(other.mutable_data_ptr(), module->weight.const_data_ptr(), other.nbytes());
      }
      return absl::OkStatus();
    }));
    DDPRUN_RETURN_IF_ERROR(
        Time(times.stalls, [&] { return checkpointer.SaveAsync({.step = 2 * step}); }));
    DDPRUN_RETURN_IF_ERROR(checkpointer.Wait());
    DDPRUN_RETURN_IF_ERROR(
        Time(times.whole, [&] { return checkpointer.Save({.step = 2 * step + 1}); }));
  }
  return absl::OkStatus();
}

absl::Status TimeRestores(Context& context, const std::string& directory,
                          Checkpointer& checkpointer, int restores, Times& times) {
  DDPRUN_RETURN_IF_ERROR(context.Barrier());
  const std::string path = OneCheckpoint(directory);
  const auto size = static_cast<double>(std::filesystem::file_size(path));
  for (int i = 0; i < restores; ++i) {
    if (context.is_main()) {
      Evict(path);
      DDPRUN_RETURN_IF_ERROR(Time(times.reads, [&] {
        Read(path);
        return absl::OkStatus();
      }));
      Evict(path);
    }
    DDPRUN_RETURN_IF_ERROR(context.Barrier());
    const int64_t before = DiskBytes();
    DDPRUN_RETURN_IF_ERROR(Time(times.restores, [&] { return checkpointer.Restore().status(); }));
    torch::Tensor bytes = torch::tensor({DiskBytes() - before}).to(context.device());
    DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(bytes));
    times.copies_read.push_back(static_cast<double>(bytes.item<int64_t>()) / size);
  }
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  int number = 0;
  if (argc < 3 || argc > 4 || !absl::SimpleAtoi(argv[2], &number) || number < 1) {
    return absl::InvalidArgumentError("usage: worker_bench_checkpoint DIRECTORY TIMES [BACKEND]");
  }
  at::set_num_threads(1);
  ddprun::ContextOptions options;
  if (argc == 4) options.backend = argv[3];
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create(options));
  const auto module = std::make_shared<Ballast>();
  module->to(context->device());
  ddprun::FusedSGD optimizer(module->parameters(), torch::optim::SGDOptions(0.1));
  Checkpointer checkpointer(*context, module, optimizer,
                            {.directory = argv[1], .keep = 1, .tell_of_none = false});
  Times times;
  DDPRUN_RETURN_IF_ERROR(TimeSaves(*context, module, checkpointer, number, times));
  DDPRUN_RETURN_IF_ERROR(TimeRestores(*context, argv[1], checkpointer, number, times));
  const double first = times.stalls.front();
  times.stalls.erase(times.stalls.begin());
  if (!context->is_main()) return absl::OkStatus();
  absl::PrintF("{\"copy\": %.6f, \"stall\": %.6f, \"first_stall\": %.6f, \"save\": %.6f, ",
               Median(times.copies), Median(times.stalls), first, Median(times.whole));
  absl::PrintF("\"read\": %.6f, \"restore\": %.6f, \"copies_read\": %.3f}\n", Median(times.reads),
               Median(times.restores), Median(times.copies_read));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Run); }
