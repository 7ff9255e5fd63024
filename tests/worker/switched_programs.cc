// Programs that switch something of their modules while they train: requires_grad, training mode;
// or that use gradients or objects of the session in their own ways.
#include <sys/wait.h>
#include <torch/autograd.h>
#include <torch/nn/modules.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/session.h"
#include "ddprun/sync_batch_norm.h"
#include "tests/worker/programs_probe.h"
#include "tests/worker/session_probe_parts.h"

namespace ddprun::testing {
namespace {

using Line = torch::nn::Linear;

void NeedGradients(torch::nn::Module& module, bool need) {
  for (torch::Tensor& parameter : module.parameters()) parameter.requires_grad_(need);
}

// A GAN whose critic needs no gradients while the generator learns. GeneratorFirst: and which
// begins with the generator.
template <bool kGeneratorFirst>
void FrozenCritic(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential maker(Line(1, 8), torch::nn::Tanh(), Line(8, 1));
  torch::nn::Sequential judge(Line(1, 8), torch::nn::Tanh(), Line(8, 1));
  auto generator = session.Add("generator", maker, AdamW{});
  auto critic = session.Add("critic", judge, Sgd{.momentum = 0.5});
  session.Prepare(Points());
  for (const Batch& batch : session.Batches()) {
    const auto train_generator = [&] {
      if (!kGeneratorFirst) NeedGradients(*judge, false);
      session.Backward(-critic(generator(batch.inputs)).mean(), generator);
      Tick();
      session.Step(generator);
    };
    if (kGeneratorFirst) train_generator();
    Tick();
    NeedGradients(*judge, true);
    const torch::Tensor fake = generator(batch.inputs).detach();
    session.Backward((critic(fake) - critic(batch.targets)).mean().tanh(), critic);
    Tick();
    session.Step(critic);
    if (!kGeneratorFirst) train_generator();
    Tick();
    session.Step();
  }
  outcome.Note(session, "maker", Digest(*maker));
  outcome.Note(session, "judge", Digest(*judge));
  outcome.Note(session, "steps", session.step());
}

// Two modules that learn in turns. The first has no backward pass in a step's last batch.
void Turns(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential one(Line(1, 4), torch::nn::Tanh(), Line(4, 1));
  torch::nn::Sequential other(Line(1, 4), torch::nn::Tanh(), Line(4, 1));
  auto first = session.Add("first", one, AdamW{});
  auto second = session.Add("second", other, Sgd{.momentum = 0.5});
  int64_t batches = 0;
  session.Add("batches", batches);
  session.Prepare(Points());
  for (const Batch& batch : session.Batches()) {
    if (batches++ % options.training.gradient_accumulation_steps == 0) {
      session.Backward(Loss(first(batch.inputs), batch), first);
      Tick();
    }
    session.Backward(Loss(second(batch.inputs), batch), second);
    Tick();
    session.Step();
  }
  outcome.Note(session, "one", Digest(*one));
  outcome.Note(session, "other", Digest(*other));
  outcome.Note(session, "steps", session.step());
}

// A critic that learns twice in each step, as a Wasserstein GAN's.
void CriticTwice(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential maker(Line(1, 8), torch::nn::Tanh(), Line(8, 1));
  torch::nn::Sequential judge(Line(1, 8), torch::nn::Tanh(), Line(8, 1));
  auto generator = session.Add("generator", maker, AdamW{});
  auto critic = session.Add("critic", judge, AdamW{});
  session.Prepare(Points());
  for (const Batch& batch : session.Batches()) {
    for (int time = 0; time < 2; ++time) {
      const torch::Tensor fake = generator(batch.inputs).detach();
      session.Backward((critic(fake) - critic(batch.targets)).mean().tanh(), critic);
      Tick();
      session.Step(critic);
      Tick();
    }
    session.Backward(-critic(generator(batch.inputs)).mean(), generator);
    session.Step();
  }
  outcome.Note(session, "maker", Digest(*maker));
  outcome.Note(session, "judge", Digest(*judge));
  outcome.Note(session, "steps", session.step());
}

// The first layer is frozen in the first epoch. kPlanned: it needed gradients at Prepare().
template <bool kPlanned>
void Thaws(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(Line(1, 4), torch::nn::Tanh(), Line(4, 1));
  if (!kPlanned) NeedGradients(*net[0], false);
  auto model = session.Prepare(net, AdamW{}, Points());
  NeedGradients(*net[0], false);
  const torch::Tensor before = net[0]->parameters()[0].detach().clone();
  for (const Batch& batch : session.Batches()) {
    NeedGradients(*net[0], session.epoch() > 0);
    Tick();
    session.Backward(Loss(model(batch.inputs), batch));
    Tick();
    session.Step();
  }
  outcome.Note(session, "thawed", before.equal(net[0]->parameters()[0]) ? 0 : 1);
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// A loss of the slope of the model, as of a network that learns a differential equation.
void Slope(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(Line(1, 8), torch::nn::Tanh(), Line(8, 1));
  auto model = session.Prepare(net, Sgd{.momentum = 0.5}, Points());
  for (const Batch& batch : session.Batches()) {
    const torch::Tensor x = batch.inputs.clone().requires_grad_();
    const torch::Tensor y = model(x);
    const torch::Tensor slope =
        torch::autograd::grad({y}, {x}, {torch::ones_like(y)}, std::nullopt, /*create_graph=*/true)
            .front();
    Tick();
    session.Backward((slope - 3).square().mean() + Loss(y, batch));
    session.Step();
  }
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// Batch norm that keeps its statistics, and a dropout that is off.
void FrozenNorm(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(Line(1, 4), torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.5),
                            Line(4, 1));
  net[1]->eval();
  auto model = session.Prepare(net, AdamW{}, Points());
  net[2]->eval();
  int64_t modes = 0;
  session.EvaluateWith(
      {.name = "loss", .figure = [&] {
         for (const auto& module : net->modules()) modes += module->is_training();
         Tick();
         const torch::Tensor x = session.OwnRows(8).to(torch::kFloat).view({-1, 1});
         return session.SumOverRanks(model(x).sum());
       }});
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    Tick();
    session.Step();
  }
  outcome.Note(session, "training_in_evaluations", modes);
  for (const size_t layer : {0, 1, 2}) {
    outcome.Note(session, "trains" + std::to_string(layer), net[layer]->is_training());
  }
  outcome.Note(session, "mean",
               net[1]->as<torch::nn::BatchNorm1d>()->running_mean.abs().sum().item<double>());
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// The model gets its input to keep; its forward pass has a collective.
void Moved(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(Line(1, 4), nn::SyncBatchNorm(4, session.context()), Line(4, 1));
  auto model = session.Prepare(net, Sgd{.momentum = 0.5}, Points());
  for (const Batch& batch : session.Batches()) {
    Tick();
    session.Backward(Loss(model(batch.inputs.clone()), batch));
    session.Step();
  }
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// Forks a child in every fourth step, as for a picture that another program draws; the child calls
// exit().
void Forks(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(Line(1, 4), torch::nn::Tanh(), Line(4, 1));
  auto model = session.Prepare(net, AdamW{}, Points());
  for (const Batch& batch : session.Batches()) {
    const bool forks = session.step() % 4 == 0;
    const pid_t child = forks ? fork() : -1;
    if (child == 0) exit(0);
    if (forks) waitpid(child, nullptr, 0);
    Tick();
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// A convolution whose weights are in memory with the channels last.
void ChannelsLast(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::Tanh(), torch::nn::Flatten(),
                            Line(16, 1));
  torch::Tensor weight = net[0]->parameters()[0];
  weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  auto model = session.Prepare(net, AdamW{}, Points());
  const torch::Tensor picture = torch::arange(48).to(torch::kFloat).sin().view({1, 3, 4, 4});
  for (const Batch& batch : session.Batches()) {
    Tick();
    session.Backward(Loss(model(batch.inputs.view({-1, 1, 1, 1}) * picture), batch));
    Tick();
    session.Step();
  }
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// A head that no rank uses after the first step. Its weights stay: no decay, no momentum.
void UnusedHead(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  struct TwoHeads : torch::nn::Module {
    Line first = register_module("first", Line(1, 1));
    Line second = register_module("second", Line(1, 1));
    torch::Tensor forward(const torch::Tensor& x, bool both) {
      return both ? first(x) + second(x) : first(x);
    }
  };
  const auto net = std::make_shared<TwoHeads>();
  double after_first = 0;
  session.Add("after_first", after_first);
  auto model = session.Prepare(net, AdamW{}, Points());
  for (const Batch& batch : session.Batches()) {
    if (session.step() == 1) after_first = net->second->weight.item<double>();
    Tick();
    session.Backward(Loss(model(batch.inputs, session.step() == 0), batch));
    Tick();
    session.Step();
  }
  outcome.Note(session, "moved", net->second->weight.item<double>() - after_first);
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// The last step of an epoch has one sample, of rank 0; rank 1 gets samples that don't count.
void NormOfTheRest(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  struct Normed : torch::nn::Module {
    explicit Normed(Context& context) : norm(1, context) { register_module("norm", norm); }
    nn::SyncBatchNorm norm;
    Line line = register_module("line", Line(2, 1));
    torch::Tensor forward(const torch::Tensor& x) {
      return line(norm(torch::cat({x, x + 0.25}, 1).unsqueeze(1)).squeeze(1));
    }
  };
  const auto net = std::make_shared<Normed>(session.context());
  Dataset points = Points(17);
  points.shuffle = false;
  auto model = session.Prepare(net, AdamW{}, points);
  for (const Batch& batch : session.Batches()) {
    Tick();
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  double expected = 0;
  for (int64_t epoch = 0; epoch < session.epoch(); ++epoch) {
    for (const double middle : {3.5, 11.5, 16.0}) {
      expected = 0.9 * expected + 0.1 * (middle / 64 + 0.125);
    }
  }
  const double seen = net->norm->running_mean.item<double>();
  outcome.Note(session, "is_as_expected", std::abs(seen - expected) < 1e-6 ? 1 : 0);
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// As above, with one value of a channel in a sample: what doesn't count has to, in that last step.
void NormOfOne(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(nn::SyncBatchNorm(1, session.context()), Line(1, 1));
  Dataset points = Points(17);
  points.shuffle = false;
  auto model = session.Prepare(net, AdamW{}, points);
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  outcome.Note(session, "steps", session.step());
}

// Connects the ranks a second time.
void SecondContext(const SessionOptions& options, Outcome& /*outcome*/) {
  Session session(options);
  OrThrow(Context::Create());
}

// Two folds, with the Context of the first one in a model of each.
void ContextForAllFolds(const SessionOptions& options, Outcome& outcome) {
  Context* context = nullptr;
  for (const std::string fold : {"fold0", "fold1"}) {
    Session session(options.Part(fold));
    Context& of_norm = context != nullptr ? *context : session.context();
    torch::nn::Sequential net(Line(1, 4), nn::SyncBatchNorm(4, of_norm), Line(4, 1));
    auto model = session.Prepare(net, AdamW{}, Points());
    if (context == nullptr) context = &session.context();
    for (const Batch& batch : session.Batches()) {
      Tick();
      session.Backward(Loss(model(batch.inputs), batch));
      Tick();
      session.Step();
    }
    outcome.Note(session, fold, Digest(*net));
    outcome.Note(session, fold + "_steps", session.step());
  }
  outcome.text << "world " << context->world_size() << "\n";
}

// Keeps the session's metrics from the beginning to the end.
void KeptMetrics(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  Line line(1, 1);
  auto model = session.Prepare(line, Sgd{.momentum = 0.5}, Points());
  Metrics& metrics = session.metrics();
  for (const Batch& batch : session.Batches()) {
    Tick();
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
    metrics.Scalar("weight", session.step(), line->weight.item<double>());
  }
  outcome.Note(session, "is_kept", &metrics == &session.metrics() ? 1 : 0);
  outcome.Note(session, "steps", session.step());
}

}  // namespace

Programs SwitchedPrograms() {
  return {{"frozen_critic", &FrozenCritic<false>},
          {"generator_first", &FrozenCritic<true>},
          {"turns", &Turns},
          {"critic_twice", &CriticTwice},
          {"thaws", &Thaws<false>},
          {"thaws_as_planned", &Thaws<true>},
          {"slope", &Slope},
          {"frozen_norm", &FrozenNorm},
          {"moved", &Moved},
          {"context_for_all_folds", &ContextForAllFolds},
          {"forks", &Forks},
          {"second_context", &SecondContext},
          {"norm_of_the_rest", &NormOfTheRest},
          {"norm_of_one", &NormOfOne},
          {"unused_head", &UnusedHead},
          {"channels_last", &ChannelsLast},
          {"kept_metrics", &KeptMetrics}};
}

}  // namespace ddprun::testing
