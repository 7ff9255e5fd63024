// Small programs as users write them, for programs_test.cc. Each writes what it came to to
// FILE.RANK: names and figures.
//   programs_probe KIND FILE [OPTION...]
// SESSION_PROBE_FAULT=N: it kills itself the Nth time that it passes Tick(). "wait N": it stays
// there until its generation is over.
#include <torch/nn/modules.h>
#include <torch/optim/lbfgs.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "ddprun/any_optimizer.h"
#include "ddprun/session.h"
#include "tests/worker/probe_arguments.h"
#include "tests/worker/programs_probe.h"
#include "tests/worker/session_probe_parts.h"

namespace {

int ticks = 0;

}  // namespace

// session: null = no place where a survivor can wait.
void ddprun::testing::Tick(Session* session) {
  const char* fault = std::getenv("SESSION_PROBE_FAULT");
  ++ticks;
  if (fault == nullptr) return;
  absl::string_view text = fault;
  const bool waits = absl::ConsumePrefix(&text, "wait ");
  int at = 0;
  if (!absl::SimpleAtoi(text, &at) || ticks != at) return;
  if (!waits) raise(SIGKILL);
  DDPRUN_CHECK(session != nullptr, "a survivor can't wait here");
  while (!session->context().GenerationIsOver()) std::this_thread::yield();
}

namespace {

using ddprun::Batch;
using ddprun::Session;
using ddprun::SessionOptions;
using ddprun::Sgd;
using ddprun::testing::Digest;
using ddprun::testing::Loss;
using ddprun::testing::Outcome;
using ddprun::testing::Points;
using ddprun::testing::Tick;
using Line = torch::nn::Linear;

// Three folds, each with a Session of its own; every third point is held out.
void KFold(const SessionOptions& options, Outcome& outcome) {
  for (int64_t fold = 0; fold < 3; ++fold) {
    Session session(options.Part(absl::StrCat("fold", fold)));
    const torch::Tensor x = torch::arange(72).to(torch::kFloat).view({-1, 1}) / 64;
    const torch::Tensor held = torch::arange(fold, 72, 3);
    const torch::Tensor learned =
        torch::cat({torch::arange((fold + 1) % 3, 72, 3), torch::arange((fold + 2) % 3, 72, 3)});
    auto model = session.Prepare(
        Line(1, 1), Sgd{.momentum = 0.5},
        ddprun::TensorDataset(x.index_select(0, learned), x.index_select(0, learned) * 3 + 1));
    double loss = 0;
    session.EvaluateWith(
        {.name = "held_out", .figure = [&] {
           Tick();
           const torch::Tensor own =
               x.index_select(0, held.index_select(0, session.OwnRows(held.size(0))));
           loss = session.SumOverRanks((model(own) - own * 3 - 1).square().sum(torch::kDouble));
           return loss;
         }});
    for (const Batch& batch : session.Batches()) {
      Tick();
      session.Backward(Loss(model(batch.inputs), batch));
      Tick();
      session.Step();
      Tick();
    }
    // A new worker does the folds before its own alone, and adds the same rows in one sum.
    outcome.Note(session, absl::StrCat("loss", fold), static_cast<float>(loss));
    outcome.Note(session, absl::StrCat("digest", fold), Digest(*model));
    outcome.Note(session, absl::StrCat("steps", fold), session.step());
  }
}

// Generator and critic, each with its optimizer and batch norm.
void Gan(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential maker(Line(2, 8), torch::nn::BatchNorm1d(8), torch::nn::Tanh(), Line(8, 1));
  torch::nn::Sequential judge(Line(1, 8), torch::nn::Tanh(), Line(8, 1));
  auto generator = session.Add("generator", maker, ddprun::AdamW{});
  auto critic = session.Add("critic", judge, Sgd{.momentum = 0.5});
  session.LearningRateWith(
      [](int64_t step) { return 0.05 / (1 + 0.1 * static_cast<double>(step)); });
  session.Prepare(Points());
  for (const Batch& batch : session.Batches()) {
    Tick();
    const torch::Tensor noise = torch::cat({batch.inputs, batch.inputs.square()}, 1);
    const torch::Tensor fake = generator(noise);
    session.Backward((critic(fake.detach()) - critic(batch.targets)).mean().tanh(), critic);
    Tick();
    session.Step(critic);
    Tick();
    session.Backward(-critic(fake).mean(), generator);
    Tick();
    session.Step();
    Tick();
  }
  outcome.Note(session, "maker", Digest(*maker));
  outcome.Note(session, "judge", Digest(*judge));
  outcome.Note(session, "steps", session.step());
}

// Stops when the loss hasn't been better for two evaluations; counts in the loop, too.
void EarlyStop(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  int patience = 0;
  double best = 1e9;
  std::vector<double> losses;
  std::vector<int64_t> steps;
  std::string word = "none";
  session.Add("patience", patience);
  session.Add("best", best);
  session.Add("losses", losses);
  session.Add("steps", steps);
  session.Add("word", word);
  auto model = session.Prepare(Line(1, 1), Sgd{.momentum = 0.5}, Points());
  session.EvaluateWith(
      {.name = "loss", .figure = [&] {
         Tick();
         const torch::Tensor x = session.OwnRows(8).to(torch::kFloat).view({-1, 1});
         const double loss = session.SumOverRanks((model(x) - x).abs().sum());
         Tick();
         losses.push_back(loss);
         patience = loss < best ? 0 : patience + 1;
         best = std::min(best, loss);
         word = absl::StrCat("at", session.step());
         if (patience == 2) session.StopTraining();
         return loss;
       }});
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    Tick();
    session.Step();
    steps.push_back(session.step());  // also where the step is going to be done again
    Tick(&session);
  }
  outcome.Note(session, "steps", session.step());
  outcome.Note(session, "patience", patience);
  outcome.Note(session, "counted", steps.size());
  outcome.Note(session, "last_counted", steps.back());
  outcome.Note(session, "word", word);
  for (size_t i = 0; i < losses.size(); ++i) {
    outcome.Note(session, absl::StrCat("loss", i), losses[i]);
  }
}

