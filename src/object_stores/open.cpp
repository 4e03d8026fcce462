// Implements liblockstep_object_stores.so with Arrow's file systems.
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include <arrow/filesystem/azurefs.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/gcsfs.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include "objects/library.h"

namespace lockstep::object_stores {
namespace {

namespace fs = arrow::fs;

constexpr int64_t kAttempts = 6;
constexpr double kConnectSeconds = 5, kRequestSeconds = 30;
constexpr double kGoogleSeconds =
    60;  // total for all attempts of a request; Arrow's default is 15 minutes
/// Maximum number of bytes in flight during an upload, which is also about its memory use.
constexpr size_t kBytesUnderWay = 64 << 20;
/// Key suffixes of temporary objects that replace existing objects. Each temporary object has its
/// own folder because a folder is removed with a single request. Removing a file acquires a lease,
/// and releasing the lease may throw an exception that cannot be caught.
const std::string kBesideMark = ".lockstep-beside-", kBesidePart = "/part";

/// Returns the error message, or an empty string on success.
std::string text_of(const arrow::Status& status) {
  return status.ok() ? "" : status.message();
}

/// Runs `work` and converts exceptions to messages. Microsoft's client throws on an invalid
/// response, and Arrow does not catch the exception.
template <class Work>
std::string guarded(const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return std::string("invalid response: ") + error.what();
  }
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Returns the file of trusted certificates. The library in the wheel only knows the path on the
/// system where it was built.
std::string certificates() {
  const char* const given[] = {"AWS_CA_BUNDLE", "SSL_CERT_FILE"};
  for (const char* const name : given) {
    if (std::string file = variable(name); !file.empty()) {
      return file;
    }
  }
  const char* const places[] = {
      "/etc/ssl/certs/ca-certificates.crt",  // Debian, Arch, Alpine
      "/etc/pki/tls/certs/ca-bundle.crt",    // Fedora
      "/etc/ssl/ca-bundle.pem",              // SUSE
      "/etc/ssl/cert.pem"};
  for (const char* const place : places) {
    if (std::filesystem::exists(place)) {
      return place;
    }
  }
  return "";
}

/// Splits "https://host:port/" into "https" and "host:port".
std::pair<std::string, std::string> split_endpoint(std::string text, const char* usual_scheme) {
  while (text.ends_with('/')) {
    text.pop_back();
  }
  const size_t colon = text.find("://");
  return colon == std::string::npos ? std::pair(std::string(usual_scheme), text)
                                    : std::pair(text.substr(0, colon), text.substr(colon + 3));
}

arrow::Result<std::shared_ptr<fs::FileSystem>> open_s3() {
  static const arrow::Status ready = [] {
    fs::S3GlobalOptions options = fs::S3GlobalOptions::Defaults();
    options.log_level = fs::S3LogLevel::Off;
    const arrow::Status status = fs::InitializeS3(options);
    std::atexit([] { (void)fs::EnsureS3Finalized(); });
    return status;
  }();
  ARROW_RETURN_NOT_OK(ready);
  fs::S3Options options = fs::S3Options::Defaults();
  if (options.GetAccessKey().empty()) {
    options.ConfigureAnonymousCredentials();  // public buckets are readable without credentials
  }
  std::string endpoint = variable("AWS_ENDPOINT_URL_S3");
  endpoint = endpoint.empty() ? variable("AWS_ENDPOINT_URL") : endpoint;
  if (!endpoint.empty()) {
    std::tie(options.scheme, options.endpoint_override) = split_endpoint(endpoint, "https");
  }
  options.region = variable("AWS_REGION");
  options.region = options.region.empty() ? variable("AWS_DEFAULT_REGION") : options.region;
  if (options.region.empty() && !endpoint.empty()) {
    options.region = "us-east-1";
  }
  options.connect_timeout = kConnectSeconds;
  options.request_timeout = kRequestSeconds;
  options.allow_delayed_open = true;  // small objects need only one request
  options.retry_strategy = fs::S3RetryStrategy::GetAwsStandardRetryStrategy(kAttempts);
  return fs::S3FileSystem::Make(options);
}

arrow::Result<std::shared_ptr<fs::FileSystem>> open_google() {
  const std::string emulator = variable("STORAGE_EMULATOR_HOST");
  fs::GcsOptions options =
      emulator.empty() ? fs::GcsOptions::Defaults() : fs::GcsOptions::Anonymous();
  if (!emulator.empty()) {
    std::tie(options.scheme, options.endpoint_override) = split_endpoint(emulator, "http");
  }
  options.retry_limit_seconds = kGoogleSeconds;
  return fs::GcsFileSystem::Make(options);
}

/// Sets the endpoint of another cloud (https://ACCOUNT.blob.core.chinacloudapi.cn, with the account
/// in the host name) or of a server with the account as the first path component
/// (http://127.0.0.1:10000/ACCOUNT).
void set_azure_endpoint(const std::string& endpoint, fs::AzureOptions& options) {
  auto [scheme, place] = split_endpoint(endpoint, "https");
  options.blob_storage_scheme = options.dfs_storage_scheme = scheme;
  if (place.starts_with(options.account_name + ".")) {
    place = place.substr(options.account_name.size());
    options.blob_storage_authority = options.dfs_storage_authority = place;
    if (place.starts_with(".blob.")) {
      options.dfs_storage_authority.replace(0, 6, ".dfs.");
    }
    return;
  }
  options.blob_storage_authority = options.dfs_storage_authority = place.substr(0, place.find('/'));
}

arrow::Result<std::shared_ptr<fs::FileSystem>> open_azure() {
  fs::AzureOptions options;
  options.account_name = variable("AZURE_STORAGE_ACCOUNT");
  if (options.account_name.empty()) {
    return arrow::Status::Invalid("AZURE_STORAGE_ACCOUNT is required: the name of the account");
  }
  // If the connection is lost, an exception in one of Arrow's threads would end the process.
  options.background_writes = false;
  if (const std::string endpoint = variable("AZURE_STORAGE_SERVICE_ENDPOINT"); !endpoint.empty()) {
    set_azure_endpoint(endpoint, options);
  }
  const std::string key = variable("AZURE_STORAGE_KEY");
  std::string token = variable("AZURE_STORAGE_SAS_TOKEN");
  if (!token.empty() && !token.starts_with('?')) {
    token.insert(0, "?");  // the token is appended to the URL as is
  }
  ARROW_RETURN_NOT_OK(
      !key.empty()     ? options.ConfigureAccountKeyCredential(key)
      : !token.empty() ? options.ConfigureSASCredential(token)
                       : options.ConfigureDefaultCredential());
  return fs::AzureFileSystem::Make(options);
}

arrow::Result<std::shared_ptr<fs::FileSystem>> open_file_system(const std::string& scheme) {
  static const arrow::Status trusting = [] {
    fs::FileSystemGlobalOptions options;
    options.tls_ca_file_path = certificates();
    return fs::Initialize(options);
  }();
  ARROW_RETURN_NOT_OK(trusting);
  if (scheme == "s3") {
    return open_s3();
  }
  return scheme == "az" ? open_azure() : open_google();
}

class ArrowUpload final : public objects::RawUpload {
 public:
  explicit ArrowUpload(std::shared_ptr<arrow::io::OutputStream> stream)
      : stream_(std::move(stream)) {}
  ~ArrowUpload() override {
    guarded([&] { return stream_->closed() ? "" : text_of(stream_->Abort()); });
  }

