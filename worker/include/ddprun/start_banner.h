#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_START_BANNER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_START_BANNER_H_

#include <cstdint>
#include <string>

namespace ddprun {

class Context;

// Describes a run for people who read its log. Counts that are 0 are unknown and left out.
struct RunFacts {
  std::string program = {};    // "char_gpt"
  std::string precision = {};  // "fp32"
  int64_t batch_size = 1;      // samples of one rank in one backward pass
  int64_t gradient_accumulation_steps = 1;
  // Samples of one step, if they don't depend on the number of processes; 0 = batch_size *
  // gradient_accumulation_steps * processes.
  int64_t global_batch = 0;
  int64_t dataset_samples = 0;
  // 0 = as StepsPerEpoch; a Session has one more if the last step of an epoch has fewer samples.
  int64_t steps_per_epoch = 0;
  int64_t epochs = 0;
  int64_t total_steps = 0;  // 0 = those of all epochs
  int64_t parameters = 0;   // numbers that are trained
  // From the context, by PrintStartBanner.
  std::string backend = {};
  std::string devices = {};
  int64_t processes = 1;
  int64_t restart_count = 0;
};

// Samples of all ranks in one optimizer step.
int64_t GlobalBatch(int64_t batch_size, int64_t gradient_accumulation_steps, int64_t processes);

// The number of optimizer steps of one epoch that get a whole global batch: the rest is left out,
// as with DataLoader(drop_last=True). 29,500 samples at batch 4 on 1, 2, 4 and 8 processes: 7375,
// 3687, 1843 and 921. Requires: global_batch > 0.
int64_t StepsPerEpoch(int64_t dataset_samples, int64_t global_batch);

// Lines "  name: value", the last one ended.
std::string StartBanner(const RunFacts& facts);

// Rank 0 prints the banner, with the context's facts, to standard error. Others do nothing.
void PrintStartBanner(Context& context, RunFacts facts);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_START_BANNER_H_
