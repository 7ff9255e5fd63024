#include "ddprun/training_options.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

// Far beyond what fits, and far below where products overflow.
constexpr int64_t kCountMax = 1'000'000'000;

void AddLength(TrainingOptions* options, OptionTable* table) {
  table->Group("How long");
  table->Integer("epochs", {1, kCountMax}, &options->epochs, "Times that every sample is seen.");
  table->Integer("steps", {0, kCountMax}, &options->steps,
                 "Optimizer steps, however many epochs these are; 0: --epochs decides.");
}

void AddBatch(TrainingOptions* options, OptionTable* table) {
  table->Group("Batch and learning rate");
  table->Integer("batch_size", {1, kCountMax}, &options->batch_size,
                 "Samples of each worker in one backward pass. A step learns from batch_size x "
                 "workers x gradient_accumulation_steps samples.");
  table->Integer("gradient_accumulation_steps", {1, kCountMax},
                 &options->gradient_accumulation_steps,
                 "Backward passes whose gradients are added up before a step; workers talk to each "
                 "other in the last one only.");
  table->Choice(
      "constant_batch", {"step", "worker"}, &options->constant_batch,
      "What stays when the number of workers changes: the samples of a step, in more or "
      "fewer passes of at most batch_size; or those of each worker, as with static_graph.");
  table->Real("learning_rate", {1e-12, 1e6}, &options->learning_rate,
              "The highest, for the batch_size of one worker.");
  table->Choice("lr_scaling", {"none", "linear", "sqrt"}, &options->lr_scaling,
                "How learning_rate grows with the samples of a step, beyond one batch_size. "
                "'linear' wants warmup_steps.");
  table->Choice("lr_schedule", {"constant", "linear", "cosine"}, &options->lr_schedule,
                "How it falls, after the warm-up, to a tenth at the end.");
  table->Integer("warmup_steps", {0, kCountMax}, &options->warmup_steps,
                 "Steps at the beginning in which it rises linearly.");
  table->Real("weight_decay", {0, 1e6}, &options->weight_decay, "Of AdamW.");
  table->Real("max_grad_norm", {0, 1e30}, &options->max_grad_norm,
              "Gradients whose norm is larger are scaled down to it; 0: never.");
  table->Real("ema_decay", {0, 0.999999}, &options->ema_decay,
              "Keeps an exponential moving average of the parameters, to which each step adds the "
              "new ones with a weight of 1 - ema_decay: 0.999, say. Evaluations use the average, "
              "and checkpoints have it beside the parameters; 0: there is none.");
}

void AddMemory(TrainingOptions* options, const UsedOptions& used, OptionTable* table) {
  table->Group("Precision and memory");
  table->Choice("mixed_precision", {"no", "fp16", "bf16"}, &options->mixed_precision,
                "Type of products and convolutions; parameters stay float32. fp16 scales the "
                "loss.");
  if (used.gradient_checkpointing) {
    table->Switch(
        "gradient_checkpointing", &options->gradient_checkpointing,
        "Computes activations a second time in the backward pass instead of keeping them.");
  }
  table->Choice("zero_stage", {"0", "1", "2", "3"}, &options->zero_stage,
                "What is kept once over all workers instead of once in each: 0 nothing, 1 the "
                "optimizer's state, 2 the gradients too, 3 the parameters too.");
}

void AddWorkers(TrainingOptions* options, const UsedOptions& used, OptionTable* table) {
  table->Group("Workers together");
  table->Choice("backend", {"auto", "shm", "hierarchical", "gloo", "nccl"}, &options->backend,
                "What carries gradients; 'auto' takes the fastest that all workers have, and says "
                "why.");
  table->Real("bucket_cap_mb", {0, 1e6}, &options->bucket_cap_mb,
              "Size of a gradient bucket in MiB; 0: 25, the first one 1.");
  table->Switch("find_unused_parameters", &options->find_unused_parameters,
                "Some parameters get no gradient in some steps; costs a walk over the graph.");
  table->Switch("gradient_as_bucket_view", &options->gradient_as_bucket_view,
                "Gradients lie in the buckets instead of being copied there.");
  table->Switch("static_graph", &options->static_graph,
                "The same parameters are used in every step.");
  table->Switch("broadcast_buffers", &options->broadcast_buffers,
                "Rank 0's buffers, such as batch norm's statistics, go to all after each step.");
  table->Choice("comm_hook", {"none", "allreduce", "fp16", "bf16", "power_sgd"},
                &options->comm_hook,
                "How gradients travel: as they are, in half the bytes, or as thin matrices.");
  table->Switch("in_process_restart", &options->in_process_restart,
                "Workers go on in their process when another one fails, or nodes come and go; new "
                "ones get the state from them. By default so on CPUs; with a zero_stage only where "
                "checkpoints are kept, from which they go on. --no_in_process_restart: if ddprun's "
                "--max_restarts allows it, all are started anew, and resume from a checkpoint.");
  table->Choice("healing", {"auto", "beside", "before"}, &options->healing,
                "With in_process_restart: how a new worker gets the state from the others. All "
                "wait before their next step, which comes to the same bits as without a fault; or "
                "they send it beside that step, in which they learn from its samples, too; 'auto': "
                "whichever takes less time. With a zero_stage, before it.");
  table->Integer("replicas", {0, 1000}, &options->replicas,
                 "With --in_process_restart and a zero_stage: other workers, on other nodes first, "
                 "that keep a copy of what one has alone. So many may be lost at once, and their "
                 "state isn't; beyond that, and with 0, all go on from a checkpoint.");
  table->Integer("replicate_every", {1, kCountMax}, &options->replicate_every,
                 "Steps from one copy to the next; at most so many are lost, and the broken one.");
  if (used.sync_batch_norm) {
    table->Switch("sync_batch_norm", &options->sync_batch_norm,
                  "Batch norm over the batches of all workers together.");
  }
}

