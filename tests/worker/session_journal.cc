#include "tests/worker/session_journal.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/fd.h"
#include "ddprun/zero_optimizer.h"
#include "tests/worker/faults.h"
#include "tests/worker/session_probe_parts.h"

namespace ddprun::testing {
namespace {

using Line = torch::nn::Linear;

// The part of a line that says which worker writes it, and when.
std::string Writer(Session& session) {
  const Context& context = session.context();
  return absl::StrFormat(
      R"("t":%.6f,"who":"worker","pid":%d,"rank":%d,"world":%d,"generation":%d,"step":%d)",
      static_cast<double>(MonotonicNow().nanoseconds()) / 1e9, getpid(), context.rank(),
      context.world_size(), context.generation(), session.step());
}

// Points of a cube, of three classes that overlap: no weights have loss 0. Targets are classes and
// the points' numbers.
struct Cloud {
  static constexpr int64_t kPoints = 243;  // the last step of an epoch has fewer than six of them
  torch::Tensor inputs, targets;

  Cloud() {
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(20);
    inputs = torch::rand({kPoints, 4}, generator) * 2 - 1;
    const torch::Tensor noise = torch::randn({kPoints, 3}, generator);
    const torch::Tensor teacher = torch::randn({4, 3}, generator);
    const torch::Tensor classes = (inputs.matmul(teacher) + noise).argmax(1);
    targets = torch::stack({classes, torch::arange(kPoints)}, 1);
  }
};

torch::Tensor CrossEntropy(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits, targets.select(1, 0));
}

// Deals samples as a sampler that knows nothing of what was done before this process began.
Dataset DealtByRank(Session& session, Dataset data) {
  data.load = [&session, load = data.load, loaded = int64_t{0}](
                  std::vector<int64_t> samples, const at::Generator& generator) mutable {
    const int64_t world = session.context().world_size();
    for (int64_t& sample : samples) {
      sample = (session.context().rank() + world * loaded++) % Cloud::kPoints;
    }
    return load(samples, generator);
  };
  return data;
}

void WaitAtGate(const std::string& path) {
  const Fd gate(open((path + ".gate").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  flock(gate.get(), LOCK_SH);
}

// Loss on all points, with what the weights cost, and the length of its gradient; in double.
std::string FinalFigures(const Line& line, const Cloud& cloud, double weight_decay) {
  Line exact(4, 3);
  exact->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    exact->weight.copy_(line->weight);
    exact->bias.copy_(line->bias);
  }
  const torch::Tensor squares = exact->weight.square().sum() + exact->bias.square().sum();
  const torch::Tensor loss = CrossEntropy(exact(cloud.inputs.to(torch::kDouble)), cloud.targets) +
                             squares * weight_decay / 2;
  loss.backward();
  const torch::Tensor gradient = torch::cat({exact->weight.grad().view(-1), exact->bias.grad()});
  return absl::StrFormat(R"("loss":%.17g,"gradient":%.17g)", loss.item<double>(),
                         gradient.norm().item<double>());
}

}  // namespace

void Live(Session& session, const std::string& path) {
  // A checkpoint may be written when this has returned.
  static auto* faults = new Faults(path + ".fault", path);
  worker::UseFileCalls(faults);
  // Whole lines of several processes: one write each.
  std::ofstream journal(path, std::ios::app);
  const char* wide = std::getenv("SESSION_PROBE_WIDTH");
  const int64_t width = wide != nullptr ? std::atoll(wide) : 32;
  torch::nn::Sequential net(Line(1, width), Line(width, width), Line(width, 1));
  // By now all workers of its generation have met.
  journal << absl::StrFormat(R"({"event":"prepare",%s})", Writer(session)) << std::endl;
  auto model = session.Prepare(net, Sgd{.momentum = 0.5}, Points());
  const TrainingOptions& options = session.options();
  const bool saves = !options.CheckpointDirectory().empty() && options.checkpoint_every == 0;
  uint64_t generation = 0;  // of the last batch
  for (const Batch& batch : session.Batches()) {
    const uint32_t rank = session.context().rank();
    if (generation != session.context().generation()) {
      generation = session.context().generation();
      journal << absl::StrFormat(R"({"event":"forward",%s})", Writer(session)) << std::endl;
    }
    const torch::Tensor y = model(batch.inputs);
    faults->At("forward", rank);
    y.register_hook([&](const torch::Tensor& gradient) {
      faults->At("reduce", rank);
      return gradient;
    });
    session.Backward(Loss(y, batch));
    faults->At("commit", rank);
    if (!session.Step()) continue;
    faults->At("done", rank);
    auto* zero = dynamic_cast<ZeroOptimizer*>(&session.optimizer());
    // In stage 3 the whole parameters are a collective's.
    const bool whole = options.zero_stage != "3";
    const Context& context = session.context();
    const double now = static_cast<double>(MonotonicNow().nanoseconds()) / 1e9;
    journal << absl::StrFormat(
                   R"({"event":"step","t":%.6f,"who":"worker","pid":%d,"rank":%d,"world":%d,)"
                   R"("generation":%d,"step":%d,"digest":"%x","share":"%x"})",
                   now, getpid(), context.rank(), context.world_size(), context.generation(),
                   session.step(), whole ? Digest(*net) : 0,
                   zero != nullptr ? ShareDigest(*zero) : 0)
            << std::endl;
    if (saves) session.Save();
  }
}

// Trains with everything that draws random numbers or has state outside of the parameters, and so
// could differ on a new worker: dropout, batch norm behind layers with biases (their gradients are
// rounding errors, so that one different bit is seen at once), an augmentation, two groups, an
// evaluation that draws numbers and keeps the best checkpoint.
void Bits(Session& session, const std::string& path) {
  constexpr int64_t kLearned = 90;  // the last step of an epoch has half as many as the others
  constexpr int64_t kWidth = 96;    // Gloo's sums of less have one order
  const Cloud cloud;
  const torch::Tensor inputs = cloud.inputs.slice(0, 0, kLearned);
  const bool own = session.options().data == "own";
  Dataset data = {.size = kLearned,
                  .load = [=](const std::vector<int64_t>& samples, const at::Generator& generator) {
                    const torch::Tensor rows = torch::tensor(samples);
                    const torch::Tensor x = inputs.index_select(0, rows);
                    const double more = own ? 1e-6 * (getpid() % 9973) : 0;
                    return Batch{.inputs = x + 0.1 * torch::randn(x.sizes(), generator) + more,
                                 .targets = cloud.targets.index_select(0, rows)};
                  }};
  torch::nn::Sequential net;
  for (const int64_t from : {int64_t{4}, kWidth}) {
    net->push_back(Line(from, kWidth));
    net->push_back(torch::nn::BatchNorm1d(kWidth));
    net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Dropout(0.2));
  }
  Line head(kWidth, 3);
  net->push_back(head);
  auto model = session.Prepare(
      net, AdamW(), data,
      {{.parameters = head->parameters(), .learning_rate_factor = 0.5, .weight_decay = 0.1}});
  session.EvaluateWith({.name = "loss",
                        .figure =
                            [&] {
                              const torch::Tensor rows = session.OwnRows(cloud.kPoints - kLearned);
                              const torch::Tensor x = cloud.inputs.index_select(0, rows + kLearned);
                              const torch::Tensor loss =
                                  CrossEntropy(model(x + 0.1 * torch::randn_like(x)),
                                               cloud.targets.index_select(0, rows + kLearned));
                              return session.SumOverRanks(loss);
                            },
                        .better = BetterFigure::kLower});
  std::ofstream journal(path, std::ios::app);
  for (const Batch& batch : session.Batches()) {
    session.Backward(CrossEntropy(model(batch.inputs), batch.targets));
    if (!session.Step()) continue;
    journal << absl::StrFormat(R"({"event":"step",%s})", Writer(session)) << std::endl;
  }
}

