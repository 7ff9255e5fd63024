#include <map>
#include <set>
#include <vector>

#include "base/version.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/journal/journal.h"
#include "tests/server/rendezvous_fixture.h"

// What a service does for agents that keep the protocol.
namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;
using Message = v1::ServiceMessage;

class AttendTest : public RendezvousFixture {};

TEST_F(AttendTest, AJobFromJoinToVerdict) {
  bool ended = false;
  Serve({.only_run_id = "job7",
         .on_only_job_ended = [&ended](const auto& /*how*/) { ended = true; }});
  const AgentMessage join = SampleJoin("job7", "a");
  auto agent = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*agent));
  EXPECT_TRUE(agent->open());
  const v1::Welcome& welcome = agent->received().at(0).welcome();
  EXPECT_EQ(welcome.term(), server_->term().value());
  EXPECT_EQ(welcome.release(), kVersion);
  EXPECT_EQ(welcome.lease_ms(), 5000U);
  EXPECT_EQ(agent->Last(&Message::has_assignment)->assignment().world_size(), 1U);
  EXPECT_EQ(Status("job7").jobs(0).phase(), "running");

  agent->Send(EventOf(join, 1, 1, WorkersStarted{}));
  agent->Send(EventOf(join, 1, 2, GroupSucceeded{}));
  ASSERT_TRUE(Until([&] { return agent->Last(&Message::has_verdict) != nullptr; }));
  EXPECT_EQ(agent->Last(&Message::has_verdict)->verdict().outcome(), v1::OUTCOME_SUCCEEDED);
  EXPECT_FALSE(ended) << "the agent's side is still open";
  agent->HalfClose();
  ASSERT_TRUE(UntilDone(*agent));
  EXPECT_TRUE(agent->status().ok()) << agent->status();
  ASSERT_TRUE(Until([&ended] { return ended; }));
  EXPECT_EQ(Status().jobs_size(), 0);
  EXPECT_THAT(server_->refusals(), ::testing::IsEmpty());
}

TEST_F(AttendTest, TheOnlyJobMayEndItsService) {
  Serve({.only_run_id = "job7",
         .on_only_job_ended = [this](const auto& /*how*/) { server_.reset(); }});
  const AgentMessage join = SampleJoin("job7", "a");
  auto agent = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*agent));
  agent->Send(EventOf(join, 1, 1, GroupSucceeded{}));
  agent->HalfClose();
  ASSERT_TRUE(Until([this] { return server_ == nullptr; }));
  ASSERT_TRUE(UntilDone(*agent));
  EXPECT_TRUE(agent->status().ok()) << agent->status();
}

// An agent that never closes its side holds nobody up for long.
TEST_F(AttendTest, AnEndedJobIsForgottenInTheEnd) {
  bool ended = false;
  Serve({.only_run_id = "job7",
         .on_only_job_ended = [&ended](const auto& /*how*/) { ended = true; }});
  const AgentMessage join = SampleJoin("job7", "a");
  auto agent = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*agent));
  agent->Send(EventOf(join, 1, 1, GroupSucceeded{}));
  const Instant begin = loop_->Now();
  ASSERT_TRUE(Until([&ended] { return ended; }));
  EXPECT_LT(loop_->Now() - begin, absl::Seconds(4) * Slow());
  ASSERT_TRUE(UntilDone(*agent));
  EXPECT_TRUE(agent->status().ok()) << agent->status();
}

TEST_F(AttendTest, ManyJobsAreToldApart) {
  Serve();
  auto first = JoinAs(SampleJoin("job-a", "n"));
  auto second = JoinAs(SampleJoin("job-b", "n", 2));
  ASSERT_TRUE(UntilAssigned(*first));
  ASSERT_TRUE(Until([&] { return second->Last(&Message::has_standby) != nullptr; }));
  const v1::GetStatusReply all = Status();
  ASSERT_EQ(all.jobs_size(), 2);
  EXPECT_EQ(all.jobs(0).run_id(), "job-a");
  EXPECT_EQ(all.jobs(0).phase(), "running");
  EXPECT_EQ(all.jobs(1).phase(), "forming");
  EXPECT_EQ(all.term(), server_->term().value());
  EXPECT_EQ(Status("job-b").jobs_size(), 1);
  Status("job-c");
  EXPECT_EQ(status_call_.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status_call_.error_message(), HasSubstr("holds 2: 'job-a', 'job-b'"));
}

