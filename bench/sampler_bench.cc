// What finding a place in an epoch's order costs, and a step of 256 samples. --check holds the
// promise of docs/TESTING.md: a place of 10^12 within a microsecond.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>

#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"
#include "ddprun/elastic_sampler.h"

namespace ddprun {
namespace {

constexpr uint64_t kTrillion = 1'000'000'000'000;
constexpr absl::Duration kPromise = absl::Microseconds(1);

ElasticSampler Sampler(uint64_t size, uint64_t batch) {
  return ElasticSampler::Create(size, {.seed = 1, .global_batch = batch}, 0, 1).value();
}

// What a restart does: from a state to the first sample.
int64_t Seek(ElasticSampler& sampler, uint64_t place) {
  SamplerState state = sampler.state();
  state.epoch = place % 5;
  state.consumed = place;
  DDPRUN_CHECK(sampler.Restore(state).ok(), "a state that doesn't fit");
  return sampler.Deal().indices[0];
}

// Places that are far from each other.
uint64_t Next(uint64_t place, uint64_t size) {
  return (place * 6364136223846793005 + 1442695040888963407) % size;
}

void BM_Seek(benchmark::State& state) {
  const auto size = static_cast<uint64_t>(state.range(0));
  ElasticSampler sampler = Sampler(size, 1);
  uint64_t place = 0;
  for (auto _ : state) {
    place = Next(place, size);
    benchmark::DoNotOptimize(Seek(sampler, place));
  }
}
BENCHMARK(BM_Seek)->Arg(1'000)->Arg(1'000'000)->Arg(1'000'000'000)->Arg(kTrillion);

void BM_Step(benchmark::State& state) {
  ElasticSampler sampler = Sampler(static_cast<uint64_t>(state.range(0)), 256);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.Deal());
  state.SetItemsProcessed(state.iterations() * 256);
}
BENCHMARK(BM_Step)->Arg(1'000)->Arg(1'000'000)->Arg(kTrillion);

// The best of some rounds: other work only makes one longer.
absl::Duration SeekTime() {
  constexpr int kRounds = 20;
  constexpr int kSeeks = 20'000;
  ElasticSampler sampler = Sampler(kTrillion, 1);
  absl::Duration best = absl::InfiniteDuration();
  uint64_t place = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Instant began = MonotonicNow();
    for (int seek = 0; seek < kSeeks; ++seek) {
      place = Next(place, kTrillion);
      benchmark::DoNotOptimize(Seek(sampler, place));
    }
    best = std::min(best, (MonotonicNow() - began) / kSeeks);
  }
  return best;
}

int Check() {
  const absl::Duration seek = SeekTime();
  std::cout << "a place of 10^12 samples: " << absl::ToDoubleNanoseconds(seek) << " ns, promised "
            << absl::ToDoubleNanoseconds(kPromise) << "\n";
  return seek <= kPromise ? 0 : 1;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--check") return ddprun::Check();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
