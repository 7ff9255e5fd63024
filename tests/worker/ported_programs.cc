// Programs as one ports them from LibTorch's tutorials: with that library's own functions for
// saving and clipping, and with several passes through a model before one backward pass.
#include <torch/nn/modules.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ddprun/session.h"
#include "ddprun/weights.h"
#include "tests/worker/programs_probe.h"
#include "tests/worker/session_probe_parts.h"

namespace ddprun::testing {
namespace {

using Line = torch::nn::Linear;

torch::nn::Sequential Net() {
  return torch::nn::Sequential(Line(1, 8), torch::nn::BatchNorm1d(8), torch::nn::Tanh(),
                               Line(8, 1));
}

std::string SavedAs(Session& session) {
  return absl::StrCat(session.options().output_dir, "/net", session.context().rank(), ".pt");
}

// Ends with torch::save on all ranks.
void TorchSave(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net = Net();
  auto model = session.Prepare(net, AdamW{}, Points());
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  torch::save(net, SavedAs(session));
  torch::nn::Sequential loaded = Net();
  torch::load(loaded, SavedAs(session));
  outcome.Note(session, "trained", Digest(*net));
  outcome.Note(session, "saved", Digest(*loaded));
}

// Loads pretrained weights too late.
void TorchLoad(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  std::filesystem::create_directories(session.options().output_dir);
  torch::save(Net(), SavedAs(session));
  torch::nn::Sequential net = Net();
  auto model = session.Prepare(net, AdamW{}, Points());
  torch::load(net, SavedAs(session));
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  outcome.Note(session, "digest", Digest(*net));
}

// Rank 0 saves the model at the end, in LibTorch's form and ours, and computes with it.
void SaveWhole(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net = Net();
  auto model = session.Prepare(net, AdamW{}, Points());
  const auto save = [&] {
    const auto whole = session.WholeParameters();
    if (!session.context().is_main()) return;
    const torch::NoGradGuard no_grad;
    torch::save(net, SavedAs(session));
    OrThrow(SaveWeights(*net, SavedAs(session) + ".safetensors"));
    torch::nn::Sequential loaded = Net();
    torch::load(loaded, SavedAs(session));
    torch::nn::Sequential read = Net();
    OrThrow(LoadWeights(*read, SavedAs(session) + ".safetensors"));
    const torch::Tensor x = torch::ones({2, 1});
    const bool alike = Digest(*loaded) == Digest(*net) && Digest(*read) == Digest(*net) &&
                       loaded->forward(x).equal(net->forward(x));
    outcome.Note(session, absl::StrCat("alike", session.step()), alike);
  };
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    if (session.Step() && session.step() == 5) save();
  }
  save();
  outcome.Note(session, "steps", session.step());
}

// Rank 0 computes with the model at the end, without a word to the others.
void SampleAlone(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net = Net();
  auto model = session.Prepare(net, AdamW{}, Points());
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  if (session.context().is_main()) net->forward(torch::ones({2, 1}));
  outcome.Note(session, "steps", session.step());
}

// Learns from the samples in their order, as from a text; notes the first sample of each step.
void InOrder(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  Dataset points = Points(22);
  points.shuffle = false;
  std::vector<int64_t> seen;
  session.Add("seen", seen);
  auto model = session.Prepare(Net(), Sgd{}, std::move(points));
  for (const Batch& batch : session.Batches()) {
    Tick();
    // Ranks have as many samples each.
    const int64_t first = batch.samples.front() -
                          static_cast<int64_t>(session.context().rank() * batch.samples.size());
    session.Backward(Loss(model(batch.inputs), batch));
    Tick();
    if (session.Step()) seen.push_back(first);
    Tick();
  }
  outcome.Note(session, "seen", absl::StrJoin(seen, ","));
}

// Clears gradients itself, as every loop of LibTorch's tutorials does.
void ZeroGrad(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net = Net();
  torch::optim::SGD unused(net->parameters(), 0.1);
  auto model = session.Prepare(net, AdamW{}, Points());
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
    net->zero_grad(/*set_to_none=*/session.step() % 2 == 0);
    unused.zero_grad();
  }
  outcome.Note(session, "digest", Digest(*net));
}

// Clips gradients with LibTorch's function.
template <bool kByValue>
void TorchClip(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net = Net();
  auto model = session.Prepare(net, Sgd{}, Points());
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    if (kByValue) {
      torch::nn::utils::clip_grad_value_(net->parameters(), 1e-3);
    } else {
      torch::nn::utils::clip_grad_norm_(net->parameters(), 1e-3);
    }
    session.Step();
  }
  outcome.Note(session, "digest", Digest(*net));
}

// The model is called, and the loss is made of another one: in each step, or in one of them on the
// last rank alone.
template <bool kOnce>
void OtherLoss(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net = Net();
  Line other(1, 1);
  auto model = session.Prepare(net, Sgd{}, Points());
  const bool is_last = session.context().rank() + 1 == session.context().world_size();
  for (const Batch& batch : session.Batches()) {
    const torch::Tensor y = model(batch.inputs);
    const bool is_wrong = !kOnce || (is_last && session.step() == 3);
    session.Backward(Loss(is_wrong ? other(batch.inputs) : y, batch));
    session.Step();
  }
  outcome.Note(session, "steps", session.step());
}

// Two passes through a model with batch norm, one backward pass.
void Siamese(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net = Net();
  auto model = session.Prepare(net, Sgd{.momentum = 0.5}, Points());
  for (const Batch& batch : session.Batches()) {
    Tick();
    const torch::Tensor one = model(batch.inputs);
    Tick();
    const torch::Tensor other = model(batch.inputs + 0.25);
    session.Backward(Loss(one, batch) + Loss(other, batch));
    Tick();
    session.Step();
    Tick();
  }
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "mean",
               net[1]->as<torch::nn::BatchNorm1d>()->running_mean.sum().item<double>());
  outcome.Note(session, "steps", session.step());
}

// LibTorch's example of a GAN: batch norm in both modules, the critic is called three times.
void Dcgan(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential maker = Net();
  torch::nn::Sequential judge = Net();
  auto generator = session.Add("generator", maker, AdamW{});
  auto critic = session.Add("critic", judge, AdamW{});
  session.Prepare(Points());
  for (const Batch& batch : session.Batches()) {
    Tick();
    const torch::Tensor of_real = critic(batch.targets).mean();
    const torch::Tensor fake = generator(batch.inputs);
    session.Backward((critic(fake.detach()).mean() - of_real).tanh(), critic);
    Tick();
    session.Step(critic);
    session.Backward(-critic(fake).mean(), generator);
    Tick();
    session.Step();
  }
  outcome.Note(session, "maker", Digest(*maker));
  outcome.Note(session, "judge", Digest(*judge));
  outcome.Note(session, "mean",
               judge[1]->as<torch::nn::BatchNorm1d>()->running_mean.sum().item<double>());
  outcome.Note(session, "steps", session.step());
}

}  // namespace

Programs PortedPrograms() {
  return {{"torch_save", &TorchSave},
          {"torch_clip", &TorchClip<false>},
          {"torch_clip_value", &TorchClip<true>},
          {"other_loss", &OtherLoss<false>},
          {"other_loss_once", &OtherLoss<true>},
          {"save_whole", &SaveWhole},
          {"sample_alone", &SampleAlone},
          {"in_order", &InOrder},
          {"torch_load", &TorchLoad},
          {"zero_grad", &ZeroGrad},
          {"siamese", &Siamese},
          {"dcgan", &Dcgan}};
}

}  // namespace ddprun::testing
