// Trie over token bytes. Models use it to look up all tokens that are prefixes of a string.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::text {

class TokenTrie {
 public:
  using Node = uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = ~Node{0};

  TokenTrie() = default;
  /// Builds the trie. Tokens must be distinct. Their strings need not outlive the call.
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  /// Returns the child for a byte, or kNone.
  Node child(Node node, char byte) const {
    const auto label = static_cast<uint8_t>(byte);
    if (node == kRoot) {
      return first_[label];
    }
    const Entry& entry = nodes_[node];
    for (uint32_t i = entry.children; i < entry.children + entry.count; ++i) {
      if (nodes_[i].label >= label) {
        return nodes_[i].label == label ? i : kNone;
      }
    }
    return kNone;
  }
  /// Returns the id of the token that ends at this node, or -1.
  int32_t id(Node node) const { return nodes_[node].id; }
  /// Returns the node reached from the root by `text`, or kNone.
  Node walk(std::string_view text) const;

 private:
  struct Entry {
    uint32_t children = 0;  // index of the first child; children are contiguous and sorted by label
    uint16_t count = 0;
    uint8_t label = 0;
    int32_t id = -1;
  };
  std::vector<Entry> nodes_{1};
  std::array<Node, 256> first_ = [] {
    std::array<Node, 256> none{};
    none.fill(kNone);
    return none;
  }();
};

}  // namespace lockstep::text
