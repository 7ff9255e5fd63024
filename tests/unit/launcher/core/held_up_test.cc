// An agent that was held up (stopped, its machine paused) judges no bound before it has read what
// came meanwhile: the clock alone, and an agent with its keeper, workers and service on a simulated
// machine, from seeds. tests/fuzz/mutants.toml has bugs that this notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "launcher/core/attentive_clock.h"
#include "tests/unit/launcher/core/supervisor_bench.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;
using ::testing::HasSubstr;
using ::testing::Not;

Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

TEST(AttentiveClock, GoesWithTheTime) {
  AttentiveClock clock{Time(10)};
  EXPECT_EQ(clock.Wake(Time(10.5)), Time(10.5));
  EXPECT_EQ(clock.Read(Time(10.5), Time(10.5)), Time(10.5));
  EXPECT_EQ(clock.Wake(Time(99)), Time(11.5)) << "a tick: what is lost between two calls may count";
  EXPECT_TRUE(clock.Wake(Instant::Infinite()).is_infinite());
  EXPECT_EQ(clock.Read(Time(11.6), Time(11.5)), Time(11.6)) << "a busy machine";
  EXPECT_EQ(clock.TakeStall(), absl::ZeroDuration());
}

TEST(AttentiveClock, StandsBeforeWhatWasDueWhenItWasHeldUp) {
  AttentiveClock clock{Time(10)};
  const Instant due = Time(10.5);
  EXPECT_LT(clock.Read(Time(18), clock.Wake(due)), due);
  EXPECT_EQ(clock.TakeStall(), absl::Seconds(7.5));
  EXPECT_EQ(clock.TakeStall(), absl::ZeroDuration()) << "once";
  EXPECT_LT(clock.Read(Time(18.9), Time(19)), due) << "there is time to hear";
  EXPECT_GE(clock.Wake(due), Time(19));
  EXPECT_GE(clock.Read(Time(19.001), clock.Wake(due)), due);
  EXPECT_EQ(clock.Wake(Time(11)), Time(19.5) + absl::Nanoseconds(1));
}

TEST(AttentiveClock, NeverGoesBack) {
  Rng random(7);
  AttentiveClock clock{Time(0)};
  Instant now = Time(0);
  Instant last = Time(0);
  for (int i = 0; i < 10'000; ++i) {
    const Instant asked = clock.Wake(last + absl::Milliseconds(random.Below(3000)));
    now = std::max(now, asked) + absl::Milliseconds(random.Chance(10) ? random.Below(5000) : 0);
    const Instant time = clock.Read(now, asked);
    ASSERT_GE(time, last);
    last = time;
  }
}

// Where each call comes late, bounds are met all the same.
TEST(AttentiveClock, AMachineThatIsAlwaysLateMakesItSlowerOnly) {
  AttentiveClock clock{Time(0)};
  const Instant bound = Time(5);
  Instant now = Time(0);
  Instant time = Time(0);
  for (int i = 0; i < 100 && time < bound; ++i) {
    const Instant asked = clock.Wake(bound);
    now = std::max(now, asked) + absl::Milliseconds(400);
    time = clock.Read(now, asked);
  }
  EXPECT_GE(time, bound);
  EXPECT_LT(now, Time(30));
}

TEST(HeldUp, AKeeperIsNotAccusedOfWhatNobodyRead) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Feed(WorkerStarted{Generation(1), 0, 100});
  bench.FeedMessage(rendezvous::StopWorkers{Generation(1), "rank 0 failed"});
  WorkerEnd end{{.signal = SIGTERM}, bench.now_};
  bench.HoldUp(absl::Seconds(8));
  bench.Feed(TimerFired{});
  bench.Feed(WorkerEnded{Generation(1), end});
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  bench.Feed(TimerFired{});
  bench.Advance(absl::Milliseconds(100));
  bench.Empty(1);
  ASSERT_TRUE(bench.Sent<rendezvous::GroupStopped>().has_value());
  EXPECT_TRUE(bench.Sent<rendezvous::GroupStopped>()->clean);
  EXPECT_THAT(bench.told_, Not(HasSubstr("uninterruptible")));
}

