// A GPU that is not there, for the stock TensorFlow wheel.
//
// What is real: TensorFlow's own placer, partitioner, executor, rendezvous, allocator and profiler run
// unchanged.  They see a device of type "GPU" whose kernels have the registrations of the CUDA build, so
// placement, dtype constraints, host-memory arguments, _Send/_Recv pairs, copies and their bytes are those
// of a machine with GPUs.
//
// What is not: the device's memory is host memory, and the arithmetic of a kernel is done by the CPU class
// of the same op.  Times therefore say nothing about a GPU.
//
// How it fits together:
//
//   DeviceFactory "GPU"     outranks the CUDA factory (210) and makes SimGpuDevice
//   DeviceFactory "CPU"     the stock CPU device, with the pinned-memory rule of a machine that has GPUs
//   BFC allocators          GPU_<n>_bfc of the stated size, gpu_host_bfc for pinned host memory
//   SimGpuContext           copies for real, and books every copy (CopyLog) and shows it to the profiler
//   TwinKernelCreator       keeps the GPU registration of an op and runs the CPU class behind it
//   SimGpuProfiler          fills the XPlanes /device:GPU:<n>, from which TensorFlow derives step_stats
//
// Copies that a GPU kernel makes inside itself (pointer tables of ConcatV2 and SplitV, the counts that
// Where and Unique read back, NCCL's traffic) have no edge in any graph.  They are NOT modelled: the log
// and the trace hold the copies that the runtime makes for edges, for eager tensors and for constants.
//
// The library serves the one TensorFlow version that it was compiled for; the entry points check.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/core/common_runtime/bfc_allocator.h"
#include "tensorflow/core/common_runtime/copy_tensor.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/common_runtime/gpu/gpu_bfc_allocator.h"
#include "tensorflow/core/common_runtime/local_device.h"
#include "tensorflow/core/common_runtime/process_state.h"
#include "tensorflow/core/common_runtime/scoped_allocator.h"
#include "tensorflow/core/common_runtime/scoped_allocator_mgr.h"
#include "tensorflow/core/common_runtime/threadpool_device.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/memory_types.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant_op_registry.h"
#include "tensorflow/core/graph/types.h"
#include "tensorflow/core/public/session_options.h"
#include "tsl/profiler/lib/profiler_factory.h"
#include "tsl/profiler/lib/profiler_interface.h"

// These moved from tsl to xla/tsl, one after another.
#if __has_include("xla/tsl/profiler/backends/cpu/annotation_stack.h")
#include "xla/tsl/profiler/backends/cpu/annotation_stack.h"
#else
#include "tsl/profiler/backends/cpu/annotation_stack.h"
#endif
#if __has_include("xla/tsl/profiler/utils/xplane_builder.h")
#include "xla/tsl/profiler/utils/time_utils.h"
#include "xla/tsl/profiler/utils/xplane_builder.h"
#include "xla/tsl/profiler/utils/xplane_schema.h"
#else
#include "tsl/profiler/utils/time_utils.h"
#include "tsl/profiler/utils/xplane_builder.h"
#include "tsl/profiler/utils/xplane_schema.h"
#endif

namespace tfplace {
namespace {

using namespace tensorflow;  // NOLINT: one translation unit, no header.

// ---------------------------------------------------------------------------------------------------------
// Configuration: fixed once, before TensorFlow makes its devices.

struct Config {
  int gpus = 1;
  int64_t memory_bytes = int64_t{16} << 30;
};

Config& GetConfig() {
  static Config* config = new Config;
  return *config;
}

std::atomic<bool> started{false};

// ---------------------------------------------------------------------------------------------------------
// Memory.

// The ranges that gpu_host_bfc owns.  Pinned or pageable is a property of the address, on a real GPU too.
class PinnedRanges {
 public:
  static PinnedRanges& Get() {
    static PinnedRanges* ranges = new PinnedRanges;
    return *ranges;
  }
  void Add(const void* ptr, size_t size) {
    mutex_lock lock(mu_);
    ranges_[static_cast<const char*>(ptr)] = size;
  }
  void Remove(const void* ptr) {
    mutex_lock lock(mu_);
    ranges_.erase(static_cast<const char*>(ptr));
  }
  bool Contains(const void* ptr) {
    const char* p = static_cast<const char*>(ptr);
    mutex_lock lock(mu_);
    auto it = ranges_.upper_bound(p);
    if (it == ranges_.begin()) return false;
    --it;
    return p < it->first + it->second;
  }

 private:
  mutex mu_;
  std::map<const char*, size_t> ranges_ TF_GUARDED_BY(mu_);
};

// Address space from mmap: pages cost nothing until a tensor is written to them, so that a 16 GB device
// fits on a laptop.
class MappedMemory : public SubAllocator {
 public:
  explicit MappedMemory(bool pinned) : SubAllocator({}, {}), pinned_(pinned) {}

  void* Alloc(size_t alignment, size_t num_bytes, size_t* bytes_received) override {
    *bytes_received = num_bytes;
    if (num_bytes == 0) return nullptr;
    void* ptr = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ptr == MAP_FAILED) return nullptr;
    if (pinned_) PinnedRanges::Get().Add(ptr, num_bytes);
    return ptr;
  }

  void Free(void* ptr, size_t num_bytes) override {
    if (ptr == nullptr) return;
    if (pinned_) PinnedRanges::Get().Remove(ptr);
    munmap(ptr, num_bytes);
  }

  bool SupportsCoalescing() const override { return false; }

  AllocatorMemoryType GetMemoryType() const override {
    return pinned_ ? AllocatorMemoryType::kHostPinned : AllocatorMemoryType::kDevice;
  }

 private:
  const bool pinned_;
};

Allocator* CpuAllocator() { return ProcessState::singleton()->GetCPUAllocator(port::kNUMANoAffinity); }

Allocator* PinnedAllocator() {
  static Allocator* allocator = [] {
    BFCAllocator::Options options;
    options.allow_growth = true;
    constexpr int64_t kLimit = int64_t{64} << 30;  // The default of TF_GPU_HOST_MEM_LIMIT_IN_MB.
    return new BFCAllocator(std::make_unique<MappedMemory>(/*pinned=*/true), kLimit, "gpu_host_bfc", options);
  }();
  return allocator;
}

// One allocator for each TensorFlow GPU id and process, shared by all sessions, as GPUProcessState does.
Allocator* DeviceAllocator(int tf_gpu_id, int64_t limit, const GPUOptions& gpu_options) {
  static mutex* mu = new mutex;
  static auto* allocators = new std::map<int, Allocator*>;
  mutex_lock lock(*mu);
  Allocator*& allocator = (*allocators)[tf_gpu_id];
  if (allocator == nullptr) {
    GPUBFCAllocator::Options options;
    options.allow_growth = gpu_options.allow_growth();
    allocator = new GPUBFCAllocator(std::make_unique<MappedMemory>(/*pinned=*/false), limit,
                                    absl::StrCat("GPU_", tf_gpu_id, "_bfc"), options);
  }
  return allocator;
}

// ---------------------------------------------------------------------------------------------------------
// The copies: what the device itself counted, and what the profiler is shown.

enum Direction { kH2D = 0, kD2H = 1, kD2D = 2, kP2P = 3, kNumDirections = 4 };
// What made the runtime copy.  Constants and other protos go up when a kernel is built, which is before
// the step that a RunMetadata records; they are booked apart.
enum Origin { kTensor = 0, kUpload = 1, kNumOrigins = 2 };

constexpr const char* kCopyName[kNumDirections] = {"MemcpyH2D", "MemcpyD2H", "MemcpyD2D", "MemcpyP2P"};

struct CopyTotals {
  int64_t count = 0;
  int64_t bytes = 0;
};

// True while this thread builds a tensor from a proto.
thread_local bool in_upload = false;

// One row of the device's XPlane.
struct TraceRow {
  int gpu;
  int64_t line;
  std::string name;
  std::string annotation;
  std::string memcpy_details;  // Empty for kernels.
  int64_t correlation_id;
  int64_t start_ns;
  int64_t end_ns;
};

// Stream numbers as the CUDA build shows them: compute, up, down, between devices.
constexpr int64_t kComputeLine = 13;
constexpr int64_t kCopyLine[kNumDirections] = {14, 15, 16, 16};

class Recorder {
 public:
  static Recorder& Get() {
    static Recorder* recorder = new Recorder;
    return *recorder;
  }

