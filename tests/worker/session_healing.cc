#include "tests/worker/session_healing.h"

#include <fcntl.h>
#include <torch/nn/modules.h>
#include <torch/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/fd.h"
#include "ddprun/exponential_moving_average.h"
#include "tests/worker/session_probe_parts.h"
#include "worker/torch/checkpoint/peer_state.h"

namespace ddprun::testing {
namespace {

using Line = torch::nn::Linear;

// What SESSION_PROBE_FAULT says. Threads: any, each moment from one.
class Moments {
 public:
  explicit Moments(Session& session, std::string gate) : session_(session), gate_(std::move(gate)) {
    const char* text = std::getenv("SESSION_PROBE_FAULT");
    std::istringstream words(text != nullptr ? text : "");
    for (Fault one; words >> one.generation >> one.step >> one.moment >> one.signal;) {
      faults_.push_back(one);
    }
  }

  // Whether something is to happen now.
  bool Is(const std::string& moment) { return Find(moment) != nullptr; }
  void At(const std::string& moment) {
    Fault* fault = Find(moment);
    if (fault == nullptr || std::exchange(fault->is_over, true)) return;
    if (fault->signal != 0) {
      raise(fault->signal);
      return;
    }
    const Fd gate(open(gate_.c_str(), O_RDONLY | O_CLOEXEC));  // waits for the other end
    char byte = 0;
    while (read(gate.get(), &byte, 1) > 0) {
    }
  }

 private:
  struct Fault {
    uint64_t generation = 0;
    int64_t step = 0;
    std::string moment;
    int signal = 0;
    bool is_over = false;  // a step may have several passes, and may come again
  };
  Fault* Find(const std::string& moment) {
    for (Fault& one : faults_) {
      if (one.generation != session_.context().generation() || one.moment != moment) continue;
      // A fault of a transfer has step -1: while the transfer runs, the step may have begun or not.
      if (one.step == session_.step() || one.step < 0) return &one;
    }
    return nullptr;
  }

  Session& session_;
  const std::string gate_;
  std::vector<Fault> faults_;
};

// The same for the same bits.
uint64_t BufferDigest(torch::nn::Module& module) {
  std::string bytes;
  for (const torch::Tensor& own : module.buffers()) {
    const torch::Tensor buffer = own.cpu().contiguous();
    bytes.append(static_cast<const char*>(buffer.const_data_ptr()), buffer.nbytes());
  }
  return std::hash<std::string>()(bytes);
}

uint64_t AverageDigest(Session& session, torch::nn::Module& module) {
  if (session.average() == nullptr) return 0;
  const ExponentialMovingAverage::InPlace averaged(*session.average());
  return Digest(module);
}

}  // namespace

void Heal(Session& session, const std::string& path) {
  Moments moments(session, path + ".gate");
  worker::WatchTransfers([&](bool gives, size_t message, size_t messages) {
    if (message == 0) moments.At(gives ? "give" : "take");
    if (message == messages / 2) moments.At(gives ? "giving" : "taking");
    if (message == messages) moments.At(gives ? "given" : "taken");
  });
  torch::nn::Sequential net(Line(1, 16), torch::nn::BatchNorm1d(16), Line(16, 1));
  auto model = session.Prepare(net, Sgd{.momentum = 0.5}, Points(72));
  // Whole lines of several processes: one write each.
  std::ofstream lines(path, std::ios::app);
  for (const Batch& batch : session.Batches()) {
    const Context& context = session.context();
    const std::string where = absl::StrCat(context.generation(), " ", session.step());
    torch::Tensor y = model(batch.inputs);
    lines << absl::StrCat("forward ", where, " ", context.rank(), "\n") << std::flush;
    moments.At("forward");
    if (moments.Is("infinite")) y = y * std::numeric_limits<float>::infinity();
    const torch::Tensor loss = Loss(y, batch);
    std::string begun = absl::StrCat("begun ", where, " ", session.epoch());
    const torch::Tensor numbers = (batch.inputs * 64).round();
    for (int64_t i = 0; i < numbers.size(0); ++i) {
      absl::StrAppend(&begun, " ", numbers[i].item<int64_t>());
    }
    loss.register_hook([&](const torch::Tensor& gradient) {
      // Before the others may learn from it, though this worker is killed; of weight 0, nobody
      // does.
      if (gradient.item<double>() != 0) lines << begun + "\n" << std::flush;
      moments.At("backward");
      return gradient;
    });
    session.Backward(loss);
    moments.At("between");
    if (!session.Step()) continue;
    lines << absl::StrCat("done ", where, " ", context.rank(), " ", Digest(*net), " ",
                          AverageDigest(session, *net), " ", BufferDigest(*net), "\n")
          << std::flush;
    moments.At("after");
  }
  worker::WatchTransfers(nullptr);
}

}  // namespace ddprun::testing