// A third tensor beside inputs and targets; two evaluations, the first with two figures.
void Figures(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  std::vector<int64_t> evaluated;
  session.Add("evaluated", evaluated);
  const torch::Tensor x = torch::arange(32).to(torch::kFloat).view({-1, 1}) / 32;
  ddprun::Dataset data = ddprun::TensorDataset(x, x * 3 + 1);
  data.load = [load = data.load, x](const std::vector<int64_t>& samples,
                                    const at::Generator& generator) {
    Batch batch = load(samples, generator);
    batch.more = {1 + x.index_select(0, torch::tensor(samples))};
    return batch;
  };
  Line line(1, 1);
  auto model = session.Prepare(line, Sgd{.momentum = 0.5}, std::move(data));
  int64_t begun_at = -1;
  session.EvaluateWith({.name = "early", .better = ddprun::BetterFigure::kHigher, .figures = [&] {
                          Tick();
                          const double bias = line->bias.item<double>();
                          return std::vector<std::pair<std::string, double>>{
                              {"newness", -static_cast<double>(session.step())}, {"bias", bias}};
                        }});
  session.EvaluateWith({.name = "weight", .figure = [&] {
                          evaluated.push_back(session.step());
                          Tick();
                          return line->weight.item<double>();
                        }});
  for (const Batch& batch : session.Batches()) {
    if (begun_at < 0) begun_at = session.step();
    Tick();
    session.Backward(((model(batch.inputs) - batch.targets).square() * batch.more[0]).mean());
    Tick();
    session.Step();
  }
  outcome.Note(session, "digest", Digest(*line));
  outcome.Note(session, "evaluated", absl::StrJoin(evaluated, ","));
  outcome.Note(session, "steps", session.step());
  outcome.begun_at = begun_at;
}

