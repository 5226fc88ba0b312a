//go:build tools

// Package internal names what the generate script builds; its version is pinned with the module's own.
package internal

import _ "google.golang.org/protobuf/cmd/protoc-gen-go"
