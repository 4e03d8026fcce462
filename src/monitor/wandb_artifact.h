// A checkpoint as an artifact of Weights & Biases, which `wandb sync` uploads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "monitor/protobuf.h"

namespace lockstep::monitor {

struct WandbArtifact {
  std::string run_id{}, project{}, entity{};
  std::string name{};  // of the run: the artifact is model-<name>, as the Trainer's callback has it
  std::string metadata_json{};
  std::vector<std::string> aliases{};
  std::filesystem::path checkpoint{};  // its files, and those in folders below it
  /// Where the files stay until they are uploaded, though the checkpoint may be deleted: links to
  /// them, or copies where links cannot be.
  std::filesystem::path kept{};
};

/// W&B's ArtifactRecord. Reads every file for its MD5, which the server asks for. Throws
/// Error(kCheckpoint) where a file cannot be read or kept, Error(kEnvironment) where no OpenSSL
/// computes MD5 here.
ProtobufMessage checkpoint_artifact(const WandbArtifact& artifact);

/// Letters a to z and digits, drawn.
std::string draw_wandb_id(int length);

}  // namespace lockstep::monitor