TEST(HeldUp, TwinAKeeperThatSaysNothingIsFoundOut) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.End(1, 0, 1);
  bench.HoldUp(absl::Seconds(8));
  bench.Advance(absl::Seconds(7));
  EXPECT_THAT(bench.told_, HasSubstr("uninterruptible"));
}

TEST(HeldUp, ItsOwnTimeIsNotExtended) {
  SupervisorConfig config = Bench::Config(1);
  config.preemption.after = absl::Seconds(60);
  config.preemption.deadline = absl::Seconds(20);
  Bench bench(config);
  bench.Join();
  bench.Assign(1);
  bench.Feed(WorkerStarted{Generation(1), 0, 100});
  bench.HoldUp(absl::Seconds(41));
  bench.Feed(TimerFired{});
  EXPECT_THAT(bench.told_, HasSubstr("its time is over"));
}

// ------------------------------------------------------------- a machine, from seeds

// One agent with two workers and their keeper, which are stopped for one generation after the
// other; the agent, or all of the machine, is held up now and then.
class Machine {
 public:
  Machine(uint64_t seed, bool keeper_answers)
      : random_(seed), keeper_answers_(keeper_answers), supervisor_(Config(), Time(0)) {
    for (int i = 0; i < 3; ++i) AddHold();
    Arrive(Time(0), EndpointFound{.node_address = "10.0.0.1"});
    Arrive(Time(0), StreamOpened{});
    Say(Time(0), rendezvous::Welcome{
                     .term = rendezvous::Term(9), .release = "x", .lease = absl::Seconds(5)});
    for (int second = 0; second < kSeconds; ++second) Say(Time(second), rendezvous::Probe{1});
    Assign(Time(0.1), 1);
  }

  void Run() {
    while (true) {
      const Instant arrival =
          arrivals_.empty() ? Instant::Infinite() : Served(arrivals_.begin()->first);
      const Instant timer = Served(supervisor_.NextDeadline());
      const Instant next = std::min(arrival, timer);
      if (next >= Time(kSeconds)) return;
      now_ = std::max(now_, next);
      // libuv serves timers first, but what woke it may be read before.
      if (timer < arrival || (timer == arrival && Below(2) == 0)) {
        Step(TimerFired{});
      } else {
        const auto event = arrivals_.extract(arrivals_.begin());
        Step(event.mapped());
      }
    }
  }

  std::string told;
  std::vector<std::string> records;
  int stopped = 0;  // generations that ended clean
  int killed = 0;   // generations with workers that were killed
  bool exited = false;
  absl::Duration held_up;  // altogether

 private:
  static constexpr int kSeconds = 120;
  struct Hold {
    Instant begin;
    Instant end;
    bool machine = false;  // keeper and workers, too
  };

  static SupervisorConfig Config() {
    SupervisorConfig config = Bench::Config(2);
    config.job.max_restarts = 1000;
    config.job.stop_grace = absl::Seconds(4);
    return config;
  }

  uint64_t Below(uint64_t bound) { return random_.Below(bound); }
  absl::Duration UpTo(absl::Duration most) {
    return most * static_cast<double>(Below(1000)) / 1000;
  }

  void AddHold() {
    const Instant begin = Time(0) + UpTo(absl::Seconds(80));
    const absl::Duration length = absl::Milliseconds(300) + UpTo(absl::Seconds(15));
    holds_.push_back({begin, begin + length, Below(2) == 0});
    held_up += length;
  }

  // When the agent can serve what is due at `at`.
  Instant Served(Instant at) const {
    for (size_t i = 0; i < holds_.size(); ++i) {  // they may overlap
      for (const Hold& hold : holds_) {
        if (hold.begin <= at && at < hold.end) at = hold.end;
      }
    }
    return at;
  }

  // When what takes so long beside the agent is done.
  Instant Done(Instant from, absl::Duration took) const {
    Instant at = from;
    for (absl::Duration left = took; left > absl::ZeroDuration();) {
      const absl::Duration step = std::min(left, absl::Milliseconds(5));
      at = at + step;
      left -= step;
      for (const Hold& hold : holds_) {
        if (hold.machine && hold.begin <= at && at < hold.end) at = hold.end;
      }
    }
    return at;
  }

  void Arrive(Instant at, SupervisorEvent event) { arrivals_.emplace(at, std::move(event)); }
  void Say(Instant at, rendezvous::ServiceMessage message) {
    Arrive(at, ServiceMessageReceived{std::move(message)});
  }