  void StartTrace() {
    mutex_lock lock(mu_);
    rows_.clear();
    traced_ = {};
    trace_start_ns_ = tsl::profiler::GetCurrentTimeNanos();
    tracing_ = true;
  }
  void StopTrace() { tracing_ = false; }
  bool tracing() const { return tracing_; }

  std::vector<TraceRow> TakeRows(int64_t* trace_start_ns) {
    mutex_lock lock(mu_);
    *trace_start_ns = trace_start_ns_;
    return std::move(rows_);
  }

  // Books a copy that has been made.  `gpu` is the physical GPU whose stream carries it (the source, when
  // two GPUs take part), `dest` the physical GPU at the other end.
  void AddCopy(Direction direction, int gpu, int dest, int64_t bytes, const char* src_kind, const char* dst_kind,
               absl::string_view annotation, int64_t start_ns) {
    const int64_t end_ns = std::max(tsl::profiler::GetCurrentTimeNanos(), start_ns + 1);
    const Origin origin = in_upload ? kUpload : kTensor;
    mutex_lock lock(mu_);
    Count(&total_[origin][direction], bytes);
    if (!tracing_) return;
    Count(&traced_[origin][direction], bytes);
    rows_.push_back({gpu, kCopyLine[direction], kCopyName[direction], std::string(annotation),
                     absl::StrCat("kind_src:", src_kind, " kind_dst:", dst_kind, " size:", bytes, " dest:", dest,
                                  " async:1"),
                     ++correlation_id_, start_ns, end_ns});
  }

  void AddKernel(int gpu, const std::string& op, std::string annotation, int64_t start_ns) {
    const int64_t end_ns = std::max(tsl::profiler::GetCurrentTimeNanos(), start_ns + 1);
    mutex_lock lock(mu_);
    if (!tracing_) return;
    rows_.push_back({gpu, kComputeLine, absl::StrCat("simulated_", op), std::move(annotation), "", ++correlation_id_,
                     start_ns, end_ns});
  }

  CopyTotals Totals(bool traced, int origin, int direction) {
    mutex_lock lock(mu_);
    return (traced ? traced_ : total_)[origin][direction];
  }
  void ResetTotals() {
    mutex_lock lock(mu_);
    total_ = {};
    traced_ = {};
  }

 private:
  using Table = std::array<std::array<CopyTotals, kNumDirections>, kNumOrigins>;

  static void Count(CopyTotals* totals, int64_t bytes) {
    ++totals->count;
    totals->bytes += bytes;
  }

  mutex mu_;
  std::atomic<bool> tracing_{false};
  int64_t trace_start_ns_ TF_GUARDED_BY(mu_) = 0;
  int64_t correlation_id_ TF_GUARDED_BY(mu_) = 0;
  std::vector<TraceRow> rows_ TF_GUARDED_BY(mu_);
  Table total_ TF_GUARDED_BY(mu_){};
  Table traced_ TF_GUARDED_BY(mu_){};  // The part of the last (or current) trace.
};

// What this thread is doing, innermost last: "x/_3:_Send#from=x,to=y#::#edge_name=edge_9_x#".  The executor
// pushes the op, CopyTensor::ViaDMA the edge.  A copy is named after the _Send or the _Recv, whichever ran
// second, since that one makes the copy.
std::string CurrentAnnotation(absl::string_view edge_name = {}) {
  if (!Recorder::Get().tracing()) return "";
  std::string annotation = tsl::profiler::AnnotationStack::Get();
  if (annotation.empty() && !edge_name.empty()) annotation = absl::StrCat("#edge_name=", edge_name, "#");
  return annotation;
}

// ---------------------------------------------------------------------------------------------------------
// The device.

class SimGpuDevice;

class SimGpuContext : public DeviceContext {
 public:
  explicit SimGpuContext(int physical_gpu) : gpu_(physical_gpu) {}

  int gpu() const { return gpu_; }

  void CopyCPUTensorToDevice(const Tensor* cpu_tensor, Device* device, Tensor* device_tensor, StatusCallback done,
                             bool sync_dst_compute) const override {
    done(Copy(kH2D, *cpu_tensor, device_tensor, gpu_, {}));
  }

  void CopyDeviceTensorToCPU(const Tensor* device_tensor, absl::string_view tensor_name, Device* device,
                             Tensor* cpu_tensor, StatusCallback done) override {
    done(Copy(kD2H, *device_tensor, cpu_tensor, gpu_, tensor_name));
  }

  void CopyTensorInSameDevice(const Tensor* input_tensor, Device* device, Tensor* output_tensor,
                              StatusCallback done) const override {
    done(Copy(kD2D, *input_tensor, output_tensor, gpu_, {}));
  }

  // Copies and books.  `dest` is the physical GPU that receives (this one, unless P2P).
  absl::Status Copy(Direction direction, const Tensor& from, Tensor* to, int dest, absl::string_view edge_name) const {
    if (from.dtype() != to->dtype() || from.TotalBytes() != to->TotalBytes()) {
      return errors::Internal("Cannot copy ", from.DebugString(0), " into ", to->DebugString(0));
    }
    if (!DMAHelper::CanUseDMA(&from)) {
      return errors::Internal("GPU copy from non-DMA ", DataTypeString(from.dtype()), " tensor");
    }
    const int64_t bytes = from.TotalBytes();
    if (bytes == 0) return absl::OkStatus();  // As on a real GPU: no byte, no memcpy.
    const void* src = DMAHelper::base(&from);
    void* dst = DMAHelper::base(to);
    if (src == nullptr || dst == nullptr) return errors::Internal("Tensor is not initialized.");
    const int64_t start_ns = tsl::profiler::GetCurrentTimeNanos();
    std::memcpy(dst, src, bytes);
    Recorder::Get().AddCopy(direction, gpu_, dest, bytes, SourceKind(direction, from), DestinationKind(direction, dst),
                            CurrentAnnotation(edge_name), start_ns);
    return absl::OkStatus();
  }

  // Everything runs where it is called, so all that was queued is done.
  absl::Status ThenExecute(Device* device, stream_executor::Stream* stream, std::function<void()> func) override {
    func();
    return absl::OkStatus();
  }

  // Host kernels ask this to choose between loops on the CPU (false) and a plug-in's C API (true).
  bool IsPluggableDevice() override { return false; }

  Allocator* host_memory_allocator() const override { return PinnedAllocator(); }

 private:
  // GPUUtil stages an upload through pinned memory when the tensor says that it is pageable; a buffer of
  // unknown kind (numpy's, for one) goes to the driver as it is.
  static const char* SourceKind(Direction direction, const Tensor& from) {
    if (direction != kH2D) return "device";
    if (PinnedRanges::Get().Contains(DMAHelper::base(&from))) return "pinned";
    return from.GetMemoryType() == AllocatorMemoryType::kHostPageable ? "pinned" : "pageable";
  }
  static const char* DestinationKind(Direction direction, const void* dst) {
    if (direction != kD2H) return "device";
    return PinnedRanges::Get().Contains(dst) ? "pinned" : "pageable";
  }