void AddFiles(TrainingOptions* options, OptionTable* table) {
  table->Group("What is kept");
  table->Text("output_dir", "DIR", &options->output_dir,
              "Where results go; checkpoints to DIR/checkpoints. By default nothing is kept.");
  table->Text("checkpoint_dir", "DIR", &options->checkpoint_dir,
              "Checkpoints go there instead. A job that is started again, by you or after a fault, "
              "goes on from the newest one.");
  table->Integer("checkpoint_every", {0, kCountMax}, &options->checkpoint_every,
                 "Steps between two checkpoints; 0: the steps don't matter. They are written while "
                 "training goes on.");
  table->Real("checkpoint_minutes", {0, 1e6}, &options->checkpoint_minutes,
              "Minutes between two checkpoints, beside those of --checkpoint_every; 0: the time "
              "doesn't matter.");
  table->Integer("evaluate_every", {0, kCountMax}, &options->evaluate_every,
                 "Steps between two evaluations; 0: after each epoch. There is always one at the "
                 "end.");
  table->Integer("keep_checkpoints", {1, 1'000'000}, &options->keep_checkpoints,
                 "So many of the newest stay, and beside them the best by the evaluation, where a "
                 "program says what is better.");
  table->Text("resume_from", "WHAT", &options->resume_from,
              "What to begin with where the own directory has no checkpoint yet: a directory with "
              "those of another run, one of its files, or DIR/best, the best of them by its "
              "evaluation; or weights (safetensors, or of torch.save), with which training begins "
              "at step 0. 'latest': the own ones, and an error where there is none.");
  table->Text("weights_prefix", "TEXT", &options->weights_prefix,
              "Of --resume_from's weights: what is before the names of the module's tensors in the "
              "file; 'model.' for those of a checkpoint.");
  table->Switch("weights_strict", &options->weights_strict,
                "Of --resume_from's weights: tensors that only file or module have are an error.");
  table->Choice(
      "checkpoint_errors", {"stop", "warn"}, &options->checkpoint_errors,
      "What follows when a checkpoint can't be written, as on a full disk: training stops, "
      "or a warning says so and it goes on.");
  table->Text("journal", "FILE", &options->journal,
              "Rank 0 appends a JSON line for each step: t (CLOCK_MONOTONIC), generation, rank, "
              "world, step, loss, pid.");
  table->Choice("log_level", {"debug", "info", "warning", "error"}, &options->log_level,
                "The least that ddprun's runtime logs on stderr; by default LOGLEVEL's, else "
                "warning.");
}

}  // namespace

void AddTrainingOptions(TrainingOptions* options, const UsedOptions& used, OptionTable* table) {
  table->Group("Data");
  if (!used.data.empty()) table->Text("data", "FILE", &options->data, used.data);
  table->Integer("num_workers", {0, 256}, &options->num_workers,
                 "Threads of each worker that load batches ahead; 0: each batch is loaded when it "
                 "is needed. Results don't depend on it.");
  AddLength(options, table);
  AddBatch(options, table);
  AddMemory(options, used, table);
  AddWorkers(options, used, table);
  AddFiles(options, table);
  table->Group("Other");
  table->Integer("seed", {0, std::numeric_limits<int64_t>::max()}, &options->seed,
                 "Of weights, order and random changes of samples.");
  table->Integer("threads", {1, 4096}, &options->threads, "LibTorch's, of each worker.");
  table->Integer("step_delay_ms", {0, kCountMax}, &options->step_delay_ms,
                 "Pause after each step, to watch it.");
}

absl::Status CheckTrainingOptions(const TrainingOptions& options) {
  TrainingOptions copy = options;
  OptionTable table("");
  AddTrainingOptions(&copy, {}, &table);
  DDPRUN_RETURN_IF_ERROR(table.CheckDefaults());
  if (options.static_graph && options.gradient_accumulation_steps > 1) {
    return absl::InvalidArgumentError(
        "static_graph and gradient_accumulation_steps above 1 exclude each other: LibTorch looks "
        "at "
        "the graph in a first pass that averages, and the accumulating ones don't; give one of "
        "them");
  }
  if (options.resume_from == "latest" && options.CheckpointDirectory().empty()) {
    return absl::InvalidArgumentError(
        "resume_from latest goes on from the own checkpoints, and there is no directory for any; "
        "give output_dir or checkpoint_dir");
  }
  if (options.zero_stage >= "2" && options.comm_hook != "none") {
    return absl::InvalidArgumentError(absl::StrCat(
        "zero_stage ", options.zero_stage, " averages gradients itself, so comm_hook ",
        options.comm_hook, " would have no effect; give zero_stage 1 or comm_hook none"));
  }
  if (options.zero_stage == "3" && options.find_unused_parameters) {
    return absl::InvalidArgumentError(
        "zero_stage 3 needs all ranks to use the same parameters in the same order, so it excludes "
        "find_unused_parameters; give zero_stage 2");
  }
  if (options.in_process_restart.value_or(false) && options.zero_stage != "0" &&
      options.comm_hook == "power_sgd") {
    return absl::InvalidArgumentError(
        "with a zero_stage, in_process_restart goes back to an earlier step from copies, and there "
        "are none of what comm_hook power_sgd carries from step to step; leave one of them out");
  }
  return absl::OkStatus();
}

std::string TrainingOptions::CheckpointDirectory() const {
  if (!checkpoint_dir.empty() || output_dir.empty()) return checkpoint_dir;
  return absl::StrCat(output_dir, "/checkpoints");
}

}  // namespace ddprun
