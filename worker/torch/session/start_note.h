#ifndef DDPRUN_WORKER_TORCH_SESSION_START_NOTE_H_
#define DDPRUN_WORKER_TORCH_SESSION_START_NOTE_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddprun/context.h"
#include "ddprun/dataset.h"
#include "ddprun/optimizer_kind.h"
#include "ddprun/training_options.h"
#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/checkpoint/replica_plan.h"
#include "worker/torch/session/trained_model.h"

// What must be the same on all ranks of a training, beside the module (store/model_check.h), as
// texts for people. If one differed, ranks would train different things unnoticed: in another order
// of the samples, with another learning rate, to another end.
namespace ddprun::worker {

// The options, except those that concern one worker alone: files, threads, output.
std::vector<std::string> OptionFacts(const TrainingOptions& options);

// The first and the last sample with a hash of their bytes. A difference proves nothing, because a
// program may draw from random generators of its own. Loads each sample twice, with torch's
// generator seeded alike on all ranks, and restores the generator. A sample that isn't the same
// twice on this rank, or can't be loaded, has no hash.
std::vector<std::string> SampleFacts(const Dataset& data);

std::vector<std::string> OptimizerFacts(const OptimizerKind& kind,
                                        const std::vector<ParameterGroup>& groups);

// The names of the optimizer's parameters in `module`, in the order in which a checkpoint numbers
// their states; "" = not one of the module's.
std::vector<std::string> ParameterNames(const torch::nn::Module& module,
                                        const torch::optim::Optimizer& optimizer);

// A hash of the facts.
uint64_t Fingerprint(const std::vector<std::string>& facts);

// What a rank reports to the others at the beginning of a generation in which some ranks go on: all
// in one exchange, over the store, because survivors pause until their first collectives are done.
//
// Gloo takes 13 to 17 ms on two cores to pass one number around its ring, and the ten small
// collectives of a generation's beginning were most of a survivor's pause. With notes and Gloo's
// addresses in single calls, 57 calls of the store became 7. The price: all notes go to all ranks
// through one agent, some 100 bytes for each pair.
struct StartNote {
  enum class Knows : uint8_t { kNothing, kTraining, kTrainingBeforeItsEvaluation };

  Knows knows = Knows::kNothing;
  uint64_t session = 1;            // the number of the Session in its process, from 1
  uint64_t fence = 0;              // of the rank's checkpoints
  uint64_t facts = 0;              // Fingerprint() of what must be the same on all ranks
  uint64_t samples = 0;            // Fingerprint() of what should be the same
  uint32_t host = 0;               // the number of the rank's agent
  StateOffer offer;                // the rank's replicated state
  std::vector<RecordKey> records;  // the copies of shares that the rank keeps
};

// Exchanges the notes of all ranks; a collective. Returns them by rank. Errors: UNAVAILABLE,
// "PeerError: …" — a peer is gone.
absl::StatusOr<std::vector<StartNote>> ExchangeStartNotes(Context& context, const StartNote& own);

// The ranks' notes at the beginning of a generation, and what they say together; the same on all
// ranks.
struct StartMeeting {
  std::vector<StartNote> notes;  // by rank; empty: there was no exchange
  // Whether ranks have a state, and whether all of these have done the evaluation that follows it.
  bool others_have_state = false;
  bool evaluation_is_done = false;
  uint64_t newest_fence = 0;  // the highest of all ranks' checkpoints

  StartMeeting() = default;
  explicit StartMeeting(std::vector<StartNote> of_all);  // pure
};

// What this rank trains, as texts for people, to compare with the other ranks. Threads: one.
class TrainingFacts {
 public:
  TrainingFacts() = default;
  TrainingFacts(const TrainingOptions& options, const Dataset& data, const TrainedModel& trained);

  // The facts' fingerprints in this rank's note.
  void AddTo(StartNote& note) const;
  // A collective. Prints what should be the same. Errors: INVALID_ARGUMENT, on every rank — a rank
  // trains something else.
  absl::Status Compare(Context& context, const StartMeeting& meeting) const;

 private:
  std::vector<std::string> training_;  // must be the same on all ranks
  std::vector<std::string> samples_;   // should be the same
};

// A note as bytes. Pure.
std::string EncodeStartNote(const StartNote& note);
std::optional<StartNote> DecodeStartNote(absl::string_view text);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_START_NOTE_H_
