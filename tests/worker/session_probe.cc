// A worker for the tests of the Session: trains a line, and writes what it saw to FILE.RANK.
//   session_probe train FILE [OPTION...]    weights, and how often there was a batch and a step;
//                                           --data: a number of points; shifted: others; drawn:
//                                           each changed at random, by torch; momentum: the
//                                           optimizer has another; early_step, late_step:
//                                           the program steps it itself before its third Step(),
//                                           or after its second
//   session_probe groups FILE [OPTION...]   learning rate and weight decay of each parameter group;
//                                           --data other: the other parameter has the second group
//   session_probe throw FILE [OPTION...]    rank 1 throws a StatusError in its third step
//   session_probe break FILE [OPTION...]    rank 1 leaves the loop there
//   session_probe exit FILE [OPTION...]     rank 1 calls exit(0) there
//   session_probe fail FILE [OPTION...]     rank 1 calls exit(3) there
//   session_probe KIND:RANK:STEP FILE [OPTION...]  that rank fails after so many steps, by throw,
//                                           break, exit, kill, abort, segv or hang
//   session_probe fault FILE [OPTION...]    as train; SESSION_PROBE_FAULT="STEP MOMENT SIGNAL":
//                                           sends itself a signal there, once; --data own: each
//                                           process has samples of its own; heavy: in
//                                           generation 1 its losses count twice
//                                           MOMENT: load, forward, backward, between, after
//   session_probe shards FILE [OPTION...]   as fault, with a zero_stage: digests of what a rank
//                                           alone has and of all parameters; rank 0 appends a line
//                                           to FILE itself for each step that is done: GENERATION
//                                           STEP; saves after the third, where the options do
//   session_probe samples FILE [OPTION...]  as fault; appends lines to FILE itself: "begun
//                                           GENERATION STEP EPOCH SAMPLE..." before each Step(),
//                                           and "done GENERATION STEP" where it returned true
//   session_probe evaluate FILE [OPTION...] as fault; rank 0 appends a line to FILE itself for each
//                                           evaluation: GENERATION STEP
//   session_probe average FILE [OPTION...]  with --ema_decay 0.75: the weight at the last
//                                           evaluation, the average over all steps that were done,
//                                           and what it is at the end
//   session_probe narrow FILE [OPTION...]   trains a bf16 model
//   session_probe odd FILE [OPTION...]      trains a model that has infinite values on purpose.
//   --data
//                                           spareN, weightN: once N steps are done, the gradient of
//                                           the parameter "spare" or "line.weight" has a NaN,
//                                           which doesn't show in that step's loss; that of spare
//                                           never shows. made…: spare is made with a NaN,
//                                           and trained without momentum, which would have one too
//   session_probe heal FILE [OPTION...]     appends lines to FILE itself: "forward GENERATION STEP
//                                           RANK" after each forward pass; "begun" as samples, of
//                                           what counts; "done GENERATION STEP RANK", with digests
//                                           of parameters, averages and buffers.
//                                           SESSION_PROBE_FAULT="GENERATION STEP MOMENT SIGNAL…"
//                                           MOMENT: forward, backward, between, after; of a state
//                                           on its way to new workers, for its givers: give,
//                                           giving, given, for its takers: take, taking, taken (at
//                                           its beginning, middle and end; STEP -1: whichever);
//                                           infinite: the loss is. SIGNAL 0: waits at the FIFO
//                                           FILE.gate until its other end has been opened and
//                                           closed
//   session_probe live FILE [OPTION...]     appends a JSON line to FILE itself for each step that
//                                           this process has done: its parameters' digest, with a
//                                           zero_stage its share's, and its rank and pid; saves
//                                           after each one with --checkpoint_every 0; "prepare"
//                                           when it has met the others, "forward" as a generation's
//                                           first step begins. What befalls it is in FILE.fault
//                                           (faults.h). SESSION_PROBE_WIDTH: of the model
//   session_probe bits FILE [OPTION...]     classifies points with all that draws random numbers;
//                                           appends a JSON line to FILE itself for each step;
//                                           --data own: each process changes samples by itself
//   session_probe leave FILE [OPTION...]    stops itself, goes to the next generation, and
//                                           ends
//   session_probe walk FILE [OPTION...]     classifies points; appends JSON lines to FILE itself:
//                                           "learned" in each backward pass, before anybody else
//                                           has its gradients: which samples, and how much they
//                                           weigh; "step" as live, and how
//                                           long its parameters are; at the end "final", with the
//                                           loss on all points. Waits before each batch while
//                                           somebody has a flock() on FILE.gate.
//                                           SESSION_PROBE_TWIN=1: deals by rank and world alone
//   session_probe misuse FILE [OPTION...]   one rank: calls in a wrong order, and their errors
#include <torch/nn/modules.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/session.h"
#include "ddprun/zero_optimizer.h"
#include "tests/worker/probe_arguments.h"
#include "tests/worker/session_healing.h"
#include "tests/worker/session_journal.h"
#include "tests/worker/session_probe_parts.h"

