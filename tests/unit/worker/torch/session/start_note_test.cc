#include "worker/torch/session/start_note.h"

#include <gtest/gtest.h>

#include <limits>

namespace ddprun::worker {
namespace {

StartNote Full() {
  return {.knows = StartNote::Knows::kTrainingBeforeItsEvaluation,
          .fence = 7,
          .host = 3,
          .offer = {.version = StateVersion{.progress = {.step = 5, .epoch = 2, .epoch_samples = 9},
                                            .generation = 4},
                    .bytes = int64_t{1} << 40,
                    .step_time = absl::Milliseconds(12)},
          .records = {{.generation = 4, .world_size = 6, .step = 5, .shard = 1, .bytes = 100},
                      {.generation = 4, .world_size = 6, .step = 4, .shard = 0, .bytes = 99}}};
}

TEST(StartNoteTest, ArrivesAsItWasSent) {
  const StartNote note = Full();
  const std::optional<StartNote> read = DecodeStartNote(EncodeStartNote(note));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->knows, note.knows);
  EXPECT_EQ(read->fence, note.fence);
  EXPECT_EQ(read->host, note.host);
  EXPECT_EQ(read->offer.version, note.offer.version);
  EXPECT_EQ(read->offer.bytes, note.offer.bytes);
  EXPECT_EQ(read->offer.step_time, note.offer.step_time);
  EXPECT_EQ(read->records, note.records);
}

TEST(StartNoteTest, ANewWorkerHasNothingToSay) {
  const std::optional<StartNote> read = DecodeStartNote(EncodeStartNote({}));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->knows, StartNote::Knows::kNothing);
  EXPECT_FALSE(read->offer.version.has_value());
  EXPECT_TRUE(read->records.empty());
}

TEST(StartNoteTest, OtherBytesAreRefused) {
  const std::string text = EncodeStartNote(Full());
  for (size_t size = 0; size < text.size(); ++size) {
    const bool ends_with_a_record = size == text.size() - 40 || size == text.size() - 80;
    EXPECT_EQ(DecodeStartNote(text.substr(0, size)).has_value(), ends_with_a_record) << size;
  }
  std::string unknown = text;
  unknown[0] = 3;
  EXPECT_FALSE(DecodeStartNote(unknown).has_value());
}

TEST(StartMeetingTest, OfNewWorkersKnowsNothing) {
  const StartMeeting meeting(std::vector<StartNote>(2));
  EXPECT_FALSE(meeting.others_have_state);
  EXPECT_FALSE(meeting.evaluation_is_done);
  EXPECT_EQ(meeting.newest_fence, 0U);
}

TEST(StartMeetingTest, AnEvaluationIsDoneOnceNoRankIsBeforeIt) {
  std::vector<StartNote> notes = {{.fence = 7}, {.knows = StartNote::Knows::kTraining}};
  StartMeeting meeting(notes);
  EXPECT_TRUE(meeting.others_have_state);
  EXPECT_TRUE(meeting.evaluation_is_done);
  EXPECT_EQ(meeting.newest_fence, 7U);
  notes.push_back({.knows = StartNote::Knows::kTrainingBeforeItsEvaluation, .fence = 5});
  meeting = StartMeeting(notes);
  EXPECT_TRUE(meeting.others_have_state);
  EXPECT_FALSE(meeting.evaluation_is_done);
  EXPECT_EQ(meeting.newest_fence, 7U);
  EXPECT_EQ(meeting.notes.size(), 3U);
}

TEST(TrainingFactsTest, FingerprintsChangeWithWhatIsTrained) {
  TrainingOptions options;
  Dataset data = {.size = 4, .load = [](const auto& samples, const auto& /*generator*/) {
                    return Batch{.inputs = torch::tensor(samples)};
                  }};
  const TrainedModel trained(options);
  StartNote note;
  TrainingFacts(options, data, trained).AddTo(note);
  StartNote same;
  TrainingFacts(options, data, trained).AddTo(same);
  EXPECT_EQ(same.facts, note.facts);
  EXPECT_EQ(same.samples, note.samples);
  data.load = [](const auto& samples, const auto& /*generator*/) {
    return Batch{.inputs = torch::tensor(samples) + 1};
  };
  StartNote other;
  TrainingFacts(options, data, trained).AddTo(other);
  EXPECT_EQ(other.facts, note.facts);
  EXPECT_NE(other.samples, note.samples);
  data.shuffle = false;
  TrainingFacts(options, data, trained).AddTo(other);
  EXPECT_NE(other.facts, note.facts);
}

}  // namespace
}  // namespace ddprun::worker