  std::string append(const void* bytes, size_t count) override {
    return guarded([&] { return text_of(write(bytes, count)); });
  }
  std::string finish() override {
    return guarded([&] { return text_of(stream_->Close()); });
  }

 private:
  arrow::Status write(const void* bytes, size_t count) {
    arrow::Status status = stream_->Write(bytes, static_cast<int64_t>(count));
    under_way_ += count;
    if (status.ok() && under_way_ >= kBytesUnderWay) {
      under_way_ = 0;
      status = stream_->Flush();
    }
    return status;
  }

  std::shared_ptr<arrow::io::OutputStream> stream_;
  size_t under_way_ = 0;
};

/// Upload that replaces an existing Azure object. Arrow's Azure stream first writes an empty
/// object. Therefore the data is uploaded to a temporary object, which the store then copies over
/// the existing object.
class Replacement final : public objects::RawUpload {
 public:
  Replacement(
      std::shared_ptr<fs::FileSystem> system,
      std::unique_ptr<ArrowUpload> beside,
      std::string beside_path,
      std::string path)
      : system_(std::move(system)),
        beside_(std::move(beside)),
        beside_path_(std::move(beside_path)),
        path_(std::move(path)) {}
  ~Replacement() override {
    guarded([&] {
      beside_.reset();
      const size_t folder = beside_path_.size() - kBesidePart.size();
      return text_of(system_->DeleteDir(beside_path_.substr(0, folder)));
    });
  }

