#include "worker/torch/checkpoint/checkpoint_exchange.h"

#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/tensor_file.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

// A rank's report of what it found on its disk; sent as numbers.
struct Offer {
  CheckpointId id;
  bool whole = false;    // a checkpoint was loaded
  bool damaged = false;  // there are only damaged ones
  int64_t bytes = 0;

  auto Key() const { return std::tie(whole, id, bytes); }
};

// A file is sent in pieces of this size.
constexpr int64_t kPieceBytes = int64_t{64} << 20;
constexpr int64_t kDamaged = -1;  // instead of a shard's size
// The longest write of a shard. Not kNoTimeout, which a TCPStore that waits for an answer takes for
// no time at all.
constexpr std::chrono::hours kLongestWrite(24);

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
  offer.bytes = numbers[5];
  return offer;
}

absl::StatusOr<std::vector<Offer>> ExchangeOffers(Context& context, const Offer& own) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> tensors,
                          context.AllGather(ToTensor(own, context.device())));
  std::vector<Offer> offers;
  offers.reserve(tensors.size());
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

// Sends `source`'s file to all ranks. `own`: the file on `source`, null elsewhere.
absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> BroadcastFile(
    Context& context, uint32_t source, int64_t size, std::unique_ptr<LoadedCheckpoint> own) {
  const bool sends = context.rank() == source;
  const auto all = std::make_shared<torch::Tensor>(torch::empty({sends ? 0 : size}, torch::kByte));
  for (int64_t begin = 0; begin < size; begin += kPieceBytes) {
    const int64_t length = std::min(kPieceBytes, size - begin);
    torch::Tensor piece =
        sends ? torch::empty({length}, torch::kByte) : all->narrow(0, begin, length);
    if (sends) {
      std::memcpy(piece.mutable_data_ptr(), own->bytes.data() + begin, piece.nbytes());
    }
    torch::Tensor travelling = piece.to(context.device());
    DDPRUN_RETURN_IF_ERROR(context.Broadcast(travelling, source));
    if (!sends) piece.copy_(travelling);
  }
  if (sends) return own;
  auto taken = std::make_unique<LoadedCheckpoint>();
  taken->bytes = {static_cast<const char*>(all->const_data_ptr()), all->nbytes()};
  taken->owner = all;
  DDPRUN_ASSIGN_OR_RETURN(taken->file, DecodeTensorFile(taken->bytes));
  DDPRUN_ASSIGN_OR_RETURN(taken->manifest, ReadManifest(taken->file));
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

// Loads what this rank's disk has. An unreadable directory counts as damaged, because another rank
// may be able to read its own. Ranks of a node see the same disk, so only one of them `says` it.
NewestCheckpoint LoadOwn(const std::string& directory, const CheckpointRange& range, bool says) {
  absl::StatusOr<NewestCheckpoint> newest = LoadNewestCheckpoint(directory, range);
  NewestCheckpoint own;
  if (newest.ok()) {
    own = *std::move(newest);
  } else {
    own.damaged.push_back(absl::DataLossError(newest.status().message()));
  }
  for (const absl::Status& status : own.damaged) {
    Log(says ? LogLevel::kWarning : LogLevel::kInfo,
        absl::StrCat(status.ToString(), "; trying the one before it"));
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

// Exchanges a row of numbers of each rank; returns them by rank.
absl::StatusOr<std::vector<torch::Tensor>> GatherNumbers(Context& context,
                                                         const std::vector<int64_t>& own) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<torch::Tensor> all,
                          context.AllGather(torch::tensor(own).to(context.device())));
  for (torch::Tensor& row : all) row = row.cpu();
  return all;
}

// Null, with a warning, when it is damaged or gone.
std::unique_ptr<LoadedCheckpoint> LoadShard(const std::string& directory, const std::string& name) {
  absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> loaded = LoadCheckpointFile(directory, name);
  if (loaded.ok()) return *std::move(loaded);
  Log(LogLevel::kWarning,
      absl::StrCat("shard '", directory, "/", name, "': ", loaded.status().message()));
  return nullptr;
}

// The names in the directory, none when it can't be read.
std::vector<std::string> NamesIn(const std::string& directory) {
  return ListDirectory(directory).value_or(std::vector<std::string>{});
}

// Returns true if every rank found its own shard whole, needs no other, and took it.
absl::StatusOr<bool> TakeOwnShard(
    Context& context, const std::string& directory, const std::string& name,
    const std::function<bool(const CheckpointTensors&)>& suffices,
    const std::function<void(uint32_t, const CheckpointTensors&)>& take) {
  const std::vector<std::string> names = NamesIn(directory);
  std::unique_ptr<LoadedCheckpoint> own;
  if (std::count(names.begin(), names.end(), name) > 0) own = LoadShard(directory, name);
  const bool enough = own != nullptr && suffices(FromTensorFile(own->file, own->owner));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> all, GatherNumber(context, enough ? 1 : 0));
  const bool everywhere = std::count(all.begin(), all.end(), 0) == 0;
  if (everywhere) take(context.rank(), FromTensorFile(own->file, own->owner));
  return everywhere;
}

