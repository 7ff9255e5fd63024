#include "worker/torch/session/sample_feed.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

constexpr const char* kSampler = "sampler";

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

SampleFeed::SampleFeed(const TrainingOptions& options, Dataset data, uint32_t rank,
                       uint32_t world_size)
    : options_(options), data_(std::move(data)), rank_(rank), world_size_(world_size) {
  // A static graph has one backward pass a step.
  if (options.constant_batch == "step" && !options.static_graph) constant_batch_ = GlobalBatch();
}

int64_t SampleFeed::GlobalBatch() const {
  return is_constant() ? constant_batch_ : BatchPerRank() * static_cast<int64_t>(world_size_);
}

absl::Status SampleFeed::Begin() {
  ElasticSamplerOptions deals = {.seed = static_cast<uint64_t>(options_.seed),
                                 .shuffle = data_.shuffle};
  (is_constant() ? deals.global_batch : deals.batch_per_rank) =
      static_cast<uint64_t>(is_constant() ? constant_batch_ : BatchPerRank());
  DDPRUN_ASSIGN_OR_RETURN(
      ElasticSampler sampler,
      ElasticSampler::Create(static_cast<uint64_t>(data_.size), deals, rank_, world_size_));
  loader_ = std::make_unique<ElasticLoader<Passes>>(
      sampler,
      [this](const StepShare& share) -> absl::StatusOr<Passes> {
        // As many threads for each operation as the training thread has.
        thread_local const bool is_ready = (at::init_num_threads(), true);
        static_cast<void>(is_ready);
        return CatchExceptions([&] { return LoadPasses(share); });
      },
      ElasticLoaderOptions{.threads = static_cast<uint32_t>(options_.num_workers)});
  place_ = loader_->state();
  return absl::OkStatus();
}

absl::StatusOr<bool> SampleFeed::TakeGlobalBatch(int64_t samples) {
  if (!is_constant() || samples == constant_batch_) return false;
  constant_batch_ = samples;
  const SamplerState place = place_;
  DDPRUN_RETURN_IF_ERROR(Begin());
  DDPRUN_RETURN_IF_ERROR(GoTo(place));
  return true;
}

absl::Status SampleFeed::Reform(uint32_t rank, uint32_t world_size) {
  rank_ = rank;
  world_size_ = world_size;
  return loader_->Reform(rank, world_size);
}

absl::Status SampleFeed::GoTo(const SamplerState& place) {
  if (place.dataset_size != static_cast<uint64_t>(data_.size)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint is of ", place.dataset_size, " ", data_.samples_name,
        ", and Prepare() got ", data_.size,
        ": a run goes on only with the data that it began with. To train its model on other data, "
        "from step 0: another --output_dir, and --resume_from with one of the files "
        "checkpoint-*.safetensors and --weights_prefix model."));
  }
  DDPRUN_RETURN_IF_ERROR(loader_->Restore(place));
  place_ = place;
  return absl::OkStatus();
}

Pass SampleFeed::LoadPass(const StepShare& share, uint64_t begin, uint64_t count) const {
  const auto first = share.indices.begin() + static_cast<int64_t>(begin);
  std::vector<int64_t> samples(first, first + static_cast<int64_t>(count));
  // A rank without samples of its own takes part in the collectives with samples that don't count.
  for (int64_t i = 0; count == 0 && i < std::min(options_.batch_size, data_.size); ++i) {
    samples.push_back(i);
  }
  const uint64_t seed =
      BatchSeed(static_cast<uint64_t>(options_.seed), share.epoch, samples.front());
  const double part =
      count == 0 ? 0 : static_cast<double>(count) / static_cast<double>(share.indices.size());
  Batch batch = data_.load(samples, at::make_generator<at::CPUGeneratorImpl>(seed));
  OrThrow(CheckRows(batch, samples));
  batch.samples = std::move(samples);
  return {.batch = std::move(batch), .weight = share.weight * part, .share = part};
}

absl::StatusOr<SampleFeed::Passes> SampleFeed::LoadPasses(const StepShare& share) const {
  const at::NoGradGuard no_grad;
  // The same number of passes on each rank, because passes have collectives.
  const auto batch = static_cast<uint64_t>(options_.batch_size);
  const auto number_of_passes = static_cast<uint32_t>((share.largest_count + batch - 1) / batch);
  Passes loaded;
  uint64_t begin = 0;
  for (uint32_t number = 0; number < number_of_passes; ++number) {
    const uint64_t count = ElasticSampler::CountOf(share.indices.size(), number, number_of_passes);
    loaded.push_back(LoadPass(share, begin, count));
    begin += count;
  }
  return loaded;
}

absl::StatusOr<SampleFeed::Step> SampleFeed::Next() {
  absl::StatusOr<Step> next = loader_->Next();
  if (next.ok()) std::reverse(next->batch.begin(), next->batch.end());
  return next;
}

absl::Status SampleFeed::Commit(const StepShare& share) {
  DDPRUN_RETURN_IF_ERROR(loader_->Commit(share));
  place_ = loader_->state();
  return absl::OkStatus();
}

CheckpointedState::Tensors SampleFeed::SaveState() const {
  return {{kSampler, BytesTensor(place_.Serialize())}};
}

absl::Status SampleFeed::RestoreState(const Tensors& state) {
  const auto found = state.find(kSampler);
  if (found == state.end() || found->second.scalar_type() != torch::kByte) {
    return absl::FailedPreconditionError("the checkpoint doesn't say where it is in its data");
  }
  const torch::Tensor bytes = found->second.contiguous();
  const std::string text(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  DDPRUN_ASSIGN_OR_RETURN(const SamplerState parsed, SamplerState::Parse(text));
  return GoTo(parsed);
}

}  // namespace ddprun::worker