TEST_F(AttendTest, TwoHundredNodesGetTheRanksOfOneWorld) {
  constexpr uint32_t kNodes = 200;
  Serve();
  std::vector<std::unique_ptr<RawStream>> agents;
  for (uint32_t i = 0; i < kNodes; ++i) {
    AgentMessage join = SampleJoin("job7", absl::StrCat("n", i), kNodes);
    join.incarnation = Incarnation(1000 + i);
    agents.push_back(JoinAs(join));
  }
  std::set<uint32_t> ranks;
  for (const auto& agent : agents) {
    ASSERT_TRUE(UntilAssigned(*agent));
    ranks.insert(agent->Last(&Message::has_assignment)->assignment().base_rank());
  }
  EXPECT_EQ(ranks.size(), kNodes);
  EXPECT_EQ(*ranks.rbegin(), kNodes - 1);
  EXPECT_EQ(Status().jobs(0).nodes_size(), static_cast<int>(kNodes));
}

TEST_F(AttendTest, ANewerStreamTakesOver) {
  Serve();
  AgentMessage join = SampleJoin("job7", "a");
  auto old_stream = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*old_stream));
  join.stream = StreamNumber(2);
  join.term = server_->term();
  join.generation = Generation(1);
  std::get<Join>(join.body).group_state = GroupState::kRunning;
  auto new_stream = JoinAs(join);
  ASSERT_TRUE(UntilDone(*old_stream));
  EXPECT_TRUE(absl::IsAborted(old_stream->status())) << old_stream->status();
  ASSERT_TRUE(Until([&] { return new_stream->Last(&Message::has_welcome) != nullptr; }));
  EXPECT_EQ(Status().jobs(0).phase(), "running");
  EXPECT_FALSE(new_stream->done());
}

TEST_F(AttendTest, ACutStreamIsALostNodeAfterItsGrace) {
  Serve();
  AgentMessage first = SampleJoin("job7", "a", 2);
  AgentMessage second = SampleJoin("job7", "b", 2);
  second.incarnation = Incarnation(8);
  auto a = JoinAs(first);
  auto b = JoinAs(second);
  ASSERT_TRUE(UntilAssigned(*a));
  const Instant cut = loop_->Now();
  b->Cancel();
  ASSERT_TRUE(Until([&] { return a->Last(&Message::has_stop_workers) != nullptr; }));
  EXPECT_GE(loop_->Now() - cut, absl::Milliseconds(149));  // reconnect_grace
  EXPECT_LT(loop_->Now() - cut, absl::Milliseconds(1000) * Slow());
  EXPECT_THAT(a->Last(&Message::has_stop_workers)->stop_workers().reason(),
              HasSubstr("was lost (stream closed)"));  // which the lease would say otherwise
}

// Answers at once, or (slow) when the test says so.
class SlowJournal final : public Journal {
 public:
  bool keeps() const override { return true; }
  void Write(const std::string& run_id, JobRecord record,
             std::function<void(absl::Status)> done) override {
    records[run_id] = std::move(record);
    answer = std::move(done);
    if (!slow) std::exchange(answer, nullptr)(absl::OkStatus());
  }
  void Forget(const std::string& run_id) override { records.erase(run_id); }
  void Retract(const std::string& run_id, std::function<void(absl::Status)> done) override {
    if (unbreakable.ok()) records.erase(run_id);
    retracted = [this, done = std::move(done)] { done(unbreakable); };
    if (!retracts_late) std::exchange(retracted, nullptr)();
  }
  std::string where() const override { return "a test"; }

  bool slow = false;
  bool retracts_late = false;  // when the test says so
  absl::Status unbreakable;    // why records can't be retracted
  std::function<void()> retracted;
  std::map<std::string, JobRecord> records;
  std::function<void(absl::Status)> answer;
};

class JournalTest : public AttendTest {
 protected:
  // Two nodes join; the second one makes the service form the first generation, and write its
  // record.
  void JoinBoth() {
    Serve({.journal = journal_, .on_record_stale = [this](const std::string& why) {
             stale_ = why;
             told_before_ = first_->Last(&Message::has_assignment) != nullptr;
           }});
    AgentMessage join = SampleJoin("job7", "a", 2);
    first_ = JoinAs(join);
    ASSERT_TRUE(Until([&] { return first_->Last(&Message::has_welcome) != nullptr; }));
    journal_->slow = true;
    join.node_id = NodeId("b");
    join.incarnation = Incarnation(8);
    second_ = JoinAs(join);
    ASSERT_TRUE(Until([&] { return journal_->answer != nullptr; }));
  }
  void Answer(const absl::Status& status) {
    journal_->slow = false;
    std::exchange(journal_->answer, nullptr)(status);
  }

  const std::shared_ptr<SlowJournal> journal_ = std::make_shared<SlowJournal>();
  std::string stale_;
  bool told_before_ = false;  // an assignment, before that
  std::unique_ptr<RawStream> first_;
  std::unique_ptr<RawStream> second_;
};

TEST_F(JournalTest, NobodyHearsOfAGenerationBeforeItIsRecorded) {
  JoinBoth();
  EXPECT_EQ(journal_->records["job7"].generation, Generation(1));
  Status();  // a round trip more: what could be on its way has arrived
  EXPECT_EQ(first_->Last(&Message::has_assignment), nullptr);
  Answer(absl::OkStatus());
  ASSERT_TRUE(UntilAssigned(*first_));
}

