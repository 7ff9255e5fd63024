// A session's samples: each is learned from exactly once an epoch, whatever happens to the ranks.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

// The seed for random changes of the batch that begins with this sample.
//
// It depends on the batch's place, not on one running generator: loading threads may run in any
// order, a resumed run sees what an undisturbed one saw, and Python can repeat it.
uint64_t BatchSeed(uint64_t seed, uint64_t epoch, int64_t sample) {
  const uint64_t of_epoch = Rng(Rng(seed).Next() ^ epoch).Next();
  return Rng(of_epoch ^ static_cast<uint64_t>(sample)).Next();
}

constexpr size_t kSamplesShown = 4;

// Refuses a batch in which samples are missing: a load() that leaves out a damaged picture would
// make the epoch smaller, and no part of the training would notice. Proof is a tensor with fewer
// rows than samples and no dimension of that length: more rows are a program's own affair (two
// views of each picture, nodes of graphs), and so is time before samples ([T, n, …]).
absl::Status CheckRows(const Batch& batch, const std::vector<int64_t>& samples) {
  const auto count = static_cast<int64_t>(samples.size());
  const auto asked = [&samples] {
    const size_t shown = std::min(samples.size(), kSamplesShown);
    return absl::StrCat(" for ", CountText(samples.size(), "sample"), " (",
                        absl::StrJoin(samples.begin(), samples.begin() + shown, ", "),
                        shown < samples.size() ? ", …" : "", "): ");
  };
  if (!batch.inputs.defined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the dataset's load() returned no inputs", asked(), "set Batch::inputs"));
  }
  for (const auto& [name, tensor] :
       {std::pair("inputs", &batch.inputs), {"targets", &batch.targets}}) {
    if (!tensor->defined()) continue;
    const at::IntArrayRef sizes = tensor->sizes();
    const int64_t rows = sizes.empty() ? 0 : sizes[0];
    if (rows >= count || std::find(sizes.begin(), sizes.end(), count) != sizes.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the dataset's load() returned ", name, " with ", CountText(rows, "row"), asked(),
        "each sample is learned from once an epoch, so return a row for each, in this order; leave "
        "damaged samples out of the dataset before Prepare(), and put tensors without a row for "
        "each sample into Batch::more"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Session::Implementation::MakeLoader() {
  ElasticSamplerOptions deals = {.seed = static_cast<uint64_t>(options.seed),
                                 .shuffle = data.shuffle};
  (constant_batch > 0 ? deals.global_batch : deals.batch_per_rank) =
      static_cast<uint64_t>(constant_batch > 0 ? constant_batch : BatchPerRank());
  DDPRUN_ASSIGN_OR_RETURN(ElasticSampler sampler,
                          ElasticSampler::Create(static_cast<uint64_t>(data.size), deals,
                                                 context->rank(), context->world_size()));
  loader = std::make_unique<ElasticLoader<std::vector<Pass>>>(
      sampler,
      [this](const StepShare& share) -> absl::StatusOr<std::vector<Pass>> {
        // As many threads for each operation as the training thread has.
        thread_local const bool is_ready = (at::init_num_threads(), true);
        static_cast<void>(is_ready);
        return worker::CatchExceptions([&] { return LoadPasses(share); });
      },
      ElasticLoaderOptions{.threads = static_cast<uint32_t>(options.num_workers)});
  return absl::OkStatus();
}

absl::Status Session::Implementation::PrepareData() {
  // A static graph has one backward pass a step.
  if (options.constant_batch == "step" && !options.static_graph) constant_batch = GlobalBatch();
  DDPRUN_RETURN_IF_ERROR(MakeLoader());
  data_place = loader->state();
  sampler_checkpoint = std::make_unique<worker::SamplerCheckpoint>(
      [this] { return data_place; },
      [this](const SamplerState& state) { return GoToPlace(state); });
  batch_checkpoint = std::make_unique<worker::BatchCheckpoint>(
      BatchPerRank(), loop_marks, [this] { return GlobalBatch(); },
      [this](int64_t samples) { return TakeGlobalBatch(samples); });

  return absl::OkStatus();
}

absl::Status Session::Implementation::TakeGlobalBatch(int64_t samples) {
  if (constant_batch == 0 || samples == constant_batch) return absl::OkStatus();
  constant_batch = samples;
  DDPRUN_RETURN_IF_ERROR(MakeLoader());
  DDPRUN_RETURN_IF_ERROR(GoToPlace(data_place));
  return PlanSteps();
}

absl::Status Session::Implementation::GoToPlace(const SamplerState& state) {
  if (state.dataset_size != static_cast<uint64_t>(data.size)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint is of ", state.dataset_size, " ", data.samples_name, ", and Prepare() got ",
        data.size,
        ": a run goes on only with the data that it began with. To train its model on other data, "
        "from step 0: another --output_dir, and --resume_from with one of the files "
        "checkpoint-*.safetensors and --weights_prefix model."));
  }
  DDPRUN_RETURN_IF_ERROR(loader->Restore(state));
  data_place = state;
  return absl::OkStatus();
}

Session::Implementation::Pass Session::Implementation::LoadPass(const StepShare& share,
                                                                uint64_t begin,
                                                                uint64_t count) const {
  const auto first = share.indices.begin() + static_cast<int64_t>(begin);
  std::vector<int64_t> samples(first, first + static_cast<int64_t>(count));
  // A rank without samples of its own takes part in the collectives with samples that don't count.
  for (int64_t i = 0; count == 0 && i < std::min(options.batch_size, data.size); ++i) {
    samples.push_back(i);
  }
  const uint64_t seed =
      BatchSeed(static_cast<uint64_t>(options.seed), share.epoch, samples.front());
  const double part =
      count == 0 ? 0 : static_cast<double>(count) / static_cast<double>(share.indices.size());
  Batch batch = data.load(samples, at::make_generator<at::CPUGeneratorImpl>(seed));
  OrThrow(CheckRows(batch, samples));
  batch.samples = std::move(samples);
  return {.batch = std::move(batch), .weight = share.weight * part, .share = part};
}

absl::StatusOr<std::vector<Session::Implementation::Pass>> Session::Implementation::LoadPasses(
    const StepShare& share) const {
  const at::NoGradGuard no_grad;
  // The same number of passes on each rank, because passes have collectives.
  const auto batch = static_cast<uint64_t>(options.batch_size);
  const auto number_of_passes = static_cast<uint32_t>((share.largest_count + batch - 1) / batch);
  std::vector<Pass> loaded;
  uint64_t begin = 0;
  for (uint32_t number = 0; number < number_of_passes; ++number) {
    const uint64_t count = ElasticSampler::CountOf(share.indices.size(), number, number_of_passes);
    loaded.push_back(LoadPass(share, begin, count));
    begin += count;
  }
  return loaded;
}

absl::Status Session::Implementation::TakeShare() {
  const Instant asked = MonotonicNow();
  auto next = loader->Next();
  const absl::Duration waited = MonotonicNow() - asked;
  step_metrics.data_time += waited;
  context->AddDataWait(waited);
  DDPRUN_RETURN_IF_ERROR(next.status());
  step_share = std::move(next->share);
  passes.assign(std::make_move_iterator(next->batch.rbegin()),
                std::make_move_iterator(next->batch.rend()));
  WeighForLearners();
  step_metrics.samples = static_cast<int64_t>(step_share.indices.size());
  return absl::OkStatus();
}

absl::Status Session::Implementation::CommitShare() {
  DDPRUN_RETURN_IF_ERROR(loader->Commit(step_share));
  data_place = loader->state();
  progress.epoch = static_cast<int64_t>(data_place.epoch);
  progress.epoch_samples = static_cast<int64_t>(data_place.consumed);
  evaluation_is_due = options.evaluate_every > 0 ? IsEvaluated(progress) : step_share.last_of_epoch;
  return absl::OkStatus();
}

}  // namespace ddprun