namespace {

using ddprun::Batch;
using ddprun::Session;
using ddprun::Sgd;
using ddprun::testing::Digest;
using ddprun::testing::Loss;
using ddprun::testing::Points;
using ddprun::testing::ShareDigest;
using Line = torch::nn::Linear;

// What SESSION_PROBE_FAULT says.
struct Fault {
  int64_t step = -1;  // none
  std::string moment;
  int signal = 0;
  static Fault Read() {
    Fault fault;
    const char* text = std::getenv("SESSION_PROBE_FAULT");
    if (text != nullptr) std::istringstream(text) >> fault.step >> fault.moment >> fault.signal;
    return fault;
  }
  // Once: the step may come again.
  void At(Session& session, const std::string& now) const {
    static bool is_over = false;
    if (is_over || session.step() != step || now != moment) return;
    is_over = true;
    raise(signal);
  }
};

// A layer with the fault in its backward pass, before the gradient of its weight is there.
torch::Tensor Watched(Session& session, const Fault& fault, torch::Tensor y) {
  fault.At(session, "forward");
  y.register_hook([&session, fault](const torch::Tensor& gradient) {
    fault.At(session, "backward");
    return gradient;
  });
  return y;
}

// A digest of the averages of its parameters; 0: there are none.
uint64_t AveragesDigest(Session& session, torch::nn::Module& module) {
  if (session.average() == nullptr) return 0;
  const ddprun::ExponentialMovingAverage::InPlace averaged(*session.average());
  std::optional<ddprun::ZeroOptimizer::WholeParameters> whole;
  auto* zero = dynamic_cast<ddprun::ZeroOptimizer*>(&session.optimizer());
  if (zero != nullptr) whole.emplace(*zero);
  return Digest(module);
}

void TrainWithFault(Session& session, std::ofstream& out) {
  const Fault fault = Fault::Read();
  ddprun::Dataset points = Points();
  points.load = [&session, fault, load = points.load](const std::vector<int64_t>& samples,
                                                      const at::Generator& generator) {
    fault.At(session, "load");
    Batch batch = load(samples, generator);
    // Otherwise in each process, as by a generator of the program's own.
    if (session.options().data == "own") batch.inputs = batch.inputs + 1e-6 * (getpid() % 9973);
    return batch;
  };
  torch::nn::Sequential net(Line(1, 4), torch::nn::BatchNorm1d(4), Line(4, 1));
  auto model = session.Prepare(net, Sgd{.momentum = 0.5}, points);
  for (const Batch& batch : session.Batches()) {
    const bool is_heavy = session.options().data == "heavy" && session.context().generation() == 1;
    session.Backward((is_heavy ? 2 : 1) *
                     Loss(Watched(session, fault, model(batch.inputs)), batch));
    fault.At(session, "between");
    session.Step();
    fault.At(session, "after");
  }
  double sum = 0;
  for (const torch::Tensor& tensor : net->parameters())
    sum += tensor.to(torch::kDouble).abs().sum().item<double>();
  double buffers = 0;
  for (const torch::Tensor& tensor : net->buffers())
    buffers += tensor.to(torch::kDouble).abs().sum().item<double>();
  out << "averages " << AveragesDigest(session, *net) << "\nparameters " << sum << "\nbuffers "
      << buffers << "\nsteps " << session.step() << "\ngeneration "
      << session.context().generation() << "\n";
}

void TrainAndEvaluate(Session& session, const std::string& path) {
  const Fault fault = Fault::Read();
  session.EvaluateWith({.name = "ranks", .figure = [&] {
                          fault.At(session, "evaluation");
                          const double ranks = session.SumOverRanks(torch::ones({}));
                          const ddprun::Context& context = session.context();
                          if (context.is_main()) {
                            std::ofstream(path, std::ios::app)
                                << context.generation() << " " << session.step() << std::endl;
                          }
                          return ranks;
                        }});
  auto model = session.Prepare(Line(1, 1), Sgd{.momentum = 0.5}, Points());
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(Watched(session, fault, model(batch.inputs)), batch));
    session.Step();
    fault.At(session, "after");
  }
}

