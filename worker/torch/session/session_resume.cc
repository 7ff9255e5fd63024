// How a session resumes from files.
#include <torch/utils.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/weights.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/checkpoint_directory.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

// Values of --resume_from.
constexpr const char* kLatest = "latest";
constexpr const char* kNameOfBest = "best";

// The best checkpoint of a directory, by its figure, that rank 0 finds; the same on all ranks.
absl::StatusOr<std::string> NameOfBest(Context& context, const std::string& directory) {
  const std::vector<worker::FoundCheckpoint> found = worker::FindCheckpoints(directory);
  const worker::FoundCheckpoint* best = worker::BestOf(found);
  std::vector<int64_t> numbers;
  for (const int64_t own :
       {int64_t{best != nullptr}, best != nullptr ? static_cast<int64_t>(best->id.fence) : 0,
        best != nullptr ? static_cast<int64_t>(best->id.generation) : 0,
        best != nullptr ? static_cast<int64_t>(best->id.step) : 0}) {
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> of_all, worker::GatherNumber(context, own));
    numbers.push_back(of_all[0]);
  }
  if (numbers[0] == 0) {
    return absl::NotFoundError(absl::StrCat(
        "--resume_from '", directory,
        "/best': rank 0 finds no checkpoint there that an evaluation "
        "with `better` has judged; name one of its files, or the directory for the newest"));
  }
  return worker::CheckpointName({.fence = static_cast<uint64_t>(numbers[1]),
                                 .generation = static_cast<uint64_t>(numbers[2]),
                                 .step = static_cast<uint64_t>(numbers[3])});
}

// Warns of options that have no effect, because the checkpoint decides. seed: the resumed run's.
void SayWhatHasNoEffect(const TrainingOptions& options, uint64_t seed,
                        const TrainingProgress& progress, bool is_done) {
  if (seed != static_cast<uint64_t>(options.seed)) {
    Log(LogLevel::kWarning, absl::StrCat("--seed ", options.seed,
                                         " doesn't change the order of the samples: the run "
                                         "that goes on began with --seed ",
                                         seed,
                                         " and keeps its order, in which each "
                                         "sample comes once an epoch"));
  }
  if (!is_done) return;
  worker::Print(options.steps > 0
                    ? absl::StrFormat("nothing to do: the checkpoint is at step %d, --steps is %d",
                                      progress.step, options.steps)
                    : absl::StrFormat("nothing to do: the checkpoint has %d epochs, --epochs is %d",
                                      progress.epoch, options.epochs));
}

}  // namespace

absl::Status Session::Implementation::Resume(bool others_have_state) {
  if (Checkpointer* checkpointer = saver.checkpointer()) {
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<TrainingProgress> found, checkpointer->Restore());
    if (found.has_value()) return GoOnFrom(*found);
  }
  if (others_have_state) {
    return absl::DataLossError(
        "a worker is gone with its share of the optimizer's state, which no other one has, and "
        "there is no checkpoint: start the job again, or let ddprun do so (--max_restarts 1); with "
        "--output_dir workers go on from the newest checkpoint, and --replicas keep more copies");
  }
  if (options.resume_from.empty()) return absl::OkStatus();
  if (options.resume_from == kLatest) {
    return absl::NotFoundError(absl::StrCat("--resume_from latest: no rank finds a checkpoint in '",
                                            options.CheckpointDirectory(),
                                            "'; leave the option out to begin at step 0"));
  }
  return ResumeElsewhere();
}

absl::Status Session::Implementation::GoOnFrom(const TrainingProgress& found) {
  course.GoTo(found);
  // If the checkpoint has no "data" of a Session, its progress says the place.
  SamplerState place = feed->place();
  place.epoch = static_cast<uint64_t>(found.epoch);
  place.consumed = static_cast<uint64_t>(found.epoch_samples);
  if (place != feed->place()) DDPRUN_RETURN_IF_ERROR(feed->GoTo(place));
  if (Speaks()) {
    worker::Print(absl::StrFormat("resumed at step %d, epoch %d", found.step, found.epoch));
    SayWhatHasNoEffect(options, feed->place().seed, found, course.IsDone());
  }
  return absl::OkStatus();
}

absl::Status Session::Implementation::ResumeElsewhere() {
  enum Kind : int64_t { kDirectory, kCheckpoint, kWeights, kBest };
  const std::filesystem::path path = options.resume_from;
  int64_t kind = kDirectory;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    const bool is_named_so = worker::ParseCheckpointName(path.filename()).has_value();
    kind = is_named_so && options.weights_prefix.empty() ? kCheckpoint : kWeights;
  } else if (path.filename() == kNameOfBest && !std::filesystem::exists(path, ignored)) {
    kind = kBest;
  }
  // If only some nodes have the path, rank 0's finding counts.
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> kinds, worker::GatherNumber(*context, kind));
  if (kinds[0] == kWeights) return TakeWeights(path);
  const bool is_directory = kinds[0] == kDirectory;
  const std::string parent = path.has_parent_path() ? path.parent_path() : ".";
  std::string name = path.filename();
  if (kinds[0] == kBest) {
    DDPRUN_ASSIGN_OR_RETURN(name, NameOfBest(*context, parent));
  }
  DDPRUN_ASSIGN_OR_RETURN(
      const std::optional<TrainingProgress> found,
      MakeCheckpointer(is_directory ? path.string() : parent, is_directory ? "" : name)->Restore());
  if (found.has_value()) {
    saver.BeganElsewhere();
    return GoOnFrom(*found);
  }
  return absl::NotFoundError(absl::StrCat(
      "--resume_from '", options.resume_from,
      "': no rank finds a checkpoint there; give the directory that holds them, such as "
      "OUTPUT_DIR/checkpoints, or one of its files, or one of weights"));
}

absl::Status Session::Implementation::TakeWeights(const std::string& path) {
  absl::Status loaded;
  if (context->is_main())
    loaded = LoadWeights(*trained.module(), path,
                         {.strict = options.weights_strict, .prefix = options.weights_prefix})
                 .status();
  DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(*context, loaded, "load the weights"));
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : worker::ModuleTensors(*trained.module(), /*prefix=*/"")) {
    torch::Tensor sent = tensor.detach().contiguous();
    DDPRUN_RETURN_IF_ERROR(context->Broadcast(sent, 0));
    tensor.copy_(sent);
  }
  if (trained.zero() != nullptr) trained.zero()->ParametersChanged();
  if (Speaks()) {
    worker::Print(absl::StrFormat("begins at step 0 with the weights of '%s'", path));
  }
  return absl::OkStatus();
}

}  // namespace ddprun
