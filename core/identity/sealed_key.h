// A private key sealed for a backup: encrypted with a passphrase, or for the holder of a certificate's key.
// Standard containers, so that OpenSSL's own tools open them, too: PKCS #8 with PBES2 (scrypt, AES-256), and CMS.
#pragma once

#include <string>
#include <string_view>

#include "core/identity/certificate.h"
#include "core/identity/key.h"

namespace fluvial::identity {

inline constexpr std::size_t kPassphraseBytesMin = 12;
inline constexpr std::size_t kPassphraseBytesMax = 1024;

// PEM. kInvalidArgument for a passphrase that is shorter than the minimum or longer than the maximum.
Result<std::string> seal_with_passphrase(const PrivateKey& key, std::string_view passphrase);
// kInvalidArgument when nothing can be encrypted for the certificate's key: it is neither RSA (2048 bits or more) nor
// EC.
Result<std::string> seal_for(const PrivateKey& key, const Certificate& recipient);
Result<std::string> leave_unsealed(const PrivateKey& key);

// kUnauthenticated when passphrase or recipient's key are wrong; kDataLoss when `sealed` was not written by the above.
Result<PrivateKey> open_with_passphrase(std::string_view sealed, std::string_view passphrase);
// `path`: the recipient's private key (PEM), which `passphrase` opens if it is encrypted itself.
Result<PrivateKey> open_for(std::string_view sealed, const std::string& path, std::string_view passphrase);
Result<PrivateKey> open_unsealed(std::string_view text);

// kDataLoss unless the key is the authority's own.
Status check_key_of(const PrivateKey& key, const Certificate& authority);

// The first line of a file, without its end. kInvalidArgument when the line is empty or too long.
Result<std::string> read_passphrase_file(const std::string& path);
// Asks at the terminal, without an echo; `twice` to be sure. kUnavailable when there is no terminal.
Result<std::string> ask_passphrase(const std::string& prompt, bool twice);

}  // namespace fluvial::identity
