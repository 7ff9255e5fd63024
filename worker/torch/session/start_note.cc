#include "worker/torch/session/start_note.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"

namespace ddprun::worker {
namespace {

// A note is numbers of 64 bits in the host's byte order: {what it knows, fence, host, there is a
// version, step, epoch, epoch_samples, generation, bytes, nanoseconds of a step, facts, samples,
// session, marks}, then those of each record.
constexpr size_t kNumbers = 14;
// Ranks wait as long as needed for others that finish an earlier Session alone.
constexpr absl::Duration kLongest = absl::Hours(24 * 30);
// {generation, world_size, step, shard, bytes}.
constexpr size_t kRecordNumbers = 5;

}  // namespace

std::string EncodeStartNote(const StartNote& note) {
  const auto [progress, generation, marks] = note.offer.version.value_or(StateVersion{});
  std::vector<int64_t> numbers = {static_cast<int64_t>(note.knows),
                                  static_cast<int64_t>(note.fence),
                                  note.host,
                                  int64_t{note.offer.version.has_value()},
                                  progress.step,
                                  progress.epoch,
                                  progress.epoch_samples,
                                  static_cast<int64_t>(generation),
                                  note.offer.bytes,
                                  absl::ToInt64Nanoseconds(note.offer.step_time),
                                  static_cast<int64_t>(note.facts),
                                  static_cast<int64_t>(note.samples),
                                  static_cast<int64_t>(note.session),
                                  marks};
  for (const RecordKey& key : note.records) {
    numbers.insert(numbers.end(), {static_cast<int64_t>(key.generation), key.world_size, key.step,
                                   key.shard, key.bytes});
  }
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(numbers[0])};
}

std::optional<StartNote> DecodeStartNote(absl::string_view text) {
  std::vector<int64_t> numbers(text.size() / sizeof(int64_t));
  const size_t of_records = numbers.size() - kNumbers;
  if (text.size() % sizeof(int64_t) != 0 || numbers.size() < kNumbers ||
      of_records % kRecordNumbers != 0) {
    return std::nullopt;
  }
  std::memcpy(numbers.data(), text.data(), text.size());
  constexpr auto kMost = static_cast<int64_t>(StartNote::Knows::kTrainingBeforeItsEvaluation);
  if (numbers[0] < 0 || numbers[0] > kMost) return std::nullopt;
  StartNote note = {.knows = static_cast<StartNote::Knows>(numbers[0]),
                    .session = static_cast<uint64_t>(numbers[12]),
                    .fence = static_cast<uint64_t>(numbers[1]),
                    .facts = static_cast<uint64_t>(numbers[10]),
                    .samples = static_cast<uint64_t>(numbers[11]),
                    .host = static_cast<uint32_t>(numbers[2]),
                    .offer = {.version = std::nullopt,
                              .bytes = numbers[8],
                              .step_time = absl::Nanoseconds(numbers[9])},
                    .records = {}};
  if (numbers[3] != 0) {
    note.offer.version = StateVersion{
        .progress = {.step = numbers[4], .epoch = numbers[5], .epoch_samples = numbers[6]},
        .generation = static_cast<uint64_t>(numbers[7]),
        .marks = numbers[13]};
  }
  for (size_t i = kNumbers; i < numbers.size(); i += kRecordNumbers) {
    note.records.push_back({.generation = static_cast<uint64_t>(numbers[i]),
                            .world_size = static_cast<uint32_t>(numbers[i + 1]),
                            .step = numbers[i + 2],
                            .shard = static_cast<uint32_t>(numbers[i + 3]),
                            .bytes = numbers[i + 4]});
  }
  return note;
}

absl::StatusOr<std::vector<StartNote>> ExchangeStartNotes(Context& context, const StartNote& own) {
  if (context.world_size() == 1) return std::vector<StartNote>{own};
  return CatchExceptions([&]() -> absl::StatusOr<std::vector<StartNote>> {
    Context::Implementation& place = context.implementation();
    const uint64_t earlier = place.starts++;
    const std::string topic = earlier == 0 ? "start" : absl::StrCat("start/", earlier);
    std::vector<StartNote> notes;
    for (const std::string& word : GatherWords(
             *place.store, topic, context.rank(), context.world_size(), EncodeStartNote(own),
             earlier == 0 ? place.plan.collective_timeout : kLongest)) {
      std::optional<StartNote> note = DecodeStartNote(word);
      if (!note.has_value()) {
        return absl::UnavailableError(absl::StrCat(kPeerErrorPrefix, "rank ", notes.size(),
                                                   " runs another version of ddprun"));
      }
      notes.push_back(*std::move(note));
    }
    return notes;
  });
}

}  // namespace ddprun::worker