// The folder of checkpoints is deleted after the third step, and a file takes its place.
template <bool kJudges>
void FolderLost(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  auto model = session.Prepare(Line(1, 1), Sgd{}, Points());
  if (kJudges) {
    session.EvaluateWith({.name = "step",
                          .figure = [&] { return static_cast<double>(session.step()); },
                          .better = ddprun::BetterFigure::kHigher});
  }
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
    // Before the first checkpoint, so that none is being written meanwhile.
    if (session.step() == 2 && session.context().is_main()) {
      const std::string folder = session.options().output_dir + "/checkpoints";
      std::filesystem::remove_all(folder);
      std::ofstream(folder) << "in the way";
    }
  }
  outcome.Note(session, "steps", session.step());
}

// Each step learns from all points; the last layer has a group of its own.
void AllPoints(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(Line(1, 4), torch::nn::Tanh(), Line(4, 1));
  auto model = session.Prepare(net, ddprun::AdamW{}, Points(),
                               {{.parameters = net[2]->parameters(), .learning_rate_factor = 0.5}});
  session.LearningRateWith([](int64_t /*step*/) { return 0.1; });
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
  outcome.Note(session, "steps", session.step());
}

void Lbfgs(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  torch::nn::Sequential net(Line(1, 4), torch::nn::Tanh(), Line(4, 1));
  auto model =
      session.Prepare(net,
                      ddprun::OptimizerOf<torch::optim::LBFGS>(
                          torch::optim::LBFGSOptions().max_iter(4).line_search_fn("strong_wolfe")),
                      Points());
  for ([[maybe_unused]] const Batch& batch : session.Batches()) {
    session.Step([&](const Batch& of) {
      Tick();
      return Loss(model(of.inputs), of);
    });
    Tick();
  }
  outcome.Note(session, "digest", Digest(*net));
  outcome.Note(session, "steps", session.step());
}

// A line of `width` outputs, and a state of the program's own if it `owns` one.
template <bool kOwns, int64_t kWidth>
void OfWidth(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  int64_t count = 0;
  if (kOwns) session.Add("count", count);
  auto model = session.Prepare(Line(1, kWidth), Sgd{}, Points());
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
    ++count;
  }
  outcome.Note(session, "steps", session.step());
}

// LBFGS in the loop of another optimizer.
void LbfgsAsAnother(const SessionOptions& options, Outcome& /*outcome*/) {
  Session session(options);
  auto model = session.Prepare(
      Line(1, 1), ddprun::OptimizerOf<torch::optim::LBFGS>(torch::optim::LBFGSOptions()), Points());
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
}

struct LionOptions : torch::optim::OptimizerCloneableOptions<LionOptions> {
  LionOptions(double rate_in = 1e-3) : rate(rate_in) {}  // NOLINT: torch::optim::serialize's
  double rate;
  double get_lr() const override { return rate; }
  void set_lr(const double lr) override { rate = lr; }
  void serialize(torch::serialize::OutputArchive& to) const override { to.write("lr", rate); }
  void serialize(torch::serialize::InputArchive& from) override {
    c10::IValue value;
    from.read("lr", value);
    rate = value.toDouble();
  }
};

struct LionState : torch::optim::OptimizerCloneableParamState<LionState> {
  torch::Tensor average;
  void serialize(torch::serialize::OutputArchive& to) const override {
    to.write("average", average);
  }
  void serialize(torch::serialize::InputArchive& from) override { from.read("average", average); }
};

// A Lion optimizer without save() and load(), which the class below adds: its state isn't saved.
class ForgetfulLion : public torch::optim::Optimizer {
 public:
  ForgetfulLion(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                const LionOptions& options)
      : Optimizer(groups, std::make_unique<LionOptions>(options)) {}

  torch::Tensor step(LossClosure /*closure*/) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (torch::Tensor& parameter : group.params()) {
        std::unique_ptr<torch::optim::OptimizerParamState>& kept =
            state()[parameter.unsafeGetTensorImpl()];
        if (kept == nullptr) {
          auto fresh = std::make_unique<LionState>();
          fresh->average = torch::zeros_like(parameter);
          kept = std::move(fresh);
        }
        torch::Tensor& average = static_cast<LionState&>(*kept).average;
        const torch::Tensor update = (average * 0.9 + parameter.grad() * 0.1).sign();
        parameter.add_(update, -group.options().get_lr());
        average.mul_(0.99).add_(parameter.grad(), 0.01);
      }
    }
    return {};
  }
};

