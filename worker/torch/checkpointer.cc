#include "ddprun/checkpointer.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/atomic_file.h"
#include "worker/torch/checkpoint_contents.h"
#include "worker/torch/checkpoint_directory.h"
#include "worker/torch/exception_status.h"

namespace ddprun {

using worker::CheckpointId;
using worker::CheckpointTensors;
using worker::LoadedCheckpoint;
using worker::NewestCheckpoint;
using worker::TensorFile;

struct Checkpointer::Implementation {
  Context& context;
  std::shared_ptr<torch::nn::Module> module;
  torch::optim::Optimizer& optimizer;
  CheckpointerOptions options;
  uint64_t fence = 1;  // of what this generation writes
};

namespace {

// What a rank found on its disk; compared between the ranks as numbers.
struct Offer {
  CheckpointId id;
  bool whole = false;    // a checkpoint was loaded
  bool damaged = false;  // there are only damaged ones
  int64_t bytes = 0;

  auto Key() const { return std::tie(whole, id, bytes); }
};

constexpr int64_t kOfferNumbers = 6;

torch::Tensor ToTensor(const Offer& offer, torch::Device device) {
  const std::vector<int64_t> numbers = {static_cast<int64_t>(offer.id.fence),
                                        static_cast<int64_t>(offer.id.generation),
                                        static_cast<int64_t>(offer.id.step),
                                        offer.whole ? 1 : 0,
                                        offer.damaged ? 1 : 0,
                                        offer.bytes};
  return torch::tensor(numbers).to(device);
}

Offer FromTensor(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.cpu();
  const int64_t* numbers = plain.const_data_ptr<int64_t>();
  Offer offer;
  offer.id.fence = static_cast<uint64_t>(numbers[0]);
  offer.id.generation = static_cast<uint64_t>(numbers[1]);
  offer.id.step = static_cast<uint64_t>(numbers[2]);
  offer.whole = numbers[3] != 0;
  offer.damaged = numbers[4] != 0;
  static_assert(kOfferNumbers == 6);
  offer.bytes = numbers[5];
  return offer;
}

absl::StatusOr<std::vector<Offer>> ExchangeOffers(Context& context, const Offer& own) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> tensors,
                          context.AllGather(ToTensor(own, context.device())));
  std::vector<Offer> offers;
  for (const torch::Tensor& tensor : tensors) offers.push_back(FromTensor(tensor));
  return offers;
}

// The lowest of the ranks with the newest checkpoint.
uint32_t ChooseSource(const std::vector<Offer>& offers) {
  const auto best =
      std::max_element(offers.begin(), offers.end(),
                       [](const Offer& a, const Offer& b) { return a.Key() < b.Key(); });
  return static_cast<uint32_t>(best - offers.begin());
}

// Every rank takes part; those whose own checkpoint is another one get the source's.
absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> TakeFrom(Context& context, uint32_t source,
                                                           const Offer& offer,
                                                           std::unique_ptr<LoadedCheckpoint> own) {
  torch::Tensor bytes = torch::empty({offer.bytes}, torch::kByte);
  if (context.rank() == source) {
    std::memcpy(bytes.mutable_data_ptr(), own->bytes.data(), own->bytes.size());
  }
  bytes = bytes.to(context.device());
  DDPRUN_RETURN_IF_ERROR(context.Broadcast(bytes, source));
  if (context.rank() == source) return own;
  const torch::Tensor plain = bytes.cpu();
  auto taken = std::make_unique<LoadedCheckpoint>();
  taken->id = offer.id;
  taken->bytes.assign(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  DDPRUN_ASSIGN_OR_RETURN(taken->file, worker::DecodeTensorFile(taken->bytes));
  return taken;
}

Offer MakeOffer(const NewestCheckpoint& newest) {
  Offer offer;
  offer.damaged = newest.loaded == nullptr && !newest.damaged.empty();
  if (newest.loaded == nullptr) return offer;
  offer.whole = true;
  offer.id = newest.loaded->id;
  offer.bytes = static_cast<int64_t>(newest.loaded->bytes.size());
  return offer;
}

// What this rank's disk has. An unreadable directory counts as damaged: another rank may do better.
NewestCheckpoint LoadOwn(const std::string& directory) {
  absl::StatusOr<NewestCheckpoint> newest = worker::LoadNewestCheckpoint(directory);
  NewestCheckpoint own;
  if (newest.ok()) {
    own = *std::move(newest);
  } else {
    own.damaged.push_back(absl::DataLossError(newest.status().message()));
  }
  for (const absl::Status& status : own.damaged) {
    Log(LogLevel::kWarning, absl::StrCat(status.ToString(), "; trying the one before it"));
  }
  return own;
}

absl::Status NoneIsWhole(const NewestCheckpoint& own, const std::string& directory) {
  if (!own.damaged.empty()) {
    return absl::DataLossError(absl::StrCat("no whole checkpoint in '", directory,
                                            "'; the newest: ", own.damaged.front().message(),
                                            "; delete the directory to start from the beginning"));
  }
  return absl::DataLossError(
      absl::StrCat("no rank has a whole checkpoint, and another rank than this "
                   "one has damaged ones in '",
                   directory, "'; delete them to start from the beginning"));
}

absl::Status RestoreGenerators(const CheckpointTensors& tensors, const Context& context,
                               int64_t step) {
  const auto found = tensors.find(absl::StrCat("generators.", context.rank()));
  if (found != tensors.end()) return worker::SetGenerators(context.device(), found->second);
  worker::SeedGenerators(context.device(), step, context.rank());
  return absl::OkStatus();
}

}  // namespace