  const int gpu_;
};

class SimGpuDevice : public LocalDevice {
 public:
  SimGpuDevice(const SessionOptions& options, const DeviceAttributes& attributes, int tf_gpu_id, int physical_gpu,
               Allocator* allocator)
      : LocalDevice(options, attributes),
        physical_gpu_(physical_gpu),
        allocator_(allocator),
        context_(new SimGpuContext(physical_gpu)),
        scoped_allocator_mgr_(new ScopedAllocatorMgr(attributes.name())),
        force_gpu_compatible_(options.config.gpu_options().force_gpu_compatible()) {
    info_.default_context = context_.get();
    info_.gpu_id = tf_gpu_id;
    set_tensorflow_accelerator_device_info(&info_);
  }

  int physical_gpu() const { return physical_gpu_; }

  Allocator* GetAllocator(AllocatorAttributes attr) override {
    if (!attr.on_host()) return allocator_;
    return attr.gpu_compatible() || force_gpu_compatible_ ? PinnedAllocator() : CpuAllocator();
  }

  Allocator* GetScopedAllocator(AllocatorAttributes attr, int64_t step_id) override {
    if (attr.scope_id > 0) return scoped_allocator_mgr_->GetContainer(step_id)->GetInstance(attr.scope_id);
    LOG(FATAL) << "Unexpected scope_id: " << attr.scope_id;
    return nullptr;
  }

  ScopedAllocatorMgr* GetScopedAllocatorMgr() const override { return scoped_allocator_mgr_.get(); }

  absl::Status TryGetDeviceContext(DeviceContext** out_context) override {
    context_->Ref();
    *out_context = context_.get();
    return absl::OkStatus();
  }

  absl::Status MakeTensorFromProto(const TensorProto& proto, const AllocatorAttributes alloc_attrs,
                                   Tensor* tensor) override {
    AllocatorAttributes host;
    host.set_on_host(true);
    host.set_gpu_compatible(true);
    Tensor parsed(proto.dtype());
    if (!parsed.FromProto(GetAllocator(host), proto)) {
      return errors::InvalidArgument("Cannot parse tensor from proto: ", proto.DebugString());
    }
    if (parsed.dtype() != DT_VARIANT) return Upload(alloc_attrs, parsed, tensor);

    // Each variant copies the tensors inside it.
    const Variant* from = parsed.flat<Variant>().data();
    Tensor copy(CpuAllocator(), DT_VARIANT, parsed.shape());
    Variant* to = copy.flat<Variant>().data();
    for (int64_t i = 0; i < parsed.NumElements(); ++i) {
      TF_RETURN_IF_ERROR(VariantDeviceCopy(
          VariantDeviceCopyDirection::HOST_TO_DEVICE, from[i], &to[i],
          [this, &alloc_attrs](const Tensor& part, Tensor* out) { return Upload(alloc_attrs, part, out); }));
    }
    *tensor = std::move(copy);
    return absl::OkStatus();
  }

  void CopyTensorInSameDevice(const Tensor* input, Tensor* output, const DeviceContext* context,
                              StatusCallback done) override {
    context_->CopyTensorInSameDevice(input, this, output, std::move(done));
  }

  absl::Status Sync() override { return absl::OkStatus(); }

 private:
  absl::Status Upload(const AllocatorAttributes& alloc_attrs, const Tensor& from, Tensor* to) {
    if (alloc_attrs.on_host() || !DMAHelper::CanUseDMA(&from)) {
      *to = from;
      return absl::OkStatus();
    }
    Tensor copy(GetAllocator(alloc_attrs), from.dtype(), from.shape());
    if (!copy.IsInitialized()) {
      return errors::ResourceExhausted("OOM when allocating tensor of shape ", from.shape().DebugString(),
                                       " and type ", DataTypeString(from.dtype()));
    }
    in_upload = true;
    const absl::Status status = context_->Copy(kH2D, from, &copy, physical_gpu_, {});
    in_upload = false;
    *to = std::move(copy);
    return status;
  }