  void Assign(Instant at, uint64_t generation) {
    rendezvous::Assignment assignment;
    assignment.generation = Generation(generation);
    assignment.world_size = 2;
    assignment.group_world_size = 1;
    Say(at, assignment);
    // Half of the time the agent is stopped just when the stop comes.
    const Instant stop = at + absl::Seconds(1) + UpTo(absl::Seconds(9));
    if (holds_.size() < 6 && Below(2) == 0) {
      const absl::Duration length = absl::Milliseconds(300) + UpTo(absl::Seconds(15));
      holds_.push_back({stop + UpTo(absl::Milliseconds(40)), stop + absl::Milliseconds(40) + length,
                        Below(2) == 0});
      held_up += length;
    }
    Say(stop, rendezvous::StopWorkers{Generation(generation), "a rank failed"});
  }

  void Step(const SupervisorEvent& event) {
    for (const SupervisorEffect& effect : supervisor_.Step(now_, event)) {
      if (const auto* tell = std::get_if<NotifyUser>(&effect))
        absl::StrAppend(&told, tell->text, "\n");
      if (const auto* record = std::get_if<Record>(&effect)) records.push_back(record->event);
      if (std::holds_alternative<Exit>(effect)) exited = true;
      if (const auto* spawn = std::get_if<SpawnGroup>(&effect)) Spawn(spawn->assignment.generation);
      if (const auto* sent = std::get_if<SignalGroup>(&effect)) EndWorkers(sent->generation);
      if (const auto* sweep = std::get_if<SweepGroup>(&effect)) Sweep(sweep->generation);
      if (const auto* send = std::get_if<SendMessage>(&effect)) OnSent(send->message);
    }
    EXPECT_EQ(supervisor_.BrokenInvariant(), "");
  }

  void Spawn(Generation generation) {
    live_ = 2;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      Arrive(Done(now_, UpTo(absl::Milliseconds(50))), WorkerStarted{generation, rank, 100 + rank});
    }
  }

  // Workers save for up to 3 s, and have 4.
  void EndWorkers(Generation generation) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const Instant seen = Done(now_, absl::Milliseconds(1) + UpTo(absl::Seconds(3)));
      WorkerEnd end{{.local_rank = rank, .pid = 100 + rank, .exit_code = 0}, seen};
      Arrive(seen, WorkerEnded{generation, end});
      ended_at_ = std::max(ended_at_, seen);
    }
  }

  void Sweep(Generation generation) {
    if (now_ < ended_at_) ++killed;
    if (!keeper_answers_) return;
    Arrive(Done(now_, absl::Milliseconds(5) + UpTo(absl::Milliseconds(100))),
           GroupEmpty{generation, 4242});
  }

  void OnSent(const rendezvous::AgentMessage& message) {
    const auto* done = std::get_if<rendezvous::GroupStopped>(&message.body);
    if (done == nullptr || !done->clean) return;
    ++stopped;
    Assign(now_ + absl::Milliseconds(50), message.generation.value() + 1);
  }

  Rng random_;
  const bool keeper_answers_;
  std::vector<Hold> holds_;
  Supervisor supervisor_;
  Instant now_;
  std::multimap<Instant, SupervisorEvent> arrivals_;
  int live_ = 0;
  Instant ended_at_;
};

TEST(HeldUpMachine, NobodyIsAccusedOfItsOwnStandstill) {
  int stopped = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Machine machine(seed, /*keeper_answers=*/true);
    machine.Run();
    ASSERT_THAT(machine.told, Not(HasSubstr("uninterruptible")));
    ASSERT_THAT(machine.records, Not(::testing::Contains("service_lost")));
    ASSERT_EQ(machine.killed, 0) << "workers that would have ended in time";
    ASSERT_FALSE(machine.exited);
    stopped += machine.stopped;
  }
  EXPECT_GT(stopped, 1000) << "each has some ten";
}

TEST(HeldUpMachine, TwinWhatNeverAnswersIsFoundOut) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Machine machine(seed, /*keeper_answers=*/false);
    machine.Run();
    ASSERT_THAT(machine.told, HasSubstr("uninterruptible"));
  }
}

}  // namespace
}  // namespace ddprun::launcher