void TrainAndTellSamples(Session& session, const std::string& path) {
  const Fault fault = Fault::Read();
  auto model = session.Prepare(Line(1, 1), Sgd{.momentum = 0.5}, Points());
  // Whole lines of several processes: one write each.
  std::ofstream lines(path, std::ios::app);
  for (const Batch& batch : session.Batches()) {
    const ddprun::Context& context = session.context();
    const std::string where = absl::StrCat(context.generation(), " ", session.step());
    // Before what the others may learn from, though this worker is killed.
    std::string line = absl::StrCat("begun ", where, " ", session.epoch());
    const torch::Tensor numbers = (batch.inputs * 64).round();
    for (int64_t i = 0; i < numbers.size(0); ++i) {
      absl::StrAppend(&line, " ", numbers[i].item<int64_t>());
    }
    lines << line + "\n" << std::flush;
    session.Backward(Loss(Watched(session, fault, model(batch.inputs)), batch));
    fault.At(session, "between");
    if (session.Step()) lines << absl::StrCat("done ", where, "\n") << std::flush;
    fault.At(session, "after");
  }
}

// Each generation begins with another model, and draws numbers while it trains.
void TrainShards(Session& session, const std::string& path) {
  const Fault fault = Fault::Read();
  torch::manual_seed(session.context().generation());
  Line frozen(1, 16);
  for (torch::Tensor& parameter : frozen->parameters()) parameter.requires_grad_(false);
  torch::nn::Sequential net(frozen, Line(16, 24), torch::nn::Dropout(0.25),
                            torch::nn::BatchNorm1d(24), Line(24, 1));
  auto model = session.Prepare(net, ddprun::AdamW(), Points(72));
  std::ofstream lines(path, std::ios::app);
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(Watched(session, fault, model(batch.inputs)), batch));
    fault.At(session, "between");
    if (session.Step() && session.context().is_main()) {
      lines << absl::StrCat(session.context().generation(), " ", session.step(), "\n")
            << std::flush;
    }
    if (session.step() == 3) session.Save();
    fault.At(session, "after");
  }
  auto& zero = dynamic_cast<ddprun::ZeroOptimizer&>(session.optimizer());
  std::ofstream out(absl::StrCat(path, ".", session.context().rank()));
  out << "share " << ShareDigest(zero) << "\nsteps " << session.step() << "\n";
  out << "averages " << AveragesDigest(session, *net) << "\n";
  const ddprun::ZeroOptimizer::WholeParameters whole(zero);
  double buffers = 0;
  for (const torch::Tensor& tensor : net->buffers())
    buffers += tensor.to(torch::kDouble).abs().sum().item<double>();
  out << "parameters " << Digest(*net) << "\nbuffers " << buffers << "\n";
}