  const int physical_gpu_;
  Allocator* const allocator_;
  core::RefCountPtr<SimGpuContext> context_;
  std::unique_ptr<ScopedAllocatorMgr> scoped_allocator_mgr_;
  const bool force_gpu_compatible_;
  AcceleratorDeviceInfo info_;
};

// Between GPUs, also between two virtual devices of one GPU.  CopyTensor asks for it under the pluggable
// flag, which is how the CUDA build's own copy (it needs streams) is passed over.
void CopyBetweenGpus(DeviceContext* send_context, DeviceContext* recv_context, Device* src, Device* dst,
                     const AllocatorAttributes src_attr, const AllocatorAttributes dst_attr, const Tensor* input,
                     Tensor* output, int stream_index, StatusCallback done) {
  const int to = static_cast<SimGpuDevice*>(dst)->physical_gpu();
  const auto* context = static_cast<SimGpuContext*>(send_context);
  done(context->Copy(context->gpu() == to ? kD2D : kP2P, *input, output, to, {}));
}

class SimGpuFactory : public DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    for (int i = 0; i < GetConfig().gpus; ++i) devices->push_back(absl::StrCat("/physical_device:GPU:", i));
    return absl::OkStatus();
  }

  absl::Status GetDeviceDetails(int device_index, std::unordered_map<std::string, std::string>* details) override {
    if (device_index < 0 || device_index >= GetConfig().gpus) {
      return errors::Internal("Invalid device index: ", device_index);
    }
    (*details)["device_name"] = Model();
    (*details)["compute_capability"] = kComputeCapability;
    return absl::OkStatus();
  }

  absl::Status CreateDevices(const SessionOptions& options, const std::string& name_prefix,
                             std::vector<std::unique_ptr<Device>>* devices) override {
    const GPUOptions& gpu_options = options.config.gpu_options();
    std::vector<int> visible;
    TF_RETURN_IF_ERROR(VisibleGpus(gpu_options, &visible));
    const auto count = options.config.device_count().find("GPU");
    size_t wanted = count == options.config.device_count().end() ? INT_MAX : std::max(0, count->second);

    const auto& virtual_devices = gpu_options.experimental().virtual_devices();
    int tf_gpu_id = 0;
    for (size_t i = 0; i < visible.size() && wanted > 0; ++i) {
      for (const int64_t limit : MemoryLimits(gpu_options, i < static_cast<size_t>(virtual_devices.size())
                                                               ? &virtual_devices.Get(i)
                                                               : nullptr)) {
        if (wanted == 0) break;
        --wanted;
        devices->push_back(MakeDevice(options, name_prefix, tf_gpu_id++, visible[i], limit));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Says how large it is, so that whatever quotes the name says it too.
  static std::string Model() {
    const int64_t megabytes = GetConfig().memory_bytes >> 20;
    const std::string size = megabytes % 1024 == 0 ? absl::StrCat(megabytes >> 10, " GB") : absl::StrCat(megabytes, " MB");
    return absl::StrCat("Simulated GPU (tfplace) ", size);
  }
  static constexpr const char* kComputeCapability = "7.0";

  static absl::Status VisibleGpus(const GPUOptions& gpu_options, std::vector<int>* visible) {
    const int gpus = GetConfig().gpus;
    if (gpu_options.visible_device_list().empty()) {
      for (int i = 0; i < gpus; ++i) visible->push_back(i);
      return absl::OkStatus();
    }
    for (absl::string_view text : absl::StrSplit(gpu_options.visible_device_list(), ',')) {
      int gpu = -1;
      if (!absl::SimpleAtoi(text, &gpu) || gpu < 0 || gpu >= gpus) {
        return errors::InvalidArgument("'visible_device_list' names GPU '", text, "', but there are ", gpus,
                                       " simulated GPUs.");
      }
      visible->push_back(gpu);
    }
    return absl::OkStatus();
  }

  // Memory of each TensorFlow device on one physical GPU; more than one only with virtual devices.
  static std::vector<int64_t> MemoryLimits(const GPUOptions& gpu_options,
                                           const GPUOptions::Experimental::VirtualDevices* virtual_devices) {
    std::vector<int64_t> limits;
    if (virtual_devices != nullptr) {
      for (const float megabytes : virtual_devices->memory_limit_mb()) {
        limits.push_back(static_cast<int64_t>(megabytes) << 20);
      }
    }
    if (limits.empty()) {
      const double fraction = gpu_options.per_process_gpu_memory_fraction();
      const int64_t memory = GetConfig().memory_bytes;
      limits.push_back(fraction > 0 ? static_cast<int64_t>(memory * fraction) : memory);
    }
    return limits;
  }

  static std::unique_ptr<Device> MakeDevice(const SessionOptions& options, const std::string& name_prefix,
                                            int tf_gpu_id, int physical_gpu, int64_t limit) {
    DeviceLocality locality;
    locality.set_numa_node(0);
    locality.set_bus_id(1);
    for (int peer = 0; peer < GetConfig().gpus; ++peer) {
      if (peer == physical_gpu) continue;
      auto* link = locality.mutable_links()->add_link();
      link->set_device_id(peer);
      link->set_type("StreamExecutor");
      link->set_strength(1);
    }
    const DeviceAttributes attributes = Device::BuildDeviceAttributes(
        absl::StrCat(name_prefix, "/device:GPU:", tf_gpu_id), DEVICE_GPU, Bytes(limit), locality,
        absl::StrCat("device: ", physical_gpu, ", name: ", Model(), ", pci bus id: 0000:00:00.", physical_gpu,
                     ", compute capability: ", kComputeCapability));
    Allocator* allocator = DeviceAllocator(tf_gpu_id, limit, options.config.gpu_options());
    return std::make_unique<SimGpuDevice>(options, attributes, tf_gpu_id, physical_gpu, allocator);
  }
};

// The CPU device of a machine with GPUs: a buffer that a GPU copy will read or write is pinned.  The CUDA
// build has this device too, but asks the CUDA runtime, which knows of no GPU here.
class GpuCompatibleCpuDevice : public ThreadPoolDevice {
 public:
  GpuCompatibleCpuDevice(const SessionOptions& options, const std::string& name, const DeviceLocality& locality)
      : ThreadPoolDevice(options, name, Bytes(256 << 20), locality, CpuAllocator()),
        force_gpu_compatible_(options.config.gpu_options().force_gpu_compatible()) {}

  Allocator* GetAllocator(AllocatorAttributes attr) override {
    if (attr.gpu_compatible() || force_gpu_compatible_) return PinnedAllocator();
    return ThreadPoolDevice::GetAllocator(attr);
  }

 private:
  const bool force_gpu_compatible_;
};

class GpuCompatibleCpuFactory : public DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    devices->push_back("/physical_device:CPU:0");
    return absl::OkStatus();
  }

  absl::Status CreateDevices(const SessionOptions& options, const std::string& name_prefix,
                             std::vector<std::unique_ptr<Device>>* devices) override {
    const auto count = options.config.device_count().find("CPU");
    const int wanted = count == options.config.device_count().end() ? 1 : count->second;
    for (int i = 0; i < wanted; ++i) {
      devices->push_back(std::make_unique<GpuCompatibleCpuDevice>(
          options, absl::StrCat(name_prefix, "/device:CPU:", i), DeviceLocality()));
    }
    return absl::OkStatus();
  }
};

// ---------------------------------------------------------------------------------------------------------
// Kernels.

enum class RunAs { kAsRegistered, kTwin, kNoTwin };

bool IsAnyOf(absl::string_view text, std::initializer_list<absl::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [text](absl::string_view prefix) { return absl::StartsWith(text, prefix); });
}

// How an op of the GPU partition is run, from the class names of its two registrations (empty: none).  A
// class that is the same for both devices, or that is built for the CPU device (int32 arithmetic, host
// constants), is host code and is run as registered.  Everything else is device code, which needs a
// stream, and its CPU class stands in.
RunAs HowToRun(absl::string_view op, absl::string_view gpu_class, absl::string_view cpu_class) {
  // Compiles for, or talks to, a device that is not there.
  if (IsAnyOf(op, {"Xla", "_Xla", "Nccl", "_Nccl"})) return RunAs::kNoTwin;
  // One class for both devices, but it builds kernels of its own by the device type.
  if (absl::StartsWith(op, "Collective") && !cpu_class.empty()) return RunAs::kTwin;
  if (gpu_class == cpu_class) return RunAs::kAsRegistered;
  for (absl::string_view host : {"CPUDevice", "CPUOp", "OpCPU", "_HostConstantOp", "DatasetOp", "FinalizeDatasetNoop",
                                 "FactOpKernel"}) {
    if (absl::StrContains(gpu_class, host)) return RunAs::kAsRegistered;
  }
  // Host code that moves tensors with the device context (swap_memory=True).
  if (absl::StrContains(gpu_class, "TemplatedStackPushOp") || absl::StrContains(gpu_class, "CopyFromGpuToHost") ||
      absl::StrContains(gpu_class, "CopyFromHostToGpu")) {
    return RunAs::kAsRegistered;
  }
  return cpu_class.empty() ? RunAs::kNoTwin : RunAs::kTwin;
}

// Device code that launches no kernel: it hands a buffer on, or leaves the work to a memcpy.
bool LaunchesKernel(absl::string_view op) {
  static const auto* silent = new std::unordered_set<std::string>(
      {"Assign", "AssignVariableOp", "DeepCopy", "Snapshot", "TensorArrayRead", "TensorArrayReadV2",
       "TensorArrayReadV3", "TensorArrayWrite", "TensorArrayWriteV2", "TensorArrayWriteV3", "TensorListGetItem",
       "TensorListPopBack", "_ParallelConcatStart"});
  return silent->count(std::string(op)) == 0 && !absl::StartsWith(op, "Collective");
}

int PhysicalGpu(const DeviceBase* device) {
  return static_cast<const SimGpuDevice*>(device->UnderlyingDevice())->physical_gpu();
}

// The part of a twin that does not depend on whether the CPU class is synchronous.
class Twin {
 public:
  Twin(std::unique_ptr<OpKernel> cpu_kernel) : cpu_kernel_(std::move(cpu_kernel)) {}  // NOLINT

  OpKernel* cpu_kernel() const { return cpu_kernel_.get(); }

  // Puts the kernel on the compute stream of the trace, if a GPU would have launched one.
  void Record(const OpKernel& gpu_kernel, OpKernelContext* ctx, const std::string& annotation,
              int64_t start_ns) const {
    if (start_ns == 0 || !ctx->status().ok() || !LaunchesKernel(gpu_kernel.type_string())) return;
    bool work = gpu_kernel.num_outputs() == 0;
    for (int i = 0; i < ctx->num_outputs() && !work; ++i) {
      const Tensor* output = ctx->mutable_output(i);
      // A ref output (an optimizer's update of a variable) has no tensor of its own.
      work = output == nullptr || output->NumElements() > 0;
    }
    if (!work) return;
    Recorder::Get().AddKernel(PhysicalGpu(ctx->device()), gpu_kernel.type_string(),
                              annotation.empty() ? absl::StrCat(gpu_kernel.name(), ":", gpu_kernel.type_string())
                                                 : annotation,
                              start_ns);
  }