// The lowest rank that has each shard; -1 where none has.
absl::StatusOr<std::vector<int64_t>> FindShards(Context& context, const std::string& directory,
                                                const std::vector<std::string>& shards) {
  const std::vector<std::string> names = NamesIn(directory);
  std::vector<int64_t> own;
  own.reserve(shards.size());
  for (const std::string& name : shards) {
    own.push_back(std::count(names.begin(), names.end(), name));
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> all, GatherNumbers(context, own));
  std::vector<int64_t> sources(shards.size(), -1);
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    for (size_t rank = all.size(); rank-- > 0;) {
      if (all[rank].const_data_ptr<int64_t>()[shard] > 0) {
        sources[shard] = static_cast<int64_t>(rank);
      }
    }
  }
  return sources;
}

// A checkpoint as numbers: its id, whether it has a score, the score's bits, how many shards it
// has, and their checksums.
void AppendNumbers(const FoundCheckpoint& one, std::vector<int64_t>& numbers) {
  const auto add = [&](uint64_t number) { numbers.push_back(static_cast<int64_t>(number)); };
  for (const uint64_t part : {one.id.fence, one.id.generation, one.id.step}) add(part);
  const std::optional<double>& score = one.manifest.score;
  add(score.has_value() ? 1 : 0);
  add(std::bit_cast<uint64_t>(score.value_or(0)));
  add(one.manifest.shards.size());
  for (const uint32_t checksum : one.manifest.shards) add(checksum);
}

// Takes one from where `next` points, which then points behind it.
FoundCheckpoint TakeNumbers(const int64_t*& next) {
  const auto take = [&] { return static_cast<uint64_t>(*next++); };
  FoundCheckpoint one;
  one.id.fence = take();
  one.id.generation = take();
  one.id.step = take();
  const bool has_score = take() != 0;
  const auto score = std::bit_cast<double>(take());
  if (has_score) one.manifest.score = score;
  one.manifest.shards.resize(take());
  for (uint32_t& checksum : one.manifest.shards) checksum = static_cast<uint32_t>(take());
  return one;
}