  std::string append(const void* bytes, size_t count) override {
    return beside_->append(bytes, count);
  }
  std::string finish() override {
    if (const std::string problem = beside_->finish(); !problem.empty()) {
      return problem;
    }
    return guarded([&] { return text_of(system_->CopyFile(beside_path_, path_)); });
  }

 private:
  std::shared_ptr<fs::FileSystem> system_;
  std::unique_ptr<ArrowUpload> beside_;
  std::string beside_path_, path_;
};

class ArrowBucket final : public objects::RawStore {
 public:
  ArrowBucket(std::shared_ptr<fs::FileSystem> system, std::string bucket, bool empties_first)
      : system_(std::move(system)),
        bucket_(std::move(bucket)),
        empties_first_(empties_first) {}

  std::string list(
      const std::string& prefix,
      bool deep,
      std::vector<objects::Object>& objects,
      bool& found) override {
    fs::FileSelector selector;
    selector.base_dir = path_of(prefix);
    selector.recursive = deep;
    selector.allow_not_found = true;
    const auto infos = system_->GetFileInfo(selector);
    if (!infos.ok()) {
      return text_of(infos.status());
    }
    for (const fs::FileInfo& info : *infos) {
      if (info.IsFile() && info.path().find(kBesideMark) == std::string::npos) {
        objects.push_back(object_of(info));
      }
    }
    if (!infos->empty()) {
      return "";
    }
    const auto bucket = system_->GetFileInfo(bucket_);
    if (!bucket.ok()) {
      return text_of(bucket.status());
    }
    found = bucket->type() != fs::FileType::NotFound;
    return "";
  }

  std::string find(const std::string& key, objects::Object& object, bool& found) override {
    const auto info = system_->GetFileInfo(path_of(key));
    if (!info.ok()) {
      return text_of(info.status());
    }
    found = info->IsFile();
    if (found) {
      object = object_of(*info);
    }
    return "";
  }

  std::string read(
      const objects::Object& object, uint64_t offset, void* bytes, size_t count) override {
    if (count == 0) {
      return "";
    }
    fs::FileInfo info(path_of(object.key), fs::FileType::File);
    info.set_size(static_cast<int64_t>(object.size));
    const auto file = system_->OpenInputFile(info);
    if (!file.ok()) {
      return text_of(file.status());
    }
    const auto had =
        (*file)->ReadAt(static_cast<int64_t>(offset), static_cast<int64_t>(count), bytes);
    if (!had.ok()) {
      return text_of(had.status());
    }
    return *had == static_cast<int64_t>(count) ? "" : "the response was truncated";
  }