 private:
  std::unique_ptr<OpKernel> cpu_kernel_;
};

int64_t StartTime() { return Recorder::Get().tracing() ? tsl::profiler::GetCurrentTimeNanos() : 0; }

// What the executor sees: an OpKernel with the memory types of the GPU registration, so that inputs and
// outputs are allocated, forwarded and sent as on a GPU.  What computes: the CPU class, on memory that it
// can reach.
class SyncTwin : public OpKernel {
 public:
  SyncTwin(OpKernelConstruction* construction, std::unique_ptr<OpKernel> cpu_kernel)
      : OpKernel(construction, cpu_kernel->is_deferred()), twin_(std::move(cpu_kernel)) {}

  void Compute(OpKernelContext* ctx) override {
    const int64_t start_ns = StartTime();
    const std::string annotation = CurrentAnnotation();
    twin_.cpu_kernel()->Compute(ctx);
    twin_.Record(*this, ctx, annotation, start_ns);
  }
  const Tensor* const_tensor() const override { return twin_.cpu_kernel()->const_tensor(); }
  std::string TraceString(const OpKernelContext& ctx, bool verbose) const override {
    return twin_.cpu_kernel()->TraceString(ctx, verbose);
  }

 private:
  const Twin twin_;
};

class AsyncTwin : public AsyncOpKernel {
 public:
  AsyncTwin(OpKernelConstruction* construction, std::unique_ptr<OpKernel> cpu_kernel)
      : AsyncOpKernel(construction, cpu_kernel->is_deferred()), twin_(std::move(cpu_kernel)) {}

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    const int64_t start_ns = StartTime();
    std::string annotation = CurrentAnnotation();
    twin_.cpu_kernel()->AsAsync()->ComputeAsync(
        ctx, [this, ctx, start_ns, annotation = std::move(annotation), done = std::move(done)] {
          twin_.Record(*this, ctx, annotation, start_ns);
          done();
        });
  }
  std::string TraceString(const OpKernelContext& ctx, bool verbose) const override {
    return twin_.cpu_kernel()->TraceString(ctx, verbose);
  }

 private:
  const Twin twin_;
};

// NCCL's part of a step.  Its traffic is inside one device kernel and shows no memcpy on a real GPU, so the
// ring algorithm, which copies, is no stand-in.  Here the members of a group meet in this process, the last to
// come computes for all, and each gets one kernel on its compute stream.
class NcclTwin : public AsyncOpKernel {
 public:
  explicit NcclTwin(OpKernelConstruction* construction)
      : AsyncOpKernel(construction), gather_(construction->def().op() == "CollectiveGatherV2") {
    if (gather_) return;
    OP_REQUIRES_OK(construction, construction->GetAttr("merge_op", &merge_op_));
    OP_REQUIRES_OK(construction, construction->GetAttr("final_op", &final_op_));
  }

