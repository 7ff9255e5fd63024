#include "ddprun/start_banner.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ddprun {
namespace {

// 29500 → "29,500".
std::string Grouped(int64_t number) {
  std::string text = absl::StrCat(number);
  const size_t sign = number < 0 ? 1 : 0;
  for (size_t place = text.size(); place > sign + 3;) {
    place -= 3;
    text.insert(place, 1, ',');
  }
  return text;
}

void AddLine(std::string& text, absl::string_view name, absl::string_view value) {
  if (!value.empty()) absl::StrAppend(&text, "  ", name, ": ", value, "\n");
}

int64_t BatchOf(const RunFacts& facts) {
  return facts.global_batch > 0
             ? facts.global_batch
             : GlobalBatch(facts.batch_size, facts.gradient_accumulation_steps, facts.processes);
}

std::string BatchText(const RunFacts& facts) {
  const int64_t batch = BatchOf(facts);
  const int64_t of_options =
      GlobalBatch(facts.batch_size, facts.gradient_accumulation_steps, facts.processes);
  if (batch != of_options) {
    return absl::StrCat(Grouped(batch), " (as before, on ", facts.processes,
                        facts.processes == 1 ? " process" : " processes", ", at most ",
                        facts.batch_size, " in a pass)");
  }
  return absl::StrCat(Grouped(batch), " (", facts.batch_size, " a process × ", facts.processes,
                      facts.gradient_accumulation_steps > 1
                          ? absl::StrCat(" × ", facts.gradient_accumulation_steps, " accumulated")
                          : "",
                      ")");
}

}  // namespace

int64_t GlobalBatch(int64_t batch_size, int64_t gradient_accumulation_steps, int64_t processes) {
  return batch_size * gradient_accumulation_steps * processes;
}

int64_t StepsPerEpoch(int64_t dataset_samples, int64_t global_batch) {
  return dataset_samples / global_batch;
}

std::string StartBanner(const RunFacts& facts) {
  const int64_t batch = BatchOf(facts);
  int64_t per_epoch = facts.steps_per_epoch;
  if (per_epoch == 0 && batch > 0) per_epoch = StepsPerEpoch(facts.dataset_samples, batch);
  const int64_t steps = facts.total_steps > 0 ? facts.total_steps : per_epoch * facts.epochs;
  const auto count = [](int64_t number) { return number > 0 ? Grouped(number) : ""; };
  std::string text = facts.program.empty() ? "training\n" : facts.program + "\n";
  AddLine(text, "processes", Grouped(facts.processes));
  AddLine(text, "devices", facts.devices);
  AddLine(text, "backend", facts.backend);
  AddLine(text, "precision", facts.precision);
  AddLine(text, "parameters", count(facts.parameters));
  AddLine(text, "samples", count(facts.dataset_samples));
  AddLine(text, "global batch", BatchText(facts));
  AddLine(text, "steps per epoch", count(per_epoch));
  AddLine(text, "epochs", count(facts.epochs));
  AddLine(text, "steps", count(steps));
  AddLine(text, "restarts", count(facts.restart_count));
  return text;
}

}  // namespace ddprun
