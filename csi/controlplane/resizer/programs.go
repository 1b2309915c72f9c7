// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build programs

// Package resizer names the resizer that the script control-plane builds. It is a module of its own, so that the versions of its
// dependencies are not those of Kubernetes or of the driver.
package resizer

import _ "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"