  static bool Handles(const NodeDef& node) {
    const auto hint = node.attr().find("communication_hint");
    return (node.op() == "CollectiveReduceV2" || node.op() == "CollectiveGatherV2") && hint != node.attr().end() &&
           hint->second.s() == "nccl";
  }

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    const size_t group_size = ctx->input(1).scalar<int32_t>()();
    const Key key(ctx->input(2).scalar<int32_t>()(), ctx->input(3).scalar<int32_t>()());
    CancellationManager* cancellation = ctx->cancellation_manager();
    const CancellationToken token = cancellation == nullptr ? 0 : cancellation->get_cancellation_token();
    if (cancellation != nullptr && !cancellation->RegisterCallback(token, [this, key, ctx] { Leave(key, ctx); })) {
      ctx->SetStatus(errors::Cancelled("Collective ", name(), " was cancelled."));
      done();
      return;
    }
    std::vector<Member> round;
    {
      mutex_lock lock(*Mutex());
      std::vector<Member>& waiting = (*Waiting())[key];
      waiting.push_back({ctx, std::move(done), token, StartTime(), CurrentAnnotation()});
      if (waiting.size() < group_size) return;
      round = std::move(waiting);
      Waiting()->erase(key);
    }
    // In the order of the devices, which is the order of the ranks.
    std::sort(round.begin(), round.end(), [](const Member& a, const Member& b) {
      return static_cast<Device*>(a.ctx->device())->parsed_name() < static_cast<Device*>(b.ctx->device())->parsed_name();
    });
    const absl::Status status = Run(round);
    for (Member& member : round) {
      if (member.ctx->cancellation_manager() != nullptr) {
        member.ctx->cancellation_manager()->DeregisterCallback(member.token);
      }
      member.ctx->SetStatus(status);
      if (member.start_ns != 0 && status.ok()) {
        Recorder::Get().AddKernel(PhysicalGpu(member.ctx->device()), gather_ ? "ncclAllGather" : "ncclAllReduce",
                                  member.annotation, member.start_ns);
      }
      member.done();
    }
  }

 private:
  using Key = std::pair<int32_t, int32_t>;  // Group, instance.
  struct Member {
    OpKernelContext* ctx;
    DoneCallback done;
    CancellationToken token;
    int64_t start_ns;
    std::string annotation;
  };

  static mutex* Mutex() {
    static mutex* mu = new mutex;
    return mu;
  }
  static std::map<Key, std::vector<Member>>* Waiting() {
    static auto* waiting = new std::map<Key, std::vector<Member>>;
    return waiting;
  }

  // A member that is cancelled while it waits; one whose round has begun is left to finish.
  void Leave(const Key& key, OpKernelContext* ctx) {
    DoneCallback done;
    {
      mutex_lock lock(*Mutex());
      const auto found = Waiting()->find(key);
      if (found == Waiting()->end()) return;
      std::vector<Member>& waiting = found->second;
      const auto member =
          std::find_if(waiting.begin(), waiting.end(), [ctx](const Member& candidate) { return candidate.ctx == ctx; });
      if (member == waiting.end()) return;
      done = std::move(member->done);
      waiting.erase(member);
    }
    ctx->SetStatus(errors::Cancelled("Collective ", name(), " was cancelled."));
    done();
  }

  absl::Status Run(const std::vector<Member>& round) const {
    switch (round[0].ctx->input(0).dtype()) {
      case DT_FLOAT:
        return RunAs<float>(round);
      case DT_DOUBLE:
        return RunAs<double>(round);
      case DT_HALF:
        return RunAs<Eigen::half>(round);
      case DT_BFLOAT16:
        return RunAs<bfloat16>(round);
      case DT_INT32:
        return RunAs<int32_t>(round);
      case DT_INT64:
        return RunAs<int64_t>(round);
      default:
        return errors::Unimplemented("NCCL has no ", DataTypeString(round[0].ctx->input(0).dtype()));
    }
  }

  template <typename T>
  absl::Status RunAs(const std::vector<Member>& round) const {
    Tensor result;
    TF_RETURN_IF_ERROR(gather_ ? Gather<T>(round, &result) : Reduce<T>(round, &result));
    for (const Member& member : round) {
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(member.ctx->allocate_output(0, result.shape(), &output));
      output->flat<T>() = result.flat<T>();
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Reduce(const std::vector<Member>& round, Tensor* result) const {
    const TensorShape& shape = round[0].ctx->input(0).shape();
    *result = Tensor(CpuAllocator(), DataTypeToEnum<T>::value, shape);
    auto sum = result->flat<T>();
    sum = round[0].ctx->input(0).flat<T>();
    for (size_t i = 1; i < round.size(); ++i) {
      const Tensor& input = round[i].ctx->input(0);
      if (input.shape() != shape || input.dtype() != result->dtype()) {
        return errors::InvalidArgument("Collective ", name(), " got shapes ", shape.DebugString(), " and ",
                                       input.shape().DebugString());
      }
      const auto term = input.flat<T>();
      if (merge_op_ == "Add") {
        sum += term;
      } else if (merge_op_ == "Mul") {
        sum = sum * term;
      } else if (merge_op_ == "Max") {
        sum = sum.cwiseMax(term);
      } else if (merge_op_ == "Min") {
        sum = sum.cwiseMin(term);
      } else {
        return errors::Unimplemented("Collective merge_op ", merge_op_);
      }
    }
    if (final_op_ == "Div") sum = sum / sum.constant(static_cast<T>(static_cast<float>(round.size())));
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Gather(const std::vector<Member>& round, Tensor* result) const {
    TensorShape shape = round[0].ctx->input(0).shape();
    if (shape.dims() == 0) return errors::InvalidArgument("Collective ", name(), " got a scalar");
    int64_t rows = 0;
    for (const Member& member : round) {
      TensorShape other = member.ctx->input(0).shape();
      if (other.dims() == 0) return errors::InvalidArgument("Collective ", name(), " got a scalar");
      rows += other.dim_size(0);
      other.set_dim(0, shape.dim_size(0));
      if (other != shape) return errors::InvalidArgument("Collective ", name(), " got shapes that differ");
    }
    shape.set_dim(0, rows);
    *result = Tensor(CpuAllocator(), DataTypeToEnum<T>::value, shape);
    T* to = result->flat<T>().data();
    for (const Member& member : round) {
      const auto from = member.ctx->input(0).flat<T>();
      to = std::copy_n(from.data(), from.size(), to);
    }
    return absl::OkStatus();
  }

  const bool gather_;
  std::string merge_op_;
  std::string final_op_;
};

// The fused convolution that grappler builds for 16 bits when oneDNN is off: its CPU class is registered for them,
// and then refuses them.
bool RefusesHalf(const NodeDef& node) {
  if (node.op() != "_FusedConv2D" || !node.attr().contains("T")) return false;
  const DataType type = node.attr().at("T").type();
  return type == DT_HALF || type == DT_BFLOAT16;
}

std::string Cure(const NodeDef& node) {
  const std::string& op = node.op();
  if (absl::StartsWith(op, "CudnnRNN")) return "Build the LSTM or GRU layer with use_cudnn=False.";
  if (IsAnyOf(op, {"Xla", "_Xla"})) return "Turn XLA off for this run: jit_compile=False, tf.config.optimizer.set_jit(False).";
  if (IsAnyOf(op, {"Nccl", "_Nccl"})) {
    return "Pass cross_device_ops=tf.distribute.HierarchicalCopyAllReduce() to the strategy.";
  }
  if (RefusesHalf(node)) return "Leave TF_ENABLE_ONEDNN_OPTS alone, or turn grappler's remapping off.";
  if (node.attr().contains("data_format") && absl::StartsWith(node.attr().at("data_format").s(), "NC")) {
    return "Use data_format='channels_last' (NHWC) for this run.";
  }
  return "Use another op or dtype for this part, or run it on a real GPU; "
         "'tfplace simulate --coverage' lists these ops.";
}

absl::Status NoTwinError(const NodeDef& node, absl::string_view why) {
  return errors::Unimplemented("The simulated GPU cannot run op ", node.op(), " (node ", node.name(), "): ", why, " ",
                               Cure(node));
}

// The convolutions and pools whose CPU class takes channels-last data only.
bool NeedsChannelsLast(const NodeDef& node) {
  return IsAnyOf(node.op(), {"Conv2D", "Conv3D", "DepthwiseConv2d", "MaxPool", "AvgPool"}) &&
         node.attr().contains("data_format") && absl::StartsWith(node.attr().at("data_format").s(), "NC");
}

class TwinKernelCreator : public CustomKernelCreator {
 public:
  // `previous` (may be null) goes on serving the devices that are not simulated.
  explicit TwinKernelCreator(std::unique_ptr<CustomKernelCreator> previous) : previous_(std::move(previous)) {}

  bool CanCreateKernel(const FunctionLibraryRuntime& flr,
                       const std::shared_ptr<const NodeProperties>& props) const override {
    if (!IsSimulated(flr.device())) return previous_ != nullptr && previous_->CanCreateKernel(flr, props);
    std::string gpu_class, cpu_class;
    return HowToRun(props->node_def, &gpu_class, &cpu_class) != RunAs::kAsRegistered;
  }

  absl::Status CreateKernel(FunctionLibraryRuntime* flr, const std::shared_ptr<const NodeProperties>& props,
                            std::unique_ptr<OpKernel>* kernel) const override {
    if (!IsSimulated(flr->device())) return previous_->CreateKernel(flr, props, kernel);
    std::string gpu_class, cpu_class;
    if (HowToRun(props->node_def, &gpu_class, &cpu_class) == RunAs::kNoTwin) {
      return NoTwinError(props->node_def, "it has a GPU kernel and no CPU kernel that could stand in.");
    }
    if (RefusesHalf(props->node_def)) {
      return NoTwinError(props->node_def, "its CPU kernel takes 32 bits only.");
    }
    if (NeedsChannelsLast(props->node_def)) {
      return NoTwinError(props->node_def, "its CPU kernel takes channels-last data only.");
    }
    Device* device = flr->device();
    Allocator* allocator = device->GetAllocator(AllocatorAttributes());
    const bool nccl = NcclTwin::Handles(props->node_def);
    std::unique_ptr<OpKernel> cpu_kernel;
    if (!nccl) {
      OpKernel* created = nullptr;
      TF_RETURN_IF_ERROR(CreateOpKernel(DeviceType(DEVICE_CPU), device, allocator, flr, device->resource_manager(),
                                        props, flr->graph_def_version(), &created));
      cpu_kernel.reset(created);
    }
    MemoryTypeVector input_memory, output_memory;
    TF_RETURN_IF_ERROR(MemoryTypesForNode(flr->GetFunctionLibraryDefinition(), DeviceType(DEVICE_GPU), props->node_def,
                                          &input_memory, &output_memory));
    absl::Status status;
    OpKernelConstruction construction(DeviceType(DEVICE_GPU), device, allocator, flr, device->resource_manager(), props,
                                      input_memory, output_memory, flr->graph_def_version(), &status);
    if (nccl) {
      *kernel = std::make_unique<NcclTwin>(&construction);
    } else if (cpu_kernel->AsAsync() != nullptr) {
      *kernel = std::make_unique<AsyncTwin>(&construction, std::move(cpu_kernel));
    } else {
      *kernel = std::make_unique<SyncTwin>(&construction, std::move(cpu_kernel));
    }
    return status;
  }

 private:
  static bool IsSimulated(const Device* device) {
    return device != nullptr && device->device_type() == DEVICE_GPU;
  }

  static RunAs HowToRun(const NodeDef& node, std::string* gpu_class, std::string* cpu_class) {
    const KernelDef* def = nullptr;
    // Functions, and ops that the GPU does not have, are TensorFlow's to handle.
    if (!FindKernelDef(DeviceType(DEVICE_GPU), node, &def, gpu_class).ok()) return RunAs::kAsRegistered;
    if (!FindKernelDef(DeviceType(DEVICE_CPU), node, &def, cpu_class).ok()) cpu_class->clear();
    return tfplace::HowToRun(node.op(), *gpu_class, *cpu_class);
  }

  const std::unique_ptr<CustomKernelCreator> previous_;
};

// ---------------------------------------------------------------------------------------------------------
// The profiler: one XPlane for each GPU, laid out as the CUDA tracer does it.

class SimGpuProfiler : public tsl::profiler::ProfilerInterface {
 public:
  ~SimGpuProfiler() override { StopIfRunning(); }

  absl::Status Start() override {
    Recorder::Get().StartTrace();
    tsl::profiler::AnnotationStack::Enable(true);
    running_ = true;
    return absl::OkStatus();
  }

  absl::Status Stop() override {
    StopIfRunning();
    return absl::OkStatus();
  }

  absl::Status CollectData(tensorflow::profiler::XSpace* space) override {
    int64_t trace_start_ns = 0;
    const std::vector<TraceRow> rows = Recorder::Get().TakeRows(&trace_start_ns);
    for (int gpu = 0; gpu < GetConfig().gpus; ++gpu) {
      tsl::profiler::XPlaneBuilder plane(space->add_planes());
      plane.SetName(tsl::profiler::GpuPlaneName(gpu));
      plane.SetId(gpu);
      DescribeDevice(&plane);
      for (const TraceRow& row : rows) {
        if (row.gpu == gpu) AddRow(row, trace_start_ns, &plane);
      }
    }
    return absl::OkStatus();
  }

 private:
  void StopIfRunning() {
    if (!running_) return;
    running_ = false;
    tsl::profiler::AnnotationStack::Enable(false);
    Recorder::Get().StopTrace();
  }

  static void DescribeDevice(tsl::profiler::XPlaneBuilder* plane) {
    using tsl::profiler::GetStatTypeStr;
    using tsl::profiler::StatType;
    plane->AddStatValue(*plane->GetOrCreateStatMetadata(GetStatTypeStr(StatType::kDevVendor)), "tfplace (simulated)");
    plane->AddStatValue(*plane->GetOrCreateStatMetadata(GetStatTypeStr(StatType::kDevCapMemorySize)),
                        static_cast<uint64_t>(GetConfig().memory_bytes));
  }

  static std::string LineName(int64_t line) {
    if (line == kComputeLine) return absl::StrCat("Stream #", line, "(Compute)");
    if (line == kCopyLine[kH2D]) return absl::StrCat("Stream #", line, "(MemcpyH2D)");
    if (line == kCopyLine[kD2H]) return absl::StrCat("Stream #", line, "(MemcpyD2H)");
    return absl::StrCat("Stream #", line, "(MemcpyD2D,MemcpyP2P)");
  }

  static void AddRow(const TraceRow& row, int64_t trace_start_ns, tsl::profiler::XPlaneBuilder* plane) {
    using tsl::profiler::GetStatTypeStr;
    using tsl::profiler::StatType;
    tsl::profiler::XLineBuilder line = plane->GetOrCreateLine(row.line);
    line.SetNameIfEmpty(LineName(row.line));
    line.SetTimestampNs(trace_start_ns);
    tsl::profiler::XEventBuilder event = line.AddEvent(*plane->GetOrCreateEventMetadata(row.name));
    event.SetTimestampNs(row.start_ns);
    event.SetEndTimestampNs(row.end_ns);
    event.AddStatValue(*plane->GetOrCreateStatMetadata(GetStatTypeStr(StatType::kCorrelationId)), row.correlation_id);
    if (!row.annotation.empty()) {
      event.AddStatValue(*plane->GetOrCreateStatMetadata("annotation"), row.annotation);
      AddAnnotationParts(row.annotation, plane, &event);
    }
    // Which of the two is there tells TensorFlow's converter what the row is.
    event.AddStatValue(*plane->GetOrCreateStatMetadata(GetStatTypeStr(
                           row.memcpy_details.empty() ? StatType::kKernelDetails : StatType::kMemcpyDetails)),
                       row.memcpy_details.empty() ? "simulated:1" : row.memcpy_details);
  }

  // "x/_3:_Send#from=x,to=y#::#edge_name=e#" names the op (from which step_stats takes the node's name), and
  // gives the stats `from`, `to` and `edge_name`, as in the CUDA tracer's planes.
  static void AddAnnotationParts(absl::string_view annotation, tsl::profiler::XPlaneBuilder* plane,
                                 tsl::profiler::XEventBuilder* event) {
    bool named = false;
    for (absl::string_view layer : absl::StrSplit(annotation, "::")) {
      const size_t open = layer.find('#');
      const absl::string_view op = layer.substr(0, open);
      if (!named && absl::StrContains(op, ':')) {
        named = true;
        event->AddStatValue(
            *plane->GetOrCreateStatMetadata(tsl::profiler::GetStatTypeStr(tsl::profiler::StatType::kTfOp)), op);
      }
      if (open == absl::string_view::npos || layer.size() < open + 2 || layer.back() != '#') continue;
      for (absl::string_view part : absl::StrSplit(layer.substr(open + 1, layer.size() - open - 2), ',')) {
        const std::pair<absl::string_view, absl::string_view> key_value = absl::StrSplit(part, absl::MaxSplits('=', 1));
        if (key_value.first.empty() || key_value.second.empty()) continue;
        event->AddStatValue(*plane->GetOrCreateStatMetadata(key_value.first), key_value.second);
      }
    }
  }

  bool running_ = false;
};

std::unique_ptr<tsl::profiler::ProfilerInterface> MakeProfiler(const ProfileOptions& options) {
  if (options.device_type() != ProfileOptions::UNSPECIFIED && options.device_type() != ProfileOptions::GPU) {
    return nullptr;
  }
  return options.device_tracer_level() == 0 ? nullptr : std::make_unique<SimGpuProfiler>();
}

// ---------------------------------------------------------------------------------------------------------
// Starting.

enum StartCode { kStarted = 0, kAlreadyStarted = 1, kOtherConfig = 2, kRealGpu = 3, kWrongVersion = 4 };

// GPUs that the CUDA build can use.  Asked only where a driver is present, since the question makes the CUDA
// runtime complain at length on machines without one.
int RealGpus() {
  bool driver = false;
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/kfd"}) {
    driver = driver || access(node, F_OK) == 0;
  }
  DeviceFactory* factory = driver ? DeviceFactory::GetFactory("GPU") : nullptr;
  std::vector<std::string> devices;
  if (factory == nullptr || !factory->ListPhysicalDevices(&devices).ok()) return 0;
  return devices.size();
}

StartCode Start(int gpus, int64_t memory_bytes, bool force) {
  static mutex* mu = new mutex;
  mutex_lock lock(*mu);
  if (started) {
    const Config& config = GetConfig();
    return config.gpus == gpus && config.memory_bytes == memory_bytes ? kAlreadyStarted : kOtherConfig;
  }
  if (std::strcmp(TF_Version(), TFPLACE_TF_VERSION) != 0) return kWrongVersion;
  if (!force && RealGpus() > 0) return kRealGpu;
  GetConfig() = {gpus, memory_bytes};

  DeviceFactory::Register("GPU", std::make_unique<SimGpuFactory>(), /*priority=*/230, /*is_pluggable_device=*/true);
  DeviceFactory::Register("CPU", std::make_unique<GpuCompatibleCpuFactory>(), /*priority=*/75,
                          /*is_pluggable_device=*/false);
  TF_CHECK_OK(CopyTensor::Register(DeviceType(DEVICE_GPU), DeviceType(DEVICE_GPU), CopyBetweenGpus,
                                   /*is_pluggable_device=*/true));
  // Registering deletes the creator that was there.  That is XLA's, the only one in the wheel and without
  // state, so a new one of its class takes over its work on the CPU.
  std::unique_ptr<CustomKernelCreator> previous;
  if (GetDefaultCustomKernelCreator() != nullptr) previous = std::make_unique<XlaKernelCreator>();
  RegisterDefaultCustomKernelCreator(new TwinKernelCreator(std::move(previous)));
  tsl::profiler::RegisterProfilerFactory(MakeProfiler);
  started = true;
  return kStarted;
}

// "17179869184", "16GB", "512 MB"; 0 where it is none of these, or less than 1MB.
int64_t ParseMemory(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  int shift = 0;
  for (const auto& [suffix, bits] : {std::pair<const char*, int>{"GB", 30}, {"MB", 20}, {"KB", 10}}) {
    if (!absl::EndsWithIgnoreCase(text, suffix)) continue;
    shift = bits;
    text.resize(text.size() - 2);
    break;
  }
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || number <= 0 || number > 1e18) return 0;
  const auto bytes = static_cast<int64_t>(number * static_cast<double>(int64_t{1} << shift));
  return bytes < (1 << 20) ? 0 : bytes;
}

