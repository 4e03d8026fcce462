// Describes a checkpoint as an artifact for Weights & Biases, which `wandb sync` uploads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "monitor/protobuf.h"

namespace lockstep::monitor {

struct WandbArtifact {
  std::string run_id{}, project{}, entity{};
  std::string
      name{};  // name of the run; the artifact is model-<name>, as in the Trainer's callback
  std::string metadata_json{};
  std::vector<std::string> aliases{};
  std::filesystem::path checkpoint{};  // folder of the checkpoint, including subfolders
  /// Folder that contains the files until they are uploaded, even if the checkpoint is deleted. It
  /// contains hard links, or copies if links are not possible.
  std::filesystem::path kept{};
};

/// Returns W&B's ArtifactRecord. Reads every file to compute the MD5, which the server requires.
/// Throws Error (checkpoint) if a file cannot be read or stored, and Error (environment) if OpenSSL
/// does not provide MD5.
ProtobufMessage checkpoint_artifact(const WandbArtifact& artifact);

/// Returns a random id of letters a to z and digits.
std::string draw_wandb_id(int length);

}  // namespace lockstep::monitor
