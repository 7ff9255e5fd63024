#include "launcher/machine/topology_probe.h"

#include <dlfcn.h>
#include <hwloc.h>

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

// hwloc's functions, loaded when they are wanted: linked, the library would take 4 % of the start
// of every run. Named as in hwloc.h without their prefix; its inline functions would need the link.
struct Hwloc {
  decltype(&hwloc_topology_init) topology_init = nullptr;
  decltype(&hwloc_topology_destroy) topology_destroy = nullptr;
  decltype(&hwloc_topology_set_flags) topology_set_flags = nullptr;
  decltype(&hwloc_topology_set_components) topology_set_components = nullptr;
  decltype(&hwloc_topology_load) topology_load = nullptr;
  decltype(&hwloc_get_type_depth) get_type_depth = nullptr;
  decltype(&hwloc_get_nbobjs_by_depth) get_nbobjs_by_depth = nullptr;
  decltype(&hwloc_get_obj_by_depth) get_obj_by_depth = nullptr;
  decltype(&hwloc_obj_type_is_dcache) obj_type_is_dcache = nullptr;
  decltype(&hwloc_bitmap_first) bitmap_first = nullptr;
  decltype(&hwloc_bitmap_next) bitmap_next = nullptr;
};

absl::Status CannotLoad() {
  const char* why = dlerror();
  return absl::NotFoundError(absl::StrCat("binding workers needs the library hwloc 2, but ",
                                          why == nullptr ? "it can't be loaded" : why,
                                          "; install Debian's package libhwloc15"));
}

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// The library stays until the process ends.
absl::StatusOr<Hwloc> LoadLibrary() {
  // The name has the version of the interface that this was compiled with.
  static_assert(HWLOC_API_VERSION >> 16 == 2, "libhwloc.so.15 is hwloc 2");
  void* library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return CannotLoad();
  Hwloc hwloc;
  const bool complete =
      Find(library, "hwloc_topology_init", &hwloc.topology_init) &&
      Find(library, "hwloc_topology_destroy", &hwloc.topology_destroy) &&
      Find(library, "hwloc_topology_set_flags", &hwloc.topology_set_flags) &&
      Find(library, "hwloc_topology_set_components", &hwloc.topology_set_components) &&
      Find(library, "hwloc_topology_load", &hwloc.topology_load) &&
      Find(library, "hwloc_get_type_depth", &hwloc.get_type_depth) &&
      Find(library, "hwloc_get_nbobjs_by_depth", &hwloc.get_nbobjs_by_depth) &&
      Find(library, "hwloc_get_obj_by_depth", &hwloc.get_obj_by_depth) &&
      Find(library, "hwloc_obj_type_is_dcache", &hwloc.obj_type_is_dcache) &&
      Find(library, "hwloc_bitmap_first", &hwloc.bitmap_first) &&
      Find(library, "hwloc_bitmap_next", &hwloc.bitmap_next);
  if (!complete) return CannotLoad();
  return hwloc;
}

// This machine, as hwloc sees it.
class Machine {
 public:
  static absl::StatusOr<Machine> Load() {
    DDPRUN_ASSIGN_OR_RETURN(const Hwloc hwloc, LoadLibrary());
    hwloc_topology_t raw = nullptr;
    if (hwloc.topology_init(&raw) != 0) return ErrnoStatus(errno, "hwloc_topology_init");
    Machine machine(hwloc, raw);
    // Include CPUs that we may not use, because cores and caches are identified by their lowest
    // CPU.
    hwloc.topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    // This one runs on every CPU in turn to ask it; the kernel's files say the same.
    hwloc.topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (hwloc.topology_load(raw) != 0) {
      return ErrnoStatus(errno, "reading this machine's CPUs and NUMA nodes (hwloc_topology_load)");
    }
    return machine;
  }

  CpuTopology Describe() const {
    CpuTopology topology;
    for (hwloc_obj_t unit : ObjectsOf(HWLOC_OBJ_PU)) topology.cpus.push_back(Describe(unit));
    for (hwloc_obj_t node : ObjectsOf(HWLOC_OBJ_NUMANODE)) {
      topology.numa_nodes[node->os_index] = SetOf(node->cpuset);
    }
    return topology;
  }

 private:
  Machine(const Hwloc& hwloc, hwloc_topology_t topology)
      : hwloc_(hwloc), topology_(topology, hwloc.topology_destroy) {}

  std::vector<hwloc_obj_t> ObjectsOf(hwloc_obj_type_t type) const {
    const int depth = hwloc_.get_type_depth(topology_.get(), type);
    std::vector<hwloc_obj_t> objects;
    for (unsigned i = 0; i < hwloc_.get_nbobjs_by_depth(topology_.get(), depth); ++i) {
      objects.push_back(hwloc_.get_obj_by_depth(topology_.get(), depth, i));
    }
    return objects;
  }

  CpuTopology::Cpu Describe(hwloc_obj_t unit) const {
    CpuTopology::Cpu cpu{.number = unit->os_index, .core = unit->os_index};
    for (hwloc_obj_t above = unit->parent; above != nullptr; above = above->parent) {
      if (above->type == HWLOC_OBJ_CORE) cpu.core = Lowest(above);
      if (above->type == HWLOC_OBJ_PACKAGE && above->os_index != HWLOC_UNKNOWN_INDEX) {
        cpu.package = above->os_index;
      }
      // The loop goes from the inside out, so the last cache is the last-level one.
      if (hwloc_.obj_type_is_dcache(above->type) != 0) cpu.cache = Lowest(above);
    }
    return cpu;
  }

  uint32_t Lowest(hwloc_obj_t object) const {
    return static_cast<uint32_t>(hwloc_.bitmap_first(object->cpuset));
  }

  CpuSet SetOf(hwloc_const_bitmap_t bitmap) const {
    CpuSet cpus;
    for (int cpu = hwloc_.bitmap_first(bitmap); cpu >= 0; cpu = hwloc_.bitmap_next(bitmap, cpu)) {
      cpus.insert(static_cast<uint32_t>(cpu));
    }
    return cpus;
  }

  Hwloc hwloc_;
  std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> topology_;
};

}  // namespace

absl::StatusOr<CpuTopology> ProbeCpuTopology() {
  DDPRUN_ASSIGN_OR_RETURN(const Machine machine, Machine::Load());
  CpuTopology topology = machine.Describe();
  topology.allowed = AllowedCpus();
  return topology;
}

}  // namespace ddprun::launcher