// Whether the op's definition lets the attribute have this type: some registrations promise more.
bool AllowsType(const std::string& op, const std::string& attr_name, int type) {
  const OpDef* def = nullptr;
  if (!OpRegistry::Global()->LookUpOpDef(op, &def).ok()) return true;
  for (const auto& attr : def->attr()) {
    if (attr.name() != attr_name || !attr.has_allowed_values()) continue;
    const auto& types = attr.allowed_values().list().type();
    return std::find(types.begin(), types.end(), type) != types.end();
  }
  return true;
}

// Every GPU kernel that could be asked for and has no stand-in, as lines "op<TAB>types<TAB>all|some": whether
// that holds for all kernels of the op.
std::string UncoveredKernels() {
  std::set<std::pair<std::string, std::string>> uncovered;
  std::set<std::string> covered;
  const KernelList kernels = GetAllRegisteredKernels();
  for (const KernelDef& gpu : kernels.kernel()) {
    if (gpu.device_type() != DEVICE_GPU || !gpu.label().empty()) continue;  // A label is asked for by `_kernel` only.
    std::vector<NodeDef> nodes(1);
    nodes[0].set_op(gpu.op());
    for (const auto& constraint : gpu.constraint()) {
      std::vector<NodeDef> more;
      for (const NodeDef& node : nodes) {
        for (const int type : constraint.allowed_values().list().type()) {
          if (!AllowsType(gpu.op(), constraint.name(), type)) continue;
          more.push_back(node);
          (*more.back().mutable_attr())[constraint.name()].set_type(static_cast<DataType>(type));
        }
      }
      if (!more.empty() || constraint.allowed_values().list().type_size() > 0) nodes = std::move(more);
    }
    for (NodeDef& node : nodes) {
      std::string gpu_class, cpu_class;
      std::string types;
      for (const auto& constraint : gpu.constraint()) {
        const auto it = node.attr().find(constraint.name());
        if (it == node.attr().end()) continue;
        absl::StrAppend(&types, types.empty() ? "" : ",", constraint.name(), "=", DataTypeString(it->second.type()));
      }
      const KernelDef* def = nullptr;
      if (node.op().empty() || !FindKernelDef(DeviceType(DEVICE_GPU), node, &def, &gpu_class).ok()) continue;
      // Some CPU classes are registered for one data format; ask for it, as most programs do.
      absl::Status cpu = FindKernelDef(DeviceType(DEVICE_CPU), node, &def, &cpu_class);
      if (!cpu.ok()) {
        (*node.mutable_attr())["data_format"].set_s("NHWC");
        cpu = FindKernelDef(DeviceType(DEVICE_CPU), node, &def, &cpu_class);
      }
      if (!cpu.ok()) cpu_class.clear();
      if (HowToRun(node.op(), gpu_class, cpu_class) == RunAs::kNoTwin) {
        uncovered.insert({node.op(), types});
      } else {
        covered.insert(node.op());
      }
    }
  }
  std::string lines;
  for (const auto& [op, types] : uncovered) {
    absl::StrAppend(&lines, op, "\t", types, "\t", covered.count(op) == 0 ? "all" : "some", "\n");
  }
  return lines;
}

}  // namespace
}  // namespace tfplace