Checkpointer::Checkpointer(Context& context, std::shared_ptr<torch::nn::Module> module,
                           torch::optim::Optimizer& optimizer, CheckpointerOptions options)
    : implementation_(new Implementation{.context = context,
                                         .module = std::move(module),
                                         .optimizer = optimizer,
                                         .options = std::move(options)}) {
  implementation_->options.keep = std::max<uint32_t>(implementation_->options.keep, 1);
}

Checkpointer::~Checkpointer() = default;

absl::StatusOr<std::optional<TrainingProgress>> Checkpointer::Restore() {
  Implementation& self = *implementation_;
  NewestCheckpoint own = LoadOwn(self.options.directory);
  const Offer own_offer = MakeOffer(own);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Offer> offers, ExchangeOffers(self.context, own_offer));
  const uint32_t source = ChooseSource(offers);
  const Offer& best = offers[source];
  if (!best.whole) {
    const bool damaged =
        std::any_of(offers.begin(), offers.end(), [](const Offer& o) { return o.damaged; });
    if (damaged) return NoneIsWhole(own, self.options.directory);
    return std::optional<TrainingProgress>();
  }
  const bool all_have_it = std::all_of(offers.begin(), offers.end(),
                                       [&](const Offer& o) { return o.Key() == best.Key(); });
  std::unique_ptr<LoadedCheckpoint> loaded = std::move(own.loaded);
  return worker::CatchExceptions([&]() -> absl::StatusOr<std::optional<TrainingProgress>> {
    if (!all_have_it) {
      DDPRUN_ASSIGN_OR_RETURN(loaded, TakeFrom(self.context, source, best, std::move(loaded)));
    }
    const CheckpointTensors tensors = worker::FromTensorFile(loaded->file);
    DDPRUN_ASSIGN_OR_RETURN(const TrainingProgress progress,
                            worker::ApplyTensors(tensors, *self.module, self.optimizer));
    DDPRUN_RETURN_IF_ERROR(RestoreGenerators(tensors, self.context, progress.step));
    self.fence = loaded->id.fence + 1;
    return std::optional<TrainingProgress>(progress);
  });
}

absl::Status Checkpointer::Save(const TrainingProgress& progress) {
  Implementation& self = *implementation_;
  self.context.Mark(ProgressPhase::kCheckpoint, progress.step);
  return worker::CatchExceptions([&]() -> absl::Status {
    const torch::Tensor generators =
        worker::GetGenerators(self.context.device()).to(self.context.device());
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> all,
                            self.context.AllGather(generators));
    if (!self.context.is_main()) return absl::OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(CheckpointTensors tensors,
                            worker::CollectTensors(*self.module, self.optimizer, progress));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      tensors[absl::StrCat("generators.", rank)] = all[rank];
    }
    std::vector<torch::Tensor> kept;
    DDPRUN_ASSIGN_OR_RETURN(TensorFile file, worker::ToTensorFile(tensors, kept));
    file.metadata = {{"format", "ddprun checkpoint 1"},
                     {"run_id", self.context.run_id()},
                     {"world_size", absl::StrCat(self.context.world_size())}};
    const CheckpointId id = {.fence = self.fence,
                             .generation = self.context.generation(),
                             .step = static_cast<uint64_t>(progress.step)};
    const std::string header = worker::EncodeTensorFileHeader(file);
    std::vector<absl::string_view> pieces = {header};
    for (const worker::TensorEntry& entry : file.tensors) pieces.push_back(entry.bytes);
    DDPRUN_RETURN_IF_ERROR(worker::MakeDirectories(self.options.directory));
    DDPRUN_RETURN_IF_ERROR(worker::WriteFileAtomically(
        absl::StrCat(self.options.directory, "/", worker::CheckpointName(id)), pieces));
    worker::PruneCheckpoints(self.options.directory, id, self.options.keep);
    return absl::OkStatus();
  });
}

}  // namespace ddprun