class Lion : public ForgetfulLion {
 public:
  using ForgetfulLion::ForgetfulLion;
  void save(torch::serialize::OutputArchive& to) const override {
    torch::optim::serialize<LionState, LionOptions>(to, *this);
  }
  void load(torch::serialize::InputArchive& from) override {
    torch::optim::serialize<LionState, LionOptions>(from, *this);
  }
};

template <typename Kind>
void TrainWithLion(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  Line line(1, 1);
  auto model = session.Prepare(line, ddprun::OptimizerOf<Kind>(LionOptions()), Points());
  for (const Batch& batch : session.Batches()) {
    Tick();
    session.Backward(Loss(model(batch.inputs), batch));
    Tick();
    session.Step();
  }
  outcome.Note(session, "digest", Digest(*line));
  outcome.Note(session, "steps", session.step());
}

// The second one would go on from the first one's checkpoints.
void SameFolder(const SessionOptions& options, Outcome& /*outcome*/) {
  for (int i = 0; i < 2; ++i) {
    Session session(options);
    auto model = session.Prepare(Line(1, 1), Sgd{}, Points());
    for (const Batch& batch : session.Batches()) {
      session.Backward(Loss(model(batch.inputs), batch));
      session.Step();
    }
  }
}

// A training of the line that one rank does otherwise. Params: loss: changes it before the backward
// pass, if set; after: called after each step; hidden: what it adds to a state of the program's
// own.
struct Otherwise {
  std::function<torch::Tensor(Session& session, const torch::Tensor& loss)> loss;
  std::function<void(Session& session)> after;
  std::function<int64_t(Session& session)> hidden;
  int64_t points = 64;
};

void Train(const SessionOptions& options, Outcome& outcome, const Otherwise& otherwise) {
  Session session(options);
  torch::Tensor hidden = torch::zeros({2, 3});
  session.Add("hidden", hidden);
  auto model = session.Prepare(Line(1, 1), Sgd{}, Points(otherwise.points));
  for (const Batch& batch : session.Batches()) {
    const torch::Tensor loss = Loss(model(batch.inputs), batch);
    session.Backward(otherwise.loss != nullptr ? otherwise.loss(session, loss) : loss);
    session.Step();
    if (otherwise.after != nullptr) otherwise.after(session);
    hidden = hidden + (otherwise.hidden != nullptr ? otherwise.hidden(session) : 1);
  }
  outcome.Note(session, "steps", session.step());
}

// The load() leaves out the inputs, or the first of the samples, as for a damaged picture.
template <bool kHasInputs>
void DropsSamples(const SessionOptions& options, Outcome& /*outcome*/) {
  Session session(options);
  ddprun::Dataset points = Points();
  points.load = [load = points.load](const auto& samples, const at::Generator& generator) {
    Batch batch = load(samples, generator);
    if (!kHasInputs) return Batch{.targets = batch.targets};
    return Batch{.inputs = batch.inputs.slice(0, 1), .targets = batch.targets.slice(0, 1)};
  };
  auto model = session.Prepare(Line(1, 1), Sgd{}, points);
  for (const Batch& batch : session.Batches()) {
    session.Backward(Loss(model(batch.inputs), batch));
    session.Step();
  }
}

// The load() returns more rows than samples, and inputs with time before samples.
void OtherShapes(const SessionOptions& options, Outcome& outcome) {
  Session session(options);
  ddprun::Dataset points = Points();
  points.load = [load = points.load](const auto& samples, const at::Generator& generator) {
    Batch batch = load(samples, generator);
    // [3, n, 1]; targets have a row more than two for each sample.
    const torch::Tensor targets = torch::cat({batch.targets, batch.targets, batch.targets});
    return Batch{.inputs = batch.inputs.expand({3, -1, 1}).contiguous(),
                 .targets = torch::cat({targets, targets.slice(0, 0, 1)})};
  };
  auto model = session.Prepare(Line(1, 1), Sgd{}, points);
  for (const Batch& batch : session.Batches()) {
    const int64_t rows = batch.targets.size(0) - 1;
    session.Backward(
        (model(batch.inputs).view({rows, 1}) - batch.targets.slice(0, 0, rows)).mean());
    session.Step();
  }
  outcome.Note(session, "steps", session.step());
}

