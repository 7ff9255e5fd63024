#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_TRAINING_OPTIONS_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_TRAINING_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "ddprun/option_table.h"

namespace ddprun {

// The options of every training over a Session. A program sets defaults of its own before the
// options are read.
struct TrainingOptions {
  std::string data = {};    // path
  int64_t num_workers = 0;  // threads that load batches ahead; 0 = the training thread loads

  int64_t epochs = 1;
  int64_t steps = 0;        // in place of epochs; 0 = epochs decide
  int64_t batch_size = 32;  // of each worker and each backward pass
  int64_t gradient_accumulation_steps = 1;
  // What stays constant when the number of workers changes: "step", the samples of a step, in as
  // many backward passes as that takes; or "worker", each worker's samples of a step.
  //
  // "step" keeps steps per epoch, learning rate and gradient noise, so that the final loss doesn't
  // depend on which nodes failed when. A larger job does its steps faster instead of making them
  // larger.
  std::string constant_batch = "step";

  double learning_rate = 1e-3;
  std::string lr_scaling = "none";  // ParseLearningRateScaling's words
  std::string lr_schedule = "linear";
  int64_t warmup_steps = 0;
  double weight_decay = 0;
  double max_grad_norm = 0;    // 0 = no clipping
  int64_t evaluate_every = 0;  // steps; 0 = after each epoch
  double ema_decay = 0;        // of an average of the parameters, which is evaluated then; 0 = none

  std::string mixed_precision = "no";
  bool gradient_checkpointing = false;
  std::string zero_stage = "0";

  double bucket_cap_mb = 0;  // 0 = LibTorch's choice
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;
  bool static_graph = false;
  bool broadcast_buffers = true;
  std::string comm_hook = "none";
  bool sync_batch_norm = false;
  std::string backend = "auto";

  // Survivors of a fault keep their process. Unset: they do so on CPUs; with a zero_stage only if
  // checkpoints are kept, from which they then resume, because copies of shares take time and
  // memory.
  std::optional<bool> in_process_restart = {};
  // When a new worker then gets the state of the others: "before" their next step; "beside" it, in
  // which they also learn from its samples, so that the result has other bits than that of an
  // undisturbed run; "auto": whichever delays the others less.
  std::string healing = "before";
  // With in_process_restart set and a zero_stage: copies of each worker's share.
  int64_t replicas = 1;
  int64_t replicate_every = 1;  // steps
  int64_t seed = 1;
  int64_t threads = 1;  // LibTorch's, of each worker

  std::string output_dir = {};      // "" = none
  std::string checkpoint_dir = {};  // "" = output_dir/checkpoints, none without output_dir
  int64_t checkpoint_every = 20;    // steps; 0 = not by steps
  double checkpoint_minutes = 0;    // 0 = not by time
  int64_t keep_checkpoints = 3;     // the newest, beside the best
  // "latest" = this run's newest checkpoint, if any; else another run's directory of checkpoints,
  // or a checkpoint in it, "DIRECTORY/best", or weights that Python wrote; "" = none
  std::string resume_from = {};
  // For weights that Python wrote: the fields of LoadWeightsOptions.
  std::string weights_prefix = {};
  bool weights_strict = true;
  // If a checkpoint can't be written, as on a full disk: "stop" training, or "warn" and train on.
  std::string checkpoint_errors = "stop";
  std::string journal = {};    // "" = none
  std::string log_level = {};  // "" = LOGLEVEL's
  int64_t step_delay_ms = 0;   // slows training down, to watch it

  // Where checkpoints go; "" = nowhere.
  std::string CheckpointDirectory() const;
};

// Options that only some programs use; the others don't have them.
struct UsedOptions {
  std::string data = "";                // what --data is; "" = the program reads no such file
  bool gradient_checkpointing = false;  // the model can use CheckpointActivations
  bool sync_batch_norm = false;         // the model can use nn::SyncBatchNorm
};

// Adds a row to `table` for each option.
void AddTrainingOptions(TrainingOptions* options, const UsedOptions& used, OptionTable* table);

// Checks that all options are in their ranges (the command line ensures that, a program may not)
// and fit together. Errors: INVALID_ARGUMENT, naming the options.
absl::Status CheckTrainingOptions(const TrainingOptions& options);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_TRAINING_OPTIONS_H_