// What --data says.
ddprun::Dataset PointsOf(const std::string& kind) {
  const int64_t count = std::atoll(kind.c_str());
  ddprun::Dataset points = Points(count > 0 ? count : 64);
  points.load = [kind, load = points.load](const auto& samples, const at::Generator& generator) {
    Batch batch = load(samples, generator);
    if (kind == "shifted") batch.inputs = batch.inputs + 1;
    if (kind == "drawn") batch.inputs = batch.inputs + torch::rand({}) / 64;
    return batch;
  };
  return points;
}

// False: leave the loop.
bool FailAsAsked(Session& session, const std::string& what) {
  std::istringstream words(what);
  std::string kind;
  uint32_t rank = 0;
  int64_t step = 0;
  char colon = 0;
  std::getline(words, kind, ':') >> rank >> colon >> step;
  if (colon != ':' || session.context().rank() != rank || session.step() != step) return true;
  if (kind == "throw") ddprun::OrThrow(absl::DataLossError("points.csv is cut short"));
  if (kind == "exit") std::exit(0);
  if (kind == "kill") raise(SIGKILL);
  if (kind == "abort") std::abort();
  if (kind == "segv") raise(SIGSEGV);
  if (kind == "hang") std::promise<void>().get_future().wait();
  return kind != "break";
}

void Train(Session& session, const std::string& what, std::ofstream& out) {
  const std::string& data = session.options().data;
  const double momentum = data == "momentum" ? 0.25 : 0.5;
  auto line = session.Prepare(Line(1, 1), Sgd{.momentum = momentum}, PointsOf(data));
  int batches = 0;
  int stepped = 0;
  for (const Batch& batch : session.Batches()) {
    if (session.context().rank() == 1 && session.step() == 2) {
      if (what == "throw") ddprun::OrThrow(absl::DataLossError("points.csv is cut short"));
      if (what == "exit") std::exit(0);
      if (what == "fail") std::exit(3);
      if (what == "break") break;
    }
    if (!FailAsAsked(session, what)) break;
    session.Backward(Loss(line(batch.inputs), batch));
    ++batches;
    if (session.step() == 2 && data == "early_step") session.optimizer().step();
    if (session.Step()) ++stepped;
    if (session.step() == 2 && data == "late_step") session.optimizer().step();
  }
  out << "weight " << line->weight.item<double>() << "\nbias " << line->bias.item<double>()
      << "\nbatches " << batches << "\nstepped " << stepped << "\nsteps " << session.step() << "\n";
}

void TrainNarrow(Session& session, std::ofstream& out) {
  torch::nn::Sequential net(Line(1, 24), Line(24, 1));
  net->to(torch::kBFloat16);
  ddprun::Dataset points = Points();
  points.load = [load = points.load](const auto& samples, const at::Generator& generator) {
    Batch batch = load(samples, generator);
    return Batch{.inputs = batch.inputs.to(torch::kBFloat16),
                 .targets = batch.targets.to(torch::kBFloat16)};
  };
  auto model = session.Prepare(net, Sgd(), points);
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  double sum = 0;
  for (const torch::Tensor& tensor : net->parameters())
    sum += tensor.to(torch::kDouble).abs().sum().item<double>();
  out << "parameters " << sum << "\nsteps " << session.step() << "\n";
}

// What has a NaN or is infinite, and isn't wrong: a mask, and the bias of a class that must not be
// chosen; and a parameter that the loss depends on in no way.
struct Odd : torch::nn::Module {
  explicit Odd(const std::string& kind) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    register_module("line", line);
    register_buffer("mask", torch::full({2}, -kInfinity));
    never = register_parameter("never", torch::full({2}, -kInfinity));
    const float spare_value = kind.starts_with("made") ? NAN : 1;
    spare = register_parameter("spare", torch::full({5000}, spare_value));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor nothing = torch::zeros({}, torch::kBool);
    return line(x) + torch::where(nothing, never.sum(), 0) + torch::where(nothing, spare.sum(), 0);
  }
  Line line = Line(1, 1);
  torch::Tensor never;
  torch::Tensor spare;
};