// Sends rank 0's list to all ranks.
absl::Status ShareFound(Context& context, std::vector<FoundCheckpoint>& found) {
  std::vector<int64_t> numbers;
  for (const FoundCheckpoint& one : found) AppendNumbers(one, numbers);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                          GatherNumber(context, static_cast<int64_t>(numbers.size())));
  numbers.resize(static_cast<size_t>(sizes[0]));
  found.clear();
  if (numbers.empty()) return absl::OkStatus();
  torch::Tensor table = torch::tensor(numbers).to(context.device());
  DDPRUN_RETURN_IF_ERROR(context.Broadcast(table, 0));
  table = table.cpu();
  const int64_t* next = table.const_data_ptr<int64_t>();
  const int64_t* const end = next + numbers.size();
  while (next < end) found.push_back(TakeNumbers(next));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> AgreeOnNewest(Context& context,
                                                                const std::string& directory,
                                                                const CheckpointRange& range) {
  NewestCheckpoint own = LoadOwn(directory, range, context.local_rank() == 0);
  const Offer own_offer = MakeOffer(own);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Offer> offers, ExchangeOffers(context, own_offer));
  const uint32_t source = ChooseSource(offers);
  const Offer& best = offers[source];
  if (!best.whole) {
    const bool damaged =
        std::any_of(offers.begin(), offers.end(), [](const Offer& o) { return o.damaged; });
    if (damaged) return NoneIsWhole(own, directory);
    return std::unique_ptr<LoadedCheckpoint>();
  }
  const bool all_have_it = std::all_of(offers.begin(), offers.end(),
                                       [&](const Offer& o) { return o.Key() == best.Key(); });
  if (all_have_it) return std::move(own.loaded);
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCheckpoint> loaded,
                          BroadcastFile(context, source, best.bytes, std::move(own.loaded)));
  loaded->id = best.id;
  return loaded;
}

absl::StatusOr<bool> TakeShards(
    Context& context, const std::string& directory, const FoundCheckpoint& checkpoint,
    const std::function<bool(const CheckpointTensors& tensors)>& suffices,
    const std::function<void(uint32_t shard, const CheckpointTensors& tensors)>& take) {
  const auto shards = static_cast<uint32_t>(checkpoint.manifest.shards.size());
  std::vector<std::string> names;
  for (uint32_t shard = 0; shard < shards; ++shard) {
    names.push_back(ShardName(checkpoint.id, shard, shards, checkpoint.manifest.shards[shard]));
  }
  if (shards == context.world_size()) {
    DDPRUN_ASSIGN_OR_RETURN(
        const bool taken, TakeOwnShard(context, directory, names[context.rank()], suffices, take));
    if (taken) return true;
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> sources,
                          FindShards(context, directory, names));
  for (uint32_t shard = 0; shard < shards; ++shard) {
    const std::string& name = names[shard];
    if (sources[shard] < 0) {
      Log(LogLevel::kWarning, absl::StrCat("no rank has the shard '", name, "' in '", directory,
                                           "'; trying the checkpoint before it"));
      return false;
    }
    const auto source = static_cast<uint32_t>(sources[shard]);
    std::unique_ptr<LoadedCheckpoint> own;
    if (context.rank() == source) own = LoadShard(directory, name);
    const int64_t size = own != nullptr ? static_cast<int64_t>(own->bytes.size()) : kDamaged;
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, GatherNumber(context, size));
    const int64_t bytes = sizes[source];
    if (bytes == kDamaged) return false;
    DDPRUN_ASSIGN_OR_RETURN(own, BroadcastFile(context, source, bytes, std::move(own)));
    take(shard, FromTensorFile(own->file, own->owner));
  }
  return true;
}

absl::StatusOr<std::vector<int64_t>> GatherNumber(Context& context, int64_t own) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> all, GatherNumbers(context, {own}));
  std::vector<int64_t> numbers;
  numbers.reserve(all.size());
  for (const torch::Tensor& one : all) numbers.push_back(one.item<int64_t>());
  return numbers;
}