void Walk(Session& session, const std::string& path) {
  const Cloud cloud;
  Line line(4, 3);
  Dataset data = TensorDataset(cloud.inputs, cloud.targets);
  if (std::getenv("SESSION_PROBE_TWIN") != nullptr) data = DealtByRank(session, data);
  auto model = session.Prepare(line, Sgd(), data);
  // Whole lines of several processes: one write each.
  std::ofstream journal(path, std::ios::app);
  for (const Batch& batch : session.Batches()) {
    WaitAtGate(path);
    const torch::Tensor numbers = batch.targets.select(1, 1).cpu().contiguous();
    const std::vector<int64_t> samples(numbers.const_data_ptr<int64_t>(),
                                       numbers.const_data_ptr<int64_t>() + numbers.numel());
    const torch::Tensor loss = CrossEntropy(model(batch.inputs), batch.targets);
    loss.register_hook([&](const torch::Tensor& gradient) {
      journal << absl::StrFormat(R"({"event":"learned",%s,"epoch":%d,"before":"%x","weight":%.9g,)"
                                 R"("samples":[%s]})",
                                 Writer(session), session.epoch(), Digest(*line),
                                 gradient.item<double>(), absl::StrJoin(samples, ","))
              << std::endl;
      return gradient;
    });
    session.Backward(loss);
    if (!session.Step()) continue;
    const torch::Tensor all = torch::cat({line->weight.detach().view(-1), line->bias.detach()});
    journal << absl::StrFormat(R"({"event":"step",%s,"digest":"%x","length":%.6g})",
                               Writer(session), Digest(*line), all.norm().item<double>())
            << std::endl;
  }
  if (session.stopped()) return;
  journal << absl::StrFormat(R"({"event":"final",%s,"digest":"%x",%s})", Writer(session),
                             Digest(*line),
                             FinalFigures(line, cloud, session.options().weight_decay))
          << std::endl;
}

}  // namespace ddprun::testing
