// Places a model on one or several devices.
#include "train/weights/device_map.h"

#include <numeric>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include "base/format.h"
#include "model/placement.h"
#include "nn/devices.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {
namespace {

constexpr double kUsableShare = 0.9;  // of the free memory; the rest is for activations
constexpr int64_t kWorkspaceBytes = int64_t{1} << 30;

int64_t free_host_bytes() {
  return static_cast<int64_t>(::sysconf(_SC_AVPHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

std::vector<model::DeviceSpace> spaces_of(const std::vector<at::Device>& devices) {
  std::vector<model::DeviceSpace> spaces;
  for (const at::Device& device : devices) {
    const int64_t free =
        device.is_cpu()
            ? free_host_bytes()
            : static_cast<int64_t>(
                  c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
    spaces.push_back(
        {device.str(), static_cast<int64_t>(kUsableShare * static_cast<double>(free))});
  }
  return spaces;
}

}  // namespace

std::unique_ptr<nn::LanguageModel> load_over_devices(
    const model::ModelSource& source,
    ModelRequest request,
    const std::string& device_map,
    int64_t positions) {
  std::vector<at::Device> devices;
  for (int gpu = 0; device_map != "cpu" && gpu < visible_gpus(); ++gpu) {
    devices.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(gpu));
  }
  if (devices.empty()) {
    request.device = at::kCPU;
    return load_model(source, request);
  }
  devices.emplace_back(at::kCPU);
  const auto bytes = model::unit_bytes(
      source.config, static_cast<int64_t>(at::elementSize(request.dtype)), positions);
  const auto spaces = spaces_of(devices);
  const int64_t all = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  if (all + kWorkspaceBytes < spaces.front().free_bytes) {
    request.device = devices.front();
    return load_model(source, request);
  }
  const model::Placement placement =
      model::place_units(source.config, bytes, spaces, kWorkspaceBytes);
  request.device = at::kCPU;
  auto model = load_model(source, request);
  nn::place_on_devices(*model, placement, devices);
  return model;
}

}  // namespace lockstep::train