bool IsRankOneAfter(Session& session, int64_t step) {
  return session.context().rank() == 1 && session.step() == step;
}

void StopsAlone(const SessionOptions& options, Outcome& outcome) {
  Train(options, outcome, {.after = [](Session& session) {
          if (IsRankOneAfter(session, 3)) session.StopTraining();
        }});
}

void NanAlone(const SessionOptions& options, Outcome& outcome) {
  Train(options, outcome, {.loss = [](Session& session, const torch::Tensor& loss) {
          return IsRankOneAfter(session, 5) ? loss * std::nan("") : loss;
        }});
}

void StateOfEachRank(const SessionOptions& options, Outcome& outcome) {
  Train(options, outcome,
        {.hidden = [](Session& session) -> int64_t { return session.context().rank(); }});
}

void StateOfAllRanks(const SessionOptions& options, Outcome& outcome) {
  Train(options, outcome, {});
}

void FewerPoints(const SessionOptions& options, Outcome& outcome) {
  Train(options, outcome, {.points = 48});
}

void Nested(const SessionOptions& options, Outcome& /*outcome*/) {
  Session session(options.Part("outer"));
  Session inner(options.Part("inner"));
}

}  // namespace

int main(int argc, char** argv) {
  ddprun::testing::ProbeArguments arguments(argc, argv);
  ddprun::testing::Programs programs = {{"kfold", &KFold},
                                        {"gan", &Gan},
                                        {"early_stop", &EarlyStop},
                                        {"all_points", &AllPoints},
                                        {"figures", &Figures},
                                        {"folder_lost", &FolderLost<false>},
                                        {"folder_lost_judged", &FolderLost<true>},
                                        {"lbfgs", &Lbfgs},
                                        {"lion", &TrainWithLion<Lion>},
                                        {"forgetful", &TrainWithLion<ForgetfulLion>},
                                        {"same_folder", &SameFolder},
                                        {"stops_alone", &StopsAlone},
                                        {"nan_alone", &NanAlone},
                                        {"state_of_each_rank", &StateOfEachRank},
                                        {"state_of_all_ranks", &StateOfAllRanks},
                                        {"fewer_points", &FewerPoints},
                                        {"counts", &OfWidth<true, 1>},
                                        {"counts_nothing", &OfWidth<false, 1>},
                                        {"counts_wide", &OfWidth<true, 3>},
                                        {"drops_samples", &DropsSamples<true>},
                                        {"no_inputs", &DropsSamples<false>},
                                        {"other_shapes", &OtherShapes},
                                        {"lbfgs_as_another", &LbfgsAsAnother},
                                        {"nested", &Nested}};
  programs.merge(ddprun::testing::PortedPrograms());
  programs.merge(ddprun::testing::SwitchedPrograms());
  const auto program = programs.find(arguments.argc() > 2 ? arguments.argv()[1] : "");
  if (program == programs.end()) return 2;
  const std::string file = arguments.argv()[2];
  return ddprun::testing::EndProbe(ddprun::RunSessions(
      arguments.argc() - 2, arguments.argv() + 2,
      {.name = "programs_probe",
       .training = {.epochs = 2, .batch_size = 4, .learning_rate = 0.25, .backend = "gloo"}},
      [&](const SessionOptions& options) {
        Outcome outcome;
        program->second(options, outcome);
        std::ofstream(absl::StrCat(file, ".", outcome.rank))
            << outcome.text.str() << "ticks " << ticks << "\nbegun_at " << outcome.begun_at << "\n";
      }));
}