// Otherwise a disk that is slower than the lease would lose every node.
TEST_F(JournalTest, NodesAreWelcomedAndProbedWhileItWrites) {
  JoinBoth();
  ASSERT_TRUE(Until([&] { return first_->Last(&Message::has_probe) != nullptr; }));
  ASSERT_TRUE(Until([&] { return second_->Last(&Message::has_welcome) != nullptr; }));
  EXPECT_EQ(second_->Last(&Message::has_assignment), nullptr);
  Answer(absl::OkStatus());
  ASSERT_TRUE(UntilAssigned(*second_));
}

TEST_F(JournalTest, AJobGoesOnWithoutItAndSaysSo) {
  JoinBoth();
  Answer(absl::DataLossError("disk full"));
  ASSERT_TRUE(UntilAssigned(*first_));
  EXPECT_TRUE(journal_->records.empty());  // what it holds is of the past
  EXPECT_EQ(stale_, "");
  EXPECT_THAT(Status().jobs(0).record_lost(), HasSubstr("disk full"));
}

// Otherwise a service that dies in between would be followed by one that believes the old record.
TEST_F(JournalTest, NobodyHearsOfAGenerationBeforeTheOldRecordIsGone) {
  JoinBoth();
  journal_->retracts_late = true;
  Answer(absl::DataLossError("disk full"));
  ASSERT_TRUE(Until([&] { return first_->Last(&Message::has_probe) != nullptr; }));
  EXPECT_EQ(first_->Last(&Message::has_assignment), nullptr);
  std::exchange(journal_->retracted, nullptr)();
  ASSERT_TRUE(UntilAssigned(*first_));
}

TEST_F(JournalTest, ThatItStaysIsToldBeforeAnythingElse) {
  JoinBoth();
  journal_->unbreakable = absl::DataLossError("it can't be removed");
  Answer(absl::DataLossError("disk full"));
  ASSERT_TRUE(UntilAssigned(*first_));
  EXPECT_EQ(stale_, "what is kept of job job7 is of the past: it can't be removed");
  EXPECT_FALSE(told_before_);
}

TEST_F(JournalTest, ItMayAnswerALostJob) {
  JoinBoth();
  server_->Shutdown();
  Answer(absl::OkStatus());  // must not touch what is gone
}

// The same agents, the same generation; and nobody else is let in to what was.
TEST_F(JournalTest, AnotherServiceGoesOnWithTheJob) {
  JoinBoth();
  Answer(absl::OkStatus());
  ASSERT_TRUE(UntilAssigned(*second_));
  const uint64_t term = second_->Last(&Message::has_welcome)->welcome().term();
  server_->Shutdown();
  first_.reset();
  second_.reset();
  JobRecord record = journal_->records.at("job7");
  record.life = 1;
  Serve({.journal = journal_, .kept = {{.run_id = "job7", .record = record, .elapsed = {}}}});
  EXPECT_EQ(Status().jobs(0).phase(), "recovering");
  AgentMessage join = SampleJoin("job7", "a", 2);
  join.term = Term(term);
  join.stream = StreamNumber(2);
  join.generation = Generation(1);
  std::get<Join>(join.body).group_state = GroupState::kRunning;
  first_ = JoinAs(join);
  ASSERT_TRUE(Until([&] { return first_->Last(&Message::has_welcome) != nullptr; }));
  EXPECT_EQ(first_->Last(&Message::has_welcome)->welcome().term(), term);
  join.node_id = NodeId("b");
  join.incarnation = Incarnation(8);
  second_ = JoinAs(join);
  ASSERT_TRUE(Until([&] { return Status().jobs(0).phase() == "running"; }));
  EXPECT_EQ(Status().jobs(0).generation(), 1U);
  EXPECT_EQ(Status().jobs(0).recoveries(), 1U);
  EXPECT_EQ(first_->Last(&Message::has_assignment), nullptr);
  EXPECT_EQ(first_->Last(&Message::has_stop_workers), nullptr);
}

TEST_F(AttendTest, FactsGoToTheEventLog) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/facts.", getpid());
  events_ = *EventLog::Open(path, "service");
  Serve();
  auto agent = JoinAs(SampleJoin("job7", "a"));
  ASSERT_TRUE(UntilAssigned(*agent));
  std::string text;
  FILE* file = fopen(path.c_str(), "r");
  char line[4096];
  while (fgets(line, sizeof(line), file) != nullptr) text += line;
  fclose(file);
  unlink(path.c_str());
  EXPECT_THAT(text, HasSubstr("\"event\":\"service_listening\""));
  EXPECT_THAT(text, HasSubstr("\"event\":\"generation\""));
  EXPECT_THAT(text, HasSubstr("\"run_id\":\"job7\""));
}

}  // namespace
}  // namespace ddprun::rendezvous
