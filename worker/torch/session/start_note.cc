#include "worker/torch/session/start_note.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/option_table.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/context/compare_texts.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"
#include "worker/torch/store/meeting.h"

namespace ddprun::worker {
namespace {

// Options that may differ between ranks: files, threads, output.
constexpr std::array kOfOneRank = {"data",        "num_workers",    "threads",
                                   "output_dir",  "checkpoint_dir", "keep_checkpoints",
                                   "resume_from", "weights_prefix", "weights_strict",
                                   "journal",     "log_level",      "step_delay_ms",
                                   "backend",     "config"};

std::string TensorFact(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  const torch::Tensor plain = tensor.detach().cpu().contiguous();
  const absl::string_view bytes(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  return absl::StrCat(torch::toString(plain.scalar_type()), " [",
                      absl::StrJoin(plain.sizes(), ", "), "] ",
                      absl::StrFormat("%016x", HashOf(bytes)));
}

// Describes a sample; "" = it can't be loaded.
std::string SampleFact(const Dataset& data, int64_t sample) {
  const absl::StatusOr<std::string> fact = CatchExceptions([&]() -> absl::StatusOr<std::string> {
    // torch::manual_seed() would reach the generators of GPUs, too.
    at::Generator own = at::detail::getDefaultCPUGenerator();
    {
      const std::lock_guard lock(own.mutex());
      own.set_current_seed(1);
    }
    const Batch batch = data.load({sample}, at::make_generator<at::CPUGeneratorImpl>(1));
    return absl::StrCat("sample ", sample, ": inputs ", TensorFact(batch.inputs), ", targets ",
                        TensorFact(batch.targets));
  });
  return fact.value_or("");
}

std::string KindFact(const OptimizerKind& kind) {
  return std::visit(
      [](const auto& one) {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, AdamW>) {
          return absl::StrCat("AdamW with betas ", one.betas.first, " and ", one.betas.second,
                              ", eps ", one.eps);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(one)>, AnyOptimizer>) {
          return one.name;
        } else {
          return absl::StrCat("SGD with momentum ", one.momentum, one.nesterov ? ", Nesterov" : "");
        }
      },
      kind);
}

}  // namespace

std::vector<std::string> OptionFacts(const TrainingOptions& options) {
  TrainingOptions shown = options;
  OptionTable table("");
  AddTrainingOptions(&shown, {.sync_batch_norm = true}, &table);
  std::vector<std::string> facts;
  for (const auto& [name, value] : table.Values()) {
    if (std::find(kOfOneRank.begin(), kOfOneRank.end(), name) != kOfOneRank.end()) continue;
    facts.push_back(absl::StrCat("--", name, " ", value.empty() ? "unset" : value));
  }
  facts.emplace_back(options.CheckpointDirectory().empty() ? "no checkpoints" : "checkpoints");
  return facts;
}

std::vector<std::string> SampleFacts(const Dataset& data) {
  std::vector<std::string> facts;
  const at::NoGradGuard no_grad;
  const torch::Tensor generators = GetGenerators(torch::kCPU);
  for (const int64_t sample : {int64_t{0}, data.size - 1}) {
    if (sample < 0 || sample >= data.size) continue;
    const std::string fact = SampleFact(data, sample);
    const bool is_known = !fact.empty() && fact == SampleFact(data, sample);
    facts.push_back(is_known ? fact : absl::StrCat("sample ", sample));
  }
  SetGenerators(torch::kCPU, generators).IgnoreError();  // the process' own state
  return facts;
}

std::vector<std::string> OptimizerFacts(const OptimizerKind& kind,
                                        const std::vector<ParameterGroup>& groups) {
  std::vector<std::string> facts = {KindFact(kind)};
  for (const ParameterGroup& group : groups) {
    facts.push_back(absl::StrCat(
        "a group of ", group.parameters.size(), " parameters, learning_rate_factor ",
        group.learning_rate_factor, ", weight_decay ",
        group.weight_decay.has_value() ? absl::StrCat(*group.weight_decay) : "the training's"));
  }
  return facts;
}

std::vector<std::string> ParameterNames(const torch::nn::Module& module,
                                        const torch::optim::Optimizer& optimizer) {
  std::map<const c10::TensorImpl*, std::string> names;
  for (const auto& [name, tensor] : ModuleTensors(module, /*prefix=*/"")) {
    names[tensor.unsafeGetTensorImpl()] = name;
  }
  std::vector<std::string> in_order;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      in_order.push_back(names[parameter.unsafeGetTensorImpl()]);
    }
  }
  return in_order;
}

uint64_t Fingerprint(const std::vector<std::string>& facts) {
  return HashOf(absl::StrJoin(facts, "\n"));
}

StartMeeting::StartMeeting(std::vector<StartNote> of_all) : notes(std::move(of_all)) {
  using Knows = StartNote::Knows;
  Knows most = Knows::kNothing;
  for (const StartNote& note : notes) {
    most = std::max(most, note.knows);
    newest_fence = std::max(newest_fence, note.fence);
  }
  others_have_state = most != Knows::kNothing;
  evaluation_is_done = most == Knows::kTraining;
}

TrainingFacts::TrainingFacts(const TrainingOptions& options, const Dataset& data,
                             const TrainedModel& trained)
    : training_(OptionFacts(options)) {
  training_.push_back(
      absl::StrCat(data.size, " ", data.samples_name, data.shuffle ? "" : ", not shuffled"));
  for (const SessionPart& part : trained.parts()) {
    if (!part.name.empty()) training_.push_back(absl::StrCat("module '", part.name, "'"));
    for (std::string& fact : OptimizerFacts(part.kind, part.groups)) {
      training_.push_back(std::move(fact));
    }
  }
  samples_ = SampleFacts(data);
}

void TrainingFacts::AddTo(StartNote& note) const {
  note.facts = Fingerprint(training_);
  note.samples = Fingerprint(samples_);
}

absl::Status TrainingFacts::Compare(Context& context, const StartMeeting& meeting) const {
  if (context.world_size() == 1) return absl::OkStatus();
  const std::vector<StartNote>& notes = meeting.notes;
  const auto differ = [&](uint64_t StartNote::*of) {
    return notes.empty() || std::any_of(notes.begin(), notes.end(), [&](const auto& note) {
             return note.*of != notes.front().*of;
           });
  };
  if (differ(&StartNote::facts)) {
    DDPRUN_RETURN_IF_ERROR(CompareTexts(context, training_, "the training",
                                        "start every rank with the same options and all of the "
                                        "data: a Session deals the samples out"));
  }
  // Reported once. The condition is the same on all ranks, also on new ones: otherwise some ranks
  // would wait in CompareTexts for others that don't call it.
  if (meeting.others_have_state || !differ(&StartNote::samples)) return absl::OkStatus();
  const absl::Status alike = CompareTexts(
      context, samples_, "what is learned from",
      "a Session deals the samples out: every rank needs all of them, in one order; where the "
      "program itself changes them at random, take the generator that `load` gets");
  if (!absl::IsInvalidArgument(alike)) return alike;
  if (context.is_main()) Notify(std::string(alike.message()));
  return absl::OkStatus();
}

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