void TrainOdd(Session& session, std::ofstream& out) {
  const std::string& kind = session.options().data;
  const size_t digits = kind.find_first_of("0123456789");
  const int64_t at = digits == std::string::npos ? -1 : std::stoll(kind.substr(digits));
  auto odd = std::make_shared<Odd>(kind);
  torch::Tensor poisoned = kind.starts_with("weight") ? odd->line->weight : odd->spare;
  poisoned.register_hook([&session, at](const torch::Tensor& gradient) {
    if (session.step() != at) return gradient;
    torch::Tensor changed = gradient.clone();
    changed.flatten()[0] = NAN;  // of rank 0's share, with a zero_stage
    return changed;
  });
  const double momentum = kind.starts_with("made") ? 0 : 0.5;
  auto model = session.Prepare(odd, Sgd{.momentum = momentum}, Points());
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  out << "steps " << session.step() << "\n";
}

void TrainAverage(Session& session, std::ofstream& out) {
  Line line(1, 1);
  double evaluated = 0;
  session.EvaluateWith({.name = "weight", .figure = [&] {
                          evaluated = line->weight.item<double>();
                          return evaluated;
                        }});
  auto model = session.Prepare(line, Sgd{.momentum = 0.5}, Points());
  double average = 0;
  int stepped = 0;
  int left_out = 0;
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    if (!session.Step()) {
      ++left_out;
      continue;
    }
    const double weight = line->weight.item<double>();
    average = stepped++ == 0 ? weight : 0.75 * average + 0.25 * weight;
  }
  out << "evaluated " << evaluated << "\naverage " << average << "\nweight "
      << line->weight.item<double>() << "\nleft_out " << left_out << "\n";
}

void ShowGroups(Session& session, std::ofstream& out) {
  Line module(1, 1);
  // The same numbers of parameters and groups, in another order.
  const torch::Tensor own = session.options().data == "other" ? module->weight : module->bias;
  auto line =
      session.Prepare(module, Sgd{.momentum = 0.5}, Points(),
                      {{.parameters = {own}, .learning_rate_factor = 0.125, .weight_decay = 0}});
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
  wrong("zero_stage", [] { Session other({.training = {.zero_stage = "4"}}); });
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
  wrong("ungraded", [&] {
    const torch::NoGradGuard no_grad;
    session.Backward(Loss(line(batch->inputs), *batch));
  });
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
  ddprun::testing::ProbeArguments arguments(argc, argv);
  if (arguments.argc() < 3) {
    std::fputs("see the head of session_probe.cc for its arguments\n", stderr);
    return 2;
  }
  const std::string what = arguments.argv()[1], file = arguments.argv()[2];
  return ddprun::testing::EndProbe(ddprun::RunSession(
      arguments.argc() - 2, arguments.argv() + 2,
      {.name = "session_probe",
       .training = {.epochs = 2, .batch_size = 4, .learning_rate = 0.25, .backend = "gloo"},
       .uses = {.data = "Which points."}},
      [&](Session& session) {
        if (what == "live") return ddprun::testing::Live(session, file);
        if (what == "bits") return ddprun::testing::Bits(session, file);
        if (what == "heal") return ddprun::testing::Heal(session, file);
        if (what == "walk") return ddprun::testing::Walk(session, file);
        if (what == "shards") return TrainShards(session, file);
        if (what == "evaluate") return TrainAndEvaluate(session, file);
        if (what == "leave") {
          raise(SIGSTOP);
          return ddprun::OrThrow(session.context().Rejoin());
        }
        if (what == "samples") return TrainAndTellSamples(session, file);
        std::ofstream out(absl::StrCat(file, ".", session.context().rank()));
        out.precision(9);
        if (what == "misuse") return Misuse(session, out);
        if (what == "fault") return TrainWithFault(session, out);
        if (what == "narrow") return TrainNarrow(session, out);
        if (what == "odd") return TrainOdd(session, out);
        if (what == "average") return TrainAverage(session, out);
        if (what == "groups") return ShowGroups(session, out);
        Train(session, what, out);
      }));
}
