#include "tools/watch/gpu_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun::launcher {
namespace {

// A driver that doesn't answer any more has no figures.
constexpr uint64_t kGpusFreshMs = 5000;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

bool GpusAreFresh(const rendezvous::v1::NodeStatus& node) {
  return node.gpus_age_ms() <= kGpusFreshMs;
}

}  // namespace

void GpuSum::Add(const rendezvous::v1::GpuStatus& gpu) {
  ++count;
  lost += gpu.lost() ? 1 : 0;
  if (gpu.has_utilization_percent()) {
    ++told;
    percent += gpu.utilization_percent();
  }
  used += gpu.memory_used_bytes();
  total += gpu.memory_total_bytes();
}

void GpuSum::Add(const GpuSum& other) {
  count += other.count;
  lost += other.lost;
  told += other.told;
  percent += other.percent;
  used += other.used;
  total += other.total;
}

GpuSum GpusOf(const rendezvous::v1::NodeStatus& node) {
  GpuSum sum;
  if (!GpusAreFresh(node)) return sum;
  for (const auto& gpu : node.gpus()) sum.Add(gpu);
  return sum;
}

GpuSum GpusOf(const rendezvous::v1::NodeStatus& node, size_t local_rank) {
  const auto count = static_cast<size_t>(node.gpus_size());
  if (count != node.worker_count() || local_rank >= count || !GpusAreFresh(node)) {
    return GpusOf(node);
  }
  GpuSum sum;
  sum.Add(node.gpus(static_cast<int>(local_rank)));
  return sum;
}

std::string GpuPercentText(const GpuSum& gpus) {
  if (gpus.count > 0 && gpus.lost == gpus.count) return "lost";
  return gpus.told == 0 ? "-" : absl::StrCat((gpus.percent + gpus.told / 2) / gpus.told, "%");
}

std::string GpuMemoryText(const GpuSum& gpus) {
  if (gpus.count == gpus.lost) return "-";
  return absl::StrFormat("%.1f/%.1f", static_cast<double>(gpus.used) / kGib,
                         static_cast<double>(gpus.total) / kGib);
}

std::string GpuListText(const rendezvous::v1::NodeStatus& node) {
  std::string text;
  if (!GpusAreFresh(node)) return text;
  for (const auto& gpu : node.gpus()) {
    GpuSum one;
    one.Add(gpu);
    absl::StrAppend(&text, text.empty() ? "" : "; ", gpu.index(), ": ", GpuPercentText(one));
    if (!gpu.lost()) absl::StrAppend(&text, ", ", GpuMemoryText(one), " GiB");
  }
  return text;
}

}  // namespace ddprun::launcher
