// A worker for the tests of the Session: trains a line, and writes what it saw to FILE.RANK.
//   session_probe train FILE [OPTION...]    weights, and how often there was a batch and a step
//   session_probe groups FILE [OPTION...]   learning rate and weight decay of each parameter group
//   session_probe throw FILE [OPTION...]    rank 1 throws a StatusError in its third step
//   session_probe misuse FILE [OPTION...]   one rank: calls in a wrong order, and their errors
#include <torch/nn/modules.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddprun/session.h"

namespace {

using ddprun::Batch;
using ddprun::Session;
using ddprun::Sgd;
using Line = torch::nn::Linear;

ddprun::Dataset Points() {
  const torch::Tensor x = torch::arange(64).to(torch::kFloat).view({-1, 1}) / 64;
  return ddprun::TensorDataset(x, x * 3 + 1);
}

torch::Tensor Loss(const torch::Tensor& y, const Batch& batch) {
  return (y - batch.targets).square().mean();
}

void Train(Session& session, bool throws, std::ofstream& out) {
  auto line = session.Prepare(Line(1, 1), Sgd{.momentum = 0.5}, Points());
  int batches = 0;
  int stepped = 0;
  for (const Batch& batch : session.Batches()) {
    if (throws && session.context().rank() == 1 && session.step() == 2) {
      ddprun::OrThrow(absl::DataLossError("points.csv is cut short"));
    }
    session.Backward(Loss(line(batch.inputs), batch));
    ++batches;
    if (session.Step()) ++stepped;
  }
  out << "weight " << line->weight.item<double>() << "\nbias " << line->bias.item<double>()
      << "\nbatches " << batches << "\nstepped " << stepped << "\nsteps " << session.step() << "\n";
}

void ShowGroups(Session& session, std::ofstream& out) {
  Line module(1, 1);
  auto line = session.Prepare(
      module, Sgd(), Points(),
      {{.parameters = {module->bias}, .learning_rate_factor = 0.125, .weight_decay = 0}});
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(line(batch.inputs), batch));
    session.Step();
  }
  int number = 0;
  for (torch::optim::OptimizerParamGroup& group : session.optimizer().param_groups()) {
    const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
    out << "rate" << number << " " << options.lr() << "\ndecay" << number << " "
        << options.weight_decay() << "\n";
    ++number;
  }
}

// Writes the error that `call` throws.
void Expect(std::ofstream& out, const std::string& name, const std::function<void()>& call) {
  try {
    call();
    out << name << " nothing\n";
  } catch (const ddprun::StatusError& error) {
    out << name << " " << error.what() << "\n";
  }
}

// The options must make two batches a step, of two steps.
void Misuse(Session& session, std::ofstream& out) {
  const auto wrong = [&out](const std::string& name, const std::function<void()>& call) {
    Expect(out, name, call);
  };
  wrong("zero_stage", [] { Session other({.training = {.zero_stage = "3"}}); });
  wrong("rows", [] { ddprun::TensorDataset(torch::ones({3, 1}), torch::ones({4, 1})); });
  wrong("early_loop", [&] { session.Batches().begin(); });
  wrong("early_save", [&] { session.Save(); });
  wrong("early_optimizer", [&] { session.optimizer(); });
  wrong("early_metrics", [&] { session.metrics(); });
  wrong("no_load", [&] { session.Prepare(Line(1, 1), Sgd(), {.size = 64}); });
  auto line = session.Prepare(Line(1, 1), Sgd(), Points());
  wrong("second_prepare", [&] { session.Prepare(Line(1, 1), Sgd(), Points()); });
  wrong("backward_outside", [&] { session.Backward(torch::ones({})); });
  wrong("step_outside", [&] { session.Step(); });

  auto batch = session.Batches().begin();
  wrong("early_step", [&] { session.Step(); });
  wrong("bypassed", [&] { session.Backward(Loss(line->forward(batch->inputs), *batch)); });
  const torch::Tensor y = line(batch->inputs);
  wrong("vector", [&] { session.Backward((y - batch->targets).square()); });
  wrong("undefined", [&] { session.Backward({}); });
  wrong("detached", [&] { session.Backward(Loss(y, *batch).detach()); });
  session.Backward(Loss(y, *batch));
  wrong("second_backward", [&] { session.Backward(Loss(y, *batch)); });
  wrong("no_step", [&] { ++batch; });
  session.Step();
  wrong("second_step", [&] { session.Step(); });
  wrong("save_midway", [&] { session.Save(); });
  for (const Batch& next : session.Batches()) {
    session.Backward(Loss(line(next.inputs), next));
    session.Step();
  }
  out << "steps " << session.step() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("see the head of session_probe.cc for its arguments\n", stderr);
    return 2;
  }
  const std::string what = argv[1];
  const std::string file = argv[2];
  return ddprun::RunSession(
      argc - 2, argv + 2,
      {.name = "session_probe",
       .training = {.epochs = 2, .batch_size = 4, .learning_rate = 0.25, .backend = "gloo"}},
      [&](Session& session) {
        std::ofstream out(absl::StrCat(file, ".", session.context().rank()));
        out.precision(9);
        if (what == "misuse") return Misuse(session, out);
        if (what == "groups") return ShowGroups(session, out);
        Train(session, what == "throw", out);
      });
}