// ---------------------------------------------------------------------------------------------------------
// Entry points, for ctypes and for TensorFlow's plugin loader.

#define TFPLACE_EXPORT extern "C" __attribute__((visibility("default")))

// The TensorFlow version that this library was compiled for.
TFPLACE_EXPORT const char* tfplace_sim_tf_version() { return TFPLACE_TF_VERSION; }

// Registers the simulated devices.  Returns a StartCode.
TFPLACE_EXPORT int tfplace_sim_start(int gpus, int64_t memory_bytes, int force) {
  return tfplace::Start(gpus, memory_bytes, force != 0);
}

// Number of simulated GPUs (0: not started), and their memory.
TFPLACE_EXPORT int tfplace_sim_config(int64_t* memory_bytes) {
  *memory_bytes = tfplace::GetConfig().memory_bytes;
  return tfplace::started ? tfplace::GetConfig().gpus : 0;
}

// What the device itself counted.  traced: 0 = since the start or the last reset, 1 = during the last trace.
// origin: 0 = tensors, 1 = constants put on the device when a kernel is built.
// direction: 0 = H2D, 1 = D2H, 2 = D2D on one GPU, 3 = P2P.
TFPLACE_EXPORT void tfplace_sim_copies(int traced, int origin, int direction, int64_t* count, int64_t* bytes) {
  const tfplace::CopyTotals totals = tfplace::Recorder::Get().Totals(traced != 0, origin, direction);
  *count = totals.count;
  *bytes = totals.bytes;
}

TFPLACE_EXPORT void tfplace_sim_reset_copies() { tfplace::Recorder::Get().ResetTotals(); }

// Lines "op<TAB>types<TAB>all|some"; valid until the process ends.
TFPLACE_EXPORT const char* tfplace_sim_uncovered() {
  static const std::string* lines = new std::string(tfplace::UncoveredKernels());
  return lines->c_str();
}

// Called by TensorFlow itself when TF_PLUGGABLE_DEVICE_LIBRARY_PATH names this library.
TFPLACE_EXPORT void TF_InitKernel() {
  const char* gpus_text = std::getenv("TFPLACE_SIM_GPUS");
  const char* memory_text = std::getenv("TFPLACE_SIM_MEMORY");
  const char* force = std::getenv("TFPLACE_SIM_FORCE");
  int gpus = 1;
  if (gpus_text != nullptr && (!absl::SimpleAtoi(gpus_text, &gpus) || gpus < 1)) {
    std::fprintf(stderr, "tfplace: TFPLACE_SIM_GPUS=%s is not a number of GPUs; nothing is simulated.\n", gpus_text);
    return;
  }
  const int64_t memory = tfplace::ParseMemory(memory_text == nullptr ? "16GB" : memory_text);
  if (memory == 0) {
    std::fprintf(stderr, "tfplace: TFPLACE_SIM_MEMORY=%s is not a size such as 16GB; nothing is simulated.\n",
                 memory_text);
    return;
  }
  switch (tfplace::Start(gpus, memory, force != nullptr && std::strcmp(force, "1") == 0)) {
    case tfplace::kRealGpu:
      std::fprintf(stderr, "tfplace: a real GPU is visible; nothing is simulated (TFPLACE_SIM_FORCE=1 insists).\n");
      break;
    case tfplace::kWrongVersion:
      std::fprintf(stderr, "tfplace: this library was built for TensorFlow %s, this is %s; nothing is simulated.\n",
                   TFPLACE_TF_VERSION, TF_Version());
      break;
    default:
      break;
  }
}