  std::string upload(const std::string& key, std::unique_ptr<objects::RawUpload>& upload) override {
    objects::Object object;
    bool replaces = false;
    if (empties_first_) {
      if (const std::string problem = find(key, object, replaces); !problem.empty()) {
        return problem;
      }
    }
    std::string to = path_of(key);
    if (replaces) {
      std::random_device random;
      to += kBesideMark + std::to_string(random()) + kBesidePart;
    }
    auto stream = system_->OpenOutputStream(to, nullptr);
    if (!stream.ok()) {
      return text_of(stream.status());
    }
    auto made = std::make_unique<ArrowUpload>(std::move(*stream));
    if (!replaces) {
      upload = std::move(made);
    } else {
      upload = std::make_unique<Replacement>(system_, std::move(made), to, path_of(key));
    }
    return "";
  }

  std::string remove(const std::string& key) override {
    objects::Object object;
    bool found = false;
    const std::string problem = find(key, object, found);
    if (!problem.empty() || !found) {
      return problem;
    }
    const arrow::Status status = system_->DeleteFile(path_of(key));
    return status.ok() ? "" : text_of(status);
  }

  std::string remove_below(const std::string& prefix) override {
    const auto info = system_->GetFileInfo(path_of(prefix));
    if (!info.ok()) {
      return text_of(info.status());
    }
    if (info->type() != fs::FileType::Directory) {
      return "";
    }
    const arrow::Status status = system_->DeleteDir(path_of(prefix));
    if (status.ok()) {
      return "";
    }
    // A folder that exists only because of its objects has no marker, and removing the marker
    // fails.
    const auto after = system_->GetFileInfo(path_of(prefix));
    return after.ok() && after->type() == fs::FileType::NotFound ? "" : text_of(status);
  }

 private:
  std::string path_of(const std::string& key) const {
    return key.empty() ? bucket_ : bucket_ + "/" + key;
  }
  objects::Object object_of(const fs::FileInfo& info) const {
    return {
        info.path().substr(bucket_.size() + 1),
        static_cast<uint64_t>(info.size()),
        std::chrono::duration_cast<std::chrono::nanoseconds>(info.mtime().time_since_epoch())
            .count()};
  }

  std::shared_ptr<fs::FileSystem> system_;
  std::string bucket_;
  bool empties_first_;
};

class GuardedBucket final : public objects::RawStore {
 public:
  explicit GuardedBucket(ArrowBucket bucket) : bucket_(std::move(bucket)) {}

  std::string list(
      const std::string& prefix,
      bool deep,
      std::vector<objects::Object>& objects,
      bool& found) override {
    return guarded([&] { return bucket_.list(prefix, deep, objects, found); });
  }
  std::string find(const std::string& key, objects::Object& object, bool& found) override {
    return guarded([&] { return bucket_.find(key, object, found); });
  }
  std::string read(
      const objects::Object& object, uint64_t offset, void* bytes, size_t count) override {
    return guarded([&] { return bucket_.read(object, offset, bytes, count); });
  }
  std::string upload(const std::string& key, std::unique_ptr<objects::RawUpload>& upload) override {
    return guarded([&] { return bucket_.upload(key, upload); });
  }
  std::string remove(const std::string& key) override {
    return guarded([&] { return bucket_.remove(key); });
  }
  std::string remove_below(const std::string& prefix) override {
    return guarded([&] { return bucket_.remove_below(prefix); });
  }

 private:
  ArrowBucket bucket_;
};

}  // namespace
}  // namespace lockstep::object_stores

extern "C" lockstep::objects::RawStore* lockstep_open_bucket(
    const char* scheme, const char* bucket, std::string& problem) {
  auto system = lockstep::object_stores::open_file_system(scheme);
  if (!system.ok()) {
    problem = lockstep::object_stores::text_of(system.status());
    return nullptr;
  }
  return new lockstep::object_stores::GuardedBucket(lockstep::object_stores::ArrowBucket(
      std::move(*system), bucket, std::string(scheme) == "az"));
}