absl::StatusOr<std::vector<FoundCheckpoint>> AgreeOnWhole(Context& context,
                                                          const std::string& directory,
                                                          const CheckpointId& newest) {
  std::vector<FoundCheckpoint> found;
  if (context.is_main()) found = FindCheckpoints(directory, newest);
  DDPRUN_RETURN_IF_ERROR(ShareFound(context, found));
  // One number for each shard: how many ranks see it.
  std::vector<int64_t> own;
  for (const FoundCheckpoint& one : found) {
    for (uint32_t shard = 0; shard < one.manifest.shards.size(); ++shard) {
      const bool looks = shard % context.world_size() == context.rank();
      own.push_back(looks && HasShard(directory, one, shard) ? 1 : 0);
    }
  }
  if (!own.empty()) {
    torch::Tensor seen = torch::tensor(own).to(context.device());
    DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(seen));
    seen = seen.cpu();
    std::copy_n(seen.const_data_ptr<int64_t>(), own.size(), own.begin());
  }
  std::vector<FoundCheckpoint> whole;
  auto next = own.begin();
  for (const FoundCheckpoint& one : found) {
    const auto end = next + static_cast<int64_t>(one.manifest.shards.size());
    if (std::count(next, end, 0) == 0) whole.push_back(one);
    next = end;
  }
  return whole;
}

namespace {

// Sends `rank`'s text, of `length` bytes, to all ranks.
absl::StatusOr<std::string> BroadcastWords(Context& context, const std::string& own, int64_t length,
                                           uint32_t rank) {
  torch::Tensor text = torch::zeros({length}, torch::kByte);
  if (rank == context.rank()) std::memcpy(text.mutable_data_ptr(), own.data(), text.nbytes());
  text = text.to(context.device());
  DDPRUN_RETURN_IF_ERROR(context.Broadcast(text, rank));
  text = text.cpu();
  return std::string(static_cast<const char*>(text.const_data_ptr()), text.nbytes());
}

}  // namespace

absl::Status OutcomeOfMain(Context& context, const absl::Status& of_main) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> codes,
                          GatherNumber(context, of_main.raw_code()));
  if (codes[0] == 0) return absl::OkStatus();
  std::string words(of_main.message());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths,
                          GatherNumber(context, static_cast<int64_t>(words.size())));
  DDPRUN_ASSIGN_OR_RETURN(words, BroadcastWords(context, words, lengths[0], 0));
  return {static_cast<absl::StatusCode>(codes[0]), words};
}

absl::Status AgreeOnSuccess(Context& context, const absl::Status& mine, absl::string_view what) {
  const std::string words(mine.message());
  // 0 = done; else 1 + the length of the error text.
  const auto own = static_cast<int64_t>(mine.ok() ? 0 : words.size() + 1);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> all, GatherNumber(context, own));
  const auto failed =
      std::find_if(all.begin(), all.end(), [](int64_t length) { return length != 0; });
  if (failed == all.end()) return absl::OkStatus();
  const auto rank = static_cast<uint32_t>(failed - all.begin());
  DDPRUN_ASSIGN_OR_RETURN(const std::string text,
                          BroadcastWords(context, words, *failed - 1, rank));
  if (!mine.ok()) return mine;
  return absl::AbortedError(
      absl::StrCat(kPeerErrorPrefix, "rank ", rank, " could not ", what, ": ", text));
}

std::vector<uint32_t> ShareChecksums(c10d::Store& store, uint64_t number, uint32_t rank,
                                     uint32_t world_size, const absl::StatusOr<uint32_t>& own) {
  const auto key = [&](uint32_t of_rank) {
    return absl::StrCat("ddprun/checkpoint/", number, "/", of_rank);
  };
  store.set(key(rank), own.ok() ? absl::StrCat(*own) : "failed");
  if (rank != 0) return {};
  std::vector<uint32_t> checksums(world_size);
  bool all_written = true;
  store.setTimeout(kLongestWrite);
  for (uint32_t from = 0; from < world_size; ++from) {
    all_written = absl::SimpleAtoi(store.get_to_str(key(from)), &checksums[from]) && all_written;
    store.deleteKey(key(from));
  }
  return all_written ? checksums : std::vector<uint32_t>();
}

}  // namespace ddprun::worker
