#ifndef DDPRUN_WORKER_TORCH_SESSION_START_NOTE_H_
#define DDPRUN_WORKER_TORCH_SESSION_START_NOTE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddprun/context.h"
#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/checkpoint/replica_plan.h"

namespace ddprun::worker {

// What ranks tell each other at the beginning of a generation in which some go on: all of it at
// once, and over the store, since a survivors' first collectives are what their pause is made of.
//
// Gloo takes 13 to 17 ms on two cores to pass one number around its ring, and the ten small
// collectives of a generation's beginning were most of a survivor's pause. With notes and Gloo's
// addresses in single calls, 57 calls of the store became 7. The price: all notes go to all ranks
// through one agent, some 100 bytes for each pair.
struct StartNote {
  enum class Knows : uint8_t { kNothing, kTraining, kTrainingBeforeItsEvaluation };

  Knows knows = Knows::kNothing;
  uint64_t session = 1;            // which one of its process, from 1
  uint64_t fence = 0;              // of its checkpoints
  uint64_t facts = 0;              // Fingerprint() of what all must have alike
  uint64_t samples = 0;            // and should
  uint32_t host = 0;               // its agent's number
  StateOffer offer;                // of a state that is everybody's
  std::vector<RecordKey> records;  // that it keeps of shares
};

// By rank, each time that all call it. Errors: UNAVAILABLE, "PeerError: …" — a peer is gone.
absl::StatusOr<std::vector<StartNote>> ExchangeStartNotes(Context& context, const StartNote& own);

// As they travel. Pure.
std::string EncodeStartNote(const StartNote& note);
std::optional<StartNote> DecodeStartNote(absl::string_view text);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_START_NOTE_H_
