// What the two programs share: pictures, the manifest, the comparison with samples.pt, the time of a call.
#pragma once
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

using torch::Tensor;
// Image on the device -> outputs on the CPU.
using Run = std::function<std::vector<Tensor>(const Tensor&)>;

// The numbers behind "key": in the manifest, which is flat enough for this.
inline std::vector<double> numbers(const std::string& manifest, const std::string& key) {
  std::vector<double> found;
  const auto start = manifest.find("\"" + key + "\":");
  if (start == std::string::npos) return found;
  const auto open = manifest.find('[', start);
  std::istringstream list(manifest.substr(open + 1, manifest.find(']', open) - open - 1));
  for (std::string item; std::getline(list, item, ',');) found.push_back(std::stod(item));
  return found;
}

inline bool flag(const std::string& manifest, const std::string& key) {
  return manifest.find("\"" + key + "\": true") != std::string::npos;
}

// A binary PPM (P6) -> (1, 3, H, W), prepared as the manifest says.
inline Tensor read_picture(const std::string& path, const std::string& manifest) {
  std::ifstream file(path, std::ios::binary);
  std::string magic;
  int width = 0, height = 0, most = 0;
  file >> magic >> width >> height >> most;
  file.get();
  TORCH_CHECK(file && magic == "P6" && most == 255, path, " is not a binary PPM with 8 bits");
  std::vector<char> bytes(3 * static_cast<size_t>(width) * height);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  TORCH_CHECK(file, path, " is cut short");
  Tensor picture = torch::from_blob(bytes.data(), {height, width, 3}, torch::kUInt8).permute({2, 0, 1}).unsqueeze(0).to(torch::kFloat);
  // A PPM is RGB. What the config swaps, it read as BGR, and wants as RGB; what it does not swap, it wants as BGR.
  const bool inside = flag(manifest, "inside_graph"), swaps = flag(manifest, "swaps_bgr_rgb");
  if (inside || !swaps) picture = picture.flip(1);
  if (inside) return picture.contiguous();
  const auto row = [&](const std::string& key) {
    return torch::tensor(numbers(manifest, key)).to(torch::kFloat).view({1, 3, 1, 1});
  };
  return ((picture - row("mean")) / row("std")).contiguous();
}

// Share of values off by more than the tolerance times the output's own scale; for labels and masks, of those that differ.
inline double share_beyond(const Tensor& expected, const Tensor& found, double tolerance) {
  if (expected.sizes() != found.sizes() || expected.dtype() != found.dtype()) return 1.0;
  if (!expected.is_floating_point()) return (expected != found).to(torch::kDouble).mean().item<double>();
  const Tensor wanted = expected.to(torch::kDouble), got = found.to(torch::kDouble);
  if (!torch::isfinite(got).all().item<bool>()) return 1.0;
  const double scale = std::max(wanted.abs().max().item<double>(), 1e-12);
  return ((wanted - got).abs() > tolerance * scale).to(torch::kDouble).mean().item<double>();
}

inline bool check(const Run& run, const std::string& path, const torch::Device& device) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, path, " is missing: python examples/cpp/samples.py FOLDER");
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto content = torch::pickle_load(bytes).toGenericDict();
  const double tolerance = content.at("tolerance").toDouble();
  bool equal = true;
  for (const auto& item : content.at("samples").toListRef()) {
    const auto sample = item.toGenericDict();
    const auto found = run(sample.at("image").toTensor().to(device));
    const auto wanted = sample.at("expected").toListRef();
    const auto allowed = sample.at("allowed").toListRef();
    if (found.size() != wanted.size()) return false;
    for (size_t output = 0; output < wanted.size(); ++output) {
      const double beyond = share_beyond(wanted[output].toTensor(), found[output], tolerance), may = allowed[output].toDouble();
      equal = equal && beyond <= may;
      std::cout << sample.at("name").toStringRef() << " output " << output << ": " << beyond << " beyond, " << may << " may\n";
    }
  }
  return equal;
}

inline double milliseconds(const Run& run, const Tensor& image) {
  const auto started = std::chrono::steady_clock::now();
  run(image);  // copies to the CPU, which waits for the device
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count();
}

// Times and checks; the exit code.
inline int report(const Run& run, const std::string& manifest, int argc, const char* argv[]) {
  const std::string folder = argv[1];
  const torch::Device device(argc > 2 ? argv[2] : "cpu");
  std::cout << "manifest: " << manifest.size() << " bytes, device " << device << "\n";
  const auto traced = numbers(manifest, "traced");
  Tensor image = argc > 3 ? read_picture(argv[3], manifest)
                          : torch::zeros(std::vector<int64_t>(traced.begin(), traced.end()));
  image = image.to(device);
  std::cout << "call 1: " << milliseconds(run, image) << " ms\n" << "call 2: " << milliseconds(run, image) << " ms\n";
  std::vector<double> steady(15);
  for (auto& call : steady) call = milliseconds(run, image);
  std::sort(steady.begin(), steady.end());
  std::cout << "steady p50: " << steady[steady.size() / 2] << " ms\n";
  for (const auto& output : run(image))
    std::cout << "output " << output.sizes() << " " << output.dtype() << " sum " << output.to(torch::kDouble).sum().item<double>() << "\n";
  const bool equal = check(run, folder + "/samples.pt", device);
  std::cout << (equal ? "EQUAL" : "DIFFERENT") << "\n";
  return equal ? 0 : 1;
}

// Runs a program's body and puts into words what it throws; the exit code.
inline int guarded(const std::function<int()>& body) try {
  torch::NoGradGuard no_grad;
  return body();
} catch (const c10::Error& error) {
  std::cerr << error.what_without_backtrace() << "\n";
  return 2;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
